"""One race: race-sim and run-mpc as they are started in two terminals, with a `Proxy` between them."""

import json
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gate_racer.planner.plan import read_plan
from tests.conftest import ROOT
from tests.processes import command, free_port
from tests.soak.proxy import LOCAL, Injury, Proxy, Witness

LIMIT_S = 300.0  # of a race, start-up on a busy machine included; more is a hang


@dataclass(frozen=True)
class Raced:
    """Outcome of a race."""

    code: int | None  # of run-mpc; None: it hung
    result: dict | None  # its JSON
    report: dict | None  # race-sim's: the referee's word
    told: str  # stdout of run-mpc
    errors: str  # its stderr
    witness: Witness


@dataclass(frozen=True)
class Fault:
    """Something that happens to the pilot's process, so many s after its first set-point."""

    at_s: float
    strike: Callable[[subprocess.Popen, Path], None]


def race(
    plan: Path,
    injury: Injury,
    seed: int = 0,
    fault: Fault | None = None,
    closed_stderr: bool = False,
    file_limit: int = 0,
    profile: str = "dcl",
) -> Raced:
    """Fly one race of a plan.

    Args:
        fault: of the process.
        closed_stderr: whether nobody reads stderr from the beginning.
        file_limit: bytes that no file may exceed, as on a full disk; 0 for none.
    """
    with tempfile.TemporaryDirectory() as folder_name:
        folder, proxy = Path(folder_name), Proxy(injury, seed)
        mavlink, video = free_port(), free_port()
        simulator = subprocess.Popen(
            command("gate_racer.race.race_sim", "--track", read_plan(plan).track_file, "--profile", profile, "--seed", seed,
                     "--set", "once=true", f"link.bind={LOCAL}:0",
                     f"link.client={LOCAL}:{proxy.mavlink_port}", f"link.video={LOCAL}:{proxy.video_port}",
                     "--report", folder / "report.json"),
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        pilot = subprocess.Popen(
            command("gate_racer.race.run_mpc", plan, "--live", "--profile", profile, "--set", f"link.listen={LOCAL}:{mavlink}",
                     f"link.video={LOCAL}:{video}", "--log", folder / "logs", "--json", folder / "result.json"),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))) if file_limit else None,
        )  # fmt: skip
        try:
            if closed_stderr:
                assert pilot.stderr is not None
                pilot.stderr.close()
            proxy.start(mavlink, video)
            if fault is not None and _wait(lambda: proxy.since_go >= fault.at_s or pilot.poll() is not None):
                fault.strike(pilot, folder)
            code, told, errors = _communicate(pilot, closed_stderr)
            _wait(lambda: (folder / "report.json").exists() or simulator.poll() is not None, 20.0)
            files = (folder / "result.json", folder / "report.json")
            result, report = (json.loads(f.read_text()) if f.exists() else None for f in files)
            return Raced(code, result, report, told, errors, proxy.witness)
        finally:
            for process in (pilot, simulator):
                process.kill()
                process.wait()
            for stream in (pilot.stdout, pilot.stderr):
                if stream is not None:
                    stream.close()
            proxy.close()


def _communicate(pilot: subprocess.Popen, closed_stderr: bool) -> tuple[int | None, str, str]:
    try:
        if closed_stderr:
            assert pilot.stdout is not None
            code = pilot.wait(LIMIT_S)
            return code, pilot.stdout.read(), ""
        told, errors = pilot.communicate(timeout=LIMIT_S)
        return pilot.returncode, told, errors
    except subprocess.TimeoutExpired:
        pilot.send_signal(signal.SIGABRT)  # faulthandler tells where it hangs
        told, errors = ("", "") if closed_stderr else pilot.communicate()
        return None, told, errors


def _wait(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def children(process: subprocess.Popen) -> list[int]:
    """Process ids of a Linux process' children."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def freeze_perception(pilot: subprocess.Popen, folder: Path) -> None:
    """SIGSTOP to whatever child looks at images; multiprocessing's own helpers do not matter."""
    for pid in children(pilot):
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGSTOP)

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

from gate_racer.common.process import descendants
from gate_racer.planner.plan import read_plan
from tests.conftest import ROOT
from tests.processes import command, free_port
from tests.soak.proxy import LOCAL, Injury, Proxy, Witness

LIMIT_S = 300.0  # of a race, start-up on a busy machine included; more is a hang


@dataclass(frozen=True)
class Raced:
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

    `closed_stderr`: nobody reads it from the beginning; `file_limit`: bytes that no file may exceed, as on a full disk.
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
        told, errors = folder / "stdout", folder / "stderr"
        with told.open("w") as out, errors.open("w") as err:
            pilot = subprocess.Popen(
                command("gate_racer.race.run_mpc", plan, "--live", "--profile", profile,
                        "--set", f"link.listen={LOCAL}:{mavlink}", f"link.video={LOCAL}:{video}",
                        "--log", folder / "logs", "--json", folder / "result.json"),
                cwd=ROOT, stdout=out, stderr=subprocess.PIPE if closed_stderr else err,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
                preexec_fn=lambda: file_limit and resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit)),
            )  # fmt: skip
        try:
            if pilot.stderr is not None:
                pilot.stderr.close()
            proxy.start(mavlink, video)
            if fault is not None and _wait(lambda: proxy.about.since_go >= fault.at_s or pilot.poll() is not None):
                fault.strike(pilot, folder)
            try:
                code = pilot.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                pilot.send_signal(signal.SIGABRT)  # faulthandler tells where it hangs
                pilot.wait()
                code = None
            _wait(lambda: (folder / "report.json").exists() or simulator.poll() is not None, 20.0)
            files = (folder / "result.json", folder / "report.json")
            result, report = (json.loads(f.read_text()) if f.exists() else None for f in files)
            return Raced(code, result, report, told.read_text(), errors.read_text(), proxy.witness)
        finally:
            for process in (pilot, simulator):
                process.kill()
                process.wait()
            proxy.close()


def _wait(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def freeze_perception(pilot: subprocess.Popen, folder: Path) -> None:
    """SIGSTOP to whatever child looks at images; multiprocessing's own helpers do not matter."""
    for pid in descendants(pilot.pid):
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGSTOP)

"""One race: race-sim and run-mpc as they are started in two terminals, with a `Proxy` between them."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.process import descendants
from gate_racer.planner.plan import read_plan
from tests.processes import free_port, started
from tests.soak.proxy import LOCAL, Injury, Proxy, Witness

RACE_SIM, RUN_MPC = "gate_racer.race.race_sim", "gate_racer.race.run_mpc"
SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
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
    folder: Path,
    fault: Fault | None = None,
    closed_stderr: bool = False,
    file_limit: int = 0,
    profile: str = "dcl",
) -> Raced:
    """Fly one race of a plan; its files are written into a folder.

    `closed_stderr`: nobody reads it from the beginning; `file_limit`: bytes that no file may exceed, as on a full disk.
    """
    proxy, mavlink, video = Proxy(injury, seed=0), free_port(), free_port()
    course = "--track", read_plan(plan).track_file, "--profile", profile, "--report", folder / "report.json"
    near = f"link.client={LOCAL}:{proxy.mavlink_port}", f"link.video={LOCAL}:{proxy.video_port}"
    far = f"link.listen={LOCAL}:{mavlink}", f"link.video={LOCAL}:{video}"
    flags = "--live", "--profile", profile, "--log", folder / "logs", "--json", folder / "result.json"
    told, errors = folder / "stdout", folder / "stderr"
    with (
        contextlib.closing(proxy),
        told.open("w") as out,
        errors.open("w") as err,
        started(RACE_SIM, *course, "--set", "once=true", f"link.bind={LOCAL}:0", *near, **SILENT) as simulator,
        started(
            RUN_MPC, plan, *flags, "--set", *far,
            stdout=out, stderr=subprocess.PIPE if closed_stderr else err,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            preexec_fn=lambda: file_limit and resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit)),
        ) as pilot,
    ):  # fmt: skip
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

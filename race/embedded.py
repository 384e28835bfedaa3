"""The embedded simulator: `race-sim` as a child process on free loopback ports, whose verdict is read at the end."""

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from gate_racer.common.errors import UserError
from gate_racer.common.process import command_line
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.result import Verdict
from gate_racer.sim.report import RunReport, read_report
from gate_racer.sim.worlds.world import World

STOP_S = 5.0  # s to wait for the process at each step of the shutdown


class EmbeddedSimulator:
    """Child process that starts on entering the context and ends on leaving it."""

    def __init__(self, world: World, options: Mapping[str, object], ports: tuple[int, int]):
        """Take further settings of `race-sim` by their keys, and the pilot's loopback ports for telemetry and video."""
        self.trouble = ""  # stderr of the simulator, once it has ended
        self._folder = TemporaryDirectory()
        self._report, true_world = (Path(self._folder.name) / name for name in ("report.json", "world.yaml"))
        world.save(true_world)
        client, video = (f"127.0.0.1:{port}" for port in ports)
        own = {"world.file": true_world, "once": "true", "link.bind": "127.0.0.1:0"}
        keys = {**options, **own, "link.client": client, "link.video": video}
        code = "from gate_racer.common.command import main; main('gate_racer.race.race_sim')"
        race_sim = command_line(code, "--track", world.published.file, tied=True)
        self._command = [*race_sim, "--report", str(self._report)]
        self._command += ["--set", *(f"{name}={value}" for name, value in keys.items())]

    def __enter__(self) -> "EmbeddedSimulator":
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # whose end, at the latest that of this process, ends the simulator
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def require_alive(self) -> None:
        """Raise UserError with the simulator's own message if it could not start."""
        if self._process.poll() not in (None, 0):
            self._stop()
            raise UserError(self.trouble.removeprefix("error: ") or "the simulator exited at its start")

    def verdict(self, pilot: AnyPilot) -> Verdict | None:
        """Wait for the end of the run and return the referee's verdict; None without a report."""
        if pilot.go_t is not None:  # without a race it does not end by itself
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self._stop()
        return referees_verdict(read_report(self._report), pilot) if self._report.exists() else None

    def _stop(self) -> None:
        assert self._process.stderr is not None
        if self._process.stderr.closed:
            return
        self._process.terminate()
        try:
            said = self._process.communicate(timeout=STOP_S)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            said = self._process.communicate()[1]
        self.trouble = said.strip()


def referees_verdict(reported: RunReport, pilot: AnyPilot) -> Verdict:
    """Return the referee's verdict. A pilot that has finished by its estimate while the referee still waits has missed a gate."""
    status, cause = reported.status, reported.cause
    if status == "aborted" and pilot.phase is Phase.FINISHED:
        status, cause = "missed_gate", f"gate {len(reported.gate_times_s)} was not passed"
    elif status == "waiting":
        status, cause = "aborted", pilot.cause
    elif status == "aborted":
        cause = pilot.cause or cause
    return Verdict(status, cause, reported.gate_times_s, reported.gate_margins_m, reported.t, reported.x)

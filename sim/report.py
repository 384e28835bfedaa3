"""Report of a run: verdict and true path, and the simulator's own log of its runs (MCAP)."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.files import read_json, reading, write_file
from gate_racer.link.messages import Command
from gate_racer.link.record import RecordFile, record, scalar, vector
from gate_racer.sim.referee import Violation
from gate_racer.sim.simulator import Simulator, Tick
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array


@dataclass(frozen=True)
class RunReport:
    """Verdict and path t (M,), x (M, 14) of a run. `go_t` and t: s, simulator clock. Gate times: s since GO. Margins: m."""

    status: str
    cause: str
    go_t: float | None
    gate_times_s: list[float]
    gate_margins_m: list[float]
    gates_total: int
    violations: list[Violation]
    t: Array
    x: Array


def report(simulator: Simulator) -> RunReport:
    referee, race, path = simulator.referee, simulator.referee.race, simulator.path
    gates = list(race.gate_times_s), list(race.gate_margins_m), len(referee.course)
    flown = np.array([t for t, _ in path]), np.array([x for _, x in path]).reshape(-1, 14)
    return RunReport(race.status.value, race.cause, race.go_t, *gates, list(referee.violations.values()), *flown)


def write_report(path: Path, result: RunReport) -> None:
    write_file(path, json.dumps({**asdict(result), "t": result.t.tolist(), "x": result.x.tolist()}))


def read_report(path: Path) -> RunReport:
    """Read a file of `write_report`. Raises FileError."""
    fields = read_json(path)
    with reading(path):
        path_t, path_x = np.array(fields["t"], float), np.array(fields["x"], float).reshape(-1, 14)
        violations = [Violation(**violation) for violation in fields["violations"]]
        return RunReport(**{**fields, "t": path_t, "x": path_x, "violations": violations})


SCHEMAS = {
    "truth": record(
        p=vector(3, "m, world NED"),
        q=vector(4, "body to world, wxyz"),
        v=vector(3, "m/s, world NED"),
        w=vector(3, "rad/s, body FRD"),
        accel=vector(3, "m/s^2, specific force, body FRD"),
        armed={"type": "boolean"},
    ),
    "command": record(kind={"type": "string"}, values={"type": "object"}),
    "contact": record(struck={"type": "string"}, impulse=scalar("number", "kg m/s")),
    "referee": record(
        status={"type": "string"},
        cause={"type": "string"},
        gate_times_s={"type": "array", "items": {"type": "number"}},
        gate_margins_m={"type": "array", "items": {"type": "number"}},
    ),
}


class SimulatorRecord:
    """Recorder of a station: topics /truth, /command, /contact, /referee; /sent and /heard as raw MAVLink 2. Times in s."""

    def __init__(self, path: Path):
        """Open the file. Raises UserError when it cannot be written."""
        self._file = RecordFile(path)
        self._channels = {name: self._file.json_channel(name, f"race_sim.{name}", s) for name, s in SCHEMAS.items()}
        self._sent, self._received = (self._file.raw_channel(name, "mavlink2") for name in ("sent", "heard"))
        self._verdict: tuple[str, int] = ("", 0)

    def sent(self, t: float, datagram: bytes) -> None:
        self._file.add_raw(self._sent, t, datagram)

    def received(self, t: float, datagram: bytes) -> None:
        self._file.add_raw(self._received, t, datagram)

    def commanded(self, t: float, command: Command) -> None:
        self._add("command", t, kind=type(command).__name__, values=asdict(command))

    def ticked(self, simulator: Simulator, tick: Tick) -> None:
        truth, race, t = simulator.truth, simulator.referee.race, tick.t
        moving = {name: truth.x[RATES_X[name].at] for name in "pqvw"}
        self._add("truth", t, **moving, accel=truth.accel_b, armed=simulator.armed)
        for contact in tick.contacts:
            self._add("contact", t, struck=contact.kind.value, impulse=contact.impulse)
        verdict = race.status.value, len(race.gate_times_s)
        if verdict != self._verdict:
            self._verdict = verdict
            gates = {"gate_times_s": race.gate_times_s, "gate_margins_m": race.gate_margins_m}
            self._add("referee", t, status=race.status.value, cause=race.cause, **gates)

    def close(self) -> None:
        self._file.close()

    def _add(self, topic: str, t: float, **row: Any) -> None:
        self._file.add(self._channels[topic], t, {"t": t, **row})

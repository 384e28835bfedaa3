"""Report of a run: the referee's verdict and the true path."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gate_racer.sim.referee import Violation
from gate_racer.sim.simulator import Simulator
from gate_racer.vehicle.files import read_json, reading, write_file
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
    """Return the report of the current run."""
    race = simulator.referee.race
    return RunReport(
        status=race.status.value,
        cause=race.cause,
        go_t=race.go_t,
        gate_times_s=list(race.gate_times_s),
        gate_margins_m=list(race.gate_margins_m),
        gates_total=len(simulator.referee.course),
        violations=list(simulator.referee.violations.values()),
        t=np.array([t for t, _ in simulator.path]),
        x=np.array([x for _, x in simulator.path]).reshape(-1, 14),
    )


def write_report(path: Path, result: RunReport) -> None:
    """Write the report as JSON, atomically."""
    fields = {**result.__dict__, "t": result.t.tolist(), "x": result.x.tolist()}
    fields["violations"] = [asdict(violation) for violation in result.violations]
    write_file(path, json.dumps(fields))


def read_report(path: Path) -> RunReport:
    """Read a file of `write_report`. Raises FileError."""
    fields = read_json(path)
    with reading(path):
        path_t, path_x = np.array(fields["t"], float), np.array(fields["x"], float).reshape(-1, 14)
        violations = [Violation(**violation) for violation in fields["violations"]]
        return RunReport(**{**fields, "t": path_t, "x": path_x, "violations": violations})

"""Earlier runs of a course, and explorations: plan, time, margins and camera from their logs."""

from dataclasses import dataclass
from pathlib import Path

from gate_racer.field.calibration import camera_of
from gate_racer.link.record_reader import Record, read_records
from gate_racer.pilot.guidance.explorer import NAME
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan, PlanError, read_plan
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.files import FileError, read_json, reading

LAST, EXPLORED = 4, 2  # runs in use, and explorations tried, of which the newest of this course is used
SAMPLES = ("/camera", "/imu", "/state", "/command", "/reference", "/truth", "/attitude")  # the bulk of a log


@dataclass(frozen=True)
class Run:
    """One earlier flight of the course."""

    log: Path
    plan: Plan
    reserve: float
    time_s: float | None  # None: not finished
    margin_m: float | None  # least margin of the flight
    camera: Camera | None = None  # as calibrated by the filter

    def good(self, floor_m: float) -> bool:
        """Return whether the run finished with a margin of at least floor_m (m)."""
        return self.time_s is not None and self.margin_m is not None and self.margin_m >= floor_m


def history(logs: Path, plans: Path, track: str, vehicle: str) -> list[Run]:
    """Return the last runs of a course, oldest first; runs without their plan, or that never flew, are skipped."""
    known = {}
    for path in sorted(plans.glob(f"{track}*.csv")):
        try:
            plan = read_plan(path)
            known[plan.hash] = plan, read_json(path.with_suffix(".json"))
        except (PlanError, FileError):
            continue
    runs: list[Run] = []
    for log in sorted(logs.glob(f"{track}-*.mcap"), key=lambda path: path.stat().st_mtime, reverse=True):
        if len(runs) == LAST:
            break
        flight, verdict, calibration = _ends(log)
        if flight.get("vehicle") != vehicle or flight.get("plan_hash") not in known or not verdict:
            continue
        plan, about = known[flight["plan_hash"]]
        with reading(log):
            times, margins = verdict["gate_times_s"], verdict["gate_margins_m"]
            time_s = float(times[-1]) if verdict["status"] == "finished" else None
            reserve = float(about.get("options", {}).get("reserve", PlanOptions().reserve))
            margin_m, camera = min(map(float, margins)) if margins else None, camera_of(calibration)
            runs.append(Run(log, plan, reserve, time_s, margin_m, camera))
    return runs[::-1]


def explorations(logs: Path) -> list[Path]:
    """Return the last explorations, newest first; their course is known by the gates in them only."""
    return sorted(logs.glob(f"{NAME}-*.mcap"), key=lambda path: path.stat().st_mtime, reverse=True)[:EXPLORED]


def _ends(log: Path) -> tuple[Record, Record, Record]:
    """Return the last records on the flight, its end, and its calibrated camera."""
    found: dict[str, Record] = {"/flight": {}, "/referee": {}, "/calibration": {}}
    for topic, record in read_records(log, without=SAMPLES):
        if topic in found:
            found[topic] = record
    return found["/flight"], found["/referee"], found["/calibration"]

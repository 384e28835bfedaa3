"""Logs of other programs, converted to the records of `run-mpc`, so that the same readers serve both.

A log of PX4, ArduPilot, Betaflight or a ground station gives /flight, /phase, /imu, /command and, as far as it holds them,
/state (the autopilot's own) and /truth. It holds no images. A flight of TII-RATM, a folder, gives /imu, /detection (its
labelled corners) and /truth, and the course of its gates. The vehicle counts as at rest until its first acceleration or
rotation.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np

from gate_racer.link.logs.ratm import read_ratm
from gate_racer.link.logs.reader import AUTOPILOT, read_log_signals
from gate_racer.link.logs.rows import LoggedSignals, SignalRows, interpolated
from gate_racer.link.record_reader import Losses, Record, read_records, tell_losses
from gate_racer.pilot.records.ratm_flight import flight_records, ratm_course
from gate_racer.pilot.records.standing import Event, imu_events, in_order, released_at
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.files import reading
from gate_racer.vehicle.rotation import Array, from_euler, to_euler

UNKNOWN = "unknown"
WIDTHS = {"q": 4, "throttle": 1}  # values per signal, where not three
ANYWHERE_M = 1e6  # m, bounds of a flight without a known track

Records = Iterator[tuple[str, Record]]


def is_imported(path: Path) -> bool:
    """Return whether the path is a log of another program."""
    return path.is_dir() or path.suffix.lower() in AUTOPILOT


def read_any_records(
    path: Path, without: Collection[str] = (), report: Callable[[Path, Losses], None] = tell_losses
) -> Records:
    """Yield topic and record of a log of any kind; those of other programs in order of time. Raises UserError."""
    if not is_imported(path):
        yield from read_records(path, without=without, report=report)
        return
    records = flight_records(read_ratm(path)) if path.is_dir() else autopilot_records(path)
    yield from (one for one in records if one[0] not in without)


def autopilot_records(path: Path) -> Records:
    """Yield the records of an autopilot's log, see the module. Raises SignalError without an IMU."""
    log = read_log_signals(path)
    log.require(path, ("force", "omega"), "this command")
    with reading(path):
        yield "/flight", {"track": UNKNOWN, "vehicle": UNKNOWN, "profile": path.suffix[1:]}
        yield from in_order(_autopilot_events(log))


def _autopilot_events(log: LoggedSignals) -> list[Event]:
    rows = log.rows
    released = released_at(*_table(rows, "force"), *_table(rows, "omega"))
    events: list[Event] = [(released, "/phase", {"t": released, "phase": "launch"})]
    force_t, force = _table(rows, "force")
    omega = _at(rows, "omega", force_t)
    events += imu_events(force_t, force, omega)
    for t, p in rows.get("true_p", []):
        events.append((t, "/truth", {"t": t, "p": p.tolist()}))
    stamps = _table(rows, "p" if rows.get("p") else "q")[0] if rows.get("p") or rows.get("q") else force_t
    columns = {key: _at(rows, key, stamps) for key in ("p", "q", "v")}
    w = _at(rows, "omega", stamps)
    for k, t in enumerate(stamps.tolist()):
        if t >= released:
            state = {key: column[k].tolist() for key, column in columns.items()}
            events.append((t, "/state", {"t": t, **state, "w": w[k].tolist(), "sigma_p": [np.nan] * 3}))
    stamps = _table(rows, "throttle")[0] if rows.get("throttle") else np.zeros(0)
    rates, throttle = _at(rows, "omega_cmd", stamps), _at(rows, "throttle", stamps)
    for k, t in enumerate(stamps.tolist()):
        command = {"throttle": float(throttle[k, 0]), "w": rates[k].tolist(), "solve_ms": np.nan}
        events.append((t, "/command", {"t": t, **command}))
    end = max(event[0] for event in events)
    return [*events, (end, "/phase", {"t": end, "phase": "the log ends", "reason": log.note})]


def course_of(path: Path) -> Track:
    """Return the course of a foreign log: TII-RATM's gates, or none, with the start at the autopilot's first pose."""
    if path.is_dir():
        flight = read_ratm(path)
        with reading(path):
            return ratm_course(flight).track
    rows = read_log_signals(path).rows
    with reading(path):
        p = rows["p"][0][1] if rows.get("p") else np.zeros(3)
        q = rows["q"][0][1] if rows.get("q") else from_euler(0.0, 0.0, 0.0)
        roll, pitch, yaw = (float(np.degrees(one)) for one in to_euler(q))
        x, y, z = p.tolist()
        bounds = Bounds((-ANYWHERE_M,) * 3, (ANYWHERE_M,) * 3)
        return Track(UNKNOWN, Start((x, y, z), yaw, pitch, roll), bounds, (), False, None)


def _table(rows: SignalRows, name: str) -> tuple[Array, Array]:
    """Return times (N,) and values (N, n)."""
    return np.array([t for t, _ in rows[name]]), np.array([value for _, value in rows[name]])


def _at(rows: SignalRows, name: str, t: Array) -> Array:
    """Return a signal at times t (N,), (N, n), NaN throughout where the log lacks it."""
    if not rows.get(name):
        return np.full((len(t), WIDTHS.get(name, 3)), np.nan)
    values = interpolated(rows[name], t)
    return values / np.linalg.norm(values, axis=1)[:, None] if name == "q" else values

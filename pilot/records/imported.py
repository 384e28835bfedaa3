"""Logs of other programs, converted to the records of `run-mpc`, so that the same readers serve both.

A log of an autopilot, a ground station, ROS or a table gives /flight, /phase, /imu, /command and, as far as it holds
them, /state (the autopilot's own, or a VIO's), the same as /odometry, and /truth. A flight of TII-RATM, a folder, gives
/imu, /detection (its labelled corners) and /truth (motion capture), and the course of its gates. The vehicle counts as at
rest until its first acceleration or rotation; where a recording begins in the air, /position gives its motion then.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from gate_racer.common.files import reading
from gate_racer.link.logs.ratm import SYNCHRONISED, RatmFlight, read_ratm
from gate_racer.link.logs.reader import OWN, log_kind, read_log_signals
from gate_racer.link.logs.samples import NOTHING, LoggedSignals, Samples, SignalError, clock_offset
from gate_racer.link.record import Losses, Record, read_records, tell_losses
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.detection import Detection
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.camera import CameraDoubt
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, conjugate, from_matrix, matrix, normalised, product, to_euler
from gate_racer.vehicle.rotation import log as rotation_vector
from gate_racer.vehicle.vehicle import Vehicle

PUSHED_M_S2, TURNED_RAD_S = 1.0, 0.1  # deviation from gravity and from rest: a late detection of the start costs little
MOST_MEAN = 20  # attitudes in a mean, against their noise (chosen)
LEFT = 0.5  # share of the IMU's samples behind the first attitude from which that is waited for (chosen)
EARLIER_S = 0.2  # s before that, when it is still at rest
MOVING_M_S = 0.5  # m/s, given velocity at the beginning with which it is not at rest, however even its flight (chosen)
START_S = 0.3  # s of motion given for a flight that begins in the air

Event = tuple[float, str, Record]  # s, topic, record


def released_at(force: Samples, omega: Samples, v_w: Array, q: Samples = NOTHING) -> float:
    """Return the time (s) shortly before the first acceleration or rotation, by forces (m/s^2) and rates (rad/s).

    It is the first one where the velocities (N, 3) m/s, NaN where they are unknown, or the attitudes show motion before.
    """
    if np.linalg.norm(np.median(v_w[force.t < force.t[0] + START_S], axis=0)) > MOVING_M_S:
        return float(force.t[0])
    pushed = force.t[np.abs(np.linalg.norm(force.values, axis=1) - GRAVITY) > PUSHED_M_S2]
    turned = omega.t[np.linalg.norm(omega.values, axis=1) > TURNED_RAD_S]
    first = min([*pushed[:1], *turned[:1], force.t[-1]])
    end = max(float(first) - EARLIER_S, float(force.t[0]))
    return float(force.t[0]) if _turns(q, omega, end) else end


def _turns(q: Samples, omega: Samples, end: float) -> bool:
    """Return whether attitudes up to a time (s) turn by most of what the gyro tells, which is then no bias."""
    q = q.where(q.t <= end)
    if len(q) < 2 or q.t[-1] == q.t[0]:
        return False
    few = max(1, min(len(q) // 4, MOST_MEAN))
    first, last = normalised(q.values[:few].mean(axis=0)), normalised(q.values[-few:].mean(axis=0))
    begin, until = float(q.t[:few].mean()), float(q.t[-few:].mean())
    within = omega.values[(omega.t >= begin) & (omega.t <= until)]
    felt = within.mean(axis=0) * (until - begin) if len(within) else np.zeros(3)
    turned = rotation_vector(product(conjugate(first), last))
    return bool(np.linalg.norm(turned - felt) < 0.5 * np.linalg.norm(felt))


def events_of(topic: str, t: Array, **columns: Array) -> list[Event]:
    """Return an event for each time (N,) s, with a row of each column (N, n)."""
    rows = zip(t.tolist(), *(column.tolist() for column in columns.values()), strict=True)
    return [(at, topic, {"t": at, **dict(zip(columns, values, strict=True))}) for at, *values in rows]


def in_order(events: list[Event]) -> Iterator[tuple[str, Record]]:
    """Yield topics and records by time; those of one time in the order given."""
    for _, topic, record in sorted(events, key=lambda event: event[0]):
        yield topic, record


LABEL_PX, UNSEEN_PX = 1.5, 1e6  # px, standard deviation of a labelled corner (assumed) and of an invisible one
FRAME_SHARE = 1.4  # outer over inner side of the gate frames (assumed): the filter uses the inner corners alone
ROOM_M = 50.0  # m around the gates
# A camera calibrated with a board, and a mount taken from drawings (assumed).
DOUBT = CameraDoubt(1.0, 1.5, 1.0, 0.01, 0.01, 3.0, 0.01, 0.01, 0.01, 0.005)
THIN = GateAppearance(outline_m=0.0, depth_m=0.0)  # corners are those of the markers


def flight_records(flight: RatmFlight) -> Iterator[tuple[str, Record]]:
    """Yield /flight, /phase, /imu, /truth, /detection, and a /state without values at each sample in flight."""
    yield "/flight", {"track": "ratm", "vehicle": "TII", "profile": "ratm", "truth_offset_s": flight.truth_offset_s}
    q_wb = np.array([from_matrix(R) for R in flight.R_wb])
    columns = {"force": flight.force_b, "omega": flight.omega_b, "true_p": flight.p_wb, "true_q": q_wb}
    *events, end = _events(LoggedSignals({name: Samples(flight.t, column) for name, column in columns.items()}))
    for number, image in enumerate(flight.images):
        for corners_px, seen in zip(image.corners_px, image.visible, strict=True):
            cov_px = np.where(seen, LABEL_PX**2, UNSEEN_PX**2)[:, None, None] * np.eye(2)
            found = Detection(corners_px, cov_px, seen, 1.0, near_face=True).record()
            events.append((image.t, "/detection", {"t": image.t, "frame": number, **found}))
    yield from in_order([*events, end])


def _ratm_course(flight: RatmFlight) -> Track:
    """Return the course of a TII-RATM folder. Raises ValueError where a gate's markers make no square."""
    roll, pitch, yaw = (float(np.degrees(one)) for one in to_euler(from_matrix(flight.R_wb[0])))
    x, y, z = flight.p_wb[0].tolist()
    gates = tuple(_gate(markers, flight) for markers in flight.markers_w)
    low, high = flight.markers_w.min(axis=(0, 1)) - ROOM_M, flight.markers_w.max(axis=(0, 1)) + ROOM_M
    bounds = Bounds((low[0], low[1], low[2]), (high[0], high[1], high[2]))
    return Track("ratm", Start((x, y, z), yaw, pitch, roll), bounds, gates, False, None)


def _gate(markers_w: Array, flight: RatmFlight) -> Gate:
    """Return the square gate of four corners (4, 3), oriented along the vehicle's motion where it was nearest."""
    centre = markers_w.mean(axis=0)
    normal = np.linalg.svd(markers_w - centre)[2][2]
    k = int(np.clip(np.linalg.norm(flight.p_wb - centre, axis=1).argmin(), 1, len(flight.t) - 2))
    if normal @ (flight.p_wb[k + 1] - flight.p_wb[k - 1]) < 0:
        normal = -normal
    side = float(np.linalg.norm(markers_w - centre, axis=1).mean() * np.sqrt(2))
    yaw, pitch = np.degrees([np.arctan2(normal[1], normal[0]), -np.arcsin(normal[2])]).tolist()
    x, y, z = centre.tolist()
    return Gate((x, y, z), yaw, pitch, side, FRAME_SHARE * side)


UNKNOWN = "unknown"
WIDTHS = {"q": 4, "true_q": 4, "throttle": 1}  # values per signal, where not three
ANYWHERE_M = 1e6  # m, bounds of a flight without a known track

Records = Iterator[tuple[str, Record]]


def is_ratm(path: Path) -> bool:
    return path.is_dir() and any(path.glob(SYNCHRONISED))


def is_imported(path: Path) -> bool:
    """Return whether the path is a log of another program. Raises UserError for what is no log at all."""
    return is_ratm(path) or log_kind(path) != OWN


def read_any_records(
    path: Path, without: Collection[str] = (), report: Callable[[Path, Losses], None] = tell_losses
) -> Records:
    """Yield topic and record of a log of any kind; those of other programs in order of time. Raises UserError."""
    if not is_imported(path):
        yield from read_records(path, without=without, report=report)
        return
    records = flight_records(read_ratm(path)) if is_ratm(path) else logged_records(path)
    yield from (one for one in records if one[0] not in without)


def logged_records(path: Path) -> Records:
    """Yield the records of another program's log, see the module. Raises SignalError without an IMU."""
    log, late_s = _on_one_clock(read_log_signals(path))
    log.require(path, ("force", "omega"), "this command")
    with reading(path):
        events = _events(log)
        if not any(topic == "/state" for _, topic, _ in events):
            raise SignalError(f"{path}: shows no flight: the vehicle stands still throughout")
        yield "/flight", {"track": UNKNOWN, "vehicle": UNKNOWN, "profile": log_kind(path), "truth_offset_s": late_s}
        yield from in_order(events)


def _on_one_clock(log: LoggedSignals) -> tuple[LoggedSignals, float]:
    """Return a log with the truth on the IMU's clock, and by how much it was late, s, NaN if unknown.

    A vehicle that moves before its first attitude has no samples of the IMU before that.
    """
    force, omega, truth = (log.get(name) for name in ("force", "omega", "true_q"))
    late_s = float("nan")
    if len(omega) and len(truth) > 1:
        late_s = clock_offset(omega.t, omega.values, truth.t, truth.values)
    if np.isfinite(late_s):
        true = {name: one for name, one in log.signals.items() if name.startswith("true_")}
        moved = {name: Samples(one.t - late_s, one.values) for name, one in true.items()}
        log = replace(log, signals={**log.signals, **moved})
    q = log.get("q", "true_q")
    if not (len(q) and len(force) and len(omega)):
        return log, late_s
    unknown = np.full((len(force), 3), np.nan)
    if q.t[0] > released_at(force, omega, unknown) and np.mean(force.t >= q.t[0]) > LEFT:
        since = {name: one.where(one.t >= q.t[0]) for name, one in (("force", force), ("omega", omega))}
        log = replace(log, signals={**log.signals, **since})
    return log, late_s


def _events(log: LoggedSignals) -> list[Event]:
    force, omega = log.get("force"), log.get("omega")
    p, v = (_at(log, name if name in log.signals else f"true_{name}", force.t) for name in "pv")
    v = v if np.isfinite(v).any() or len(force) < 2 else np.gradient(p, force.t, axis=0)
    released = released_at(force, omega, v, log.get("q", "true_q"))
    events: list[Event] = [(released, "/phase", {"t": released, "phase": "launch"})]
    events += events_of("/imu", force.t, accel=force.values, gyro=omega.at(force.t))
    if released == force.t[0]:  # in the air: its motion at the beginning, if known
        begin = (force.t > released) & (force.t < released + START_S) & np.isfinite(np.hstack([p, v])).all(axis=1)
        events += events_of("/position", force.t[begin], p=p[begin], v=v[begin])
    events += _odometry_events(log)
    truth = log.get("true_p")
    events += events_of("/truth", truth.t, p=truth.values, q=_at(log, "true_q", truth.t))
    stamps = (log.get("p", "q") or force).t
    stamps = stamps[stamps >= released]
    state = {key: _at(log, name, stamps) for key, name in (("p", "p"), ("q", "q"), ("v", "v"), ("w", "omega"))}
    events += events_of("/state", stamps, **state, sigma_p=np.full((len(stamps), 3), np.nan))
    u = log.get("throttle")
    command = {"throttle": u.values[:, 0], "w": _at(log, "omega_cmd", u.t), "solve_ms": np.full(len(u.t), np.nan)}
    events += events_of("/command", u.t, **command)
    end = max(event[0] for event in events)
    return [*events, (end, "/phase", {"t": end, "phase": "the log ends", "reason": "; ".join(log.notes)})]


def _odometry_events(log: LoggedSignals) -> list[Event]:
    """Return the poses of autopilot or VIO as its odometry, with velocities by differences where the log has none."""
    p, q, v = log.get("p"), log.get("q"), log.get("v")
    if len(p) < 2 or not len(q):
        return []
    v_w = v.at(p.t) if len(v) else np.gradient(p.values, p.t, axis=0)
    q_wb = q.at(p.t)
    v_b = np.array([matrix(one).T @ u for one, u in zip(q_wb, v_w, strict=True)])
    return events_of("/odometry", p.t, p=p.values, q=q_wb, v_b=v_b, resets=np.zeros(len(p), int))


def equipped(vehicle: Vehicle, path: Path) -> tuple[Vehicle, GateAppearance]:
    """Return a vehicle with the camera of a foreign log, if that has one, and how the gates look in it."""
    if not is_ratm(path):
        return vehicle, GateAppearance()
    return replace(vehicle, camera=replace(read_ratm(path).camera, doubt=DOUBT)), THIN


def course_of(path: Path) -> Track:
    """Return the course of a foreign log: TII-RATM's gates, or none; it starts at the pose of autopilot or truth where the
    IMU's samples begin.
    """
    if is_ratm(path):
        flight = read_ratm(path)
        with reading(path):
            return _ratm_course(flight)
    log, _ = _on_one_clock(read_log_signals(path))
    with reading(path):
        p, q = log.get("p", "true_p"), log.get("q", "true_q")
        begin = log.get("force", "p", "true_p", "q", "true_q").t[:1]
        roll, pitch, yaw = (float(np.degrees(one)) for one in to_euler(q.at(begin)[0])) if len(q) else (0.0, 0.0, 0.0)
        x, y, z = p.at(begin)[0].tolist() if len(p) else (0.0, 0.0, 0.0)
        bounds = Bounds((-ANYWHERE_M,) * 3, (ANYWHERE_M,) * 3)
        return Track(UNKNOWN, Start((x, y, z), yaw, pitch, roll), bounds, (), False, None)


def _at(log: LoggedSignals, name: str, t: Array) -> Array:
    """Return a signal at times t (N,), (N, n), NaN where the log lacks it, and before its first sample."""
    samples = log.get(name)
    if not len(samples):
        return np.full((len(t), WIDTHS.get(name, 3)), np.nan)
    return np.where((t < samples.t[0] - START_S)[:, None], np.nan, samples.at(t))

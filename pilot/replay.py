"""`replay-flight`: repeat perception and estimation on a flight log, compared with the estimate in flight and the truth."""

import argparse
import base64
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import file_name, reading, require_named, within, write_figure, write_file
from gate_racer.common.settings import settings_of
from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.localisation import FROM_PAD, localise, refocused
from gate_racer.estimation.registry import make_estimator
from gate_racer.link.logs.ratm import LATE_S
from gate_racer.link.logs.samples import rigid
from gate_racer.link.messages import Attitude, Imu, Odometry
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.registry import CLASSICAL, open_detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.records.imported import course_of, equipped, is_imported, read_any_records
from gate_racer.pilot.records.result import interpolated, rms
from gate_racer.pilot.replay_flight import LOGGED, ReplaySettings
from gate_racer.tracks.track import Track, load_track, load_track_of
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

IMPORTED_VEHICLE = "swift"  # its IMU noise and agility stand for those of a real racing quadrotor
LEAST_HZ = 20.0  # IMU samples a second from which they tell the motion between them (chosen)
RPE_S = 1.0  # s, over which the relative error is taken
FLYING = ("launch", "race")
HEALTH = "gates_refused", "samples_refused", "odometry_used", "odometry_resets", "odometry_lost"  # counts of a filter
LEVEL = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Replay:
    """The same flight estimated twice, at M times (s) of the simulator clock."""

    t: Array  # s, (M,)
    states: list[State]
    logged_p: Array  # m, (M, 3), world NED, NaN where unknown
    logged_q: Array  # (M, 4), wxyz, NaN where unknown
    truth_p: Array | None  # m, (M, 3), world NED, NaN where unknown
    counters: dict[str, float]


@dataclass
class LogRecords:
    """Records of a log: (topic, record) in order of arrival, images with their bytes."""

    about: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    truth: list[dict[str, Any]] = field(default_factory=list)


def read_log(path: Path) -> LogRecords:
    """Read a flight log; damaged records are reported and skipped. Raises UserError for no log, or one without IMU samples."""
    log = LogRecords()
    for topic, record in read_any_records(path):
        if topic == "/flight":
            log.about = record
        elif topic == "/truth":
            log.truth.append(record)
        else:
            log.events.append((topic.strip("/"), record))
    if not log.about or not any(topic == "imu" for topic, _ in log.events):
        raise UserError(f"{path}: not a flight log with IMU samples; run-mpc writes them")
    return log


def require_motion(path: Path, log: LogRecords) -> None:
    """Raise UserError for IMU samples too rare to integrate, or a truth of another time."""
    t = [record["t"] for topic, record in log.events if topic == "imu"]
    hz = (len(t) - 1) / max(t[-1] - t[0], 1e-9)
    if hz < LEAST_HZ:
        raise UserError(f"{path}: holds {hz:.1f} IMU samples a second, but {LEAST_HZ:g} are needed to integrate them")
    true = [row["t"] for row in log.truth]
    if true and (true[0] > t[-1] or true[-1] < t[0]):
        lasts = f"from {true[0]:.3f} to {true[-1]:.3f} s and the IMU's samples from {t[0]:.3f} to {t[-1]:.3f} s"
        raise UserError(f"{path}: the truth lasts {lasts}, so nothing can be compared; give both the same clock")


def images(
    events: Iterable[tuple[str, dict[str, Any]]], detector: Detector | None
) -> Iterator[tuple[str, dict[str, Any], list[Detection]]]:
    """Yield all events, (topic, record); each image event with its detections, if any."""
    frame, number, seen = dict[str, Any](), None, list[Detection]()
    window: SearchWindow | None = None
    for topic, record in events:
        if topic == "detection" and detector is None and frame and number in (None, record["frame"]):
            number = record["frame"]
            seen.append(Detection.recorded(record))
            continue
        if frame:
            yield "image", frame, seen
        frame, number, seen = {}, None, []
        if topic == "camera":
            stamp = record["timestamp"]
            frame = {"t": stamp["sec"] + 1e-9 * stamp["nsec"]}
            if detector is not None:
                seen = detector.detect_encoded(base64.b64decode(record["data"]), window)
        elif topic == "window":
            window = SearchWindow(**{name: record[name] for name in SearchWindow._fields})
        elif topic == "detection" and detector is None:  # the log holds no images
            frame, number, seen = record, record["frame"], [Detection.recorded(record)]
        else:
            yield topic, record, []


def replay(
    log: LogRecords,
    track: Track,
    vehicle: Vehicle,
    estimator: MapEstimator,
    detector: Detector | None,
    look: GateAppearance | None = None,
) -> Replay:
    """Run an estimator on the log. Without a detector the detections of the flight are used."""
    associator = Associator(track.gates, vehicle.camera, look)
    phase, released, frames, sightings = "", False, 0, 0
    states, logged_p, logged_q = list[State](), [], []
    from_pad: deque[list[Detection]] = deque(maxlen=FROM_PAD)
    for topic, record, detections in images(log.events, detector):
        if topic == "phase":
            phase = record["phase"]
            if phase == FLYING[0] and not released:
                estimator.release()
                associator = refocused(estimator, associator, from_pad)
                released = True
        elif topic == "imu":
            accel = tuple(record["accel"])
            accel = vehicle.steadied(accel, states[-1].v_b if states else (0.0, 0.0, 0.0)) if released else accel
            estimator.imu(Imu(record["t"], accel, tuple(record["gyro"])))
        elif topic == "attitude":
            estimator.attitude(Attitude(record["t"], tuple(record["q"])))
        elif topic == "odometry":
            still = (0.0, 0.0, 0.0)
            given = tuple(record["p"]), tuple(record["q"]), tuple(record["v_b"]), still, record["resets"]
            estimator.odometry(Odometry(record["t"], *given))
        elif topic == "position":
            estimator.position(record["t"], np.array(record["p"]), np.array(record["v"]))
        elif topic == "image" and not released:
            from_pad.append(detections)
        elif topic == "image" and phase in FLYING:
            frames += 1
            sightings += localise(estimator, associator, record["t"], detections).used
        elif topic == "state":
            states.append(estimator.state())
            logged_p.append(record["p"])
            logged_q.append(record.get("q", [np.nan] * 4))
    health = estimator.health
    counters = {"frames": frames, "gates_used": sightings, "nis": health.nis}
    counters |= {name: getattr(health, name) for name in HEALTH}
    t, truth = np.array([state.t for state in states]), None
    if len(log.truth) > 1:
        truth = interpolated(t, np.array([row["t"] for row in log.truth]), np.array([row["p"] for row in log.truth]))
    p, q = np.array(logged_p, float).reshape(-1, 3), np.array(logged_q, float).reshape(-1, 4)
    return Replay(t, states, p, q, truth, counters)


def judged(run: Replay) -> dict[str, Any]:
    """Return the figures of a replay; lengths in m. Those that nothing is known of are left out."""
    p = np.array([state.p_wb for state in run.states]).reshape(-1, 3)
    apart = np.linalg.norm(p - run.logged_p, axis=1)
    q = np.array([state.q_wb for state in run.states]).reshape(-1, 4)
    turned = 2 * np.arccos(np.minimum(np.abs((q * run.logged_q).sum(axis=1)), 1.0))
    figures: dict[str, Any] = {"states": len(p), **run.counters}
    figures |= {"from_logged_rms_m": rms(apart), "attitude_deg": rms(np.degrees(turned))}
    if np.isfinite(apart).any():
        figures["from_logged_max_m"] = float(np.nanmax(apart))
    if run.truth_p is not None:
        figures["error_rms_m"] = rms(np.linalg.norm(p - run.truth_p, axis=1))
        figures["logged_error_rms_m"] = rms(np.linalg.norm(run.logged_p - run.truth_p, axis=1))
        figures |= _aligned(run.t, p, run.truth_p)
    return {key: value for key, value in figures.items() if value is not None}


def _aligned(t: Array, p: Array, truth_p: Array) -> dict[str, float | None]:
    """Return errors against a truth in axes of its own, as evo has them: ATE aligned rigidly, RPE of positions over a second."""
    known = np.isfinite(truth_p).all(axis=1)
    if known.sum() < 3:
        return {}
    R, shift = rigid(p[known], truth_p[known])
    aligned, step = p @ R.T + shift, max(1, round(RPE_S / max(float(np.median(np.diff(t))), 1e-6)))
    drift = (aligned[step:] - aligned[:-step]) - (truth_p[step:] - truth_p[:-step])
    return {
        "ate_m": rms(np.linalg.norm(aligned - truth_p, axis=1)),
        "rpe_1s_m": rms(np.linalg.norm(drift, axis=1)),
        "aligned_deg": math.degrees(math.acos(min(1.0, max(-1.0, (float(np.trace(R)) - 1) / 2)))),
        "aligned_m": float(np.linalg.norm((aligned - p)[known].mean(axis=0))),
    }


SENTENCES = {  # of the verdict, each where its figures are known
    "gates_used": "{gates_used} gates in {frames} frames",
    "from_logged_rms_m": ", position {from_logged_rms_m:.3f} m rms from the log's",
    "attitude_deg": ", attitude {attitude_deg:.1f} deg rms from the log's",
    "error_rms_m": "; error {error_rms_m:.3f} m rms",
    "rpe_1s_m": " (ATE {ate_m:.3f} m aligned by {aligned_deg:.1f} deg and {aligned_m:.3f} m, RPE {rpe_1s_m:.3f} m in 1 s)",
    "logged_error_rms_m": ", in flight {logged_error_rms_m:.3f} m",
    "late_ms": "; the truth's clock was {late_ms:.0f} ms late and is corrected",
}


def verdict(figures: dict[str, Any], name: str) -> str:
    offset_s = figures.get("truth_offset_s", 0.0)
    known = figures | ({"late_ms": 1e3 * offset_s} if abs(offset_s) > LATE_S else {})
    alone = not known.keys() & {"from_logged_rms_m", "attitude_deg", "error_rms_m"}
    told = [text.format(**known) for key, text in SENTENCES.items() if key in known]
    return "".join([f"{name}: ", *told, ", and the log has no pose to compare with" if alone else ""])


def draw(path: Path, run: Replay, title: str) -> None:
    """Plot the position differences over time, with three standard deviations."""
    from matplotlib.figure import Figure

    p = np.array([state.p_wb for state in run.states])
    sigma = np.sqrt([state.cov_p.diagonal() for state in run.states])
    reference = run.logged_p if run.truth_p is None else run.truth_p
    if not np.isfinite(reference).any():
        reference = np.zeros_like(p)  # no reference: plot the path itself
    figure = Figure(figsize=(10, 8))
    axes = figure.subplots(3, 1, sharex=True)
    figure.subplots_adjust(left=0.08, right=0.97, bottom=0.07, top=0.94, hspace=0.1)
    for i, axis in enumerate(axes):
        axis.plot(run.t, p[:, i] - reference[:, i], label="replay")
        if run.truth_p is not None:
            axis.plot(run.t, run.logged_p[:, i] - reference[:, i], label="in flight")
        axis.fill_between(run.t, -3 * sigma[:, i], 3 * sigma[:, i], alpha=0.2, label="3 sigma")
        axis.set(ylabel=f"{'xyz'[i]} [m]")
        axis.grid(alpha=0.3)
    axes[0].legend(loc="upper right")
    axes[-1].set(xlabel="simulator clock [s]")
    figure.suptitle(title)
    write_figure(path, figure)


def tum(poses: Iterable[tuple[float, Sequence[float] | Array, Sequence[float] | Array]]) -> str:
    """Return times, positions (3,) and attitudes (4,) as TUM's text: t, x, y, z (NED), qx, qy, qz, qw (FRD to NED).

    An unknown attitude is written as level, since readers refuse NaN; a pose without a position is left out.
    """
    lines = []
    for t, p, q in poses:
        w, x, y, z = q if np.isfinite(q).all() else LEVEL
        if np.isfinite(p).all():
            lines.append(" ".join(f"{value:.9f}" for value in (t, *p, x, y, z, w)))
    return "\n".join([*lines, ""])


def _models(settings: ReplaySettings, source: Path, about: dict[str, Any]) -> tuple[Track, Vehicle, GateAppearance]:
    """Return track and vehicle as requested, or of the log, and the look of the gates.

    Our own log names both, by name or within the current folder; a foreign one has the course of its folder, or a start alone.
    """
    if not is_imported(source):
        with reading(source):
            name = file_name(about["track"], f"{source}: track")
            flown = settings.vehicle or within(about["vehicle"], f"{source}: vehicle")
        return load_track_of(name, settings.track or None), load_vehicle(flown), GateAppearance()
    vehicle = load_vehicle(settings.vehicle or IMPORTED_VEHICLE)
    return load_track(settings.track) if settings.track else course_of(source), *equipped(vehicle, source)


def run(arguments: argparse.Namespace) -> int:
    """Replay as the command line requests, write figures and plot, and return the exit code. Raises UserError as `read_log`."""
    settings, source = settings_of(arguments, ReplaySettings), arguments.log
    require_named(source)
    out = settings.out or source.with_name(source.stem + "-replay")
    if not out.name:
        raise UserError(f"--out {out}: must end in a file name, such as {out / source.stem}")
    outputs = [out.with_suffix(".json"), out.with_suffix(".png")]
    poses = [out.with_suffix(".tum"), out.with_name(f"{out.stem}-truth.tum")] if settings.tum else []
    outputs += poses
    require_outputs((*outputs, arguments.json), source, settings.track or None, settings.vehicle or None)
    log = read_log(source)
    shows = any(topic == "camera" for topic, _ in log.events)
    name = settings.detector or (CLASSICAL if shows else LOGGED)
    if not shows and name != LOGGED:
        raise UserError(f"{source}: holds no images for detector={name}; use --set detector={LOGGED}")
    if is_imported(source):
        require_motion(source, log)
        if told := log.events[-1][1].get("reason"):
            remark(f"{source}: {told}")
    track, vehicle, appearance = _models(settings, source, log.about)
    in_air = any(topic == "position" for topic, _ in log.events)
    estimator = make_estimator(settings.estimator, track.start, vehicle, appearance, in_air)
    detector = None if name == LOGGED else open_detector(name, vehicle.camera)
    with reading(source):
        repeated = replay(log, track, vehicle, estimator, detector, appearance)
    if not repeated.states:
        raise UserError(f"{source}: the flight ended before its first command")
    figures = {"log": str(source), "estimator": settings.estimator, "detector": name, **judged(repeated)}
    figures |= {key: log.about[key] for key in ("truth_offset_s",) if key in log.about}
    line = verdict(figures, f"{source.name}, {settings.estimator}, {name}")
    for path in (outputs[0], arguments.json):
        write_json(path, figures)
    draw(outputs[1], repeated, line)
    if poses:
        write_file(poses[0], tum((state.t, state.p_wb, state.q_wb) for state in repeated.states))
        write_file(poses[1], tum((row["t"], row["p"], row.get("q", LEVEL)) for row in log.truth))
    print(line)
    return 0

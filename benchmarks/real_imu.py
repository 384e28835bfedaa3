"""Position errors of the filter on the IMU of real flights, by the time without gates: python benchmarks/real_imu.py LOG ...

A log holds an IMU and poses by motion capture, such as those of NanoBench (arXiv:2603.09908). Gates stand in a row in front of
the flown room. They are projected from the measured poses, with the errors of the classical detector, and shown for `SHOWN_S`,
then hidden. The NEES is that of the position, 3 where the filter is consistent; "gyro deg" is by how much its integral over
`GYRO_S` differs from the autopilot's attitude (rms).
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.common.errors import exit_code
from gate_racer.estimation.registry import make_estimator
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.link.logs.samples import LoggedSignals, Samples
from gate_racer.perception.association import Associator
from gate_racer.pilot.records.result import rms
from gate_racer.pilot.replay import IMPORTED_VEHICLE, LogRecords, read_log, replay
from gate_racer.race.lockstep import detections
from gate_racer.sim.view.projected import ProjectedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import VADR_FRAME, Bounds, Start, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, from_euler, matrix, to_euler
from gate_racer.vehicle.vehicle import load_vehicle

HIDDEN_S = 0.0, 1.0, 2.0, 3.0  # s
SHOWN_S, GYRO_S = 1.0, 0.5  # s
CAMERA_HZ, LATENCY_S = 30.0, 0.024  # s, from exposure to detections
AHEAD_M, APART_M, GATES = 3.0, 2.5, 3
ROOM_M = 50.0  # around the flight
SEED = 0


def course(p_w: Array, q_wb: Array, camera: Camera) -> Track:
    """Return gates in a row before the mean pose, on the camera's axis, for a flight from the first of N poses (N, 3), (N, 4)."""
    roll, pitch, yaw = to_euler(q_wb[0])
    ahead = matrix(from_euler(0.0, 0.0, yaw)) @ camera.R_bc[:, 2]
    right = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
    middle = p_w.mean(axis=0) + AHEAD_M * ahead
    places = [middle + APART_M * (k - (GATES - 1) / 2) * right + k * ahead for k in range(GATES)]
    yaw_deg = float(np.degrees(yaw))
    gates = tuple(Gate(tuple(place.tolist()), yaw_deg, 0.0, **asdict(VADR_FRAME)) for place in places)
    low, high = p_w.min(axis=0) - ROOM_M, p_w.max(axis=0) + ROOM_M
    start = Start(tuple(p_w[0].tolist()), yaw_deg, float(np.degrees(pitch)), float(np.degrees(roll)))
    return Track("real", start, Bounds(tuple(low.tolist()), tuple(high.tolist())), gates, False, None)


def seen(log: LogRecords, track: Track, camera: Camera, poses: tuple[Samples, Samples], hidden_s: float) -> LogRecords:
    """Return a log with detections of the gates for `SHOWN_S`, then none for hidden_s (s), and so on."""
    projector = ProjectedCamera(track, camera, load_style("race"), SEED)
    p, q = poses
    exposed = np.arange(p.t[0], p.t[-1], 1 / CAMERA_HZ)
    shown = list[tuple[float, tuple[str, dict[str, Any]]]]()
    for number, (t, p_w, q_wb) in enumerate(zip(exposed.tolist(), p.at(exposed), q.at(exposed), strict=True)):
        if (t - p.t[0]) % (SHOWN_S + hidden_s) < SHOWN_S:
            for one in detections(projector.see(p_w, q_wb)):
                shown.append((t + LATENCY_S, ("detection", {"t": t, "frame": number, **one.record()})))
    events = [*((record["t"], (topic, record)) for topic, record in log.events), *shown]
    return LogRecords(log.about, [event for _, event in sorted(events, key=lambda one: one[0])], log.truth)


def flown(path: Path) -> dict[str, Any]:
    """Return the row of one log. Raises UserError for one without an IMU or a truth."""
    log, signals, vehicle = read_log(path), read_log_signals(path), load_vehicle(IMPORTED_VEHICLE)
    signals.require(path, ("true_p", "true_q"), "this benchmark")
    late_s = np.nan_to_num(log.about["truth_offset_s"])
    p, q = (Samples(one.t - late_s, one.values) for one in (signals.get("true_p"), signals.get("true_q")))
    track = course(p.values, q.values, vehicle.camera)
    speed = np.linalg.norm(np.gradient(p.values, p.t, axis=0), axis=1)
    row: dict[str, Any] = {"flight": path.name.partition(".")[0], "s": np.ptp(p.t), "m/s": np.percentile(speed, 99)}
    row["gyro deg"] = integral_error_deg(signals)
    for hidden_s in HIDDEN_S:
        estimator = make_estimator("eskf", track.start, vehicle, Associator(track.gates, vehicle.camera).appearance)
        run = replay(seen(log, track, vehicle.camera, (p, q), hidden_s), track, vehicle, estimator, None)
        error = p.at(run.t) - [state.p_wb for state in run.states]
        nees = [e @ np.linalg.solve(state.cov_p, e) for e, state in zip(error, run.states, strict=True)]
        row[f"{hidden_s:g} s hidden: m"] = rms(np.linalg.norm(error, axis=1))
        row[f"{hidden_s:g} s hidden: NEES"] = float(np.mean(nees))
    row["on-board error m"] = rms(np.linalg.norm(signals.get("p").at(p.t) - p.values, axis=1))
    return row


def integral_error_deg(log: LoggedSignals) -> float:
    """Return the rms difference over `GYRO_S` of the rotations by the gyro and by the autopilot's attitude; NaN without."""
    gyro, attitude = log.get("omega"), log.get("q")
    n = round(GYRO_S / float(np.median(np.diff(gyro.t))))
    if not len(attitude) or len(gyro) < 2 * n:
        return float("nan")
    R_wb = Rotation.from_quat(attitude.at(gyro.t), scalar_first=True)
    steps = Rotation.from_rotvec((gyro.values[1:] + gyro.values[:-1]) / 2 * np.diff(gyro.t)[:, None])
    turned = steps[: len(steps) - n]
    for k in range(1, n):
        turned = turned * steps[k : len(steps) - n + k]
    errors = turned.inv() * (R_wb[: len(turned)].inv() * R_wb[n : n + len(turned)])
    return float(np.degrees(np.sqrt((errors.magnitude() ** 2).mean())))


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    a = parser.parse_args()
    rows = [flown(path) for path in a.logs]
    conclude(a.json, Result.of("Position errors on the IMU of real flights", rows, "", str(SEED)))


if __name__ == "__main__":
    sys.exit(exit_code(main))

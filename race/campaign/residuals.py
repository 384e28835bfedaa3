"""Residual files: `race-bench fit-residuals` from flight logs with truth (Swift, eq. 10 and 11), `make-errors` of a size."""

import argparse
from pathlib import Path

import numpy as np

from gate_racer.common.command import remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import reading, require_output
from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.record import Record, read_records
from gate_racer.race.campaign.campaign import odometry_errors
from gate_racer.race.campaign.tables import published
from gate_racer.sim.physics.registry import natural
from gate_racer.sim.physics.residual import (
    NEIGHBOURS,
    SAMPLES,
    ObservationModel,
    ResidualAcceleration,
    Residuals,
    residual_accelerations,
)
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

# Correlation length of made errors: about the distance between gates, where drift is corrected (a guess).
LENGTH_M = 10.0
LARGEST = 1000.0  # m, m/s or rad, of a size; far larger ones overflow (chosen)


def _begin(out: Path, vehicle: str, *inputs: Path | str) -> Vehicle:
    """Return the vehicle. Raises UserError, also for an output that is no residual file."""
    found = load_vehicle(vehicle)
    require_output(out, vehicle, *inputs)
    if out.suffix != ".npz":
        raise UserError(f"--out {out}: must end in .npz")
    return found


def fit_residuals(arguments: argparse.Namespace) -> int:
    """Fit the models, write the residual file and print a summary. Raises UserError for logs without usable data."""
    vehicle = _begin(arguments.out, arguments.vehicle, *arguments.logs)
    setting = natural(vehicle)
    lacked, seen = list[tuple[Array, ...]](), list[tuple[Array, Array, Array]]()
    for flight, path in enumerate(arguments.logs):
        records = read(path)
        with reading(path):
            truth, state = records["truth"], records["state"]
            t = np.array([r["t"] for r in truth])
            x = np.array([[*r["p"], *r["q"], *r["v"], *r["w"]] for r in truth])
            commands = [
                (r["t"], AttitudeTarget(tuple(r["q"]), tuple(r["w"]), r["throttle"])) for r in records["command"]
            ]
            lacked.append(residual_accelerations(t, x, commands, vehicle, setting))
            if len(state) > 1:
                x, errors = odometry_errors(truth, state)
                seen.append((x, errors, np.full(len(x), flight)))
    states, thrusts, accel = map(np.concatenate, zip(*lacked, strict=True))
    if len(states) < NEIGHBOURS:
        raise UserError(f"{arguments.logs[0]}: only {len(states)} samples in flight, at least {NEIGHBOURS} are needed")
    observation = None
    if seen:
        x, errors, flights = map(np.concatenate, zip(*seen, strict=True))
        observation = ObservationModel.fit(x, errors, flights, SAMPLES)
        size = np.sqrt(3 * (errors**2).mean(axis=0).reshape(3, 3).mean(axis=1))
        print("{} estimates, rms errors {:.4f} m, {:.4f} m/s and {:.4f} rad".format(len(x), *size))
    acceleration = ResidualAcceleration(states, thrusts, accel)
    Residuals(vehicle.hash, setting.aerodynamic, acceleration, observation).save(arguments.out)
    plant = "grey-box" if setting.aerodynamic else "`rates`"
    rms = float(np.sqrt((accel**2).sum(axis=1).mean()))
    print(f"{len(states)} accelerations; rms residual of the {plant} model of {vehicle.name}: {rms:.2f} m/s^2")
    write_json(arguments.json, {"file": arguments.out, "accelerations": len(states), "rms_m_s2": rms})
    remark(f"written: {arguments.out}")
    return 0


def read(path: Path) -> dict[str, list[Record]]:
    """Return the records of the channels truth, command and state. Raises UserError when one of the first two is missing."""
    records: dict[str, list[Record]] = {"truth": [], "command": [], "state": []}
    for topic, record in read_records(path, only=[f"/{name}" for name in records]):
        records[topic.strip("/")].append(record)
    for name in ("truth", "command"):
        if len(records[name]) < 2:
            raise UserError(f"{path}: the log has no channel {name}; only flights in the built-in simulator record it")
    return records


def make_errors(arguments: argparse.Namespace) -> int:
    """Write a residual file with errors of the size and print a summary. Raises UserError."""
    vehicle, track = _begin(arguments.out, arguments.vehicle, arguments.track), load_track(arguments.track)
    sigmas = sizes(arguments.size)
    observation = errors_along(track, sigmas)
    Residuals(vehicle.hash, vehicle.grey_box, None, observation).save(arguments.out)
    print("standard deviations per axis: {:g} m, {:g} m/s and {:g} rad".format(*sigmas))
    of_axis = dict(zip(("position_m", "velocity_m_s", "attitude_rad"), sigmas, strict=True))
    write_json(arguments.json, {"file": arguments.out, "sigmas": of_axis})
    remark(f"written: {arguments.out}")
    return 0


def errors_along(track: Track, sigmas: tuple[float, float, float]) -> ObservationModel:
    """Return odometry errors of a size, see `sizes`, along a track."""
    return ObservationModel.of_size(waypoints(track), sigmas, LENGTH_M)


def sizes(text: str, asked: str = "size") -> tuple[float, float, float]:
    """Return the standard deviations of position (m), velocity (m/s) and attitude (rad) on each axis. Raises UserError."""
    known = {one.name: one for one in published().odometry}
    if text in known:
        return known[text].position_m, known[text].velocity_m_s, known[text].attitude_rad
    try:
        position_m, velocity_m_s, attitude_rad = found = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{asked} {text}: must be {', '.join(known)}, or three numbers such as 0.2,0.3,0.03") from None
    if not all(0 < one <= LARGEST for one in found):
        raise UserError(f"{asked} {text}: the three numbers must be positive, and at most {LARGEST:g}")
    return position_m, velocity_m_s, attitude_rad


def waypoints(track: Track) -> Array:
    """Return points (SAMPLES, 3) m, evenly spaced on straight lines from the start through the gates."""
    corners = np.array(
        [track.start.p_wb, *(gate.p_wg for gate in track.gates), *([track.gates[0].p_wg] if track.closed else [])]
    )
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    s = np.linspace(0.0, along[-1], SAMPLES)
    return np.column_stack([np.interp(s, along, column) for column in corners.T])

"""Remarks on files that are valid and yet look like a mistake: units, order and directions of gates, camera and gyro."""

import itertools
import math

import numpy as np

from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

AGAINST = -0.5  # cosine between a gate's axis and a leg, below which the leg runs against the gate
TURNED = 0.1  # cosine by which the gate that fits its legs least must fit better in radians
TURN_RAD = 2 * math.pi  # no yaw in radians exceeds it
LEAST_LEG_M = 1.0  # horizontal length of a leg that has a direction
LEVEL_M = 1.0  # least horizontal leg, as a multiple of the climb
NOISE_RAD_S = 0.06  # rad/s, noise of a gyro's sample above that of any known unit: over 3 deg/s
TILT_DEG = 1.6  # deg, below which a tilt may be one in radians


def remarks(track: Track | None, vehicle: Vehicle | None = None) -> list[str]:
    """Return a line for each value that is more likely a mistake than meant."""
    return (_on_track(track) if track is not None else []) + (_on_vehicle(vehicle) if vehicle is not None else [])


def _on_track(track: Track) -> list[str]:
    gates = track.gates
    rounds = [*enumerate(gates), *([(0, gates[0])] if track.closed and len(gates) > 1 else [])]
    twice = [(k, j) for (j, a), (k, b) in itertools.pairwise(rounds) if a == b and not a.is_ball]
    lines = [f"{track.file}: gates[{k}] is gates[{j}] again: passed twice in a row" for k, j in twice]
    before, after = _legs(track)
    facing = [k for k, gate in enumerate(gates) if not gate.is_ball]
    yaws = np.array([math.radians(gates[k].yaw_deg) for k in facing])
    if not len(facing):
        return lines
    if np.abs(np.degrees(yaws)).max() < TURN_RAD:
        as_degrees, as_radians = (_fit(before, after, facing, turn) for turn in (yaws, np.degrees(yaws)))
        if as_radians.min() > as_degrees.min() + TURNED and as_radians.mean() > as_degrees.mean():
            line = "gates face along the course if yaw_deg is in radians; it is taken in degrees"
            return [*lines, f"{track.file}: {line}"]
    cosines = _fit(before, after, facing, yaws)
    against = [k for k, cosine in zip(facing, cosines, strict=True) if cosine < AGAINST]
    if len(against) > len(facing) / 2:
        return [*lines, f"{track.file}: most gates are passed against the course's direction: is their order reversed?"]
    turned = (
        f"{track.file}: gates[{k}].yaw_deg: {gates[k].yaw_deg:g} is against the course's direction" for k in against
    )
    return [*lines, *turned]


def _legs(track: Track) -> tuple[Array, Array]:
    """Return horizontal unit vectors (N, 2) of the legs to and from each gate; NaN where a leg is short or steep."""
    places = np.array([track.start.position_m, *(gate.centre_m for gate in track.gates)])
    legs = np.diff(places, axis=0)
    length = np.linalg.norm(legs[:, :2], axis=1)
    level = (length > LEAST_LEG_M) & (length > LEVEL_M * np.abs(legs[:, 2]))
    unit = np.where(level[:, None], legs[:, :2] / np.maximum(length, 1e-9)[:, None], np.nan)
    following = np.vstack([unit[1:], unit[:1] * np.nan])
    return unit, following


def _fit(before: Array, after: Array, facing: list[int], yaws: Array) -> Array:
    """Return the better cosine (M,) of each gate's axis with the legs to and from it; 1 where neither has a direction."""
    axes = np.column_stack([np.cos(yaws), np.sin(yaws)])
    both = np.array([np.sum(leg[facing] * axes, 1) for leg in (before, after)])
    best: Array = np.max(np.where(np.isnan(both), -np.inf, both), axis=0)
    lone = np.isnan(both).any(axis=0)  # one leg alone does not tell: a gate may be turned to, or from
    return np.where(np.isinf(best) | lone, 1.0, best)


def _on_vehicle(vehicle: Vehicle) -> list[str]:
    camera, imu, lines = vehicle.camera, vehicle.imu, []
    if camera.height_px > 1.2 * camera.width_px:
        size = f"{camera.width_px} x {camera.height_px} px"
        lines.append(f"camera: {size} is upright; are width_px and height_px swapped?")
    if 0 < abs(camera.tilt_deg) < TILT_DEG and camera.doubt is None:
        lines.append(f"camera.tilt_deg: {camera.tilt_deg:g} is taken in degrees, not radians")
    if imu.gyro_noise_rad_s > NOISE_RAD_S:
        noise = f"{imu.gyro_noise_rad_s:g} rad/s is {math.degrees(imu.gyro_noise_rad_s):.0f} deg/s"
        lines.append(f"imu.gyro_noise_rad_s: {noise}; was it meant in deg/s?")
    return [f"vehicle {vehicle.name}: {line}" for line in lines]

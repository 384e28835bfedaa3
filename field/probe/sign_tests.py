"""Tests on an interval of a probe flight: whether an axis responds, and the sign of its gyro. Wire units; 0: undecided."""

import math

import numpy as np

from gate_racer.field.probe.motion import TILTED_RAD, RestMean, Series
from gate_racer.field.probe.response import commands
from gate_racer.vehicle.rotation import Array

ROLL, PITCH, YAW = range(3)
AGREEMENT = 0.6  # correlation of camera and gyro required for a sign
FEWEST_TURNS, FEWEST_SAMPLES = 5, 10


def ratio_of(series: Series, rest: RestMean, mask: int, axis: int, begin: float, end: float) -> float:
    """Return gyro over command of one kind; 0 without a response."""
    t, _, gyro = series.between(begin, end)
    if len(t) < FEWEST_SAMPLES:
        return 0.0
    return commands(series.sent, t, axis, (mask,)).quick_gain(gyro[:, axis] - rest.gyro[axis])


def by_camera(series: Series, rest: RestMean, axis: int, begin: float, end: float) -> float:
    """Return the sign of the gyro relative to the camera's rotations; 0 if undecided."""
    turns = [row for row in series.turns if row[0] >= begin]
    if len(turns) < FEWEST_TURNS:
        return 0.0
    camera_angles = np.array([turn[axis] for _, _, turn in turns])
    gyro_angles = _turned(series, rest, np.array([row[:2] for row in turns]), axis, end)
    norm = float(np.linalg.norm(camera_angles) * np.linalg.norm(gyro_angles))
    agreement = float(camera_angles @ gyro_angles) / norm if norm > 1e-9 else 0.0
    return math.copysign(1.0, agreement) if abs(agreement) > AGREEMENT else 0.0


def by_gravity(series: Series, rest: RestMean, euler: Array | None, begin: float, end: float) -> float:
    """Return the sign of the gyro in pitch by ATTITUDE's, whose sign follows from `euler` (3,), its value on a tilted pad."""
    pitch, rows = rest.tilt[PITCH], [row for row in series.attitude if row[0] >= begin]
    tilted = euler is not None and min(abs(pitch), 2 * abs(euler[PITCH])) > TILTED_RAD
    if euler is None or not tilted or len(rows) < FEWEST_SAMPLES:
        return 0.0
    t, reported = np.array([row[0] for row in rows]), np.array([row[1][PITCH] for row in rows])
    gyro_angles = _turned(series, rest, np.column_stack([t[:-1], t[1:]]), PITCH, end)
    relative = float(np.diff(reported) @ gyro_angles) * float(euler[PITCH]) * pitch
    return math.copysign(1.0, relative) if relative else 0.0


def yaw_sign(series: Series, rest: RestMean, gyro_sign: float, begin: float, end: float) -> float:
    """Return the sign of ATTITUDE's yaw, by the gyro since `begin`."""
    rows = [row for row in series.attitude if row[0] >= begin]
    reported = np.unwrap([row[1][YAW] for row in rows])
    if len(rows) < FEWEST_SAMPLES:
        return 1.0
    spans = np.column_stack([np.full(len(rows), begin), [row[0] for row in rows]])
    turned = gyro_sign * _turned(series, rest, spans, YAW, end)
    return 1.0 if float((reported - reported.mean()) @ (turned - turned.mean())) >= 0 else -1.0


def _turned(series: Series, rest: RestMean, spans: Array, axis: int, end: float) -> Array:
    """Return the integral of the gyro over each span (N, 2), rad on the wire."""
    t, _, gyro = series.between(float(spans.min()) - 0.1, end)
    rate = gyro[:, axis] - rest.gyro[axis]
    angle = np.concatenate([[0.0], np.cumsum(np.diff(t) * 0.5 * (rate[1:] + rate[:-1]))])
    return np.interp(spans[:, 1], t, angle) - np.interp(spans[:, 0], t, angle)

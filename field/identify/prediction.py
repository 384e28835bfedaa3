"""What a fit predicts of flight that it has not seen: one step ahead, and half a second in open loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.identify.regression import hats, lagged
from gate_racer.field.identify.signals import STEP_S, Signals
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import Array, Mask

HORIZON_S, EVERY_S = 0.5, 0.1  # s, length of an open-loop prediction, and time between two beginnings


@dataclass(frozen=True)
class Prediction:
    """Root mean squares over predictions from measured velocities, with measured attitudes; NaN without velocity."""

    starts: int
    step_m_s: float  # error of the velocity after one step
    velocity_m_s: float  # after HORIZON_S
    position_m: float  # after HORIZON_S
    steady_velocity_m_s: float  # of a constant velocity, for comparison
    steady_position_m: float


def predict(
    logs: Sequence[Signals], unseen: Sequence[Mask], knots: Array, x: Array, delay: float, lag: float
) -> Prediction:
    """Predict the unseen stretches of all logs, where they are valid for a whole horizon.

    Args:
        x: thrust at the knots, then drag: none, quadratic, or three linear and quadratic.
    """
    n, errors = round(HORIZON_S / STEP_S), [np.zeros((0, 5))]
    for log, mask in zip(logs, unseen, strict=True):
        whole = np.convolve(mask, np.ones(n + 1), "valid") > n + 0.5
        starts = np.flatnonzero(whole)[:: round(EVERY_S / STEP_S)]
        if not len(starts) or log.velocity_unknown:
            continue
        thrust = lagged(hats(log.throttle, knots), delay, lag) @ x[: len(knots)]
        errors.append(_errors(log, thrust, x[len(knots) :], starts, n))
    rows = np.vstack(errors)
    rms = np.sqrt((rows**2).mean(axis=0)) if len(rows) else np.full(5, np.nan)
    return Prediction(len(rows), *map(float, rms))


def _errors(log: Signals, thrust: Array, drag: Array, starts: NDArray[np.intp], n: int) -> Array:
    """Return the errors (S, 5) as in `Prediction` of predictions of n steps from samples (S,)."""
    linear, quadratic = (drag[:-1] if len(drag) == 4 else np.zeros(3)), (drag[-1] if len(drag) else 0.0)
    v_w = np.einsum("nij,nj->ni", log.R_wb, log.v_b)
    v, p, true_p, first = v_w[starts], np.zeros((len(starts), 3)), np.zeros((len(starts), 3)), np.zeros(len(starts))
    for k in range(n):
        R = log.R_wb[starts + k]
        v_b = np.einsum("nji,nj->ni", R, v)
        force = -(linear + quadratic * np.linalg.norm(v_b, axis=1)[:, None]) * v_b
        force[:, 2] -= thrust[starts + k]
        v = v + STEP_S * (G_W + np.einsum("nij,nj->ni", R, force))
        p, true_p = p + STEP_S * v, true_p + STEP_S * v_w[starts + k + 1]
        if k == 0:
            first = np.linalg.norm(v - v_w[starts + 1], axis=1)
    still_p = n * STEP_S * v_w[starts] - true_p
    ends = (v - v_w[starts + n], p - true_p, v_w[starts] - v_w[starts + n], still_p)
    return np.column_stack([first, *(np.linalg.norm(error, axis=1) for error in ends)])

"""Outputs of a controller (a command with its diagnostics, estimated parameters), and the estimated offsets of a plan's gates.

The offsets from the map shift the plan's line (`planner.plan.gate_shift`), with none at the start, on the pad, unless it is set.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.common.strenum import StrEnum
from gate_racer.planner.plan import gate_shift
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array, exp, product

Q, V = RATES_X["q"].at, RATES_X["v"].at
AT_ORIGIN = np.eye(RATES_X.size)[Q.start]  # (14,), level and at rest


class Source(StrEnum):
    """Source of a command, in order of preference."""

    SOLVED = "solved"
    SHIFTED = "shifted previous solution"
    SPARE = "spare solver"
    GEOMETRIC = "geometric controller"
    LEVEL = "level and slow"


@dataclass(frozen=True, slots=True)
class Control:
    """One command, in SI units, with its source and diagnostics."""

    u: Array  # (4,) body rates, rad/s, and specific thrust, m/s^2
    q_wb: Array  # (4,) wxyz, attitude setpoint for which a proportional attitude loop commands these rates
    source: Source
    reason: str  # why the solver's solution was not used; empty if it was
    status: int  # status of the solver, 0 for success, -1 if it was not called
    solve_s: float  # s, time of the solver
    step_s: float  # s, time from the state to the command
    theta: float  # s of plan time, progress
    reference: Array  # (14,) p, q, v, u of the plan at theta


def unplanned(x: Array, u: Array, attitude_gain_1_s: float, reason: str = "", step_s: float = 0.0) -> Control:
    """Return an input (4,) at the state x (14,) as a command without a plan; with a reason it is that of a fall-back."""
    x = x if np.isfinite(x).all() else AT_ORIGIN
    q_wb = np.array(product(x[Q], exp(u[:3] / attitude_gain_1_s)))
    source, status = (Source.LEVEL, -1) if reason else (Source.SOLVED, 0)
    reference = np.concatenate([x[: V.stop], u])
    return Control(u, q_wb, source, reason, status, step_s, step_s, 0.0, reference)


@dataclass(frozen=True, slots=True)
class EstimatedParameters:
    """Parameters of the vehicle estimated in flight; scales are relative to the vehicle's file."""

    thrust_scale: float  # -
    drag_scale: float  # -
    lift_1_m: float  # 1/m, thrust gained per squared speed across the rotors
    delay_s: float  # s, from a command to its effect by the IMU's timestamps
    rate_lag_scale: float  # -


class CourseOffsets:
    """Offsets and standard deviations of the gates, by their number in the plan; initially zero."""

    def __init__(self, gates_s: Array):
        """`gates_s` (G,): plan times at which the gates are passed, s."""
        self._knots_s = np.concatenate([[0.0], gates_s])
        self._offsets = np.zeros((len(gates_s) + 1, 3))  # m, of the pad and of the gates
        self._sigmas_m = np.zeros(len(gates_s) + 1)

    def set_offset(self, number: int, offset_w: Array, sigma_m: float) -> None:
        """Set the offset of gate `number` from the map, offset_w (3,) m, world NED, and its std across the opening, sigma_m."""
        self._offsets[number + 1], self._sigmas_m[number + 1] = offset_w, sigma_m

    def set_start_offset(self, offset_w: Array) -> None:
        """Set the offset of the start from the plan's, offset_w (3,) m, world NED."""
        self._offsets[0] = offset_w

    def take(self, other: "CourseOffsets") -> None:
        """Copy the offsets of the same gates from another plan's estimate."""
        self._offsets[:], self._sigmas_m[:] = other._offsets, other._sigmas_m

    def line(self, theta: Array) -> tuple[Array, Array]:
        """Return the shift of the line at theta (M,), s of plan time, and its derivative: m and m per s of plan time, (M, 3)."""
        if len(self._knots_s) == 1:
            return np.zeros((len(theta), 3)), np.zeros((len(theta), 3))
        return gate_shift(theta, self._knots_s, self._offsets)

    def gates(self, numbers: np.ndarray) -> tuple[Array, Array]:
        """Return offsets (M, 3) m and standard deviations (M,) m of gates (M,); numbers past the last gate give the last."""
        k = np.minimum(numbers + 1, len(self._offsets) - 1)
        return self._offsets[k], self._sigmas_m[k]

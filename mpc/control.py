"""Outputs of a controller (a command with its diagnostics, estimated parameters), the estimated offsets of a plan's gates,
and fall-back control without a solver: the geometric law of Lee, Leok and McClamroch (CDC 2010, eq. 12-15), at a slow pace,

    T = s^2 a_r - k_p (p - p_r) - k_v (v - s v_r) - g - drag - a_res,    thrust along T, body rates from the attitude error

with the rate loop in place of the paper's moments. Without a plan the vehicle brakes; without a state estimate it hovers.
The offsets from the map shift the plan's line (`planner.plan.gate_shift`), with none at the start, on the pad, unless it is set.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.common.strenum import StrEnum
from gate_racer.mpc.model import ModelParameters, thrust_needed
from gate_racer.mpc.terms import REFERENCE
from gate_racer.planner.plan import gate_shift
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X, lifted
from gate_racer.vehicle.rotation import Array, aligned, conjugate, exp, log, matrix, product

P, Q, V = (RATES_X[name].at for name in "pqv")
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


SLOW = 0.5  # -, pace under this law, as a fraction of the plan's
SLOWING_S = 0.8  # s, time constant of the change to that pace
K_P, K_V = 6.0, 3.5  # 1/s^2 and 1/s, position and velocity gains
PULL_LIMIT = 12.0  # m/s^2, largest feedback acceleration
BRAKE_GAIN = 1.0  # 1/s, velocity gain while braking
BRAKE_LIMIT = 5.0  # m/s^2, largest deceleration while braking
ATTITUDE_GAIN = 8.0  # 1/s, attitude error to body rates
FALLING = 2.0  # m/s^2, thrust below which its direction is ill-defined


def follow(row: Array, following: Array, step_s: float, pace: float, x: Array, par: ModelParameters) -> Array:
    """Return the input (4,) that drives x (14,) to a plan's row (NR,) at `pace`; the row `following` is step_s (s) later."""
    r = {name: row[field.at] for name, field in REFERENCE.items()}
    pull = limited(K_P * (r["p"] - x[P]) + K_V * (pace * r["v"] - x[V]), PULL_LIMIT)
    thrust_w = np.array(thrust_needed(x[Q], x[V], pace**2 * r["a"] + pull, par))
    u = _towards(thrust_w, matrix(r["q"])[:, 0], x)
    u[:3] += log(product(conjugate(_attitude(row, pace, par)), _attitude(following, pace, par))) / step_s
    u[3] = max(u[3] - lifted(x[Q], x[V], par.lift), 0.0) / par.thrust_scale
    return u


def brake(x: Array) -> Array:
    """Return an input (4,) that brings the state x (14,) gently to rest, or hover thrust if x is not finite."""
    if not np.isfinite(x).all():
        return np.array([0.0, 0.0, 0.0, GRAVITY])
    thrust_w = limited(-BRAKE_GAIN * x[V], BRAKE_LIMIT) - [0.0, 0.0, GRAVITY]
    return _towards(thrust_w, matrix(x[Q])[:, 0], x)


def limited(a: Array, most: float) -> Array:
    """Clip a vector to a length of at most `most`."""
    return a * min(1.0, most / max(float(np.linalg.norm(a)), 1e-9))


def _attitude(row: Array, pace: float, par: ModelParameters) -> Array:
    """Return the attitude (4,), wxyz, at which a row of the plan (NR,) is flown at `pace`."""
    r = {name: row[field.at] for name, field in REFERENCE.items()}
    thrust_w = np.array(thrust_needed(r["q"], pace * r["v"], pace**2 * r["a"], par))
    return aligned(-thrust_w / max(float(np.linalg.norm(thrust_w)), FALLING), matrix(r["q"])[:, 0])


def _towards(thrust_w: Array, nose_w: Array, x: Array) -> Array:
    """Return the input (4,) for a specific thrust (3,), m/s^2, with the body x axis as close as possible to nose_w (3,)."""
    c = float(np.linalg.norm(thrust_w))
    down = -thrust_w / c if c > FALLING else matrix(x[Q])[:, 2]
    q_wb = aligned(down, nose_w)
    rates = ATTITUDE_GAIN * log(product(conjugate(x[Q]), q_wb))
    return np.array([*rates, c])

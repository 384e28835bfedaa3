"""Fall-back control without a solver: the geometric law of Lee, Leok and McClamroch (CDC 2010, eq. 12-15), at a slow pace s,

    T = s^2 a_r - k_p (p - p_r) - k_v (v - s v_r) - g - drag - a_res,    thrust along T, body rates from the attitude error

with the rate loop in place of the paper's moments. Without a plan the vehicle brakes; without a state estimate it hovers.
"""

import numpy as np

from gate_racer.mpc.model import ModelParameters, thrust_needed
from gate_racer.mpc.terms import REFERENCE
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X, lifted
from gate_racer.vehicle.rotation import Array, aligned, conjugate, log, matrix, product

P, Q, V = (RATES_X[name].at for name in "pqv")
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

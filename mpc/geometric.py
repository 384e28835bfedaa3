"""Flying without a solver: the plan's line, slowly, by the geometric law of Lee, Leok and McClamroch (CDC 2010, eq. 12-15).

    T = s^2 a_r - k_p (p - p_r) - k_v (v - s v_r) - g - drag - a_res,    thrust along T, body rates from the attitude's error

with the rate loop in the place of the paper's moments. Where there is no plan to follow it brakes; without a state it hovers.
"""

import numpy as np

from mpc.model import ModelParameters, lifted, thrust_needed
from mpc.problem.stage import REFERENCE
from vehicle.dynamics import GRAVITY, RATES_X
from vehicle.rotation import Array, aligned, conjugate, log, matrix, product

SLOW = 0.5  # of the plan's pace
SLOWING_S = 0.8  # time constant from the present pace to that
K_P, K_V = 6.0, 3.5  # 1/s^2 and 1/s
PULL_LIMIT = 12.0  # m/s^2, of the feedback
BRAKE_GAIN = 1.0  # 1/s, of the velocity while braking
BRAKE_LIMIT = 5.0  # m/s^2
ATTITUDE_GAIN = 8.0  # 1/s, attitude error to body rates
FALLING = 2.0  # m/s^2, least thrust: below it has no direction to speak of
P, Q, V = (RATES_X[name].at for name in "pqv")


def follow(row: Array, following: Array, step_s: float, pace: float, x: Array, par: ModelParameters) -> Array:
    """Input (4,) that leads from the state x (14,) to a row of the plan (NR,), flown at the pace.

    The row `following` it by step_s, s, tells how fast its attitude turns (the paper's feed-forward of body rates).
    """
    r = {name: row[field.at] for name, field in REFERENCE.items()}
    pull = limited(K_P * (r["p"] - x[P]) + K_V * (pace * r["v"] - x[V]), PULL_LIMIT)
    thrust_w = np.array(thrust_needed(x[Q], x[V], pace**2 * r["a"] + pull, par))
    u = _towards(thrust_w, matrix(r["q"])[:, 0], x)
    u[:3] += log(product(conjugate(_attitude(row, pace, par)), _attitude(following, pace, par))) / step_s
    u[3] = max(u[3] - lifted(x[Q], x[V], par), 0.0) / par.thrust_scale
    return u


def brake(x: Array) -> Array:
    """Input (4,) that comes to rest gently; hover where the state (14,) is not known."""
    if not np.isfinite(x).all():
        return np.array([0.0, 0.0, 0.0, GRAVITY])
    thrust_w = limited(-BRAKE_GAIN * x[V], BRAKE_LIMIT) - [0.0, 0.0, GRAVITY]
    return _towards(thrust_w, matrix(x[Q])[:, 0], x)


def limited(a: Array, most: float) -> Array:
    """The vector, shortened to a length of at most `most`."""
    return a * min(1.0, most / max(float(np.linalg.norm(a)), 1e-9))


def _attitude(row: Array, pace: float, par: ModelParameters) -> Array:
    """The attitude (4,) that a row of the plan (NR,) asks for at the pace."""
    r = {name: row[field.at] for name, field in REFERENCE.items()}
    thrust_w = np.array(thrust_needed(r["q"], pace * r["v"], pace**2 * r["a"], par))
    return aligned(-thrust_w / max(float(np.linalg.norm(thrust_w)), FALLING), matrix(r["q"])[:, 0])


def _towards(thrust_w: Array, nose_w: Array, x: Array) -> Array:
    """Input (4,) for a specific thrust (3,), the nose as near to a direction (3,) as that allows."""
    c = float(np.linalg.norm(thrust_w))
    down = -thrust_w / c if c > FALLING else matrix(x[Q])[:, 2]
    q_wb = aligned(down, nose_w)
    rates = ATTITUDE_GAIN * log(product(conjugate(x[Q]), q_wb))
    return np.array([*rates, c])

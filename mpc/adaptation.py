"""What the model gets wrong, estimated in flight: thrust scale, drag scale, lift and residual acceleration.

A Kalman filter on theta = (k_c, k_d, k_h, a_res). Between two commands the model flies from one estimate of the velocity towards
the next; what it misses by is linear in theta:

    (v - v_model) / dt = R (0, 0, -1) (c dk_c + (v_x^2 + v_y^2) dk_h) + d_w dk_d + da_res + noise

Scales and lift walk slowly (battery, payload, a drag that was measured wrongly) and last through turns; the residual (gusts, and
what else there is) is forgotten within its correlation time. The residual model of Torrente et al. (Data-driven MPC, RA-L
2021) and the scheduled thrust scale of Sun et al. (T-RO 2022, sec. V) in one small filter. Of the body rates, how late and how
slowly they follow is learned by `response`; a residual of theirs is not: on 24 random courses that gained nothing, and by camera
it follows what the gyro and the turns have wrong.
"""

from dataclasses import dataclass
from pathlib import Path

import casadi as ca
import numpy as np

from mpc.model import PARAMETERS, Buffered, nominal_parameters
from mpc.response import ResponseAdaptation
from vehicle.config import load
from vehicle.dynamics import RATES_U, RATES_X, drag
from vehicle.rotation import Array, conjugate, rotate
from vehicle.vehicle import Vehicle

Q, V, W = (RATES_X[name].at for name in "qvw")
LINEAR, QUADRATIC = PARAMETERS["drag_linear"].at, PARAMETERS["drag_quadratic"].at
SCALE, LIFT, RESIDUAL = (PARAMETERS[name].at for name in ("thrust_scale", "lift", "residual"))
DRAG_HIGH = 4.0  # -, greatest drag scale
K_C, K_D, K_H, A = 0, 1, 2, slice(3, 6)
VEHICLE = slice(K_C, K_D + 1)


@dataclass(frozen=True)
class Adaptation:
    """How fast to believe what."""

    thrust_sigma: float  # -, of the thrust scale before the flight
    thrust_walk: float  # 1/sqrt(s), its random walk
    drag_sigma: float  # -, of the drag scale before the flight
    drag_walk: float  # 1/sqrt(s)
    lift_sigma: float  # 1/m, of the lift before the flight
    lift_walk: float  # 1/m/sqrt(s)
    lift_high: float  # 1/m, greatest, of either sign
    residual_sigma: float  # m/s^2, of the residual acceleration at any time
    residual_s: float  # s, its correlation time
    noise: float  # m/s^2, of the measured acceleration over one command period
    noise_turning: float  # m/s^2 per rad/s of body-rate error: a rate loop at work takes thrust from the rotors
    thrust_low: float  # -, least and greatest thrust scale
    thrust_high: float
    speed_min: float  # m/s, below which ground and pad disturb
    gate: float  # m/s^2: an innovation above this is a jump of the estimate, not an acceleration
    response: ResponseAdaptation

    def __post_init__(self) -> None:
        if min(self.noise, self.residual_s, self.gate) <= 0:
            raise ValueError("noise, residual_s and gate must be positive")


def load_adaptation(path: str | Path = Path(__file__).parent / "adaptation.yaml") -> Adaptation:
    """Raises UserError for a missing or malformed file."""
    return load(path, Adaptation)


class DisturbanceEstimator:
    """The filter. Its parameters are what the solver and the predictor fly by."""

    def __init__(self, vehicle: Vehicle, settings: Adaptation):
        self._nominal, s = nominal_parameters(vehicle), settings
        filtered = _filter(settings, vehicle)
        self._filter = Buffered(filtered)
        self.theta, self._P, self._innovation, self._x, self._u, self._thrust_dt = (
            one if one.shape[0] > 1 else one.ravel() for one in self._filter.arguments
        )
        self.theta[:] = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
        self._P[:] = np.diag(np.square([s.thrust_sigma, s.drag_sigma, s.lift_sigma, *[s.residual_sigma] * 3]))
        self.parameters = self._nominal.copy()

    @property
    def vehicle(self) -> tuple[Array, Array]:
        """Scales (2,) of thrust and drag against the vehicle's file, and their covariance (2, 2)."""
        return self.theta[VEHICLE].copy(), self._P[VEHICLE, VEHICLE].copy()

    def update(self, x: Array, missed_v: Array, u: Array, thrust: float, dt: float) -> None:
        """One step.

        Args:
            x: (14,) the state now.
            missed_v: (3,) m/s, the estimated velocity minus the one that the model reached over dt.
            u: (4,) the input that acts.
            thrust: m/s^2, commanded thrust behind its lag.
            dt: s.
        """
        self._innovation[:], self._x[:], self._u[:], self._thrust_dt[:] = missed_v / dt, x, u, (thrust, dt)
        self._filter()
        self.theta[:], self._P[:] = self._filter.results[0][0], self._filter.results[1]
        parameters, nominal = self.parameters, self._nominal
        parameters[LINEAR], parameters[QUADRATIC] = (
            self.theta[K_D] * nominal[LINEAR],
            self.theta[K_D] * nominal[QUADRATIC],
        )
        parameters[SCALE], parameters[LIFT], parameters[RESIDUAL] = self.theta[K_C], self.theta[K_H], self.theta[A]


def _filter(s: Adaptation, vehicle: Vehicle) -> ca.Function:
    """(theta, P, innovation, x, u, (thrust, dt)) -> theta and P one step later."""
    theta, P, innovation = ca.SX.sym("theta", 6), ca.SX.sym("P", 6, 6), ca.SX.sym("innovation", 3)
    x, u, thrust, dt = ca.SX.sym("x", RATES_X.size), ca.SX.sym("u", RATES_U.size), ca.SX.sym("c"), ca.SX.sym("dt")
    keep = ca.exp(-dt / s.residual_s)
    fade = ca.diag(ca.vertcat(1, 1, 1, keep, keep, keep))
    walk = [s.thrust_walk**2 * dt, s.drag_walk**2 * dt, s.lift_walk**2 * dt, *[s.residual_sigma**2 * (1 - keep**2)] * 3]
    before, spread = fade @ theta, fade @ P @ fade + ca.diag(ca.vertcat(*walk))
    q, v = ca.vertsplit(x[Q]), ca.vertsplit(x[V])
    pull, resist = (
        ca.vertcat(*rotate(q, (0.0, 0.0, -thrust))),
        ca.vertcat(*drag(q, v, vehicle.drag_linear_1_s, vehicle.drag_quadratic_1_m)),
    )
    v_b = rotate(conjugate(q), v)
    lift = ca.vertcat(*rotate(q, (0.0, 0.0, -(v_b[0] ** 2) - v_b[1] ** 2)))
    H = ca.horzcat(pull, resist, lift, ca.SX.eye(3))
    noise = s.noise**2 + s.noise_turning**2 * ca.sumsqr(u[:3] - x[W])
    S = H @ spread @ H.T + noise * ca.SX.eye(3)
    K = ca.solve(S, H @ spread).T
    low, high = (
        ca.DM([s.thrust_low, 0, -s.lift_high, *[-s.gate] * 3]),
        ca.DM([s.thrust_high, DRAG_HIGH, s.lift_high, *[s.gate] * 3]),
    )
    after = ca.fmin(ca.fmax(before + K @ innovation, low), high)
    heard = ca.logic_and(ca.sumsqr(x[V]) > s.speed_min**2, ca.sumsqr(innovation) < s.gate**2)
    spread_after = spread - K @ H @ spread
    results = [ca.if_else(heard, after, before), ca.if_else(heard, spread_after, spread)]
    given = [theta, P, innovation, x, u, ca.vertcat(thrust, dt)]
    return ca.Function("residuals", given, [ca.densify(r) for r in results])

"""Estimation of the model's errors in flight: thrust scale, drag scale, lift and residual acceleration.

A Kalman filter on theta = (k_c, k_d, k_h, a_res). From one command to the next the model predicts the change of velocity; the
error of that prediction is linear in theta:

    (v - v_model) / dt = R (0, 0, -1) (c dk_c + (v_x^2 + v_y^2) dk_h) + d_w dk_d + da_res + noise

Scales and lift are slow random walks (battery, payload, errors of the drag coefficients); the residual (gusts, other unmodelled
forces) is a first-order Gauss-Markov process. The filter combines the residual model of Torrente et al. (Data-driven MPC, RA-L
2021) with the scheduled thrust scale of Sun et al. (T-RO 2022, sec. V). Delay and lag of the body rates are estimated in
`response`; a residual of the rates is not estimated: on 24 random courses it gained nothing, and with the camera it follows
errors of the gyro and effects of the turns.
"""

from dataclasses import dataclass
from pathlib import Path

import casadi as ca
import numpy as np

from gate_racer.mpc.model import PARAMETERS, Buffered, nominal_parameters
from gate_racer.mpc.response import ResponseAdaptation
from gate_racer.vehicle.config import load
from gate_racer.vehicle.dynamics import RATES_U, RATES_X, drag
from gate_racer.vehicle.rotation import Array, conjugate, rotate
from gate_racer.vehicle.vehicle import Vehicle

Q, V, W = (RATES_X[name].at for name in "qvw")
LINEAR, QUADRATIC = PARAMETERS["drag_linear"].at, PARAMETERS["drag_quadratic"].at
SCALE, LIFT, RESIDUAL = (PARAMETERS[name].at for name in ("thrust_scale", "lift", "residual"))
DRAG_HIGH = 4.0  # -, largest drag scale
K_C, K_D, K_H, A = 0, 1, 2, slice(3, 6)
VEHICLE = slice(K_C, K_D + 1)


@dataclass(frozen=True)
class Adaptation:
    """Tuning of the disturbance estimator: prior standard deviations, process noise, measurement noise and limits."""

    thrust_sigma: float  # -, prior std of the thrust scale
    thrust_walk: float  # 1/sqrt(s), random walk of the thrust scale
    drag_sigma: float  # -, prior std of the drag scale
    drag_walk: float  # 1/sqrt(s), random walk of the drag scale
    lift_sigma: float  # 1/m, prior std of the lift
    lift_walk: float  # 1/m/sqrt(s), random walk of the lift
    lift_high: float  # 1/m, largest magnitude of the lift
    residual_sigma: float  # m/s^2, stationary std of the residual acceleration
    residual_s: float  # s, its correlation time
    noise: float  # m/s^2, noise of the measured acceleration over one command period
    noise_turning: float  # m/s^2 per rad/s of body-rate error: torque demand takes thrust from the rotors
    thrust_low: float  # -, smallest thrust scale
    thrust_high: float  # -, largest thrust scale
    speed_min: float  # m/s, speed below which ground and pad disturb the estimate
    gate: float  # m/s^2, innovation above which a jump of the state estimate is assumed, and the sample rejected
    response: ResponseAdaptation

    def __post_init__(self) -> None:
        if min(self.noise, self.residual_s, self.gate) <= 0:
            raise ValueError("noise, residual_s and gate must be positive")


def load_adaptation(path: str | Path = Path(__file__).parent / "adaptation.yaml") -> Adaptation:
    """Load the estimator's tuning.

    Raises:
        UserError: a missing or malformed file.
    """
    return load(path, Adaptation)


class DisturbanceEstimator:
    """Kalman filter of the model's errors; solver and predictor use its `parameters`."""

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
        """Scales (2,) of thrust and drag relative to the vehicle's file, and their covariance (2, 2)."""
        return self.theta[VEHICLE].copy(), self._P[VEHICLE, VEHICLE].copy()

    def update(self, x: Array, velocity_error: Array, u: Array, thrust: float, dt: float) -> None:
        """Predict and correct by one velocity prediction error.

        Args:
            x: (14,) the present state.
            missed_v: (3,) m/s, the estimated velocity minus the model's prediction over dt.
            u: (4,) the input that acts.
            thrust: m/s^2, commanded thrust behind its lag.
            dt: s.
        """
        self._innovation[:], self._x[:], self._u[:], self._thrust_dt[:] = velocity_error / dt, x, u, (thrust, dt)
        self._filter()
        self.theta[:], self._P[:] = self._filter.results[0][0], self._filter.results[1]
        parameters, nominal = self.parameters, self._nominal
        parameters[LINEAR], parameters[QUADRATIC] = (
            self.theta[K_D] * nominal[LINEAR],
            self.theta[K_D] * nominal[QUADRATIC],
        )
        parameters[SCALE], parameters[LIFT], parameters[RESIDUAL] = self.theta[K_C], self.theta[K_H], self.theta[A]


def _filter(s: Adaptation, vehicle: Vehicle) -> ca.Function:
    """Build the filter step, (theta, P, innovation, x, u, (thrust, dt)) -> (theta, P)."""
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
    received = ca.logic_and(ca.sumsqr(x[V]) > s.speed_min**2, ca.sumsqr(innovation) < s.gate**2)
    spread_after = spread - K @ H @ spread
    results = [ca.if_else(received, after, before), ca.if_else(received, spread_after, spread)]
    given = [theta, P, innovation, x, u, ca.vertcat(thrust, dt)]
    return ca.Function("residuals", given, [ca.densify(r) for r in results])

"""Estimation in flight of the model's errors: thrust, drag, lift, residual acceleration, delay and lags.

A Kalman filter on theta = (k_c, k_d, k_h, a_res). From one command to the next the model predicts the change of velocity; the
error of that prediction is linear in theta:

    (v - v_model) / dt = R (0, 0, -1) (c dk_c + (v_x^2 + v_y^2) dk_h) + d_w dk_d + da_res + noise

Scales and lift are slow random walks, the residual (gusts, other unmodelled forces) is a first-order Gauss-Markov process: the
residual model of Torrente et al. (RA-L 2021) with the scheduled thrust scale of Sun et al. (T-RO 2022, sec. V).

Delay and lag with which the body rates follow their commands: a Gaussian-sum filter (Alspach and Sorenson, 1972) on theta =
(delay, lag scale): Kalman filters from several first delays, each weighted by the likelihood of its predictions,

    w(t + h) = u + (w(t) - u) exp(-h / (k tau)),    u as sent one delay before,

linearised in theta by finite differences. A single filter that starts 50 ms from the true delay explains its errors by the lag,
and is sure of it. The delay runs from the sending of a command to its effect by the IMU's timestamps, whatever its cause.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import casadi as ca
import numpy as np

from gate_racer.common.config import load
from gate_racer.mpc.model import PARAMETERS, Buffered, Predictor, nominal_parameters
from gate_racer.vehicle.dynamics import RATES_U, RATES_X, drag
from gate_racer.vehicle.rotation import Array, conjugate, rotate
from gate_racer.vehicle.vehicle import Vehicle

STEP = np.array([1e-3, 0.02])  # s and -, steps of the finite differences
STEPS = np.concatenate([np.zeros((1, 2)), np.diag(STEP), -np.diag(STEP)])  # (5, 2) of theta: none, forwards, backwards
FARTHEST = 25.0  # -, squared Mahalanobis distance beyond which an outlier counts no more against a component (chosen)
LEAST = -20.0  # -, least logarithm of a weight, so that a later change is found (chosen)
DELAY, LAG = 0, 1


@dataclass(frozen=True)
class ResponseAdaptation:
    """Tuning of the response estimator: prior standard deviations, process noise, measurement noise and limits."""

    delay_sigma: float  # s, prior std of the delay
    delay_spacing: float  # s, between the components' first delays
    delay_walk: float  # s/sqrt(s), random walk of the delay
    delay_high: float  # s, largest delay
    lag_sigma: float  # -, prior std of the lag scale
    lag_walk: float  # 1/sqrt(s), random walk of the lag scale
    lag_low: float  # -, smallest lag scale
    lag_high: float  # -, largest lag scale
    noise: float  # rad/s, noise of the rates over one command period
    noise_turning: float  # rad/s per rad/s of rate error: rotors near their limits respond more slowly than the lags
    gate: float  # rad/s, innovation above which a collision is assumed, and the sample rejected


class ResponseEstimator:
    """Gaussian-sum filter of delay and lag scale of the body rates; the most likely component is the estimate."""

    def __init__(self, vehicle: Vehicle, predictor: Predictor, settings: ResponseAdaptation):
        """Start from the values of the vehicle's file; `predictor` holds the inputs sent."""
        self._settings = s = settings
        self._predictor, self._lag_s = predictor, np.array(vehicle.rate_lag_s)
        above = max(int((s.delay_high - vehicle.command_delay_s) / s.delay_spacing), 0)
        off_s = np.arange(-1, above + 1) * s.delay_spacing
        delays = np.maximum(vehicle.command_delay_s + off_s, 0.0)
        self._theta = np.column_stack([delays, np.ones_like(delays)])  # (K, 2)
        self._cov = np.tile(np.diag(np.square([s.delay_spacing / 2, s.lag_sigma])), (len(delays), 1, 1))
        self._log_weight: Array = np.asarray(-0.5 * (off_s / s.delay_sigma) ** 2)  # (K,), relative to the largest
        self._best = int(self._log_weight.argmax())

    @property
    def delay_s(self) -> float:
        return float(self._theta[self._best, DELAY])

    @property
    def lag_scale(self) -> float:
        """Estimated lag of the body rates over that of the vehicle's file."""
        return float(self._theta[self._best, LAG])

    @property
    def rate_lag_s(self) -> Array:
        return np.asarray(self.lag_scale * self._lag_s)

    def update(self, begin: float, w_before: Array, end: float, w_now: Array) -> None:
        """Correct by the change from body rates w_before (3,) at `begin` to w_now (3,) at `end`, s; rad/s."""
        s, theta = self._settings, self._theta
        at = (theta + STEPS[:, None]).reshape(-1, 2)
        reached, commanded = self._predictor.rates_after(w_before, begin, end, at[:, DELAY], at[:, LAG:] * self._lag_s)
        expected, forwards, backwards = np.split(reached.reshape(len(STEPS), -1, 3), [1, 3])
        missed, off = w_now - expected[0], commanded[: len(theta)] - w_now
        if not np.abs(missed).max(axis=1).min() < s.gate:
            return
        H = np.moveaxis(forwards - backwards, 0, 2) / (2 * STEP)  # (K, 3, 2)
        R = s.noise**2 + (s.noise_turning * off) ** 2
        cov = self._cov + np.diag(np.square([s.delay_walk, s.lag_walk])) * (end - begin)
        gained = cov @ H.transpose(0, 2, 1)
        S = H @ gained + R[:, :, None] * np.eye(3)
        weighted = np.linalg.solve(S, np.concatenate([missed[:, :, None], gained.transpose(0, 2, 1)], axis=2))
        step = (gained @ weighted[:, :, :1])[:, :, 0]
        self._theta = np.clip(theta + step, [0.0, s.lag_low], [s.delay_high, s.lag_high])
        self._cov = cov - gained @ weighted[:, :, 1:]
        distance = np.minimum(np.einsum("ki,ki->k", missed, weighted[:, :, 0]), FARTHEST)
        likely = self._log_weight - 0.5 * (distance + np.linalg.slogdet(S)[1])
        self._log_weight = np.maximum(likely - likely.max(), LEAST)
        self._best = int(self._log_weight.argmax())


Q, V, W = (RATES_X[name].at for name in "qvw")
DRAG = slice(PARAMETERS["drag_linear"].at.start, PARAMETERS["drag_quadratic"].at.stop)
LEARNED = slice(PARAMETERS["thrust_scale"].at.start, PARAMETERS["residual"].at.stop)  # thrust scale, lift and residual
DRAG_HIGH = 4.0  # -, largest drag scale
K_C, K_D, K_H = 0, 1, 2
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


@cache
def load_adaptation() -> Adaptation:
    return load(Path(__file__).with_suffix(".yaml"), Adaptation)


class DisturbanceEstimator:
    """Kalman filter of the model's errors; solver and predictor use its `parameters`."""

    def __init__(self, vehicle: Vehicle, settings: Adaptation):
        self._nominal, s = nominal_parameters(vehicle), settings
        filtered = _filter(settings, vehicle)
        self._filter = Buffered(filtered)
        self.theta, self._P, self._innovation, self._x, self._u, self._thrust_dt = (
            one if one.shape[0] > 1 else one.ravel() for one in self._filter.arguments
        )
        self.theta[:] = [1.0, 1.0, vehicle.lift_1_m, 0.0, 0.0, 0.0]
        self._P[:] = np.diag(np.square([s.thrust_sigma, s.drag_sigma, s.lift_sigma, *[s.residual_sigma] * 3]))
        self.parameters = self._nominal.copy()

    @property
    def vehicle(self) -> tuple[Array, Array]:
        """Scales (2,) of thrust and drag relative to the vehicle's file, and their covariance (2, 2)."""
        return self.theta[VEHICLE].copy(), self._P[VEHICLE, VEHICLE].copy()

    def update(self, x: Array, velocity_error: Array, u: Array, thrust: float, dt: float) -> None:
        """Update at x (14,) by the error (3,), m/s, of the velocity predicted over dt, s, under u (4,) and a lagging thrust."""
        self._innovation[:], self._x[:], self._u[:], self._thrust_dt[:] = velocity_error / dt, x, u, (thrust, dt)
        self._filter()
        self.theta[:], self._P[:] = self._filter.results[0][0], self._filter.results[1]
        self.parameters[DRAG] = self.theta[K_D] * self._nominal[DRAG]
        self.parameters[LEARNED] = self.theta[[K_C, K_H, 3, 4, 5]]


def _filter(s: Adaptation, vehicle: Vehicle) -> ca.Function:
    """Build the filter step, (theta, P, innovation, x, u, (thrust, dt)) -> (theta, P)."""
    theta, P, innovation = ca.SX.sym("theta", 6), ca.SX.sym("P", 6, 6), ca.SX.sym("innovation", 3)
    x, u, thrust, dt = ca.SX.sym("x", RATES_X.size), ca.SX.sym("u", RATES_U.size), ca.SX.sym("c"), ca.SX.sym("dt")
    keep = ca.exp(-dt / s.residual_s)
    fade = ca.diag(ca.vertcat(1, 1, 1, keep, keep, keep))
    walk = [s.thrust_walk**2 * dt, s.drag_walk**2 * dt, s.lift_walk**2 * dt, *[s.residual_sigma**2 * (1 - keep**2)] * 3]
    before, spread = fade @ theta, fade @ P @ fade + ca.diag(ca.vertcat(*walk))
    q, v = ca.vertsplit(x[Q]), ca.vertsplit(x[V])
    pull = ca.vertcat(*rotate(q, (0.0, 0.0, -thrust)))
    resist = ca.vertcat(*drag(q, v, vehicle.drag_linear_1_s, vehicle.drag_quadratic_1_m))
    v_b = rotate(conjugate(q), v)
    lift = ca.vertcat(*rotate(q, (0.0, 0.0, -(v_b[0] ** 2) - v_b[1] ** 2)))
    H = ca.horzcat(pull, resist, lift, ca.SX.eye(3))
    noise = s.noise**2 + s.noise_turning**2 * ca.sumsqr(u[:3] - x[W])
    S = H @ spread @ H.T + noise * ca.SX.eye(3)
    K = ca.solve(S, H @ spread).T
    low = ca.DM([s.thrust_low, 0, -s.lift_high, *[-s.gate] * 3])
    high = ca.DM([s.thrust_high, DRAG_HIGH, s.lift_high, *[s.gate] * 3])
    after = ca.fmin(ca.fmax(before + K @ innovation, low), high)
    received = ca.logic_and(ca.sumsqr(x[V]) > s.speed_min**2, ca.sumsqr(innovation) < s.gate**2)
    spread_after = spread - K @ H @ spread
    results = [ca.if_else(received, after, before), ca.if_else(received, spread_after, spread)]
    given = [theta, P, innovation, x, u, ca.vertcat(thrust, dt)]
    return ca.Function("residuals", given, [ca.densify(r) for r in results])

"""Estimation in flight of the delay and lag with which the body rates follow their commands.

A Kalman filter on theta = (delay, lag scale). From one command to the next the rates follow a first-order lag,

    w(t + h) = u + (w(t) - u) exp(-h / (k tau)),    u as sent one delay before,

and the prediction error is linearised in theta by finite differences. The delay runs from the sending of a command to its effect
by the IMU's timestamps: the whole delay that a prediction has to cover, whatever its cause.
"""

from dataclasses import dataclass

import numpy as np

from mpc.predictor import Predictor
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

STEP = np.array([1e-3, 0.02])  # s and -, steps of the finite differences
DELAY, LAG = 0, 1


@dataclass(frozen=True)
class ResponseAdaptation:
    """Tuning of the response estimator: prior standard deviations, process noise, measurement noise and limits."""

    delay_sigma: float  # s, prior std of the delay
    delay_walk: float  # s/sqrt(s), random walk of the delay
    delay_high: float  # s, largest delay
    lag_sigma: float  # -, prior std of the lag scale
    lag_walk: float  # 1/sqrt(s), random walk of the lag scale
    lag_low: float  # -, smallest lag scale
    lag_high: float  # -, largest lag scale
    noise: float  # rad/s, noise of the rates over one command period
    noise_turning: float  # rad/s per rad/s of rate error: rotors near their limits respond more slowly than the lags
    gate: float  # rad/s, innovation above which a collision is assumed, and the sample rejected

    def __post_init__(self) -> None:
        if min(self.noise, self.gate, self.lag_low) <= 0:
            raise ValueError("noise, gate and lag_low must be positive")


class ResponseEstimator:
    """Kalman filter of delay and lag scale of the body rates."""

    def __init__(self, vehicle: Vehicle, predictor: Predictor, settings: ResponseAdaptation):
        """Start from the values of the vehicle's file; `predictor` holds the inputs sent."""
        self._settings = s = settings
        self._predictor, self._lag_s = predictor, np.array(vehicle.rate_lag_s)
        self._theta = np.array([vehicle.command_delay_s, 1.0])
        self._cov = np.diag(np.square([s.delay_sigma, s.lag_sigma]))

    @property
    def delay_s(self) -> float:
        """Estimated command delay, s."""
        return float(self._theta[DELAY])

    @property
    def lag_scale(self) -> float:
        """Estimated lag of the body rates over that of the vehicle's file."""
        return float(self._theta[LAG])

    @property
    def rate_lag_s(self) -> Array:
        """Lags (3,), s, per body axis."""
        return np.asarray(self.lag_scale * self._lag_s)

    def update(self, begin: float, w_before: Array, end: float, w_now: Array) -> None:
        """Correct by the change from body rates w_before (3,) at `begin` to w_now (3,) at `end`, s; rad/s."""
        s, theta, fly = self._settings, self._theta, self._predictor.rates_after

        def reached(at: Array) -> Array:
            return fly(w_before, begin, end, float(at[DELAY]), at[LAG] * self._lag_s)

        missed = w_now - reached(theta)
        if not np.abs(missed).max() < s.gate:
            return
        H = np.column_stack([(reached(theta + d) - reached(theta - d)) / (2 * d.sum()) for d in np.diag(STEP)])
        off = self._predictor.acting_at(end)[:3] - w_now
        R = s.noise**2 + (s.noise_turning * off) ** 2
        cov = self._cov + np.diag(np.square([s.delay_walk, s.lag_walk])) * (end - begin)
        K = cov @ H.T @ np.linalg.inv(H @ cov @ H.T + np.diag(R))
        self._theta = np.clip(theta + K @ missed, [0.0, s.lag_low], [s.delay_high, s.lag_high])
        self._cov = cov - K @ H @ cov

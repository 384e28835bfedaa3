"""Estimation in flight of the delay and lag with which the body rates follow their commands.

A Gaussian-sum filter (Alspach and Sorenson, 1972) on theta = (delay, lag scale): Kalman filters from several first delays, each
weighted by the likelihood of its predictions. From one command to the next the rates follow a first-order lag,

    w(t + h) = u + (w(t) - u) exp(-h / (k tau)),    u as sent one delay before,

and the prediction error is linearised in theta by finite differences. A single filter that starts 50 ms from the true delay
explains its errors by the lag, and is sure of it. The delay runs from the sending of a command to its effect by the IMU's
timestamps: the whole delay that a prediction has to cover, whatever its cause.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.mpc.predictor import Predictor
from gate_racer.vehicle.rotation import Array
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

    def __post_init__(self) -> None:
        if min(self.noise, self.gate, self.lag_low, self.delay_sigma, self.delay_spacing) <= 0:
            raise ValueError("noise, gate, lag_low, delay_sigma and delay_spacing must be positive")


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
        """Estimated command delay, s."""
        return float(self._theta[self._best, DELAY])

    @property
    def lag_scale(self) -> float:
        """Estimated lag of the body rates over that of the vehicle's file."""
        return float(self._theta[self._best, LAG])

    @property
    def rate_lag_s(self) -> Array:
        """Lags (3,), s, per body axis."""
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

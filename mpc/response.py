"""How late and how slowly the body rates follow their commands, estimated in flight.

A Kalman filter on theta = (delay, lag scale). From the rates at one command to those at the next the lags are linear,

    w(t + h) = u + (w(t) - u) exp(-h / (k tau)),    u as sent one delay before,

so what they miss by is explained by both through the derivatives of that, taken by differences. The delay counts from where
commands leave to where the IMU's stamps show them: all that a prediction has to bridge, whoever causes it.
"""

from dataclasses import dataclass

import numpy as np

from mpc.predictor import Predictor
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

STEP = np.array([1e-3, 0.02])  # s and -, of the differences
DELAY, LAG = 0, 1


@dataclass(frozen=True)
class ResponseAdaptation:
    """How fast to believe what."""

    delay_sigma: float  # s, before the flight
    delay_walk: float  # s/sqrt(s)
    delay_high: float  # s, greatest
    lag_sigma: float  # -, of the lags' scale before the flight
    lag_walk: float  # 1/sqrt(s)
    lag_low: float  # -, least and greatest scale
    lag_high: float
    noise: float  # rad/s, of rates from command to command
    noise_turning: float  # rad/s per rad/s of rate error: rotors near their limits turn more slowly than lags say
    gate: float  # rad/s, beyond which something was hit

    def __post_init__(self) -> None:
        if min(self.noise, self.gate, self.lag_low) <= 0:
            raise ValueError("noise, gate and lag_low must be positive")


class ResponseEstimator:
    """The filter."""

    def __init__(self, vehicle: Vehicle, predictor: Predictor, settings: ResponseAdaptation):
        """Begin with what the vehicle's file says; `predictor` knows what was sent."""
        self._settings = s = settings
        self._predictor, self._lag_s = predictor, np.array(vehicle.rate_lag_s)
        self._theta = np.array([vehicle.command_delay_s, 1.0])
        self._cov = np.diag(np.square([s.delay_sigma, s.lag_sigma]))

    @property
    def delay_s(self) -> float:
        return float(self._theta[DELAY])

    @property
    def lag_scale(self) -> float:
        return float(self._theta[LAG])

    @property
    def rate_lag_s(self) -> Array:
        """(3,) s, per body axis."""
        return np.asarray(self.lag_scale * self._lag_s)

    def update(self, begin: float, w_before: Array, end: float, w_now: Array) -> None:
        """One step, from body rates (3,) at `begin` to those at `end`, s."""
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

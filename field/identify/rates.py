"""Gain and lag of the body rates: omega_b = lag_tau_i[ g_i omega_cmd(t - delay) ], per axis."""

from dataclasses import dataclass

import numpy as np

from gate_racer.field.identify.bounds import RATE_SCALE, half_widths, widened
from gate_racer.field.identify.regression import lagged, slopes, times
from gate_racer.field.identify.signals import Signals
from gate_racer.field.identify.timing import LAGS_S, Interval
from gate_racer.vehicle.rotation import Array, Mask

AXES = ("roll", "pitch", "yaw")
MOVING_RAD_S = 0.05  # rad/s, commanded rate above which an axis is excited (chosen)
LEAST_SAMPLES = 50  # excited samples, least number (chosen)


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % half width."""

    value: float
    half_width: float

    def __str__(self) -> str:
        bound = (
            f"+- {self.half_width:.2g}" if np.isfinite(self.half_width) else "without a bound, since the log is short,"
        )
        return f"{self.value:.4g} {bound}"


@dataclass(frozen=True)
class AxisRate:
    """Gain and lag (s) of one axis, None where it was not excited; `fault` says why they are not believed."""

    gain: Estimate | None = None
    lag_s: Estimate | None = None
    fault: str = ""


def fit_rates(logs: list[Signals], delay: Interval) -> tuple[AxisRate, AxisRate, AxisRate]:
    """Return gain and lag of the three axes, where rates were commanded and measured."""
    roll, pitch, yaw = (_axis(logs, axis, delay) for axis in range(3))
    return roll, pitch, yaw


def _axis(logs: list[Signals], axis: int, late: Interval) -> AxisRate:
    from scipy.optimize import minimize_scalar  # slow to load

    delay = late.value
    used: list[Mask] = [~np.isnan(log.omega_cmd[:, axis]) & ~np.isnan(log.omega_b[:, axis]) & log.valid for log in logs]
    commands = [np.nan_to_num(log.omega_cmd[:, axis]) for log in logs]
    if sum(int((np.abs(c[ok]) > MOVING_RAD_S).sum()) for c, ok in zip(commands, used, strict=True)) < LEAST_SAMPLES:
        return AxisRate()
    measured = np.concatenate([log.omega_b[ok, axis] for log, ok in zip(logs, used, strict=True)])

    def follow(delay: float, lag: float) -> Array:
        return np.concatenate([lagged(c, delay, lag)[ok] for c, ok in zip(commands, used, strict=True)])

    def misfit(log_lag: float) -> float:
        c = follow(delay, float(np.exp(log_lag)))
        return float(((c * float(c @ measured) / max(float(c @ c), 1e-12) - measured) ** 2).mean())

    lag = float(np.exp(minimize_scalar(misfit, bounds=np.log(LAGS_S[[0, -1]]), method="bounded").x))
    c = follow(delay, lag)
    gain = float(c @ measured / max(float(c @ c), 1e-12))
    if gain <= 0:
        return AxisRate(
            fault=f"the measured {AXES[axis]} rate opposes the commanded: one of the two has the wrong sign"
        )
    J = np.column_stack([c, *(gain * slope for slope in slopes(follow, delay, lag))])
    half = half_widths(J, c * gain - measured, times(logs)[np.concatenate(used)])
    gain_half = float(widened(half[:1], np.array([RATE_SCALE * gain]))[0])
    # What the delay is short of, the lag has: it is known no better.
    lag_half = float(np.hypot(half[2], max(late.high - delay, delay - late.low)))
    return AxisRate(Estimate(gain, gain_half), Estimate(lag, lag_half))

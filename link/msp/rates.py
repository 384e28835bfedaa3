"""Betaflight's rate curves, from a stick's deflection to a body rate, and their inverse. Betaflight 4.4, `src/main/fc/rc.c`.

With deflection x in -1..1, e = expo / 100 and parameters as configured (per cent, or 10 deg/s):

    betaflight   200 r x' / max(1 - |x| s, 0.01),   x' = x (e |x|^3 + 1 - e),  s = rate / 100,
                 r = rc_rate / 100, and 14.54 (r - 2) more above 2
    actual       10 rc_rate x + max(10 rate - 10 rc_rate, 0) |x| (e x^5 + (1 - e) x)
    quick        2 rc_rate x / max(1 - y f, 0.01),  y = e |x|^3 + (1 - e) |x|,  f = 1 - 2 rc_rate / max(10 rate, 2 rc_rate)

Each is odd and strictly increasing up to the limit, so that it has a unique inverse, computed to machine precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

LARGEST_DEG_S = 1998.0  # largest rate in Betaflight
STEEPEST = 0.01  # least denominator of a curve
FINENESS = 1e-15  # resolution of the deflection: a few roundings of 1


RatesKind = Literal["betaflight", "actual", "quick"]
RATES_TYPE: dict[RatesKind, int] = {"betaflight": 0, "actual": 3, "quick": 4}  # codes in RC_TUNING


@dataclass(frozen=True)
class AxisRates:
    """Parameters of one axis as configured in Betaflight: integers of 0 to 255, expo of 0 to 100."""

    rc_rate: int
    rate: int
    expo: int
    limit_deg_s: int = int(LARGEST_DEG_S)

    def __post_init__(self) -> None:
        if not (1 <= self.rc_rate <= 255 and 0 <= self.rate <= 255 and 0 <= self.expo <= 100):
            raise ValueError("rc_rate must lie in 1..255, rate in 0..255, expo in 0..100")
        if not 200 <= self.limit_deg_s <= LARGEST_DEG_S:
            raise ValueError(f"limit_deg_s must lie in 200..{LARGEST_DEG_S:g}")


def _betaflight(x: float, axis: AxisRates) -> float:
    e, r = axis.expo / 100, axis.rc_rate / 100
    r += 14.54 * max(r - 2.0, 0.0)
    return 200 * r * (x**4 * e + x * (1 - e)) / max(1 - x * axis.rate / 100, STEEPEST)


def _actual(x: float, axis: AxisRates) -> float:
    e, centre = axis.expo / 100, 10.0 * axis.rc_rate
    return centre * x + max(10.0 * axis.rate - centre, 0.0) * x * (e * x**5 + (1 - e) * x)


def _quick(x: float, axis: AxisRates) -> float:
    e, centre = axis.expo / 100, 2.0 * axis.rc_rate
    factor = 1 - centre / max(10.0 * axis.rate, centre)
    return centre * x / max(1 - (e * x**3 + (1 - e) * x) * factor, STEEPEST)


CURVES: dict[RatesKind, Callable[[float, AxisRates], float]] = {
    "betaflight": _betaflight,
    "actual": _actual,
    "quick": _quick,
}


@dataclass(frozen=True)
class RateCurves:
    """Rate curves of the three axes, of one kind."""

    kind: RatesKind
    roll: AxisRates
    pitch: AxisRates
    yaw: AxisRates

    @property
    def axes(self) -> tuple[AxisRates, AxisRates, AxisRates]:
        """The curves of roll, pitch and yaw."""
        return self.roll, self.pitch, self.yaw

    def rate(self, axis: int, deflection: float) -> float:
        """Return the body rate (rad/s, sign of the stick) of a deflection, which is clipped to -1..1."""
        x, settings = min(abs(deflection), 1.0), self.axes[axis]
        degrees = min(CURVES[self.kind](x, settings), float(settings.limit_deg_s))
        return math.copysign(math.radians(degrees), deflection)

    def deflection(self, axis: int, rate: float) -> float:
        """Return the inverse of `rate`, clipped to -1..1 for rates (rad/s) beyond the curve."""
        settings, curve = self.axes[axis], CURVES[self.kind]
        wanted = min(math.degrees(abs(rate)), float(settings.limit_deg_s))
        if wanted >= curve(1.0, settings):
            return math.copysign(1.0, rate)
        # Bisection: every curve is increasing. SciPy's root finder would be loaded at the first stick, in flight.
        low, high = 0.0, 1.0
        while high - low > FINENESS:
            x = (low + high) / 2
            low, high = (x, high) if curve(x, settings) < wanted else (low, x)
        return math.copysign((low + high) / 2, rate)

    def full(self, axis: int) -> float:
        """Return the body rate of a full stick, rad/s."""
        return self.rate(axis, 1.0)

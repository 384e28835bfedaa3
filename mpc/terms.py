"""What the controller wants and what it must not do, as small objects. A problem is a list of them.

A `Cost` is a weighted squared residual; a `Soft` is a constraint -1 <= h <= 1 that may be broken at a price.
A weight's unit is that of one over the squared residual, and stands beside it in the YAML of the formulation.
"""

from dataclasses import dataclass
from typing import Protocol

import casadi as ca

from vehicle.rotation import conjugate, product, rotate

Blocks = dict[str, ca.SX]
STILL_M_S = 0.5  # below this speed of the plan its direction fades out


@dataclass(frozen=True)
class Stage:
    """One stage of the horizon, symbolic: blocks of state, input (empty at the end) and stage parameters by name."""

    x: Blocks
    u: Blocks
    p: Blocks


class Cost(Protocol):
    """weight * |residual|^2, in every stage and, when `at_end`, at the end of the horizon."""

    @property
    def weight(self) -> float: ...
    @property
    def at_end(self) -> bool: ...
    def residual(self, s: Stage) -> ca.SX: ...


def path(s: Stage) -> tuple[ca.SX, ca.SX]:
    """Error from the plan at the state's own progress, and the plan's direction there: second order about the parameters."""
    ahead = s.x["theta"] - s.p["theta"]
    error = s.x["p"] - (s.p["p"] + ahead * s.p["v"] + 0.5 * ahead**2 * s.p["a"])
    v = s.p["v"] + ahead * s.p["a"]
    return error, v / ca.sqrt(ca.sumsqr(v) + STILL_M_S**2)


@dataclass(frozen=True)
class Position:
    weight: float
    at_end: bool = True

    def residual(self, s: Stage) -> ca.SX:
        return s.x["p"] - s.p["p"]


@dataclass(frozen=True)
class Attitude:
    """Twice the vector part of the error's quaternion: the rotation vector, for small errors."""

    weight: float
    at_end: bool = True

    def residual(self, s: Stage) -> ca.SX:
        turn = product(conjugate(ca.vertsplit(s.p["q"])), ca.vertsplit(s.x["q"]))
        return 2 * ca.vertcat(*turn[1:])


@dataclass(frozen=True)
class Velocity:
    """Towards the plan's velocity, times the pace at which progress runs."""

    weight: float
    at_end: bool = True

    def residual(self, s: Stage) -> ca.SX:
        return s.x["v"] - s.p["v"] * s.x.get("pace", s.p["pace"])


@dataclass(frozen=True)
class Rates:
    weight: float
    at_end: bool = False

    def residual(self, s: Stage) -> ca.SX:
        return s.u["u_w"] - s.p["u_w"]


@dataclass(frozen=True)
class Thrust:
    weight: float
    at_end: bool = False

    def residual(self, s: Stage) -> ca.SX:
        return s.u["u_c"] - s.p["u_c"]


@dataclass(frozen=True)
class Seeing:
    """Sine of the angle between the vertical plane of the camera's axis and the next gate: a matter of yaw."""

    weight: float
    at_end: bool = False

    def residual(self, s: Stage) -> ca.SX:
        to_gate = s.p["look"] - s.x["p"]
        distance = ca.sqrt(ca.sumsqr(to_gate) + 1.0)  # m; fades out when the gate is reached
        aside = rotate(conjugate(ca.vertsplit(s.x["q"])), ca.vertsplit(to_gate))[1]
        return aside / distance


@dataclass(frozen=True)
class Contour:
    """Distance from the plan's line: Romero et al. (MPCC, T-RO 2022, eq. 9)."""

    weight: float
    at_end: bool = True

    def residual(self, s: Stage) -> ca.SX:
        error, along = path(s)
        return error - along * ca.dot(along, error)


@dataclass(frozen=True)
class Lag:
    """Distance along the plan's line between the vehicle and its progress: what makes progress mean the vehicle's own."""

    weight: float
    at_end: bool = True

    def residual(self, s: Stage) -> ca.SX:
        error, along = path(s)
        return ca.dot(along, error)


@dataclass(frozen=True)
class Progress:
    """Short of the greatest pace."""

    weight: float
    pace_max: float
    at_end: bool = True

    def residual(self, s: Stage) -> ca.SX:
        return s.x["pace"] - self.pace_max


@dataclass(frozen=True)
class Hurry:
    """Change of pace."""

    weight: float
    at_end: bool = False

    def residual(self, s: Stage) -> ca.SX:
        return s.u["u_pace"]


@dataclass(frozen=True)
class Tunnel:
    """Within the opening while near its gate; the stage parameters hold its axes over its half width."""

    weight: float  # of the squared violation
    price: float  # of the violation itself
    size: int = 2

    def value(self, s: Stage) -> ca.SX:
        off = s.x["p"] - s.p["gate"]
        return ca.vertcat(ca.dot(off, s.p["across"]), ca.dot(off, s.p["down"]))

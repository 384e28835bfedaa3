"""What the controller wants and what it must not do, as small objects. A problem is a list of them.

A `Cost` is a weighted squared residual; a `Soft` is a constraint -1 <= h <= 1 that may be broken at a price.
A weight's unit is that of one over the squared residual, and stands beside it in the YAML of the formulation.
"""

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from typing import ClassVar

import casadi as ca

from mpc.model import lifted, thrust_needed
from mpc.problem.stage import Stage
from vehicle.rotation import conjugate, product, rotate

STILL_M_S = 0.5  # below this speed of the plan its direction fades out
FALLING_M_S2 = 1.0  # below this thrust its direction fades into the plan's


@dataclass(frozen=True)
class Weights:
    """Each multiplies a squared residual. Zero leaves the term out."""

    rates: float  # 1/(rad/s)^2, of the input
    thrust: float  # 1/(m/s^2)^2, of the input
    attitude: float  # 1/rad^2
    gate_visibility: float  # -, of a sine
    rate_tracking: float = 0.0  # 1/(rad/s)^2, of the input beyond the rates flown
    position: float = 0.0  # 1/m^2
    velocity: float = 0.0  # 1/(m/s)^2
    contour: float = 0.0  # 1/m^2
    lag: float = 0.0  # 1/m^2
    progress: float = 0.0  # -
    pace_rate: float = 0.0  # s^2
    end_velocity: float = 0.0  # 1/(m/s)^2, at the end of the horizon only
    gate_corridor: float = 0.0  # -, of the violation in half widths
    gate_corridor_price: float = 0.0  # -

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ValueError("weights must not be negative")


@dataclass(frozen=True)
class Cost(ABC):
    """weight * |residual|^2, in every stage and, when `at_end`, at the end of the horizon."""

    weight: float
    at_end: ClassVar[bool] = True

    @abstractmethod
    def residual(self, s: Stage) -> ca.SX: ...


class InputCost(Cost):
    """At the end of the horizon there is no input."""

    at_end = False


def path(s: Stage) -> tuple[ca.SX, ca.SX]:
    """Error from the plan at the state's own progress, and the plan's direction there: second order about the parameters."""
    ahead = s.x["theta"] - s.p["theta"]
    error = s.x["p"] - (s.p["p"] + ahead * s.p["v"] + 0.5 * ahead**2 * s.p["a"])
    v = s.p["v"] + ahead * s.p["a"]
    return error, v / ca.sqrt(ca.sumsqr(v) + STILL_M_S**2)


def thrust(s: Stage) -> ca.SX:
    """Specific thrust (3,), world, that flies the plan's line at the given pace under the present model.

    Time scaled by the pace scales velocities by it and accelerations by its square (Hollerbach, 1984).
    """
    pace, (q, v, a) = s.p["pace"], (ca.vertsplit(s.p[name]) for name in "qva")
    return ca.vertcat(*thrust_needed(q, [pace * one for one in v], [pace**2 * one for one in a], s.model))


def attitude(s: Stage) -> list[ca.SX]:
    """The plan's attitude, turned the shortest way so that it gives that thrust."""
    q, needed = ca.vertsplit(s.p["q"]), thrust(s)
    before = ca.vertcat(*rotate(q, (0.0, 0.0, -1.0)))
    after = needed + FALLING_M_S2**2 * before / (ca.norm_2(needed) + FALLING_M_S2)
    after /= ca.norm_2(after)
    turn = ca.vertcat(1 + ca.dot(before, after), ca.cross(before, after))
    return list(product(ca.vertsplit(turn / ca.sqrt(ca.sumsqr(turn) + 1e-9)), q))


class Position(Cost):
    def residual(self, s: Stage) -> ca.SX:
        return s.x["p"] - s.p["p"]


class AttitudeError(Cost):
    """Twice the vector part of the error's quaternion: the rotation vector, for small errors."""

    def residual(self, s: Stage) -> ca.SX:
        turn = product(conjugate(attitude(s)), ca.vertsplit(s.x["q"]))
        return 2 * ca.vertcat(*turn[1:])


class Velocity(Cost):
    """Towards the plan's velocity, times the pace at which progress runs."""

    def residual(self, s: Stage) -> ca.SX:
        return s.x["v"] - s.p["v"] * s.pace


class Rates(InputCost):
    def residual(self, s: Stage) -> ca.SX:
        return s.u["u_w"] - s.p["pace"] * s.p["u_w"]


class Thrust(InputCost):
    def residual(self, s: Stage) -> ca.SX:
        pace, q, v = s.p["pace"], ca.vertsplit(s.p["q"]), ca.vertsplit(s.p["v"])
        lift = pace**2 * lifted(q, v, s.model)
        return s.u["u_c"] - (ca.norm_2(thrust(s)) - lift) / s.model.thrust_scale


class RateTracking(InputCost):
    """Rates asked for beyond those flown: the rate loop meets them with the rotors that make the thrust."""

    def residual(self, s: Stage) -> ca.SX:
        return s.u["u_w"] - s.x["w"]


class GateVisibility(InputCost):
    """Sine of the angle between the vertical plane of the camera's axis and the next gate: a matter of yaw."""

    def residual(self, s: Stage) -> ca.SX:
        to_gate = s.p["look"] - s.x["p"]
        distance = ca.sqrt(ca.sumsqr(to_gate) + 1.0)  # m; fades out when the gate is reached
        aside = rotate(conjugate(ca.vertsplit(s.x["q"])), ca.vertsplit(to_gate))[1]
        return aside / distance


class Contour(Cost):
    """Distance from the plan's line: Romero et al. (MPCC, T-RO 2022, eq. 9)."""

    def residual(self, s: Stage) -> ca.SX:
        error, along = path(s)
        return error - along * ca.dot(along, error)


class Lag(Cost):
    """Distance along the plan's line between the vehicle and its progress: what makes progress mean the vehicle's own."""

    def residual(self, s: Stage) -> ca.SX:
        error, along = path(s)
        return ca.dot(along, error)


class Progress(Cost):
    """Short of the fastest pace that the thrust allows here."""

    def residual(self, s: Stage) -> ca.SX:
        return s.x["pace"] - s.p["target_pace"]


class PaceRate(InputCost):
    """Change of pace."""

    def residual(self, s: Stage) -> ca.SX:
        return s.u["u_pace"]


@dataclass(frozen=True)
class GateCorridor:
    """Within the opening while near its gate; the stage parameters hold its axes over its half width."""

    weight: float  # of the squared violation
    price: float  # of the violation itself
    size: int = 2

    def value(self, s: Stage) -> ca.SX:
        off = s.x["p"] - s.p["gate"]
        return ca.vertcat(ca.dot(off, s.p["across"]), ca.dot(off, s.p["down"]))

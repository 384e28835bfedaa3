"""One stage of the horizon, and the cost and constraint terms that the optimal-control problem lists.

Costs are weighted squared residuals; `gate_corridor` is a soft constraint -1 <= h <= 1 with a penalty on its violation.
A weight has the unit of the inverse squared residual, given beside it in the YAML of the formulation.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass

import casadi as ca

from gate_racer.mpc.model import PARAMETERS, ModelParameters, thrust_needed
from gate_racer.vehicle.dynamics import layout, lifted
from gate_racer.vehicle.rotation import conjugate, product, rotate

REFERENCE = layout(
    p=("x y z", "m", "position of the plan, world NED"),
    q=("w x y z", "-", "attitude of the plan, body to world"),
    v=("x y z", "m/s", "velocity of the plan, world NED"),
    u_w=("x y z", "rad/s", "body rates of the plan"),
    u_c=("", "m/s^2", "thrust of the plan"),
    a=("x y z", "m/s^2", "acceleration of the plan, world NED"),
    theta=("", "s", "progress, in plan time"),
    pace=("", "-", "d(progress)/dt"),
    target_pace=("", "-", "largest pace that the thrust limit allows"),
    look=("x y z", "m", "centre of the next gate, world NED"),
    gate=("x y z", "m", "centre of the opening of the gate corridor, world NED"),
    across=("x y z", "1/m", "its horizontal axis over the half width available to the vehicle's centre"),
    down=("x y z", "1/m", "its vertical axis over the half height available to it"),
)
# Stage parameters: the reference, then the model's parameters.
NR, NP = REFERENCE.size, REFERENCE.size + PARAMETERS.size
SymbolBlocks = dict[str, ca.SX]


@dataclass(frozen=True)
class Stage:
    """One stage of the horizon, symbolic: blocks of state, input and stage parameters by name, and the model's parameters."""

    x: SymbolBlocks
    u: SymbolBlocks
    p: SymbolBlocks
    model: ModelParameters

    @property
    def pace(self) -> ca.SX:
        """d(progress)/dt: the state where the formulation has one, else the stage parameter."""
        return self.x.get("pace", self.p["pace"])


STILL_M_S = 0.5  # m/s, speed of the plan below which its direction fades to zero
FALLING_M_S2 = 1.0  # m/s^2, thrust below which its direction fades to the plan's


@dataclass(frozen=True)
class Weights:
    """Weights of the squared residuals; zero omits the term."""

    rates: float  # 1/(rad/s)^2, input deviation from the plan's body rates
    thrust: float  # 1/(m/s^2)^2, input deviation from the plan's thrust
    attitude: float  # 1/rad^2
    gate_visibility: float  # -, sine of the gate's azimuth from the camera
    rate_tracking: float = 0.0  # 1/(rad/s)^2, commanded minus actual body rates
    position: float = 0.0  # 1/m^2
    velocity: float = 0.0  # 1/(m/s)^2
    contour: float = 0.0  # 1/m^2
    lag: float = 0.0  # 1/m^2
    progress: float = 0.0  # -
    pace_rate: float = 0.0  # s^2
    end_velocity: float = 0.0  # 1/(m/s)^2, least weight of the terminal velocity
    gate_corridor: float = 0.0  # -, quadratic penalty of the violation in half widths
    gate_corridor_price: float = 0.0  # -, linear penalty of the violation in half widths

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ValueError("weights must not be negative")


Residual = Callable[[Stage], ca.SX]  # in the unit of its quantity


def path(s: Stage) -> tuple[ca.SX, ca.SX]:
    """Return the position error at the state's progress and the plan's direction there, the plan expanded to second order."""
    ahead = s.x["theta"] - s.p["theta"]
    error = s.x["p"] - (s.p["p"] + ahead * s.p["v"] + 0.5 * ahead**2 * s.p["a"])
    v = s.p["v"] + ahead * s.p["a"]
    return error, v / ca.sqrt(ca.sumsqr(v) + STILL_M_S**2)


def thrust(s: Stage) -> ca.SX:
    """Return the specific thrust (3,), m/s^2 world, for the plan's line at a pace, in the estimated model (Hollerbach, 1984)."""
    pace, (q, v, a) = s.p["pace"], (ca.vertsplit(s.p[name]) for name in "qva")
    return ca.vertcat(*thrust_needed(q, [pace * one for one in v], [pace**2 * one for one in a], s.model))


def attitude(s: Stage) -> list[ca.SX]:
    """Return the plan's attitude, rotated the shortest way so that the body's thrust axis aligns with `thrust`."""
    q, needed = ca.vertsplit(s.p["q"]), thrust(s)
    before = ca.vertcat(*rotate(q, (0.0, 0.0, -1.0)))
    after = needed + FALLING_M_S2**2 * before / (ca.norm_2(needed) + FALLING_M_S2)
    after /= ca.norm_2(after)
    turn = ca.vertcat(1 + ca.dot(before, after), ca.cross(before, after))
    return list(product(ca.vertsplit(turn / ca.sqrt(ca.sumsqr(turn) + 1e-9)), q))


def attitude_error(s: Stage) -> ca.SX:
    """Return twice the vector part of the error quaternion: the rotation vector to first order."""
    turn = product(conjugate(attitude(s)), ca.vertsplit(s.x["q"]))
    return 2 * ca.vertcat(*turn[1:])


def thrust_error(s: Stage) -> ca.SX:
    """Return the commanded specific thrust minus that which the plan's line needs under the estimated model, m/s^2."""
    pace, q, v = s.p["pace"], ca.vertsplit(s.p["q"]), ca.vertsplit(s.p["v"])
    lift = pace**2 * lifted(q, v, s.model.lift)
    return s.u["u_c"] - (ca.norm_2(thrust(s)) - lift) / s.model.thrust_scale


def gate_visibility(s: Stage) -> ca.SX:
    """Return the sine of the angle between the camera's vertical plane and the direction of the next gate, controlled by yaw."""
    to_gate = s.p["look"] - s.x["p"]
    distance = ca.sqrt(ca.sumsqr(to_gate) + 1.0)  # m; the 1 m^2 fades the term out near the gate
    lateral = rotate(conjugate(ca.vertsplit(s.x["q"])), ca.vertsplit(to_gate))[1]
    return lateral / distance


def contour(s: Stage) -> ca.SX:
    """Return the deviation across the plan's line (Romero et al., MPCC, T-RO 2022, eq. 9)."""
    error, along = path(s)
    return error - along * ca.dot(along, error)


def lag(s: Stage) -> ca.SX:
    """Return the deviation along the plan's line, which ties progress to the vehicle's position."""
    error, along = path(s)
    return ca.dot(along, error)


def gate_corridor(s: Stage) -> ca.SX:
    """Return the position in the opening of a gate near it (2,), across and down, over its half widths: within [-1, 1] inside."""
    off = s.x["p"] - s.p["gate"]
    return ca.vertcat(ca.dot(off, s.p["across"]), ca.dot(off, s.p["down"]))


def costs(w: Weights) -> tuple[tuple[Residual, float, float], ...]:
    """Return the residuals with their weights in every stage, and at the end, where no input is, but the plan's velocity."""
    return (
        (lambda s: s.x["p"] - s.p["p"], w.position, w.position),
        (contour, w.contour, w.contour),
        (lag, w.lag, w.lag),
        (lambda s: s.x["pace"] - s.p["target_pace"], w.progress, w.progress),
        (attitude_error, w.attitude, w.attitude),
        (lambda s: s.x["v"] - s.p["v"] * s.pace, w.velocity, max(w.end_velocity, w.velocity)),
        (lambda s: s.u["u_pace"], w.pace_rate, 0.0),
        (lambda s: s.u["u_w"] - s.p["pace"] * s.p["u_w"], w.rates, 0.0),
        (thrust_error, w.thrust, 0.0),
        # The torque for a change of body rates comes from the rotors that also give the thrust.
        (lambda s: s.u["u_w"] - s.x["w"], w.rate_tracking, 0.0),
        (gate_visibility, w.gate_visibility, 0.0),
    )

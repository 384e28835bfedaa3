"""One stage of the horizon: the layout of its reference, and its quantities as symbols."""

from dataclasses import dataclass

import casadi as ca

from gate_racer.mpc.model import PARAMETERS, ModelParameters
from gate_racer.vehicle.layout import layout

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

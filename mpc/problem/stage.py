"""One stage of the horizon: the layout of its reference, and its quantities as symbols."""

from dataclasses import dataclass

import casadi as ca

from mpc.model import PARAMETERS, ModelParameters
from vehicle.layout import layout

REFERENCE = layout(
    p=("x y z", "m", "plan, world NED"),
    q=("w x y z", "-", "plan, body to world"),
    v=("x y z", "m/s", "plan, world NED"),
    u_w=("x y z", "rad/s", "plan, body rates"),
    u_c=("", "m/s^2", "plan, thrust"),
    a=("x y z", "m/s^2", "plan, world NED"),
    theta=("", "s", "progress, in plan time"),
    pace=("", "-", "d(progress)/dt"),
    target_pace=("", "-", "the pace to strive for"),
    look=("x y z", "m", "centre of the next gate, world NED"),
    gate=("x y z", "m", "centre of the opening that binds, world NED"),
    across=("x y z", "1/m", "its horizontal axis over the half width left for the vehicle's centre"),
    down=("x y z", "1/m", "its vertical axis over the same"),
)
NR, NP = (
    REFERENCE.size,
    REFERENCE.size + PARAMETERS.size,
)  # stage parameters: the reference, then the model's parameters
Blocks = dict[str, ca.SX]


@dataclass(frozen=True)
class Stage:
    """One stage of the horizon, symbolic: blocks of state, input and stage parameters by name, and the model's parameters."""

    x: Blocks
    u: Blocks
    p: Blocks
    model: ModelParameters

    @property
    def pace(self) -> ca.SX:
        """d(progress)/dt: the state where the formulation has one, else the stage parameter."""
        return self.x.get("pace", self.p["pace"])

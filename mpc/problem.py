"""The tracking problem, stated once for every back-end: model, cost, limits.

    minimise  sum_k |W_p (p - p_r)|^2 + |W_q 2 vec(q_r^-1 q)|^2 + |W_v (v - v_r)|^2 + |W_u (u - u_r)|^2
    subject to  the `rates` dynamics from the predicted state, limits of the inputs.

The tracking NMPC of Foehn et al. and Sun et al. (T-RO 2022, eq. 14-19) with thrust and rate lags in the model. References and
vehicle constants enter as stage parameters, so that one generated solver serves every vehicle, plan and set of weights.
"""

from dataclasses import dataclass
from pathlib import Path

import casadi as ca
import numpy as np

from vehicle.config import load
from vehicle.dynamics import RATES_U, RATES_X, RatesParameters, rates
from vehicle.layout import layout
from vehicle.rotation import Array, conjugate, product
from vehicle.vehicle import Vehicle

NX, NU = RATES_X.size, RATES_U.size
PARAMETERS = layout(
    p=("x y z", "m", "reference, world NED"),
    q=("w x y z", "-", "reference, body to world"),
    v=("x y z", "m/s", "reference, world NED"),
    u_w=("x y z", "rad/s", "reference body rates"),
    u_c=("", "m/s^2", "reference thrust"),
    rate_lag=("x y z", "s", "per body axis"),
    thrust_lag=("", "s", ""),
    drag_linear=("x y z", "1/s", "per body axis"),
    drag_quadratic=("", "1/m", ""),
)
NP = PARAMETERS.size
REFERENCE = slice(0, PARAMETERS["u_c"].at.stop)  # the part that changes along the horizon
VEHICLE = slice(REFERENCE.stop, NP)
NY, NY_END = 3 + 3 + 3 + NU, 3 + 3 + 3


@dataclass(frozen=True)
class Settings:
    """Horizon and weights, from `mpc/tracking.yaml`. Each weight multiplies a squared error."""

    steps: int
    step_s: float
    integrator_steps: int  # Runge-Kutta steps in each step of the horizon
    position: float  # 1/m^2
    attitude: float  # 1/rad^2
    velocity: float  # 1/(m/s)^2
    rates: float  # 1/(rad/s)^2, of the input
    thrust: float  # 1/(m/s^2)^2, of the input

    def __post_init__(self) -> None:
        if self.steps < 2 or self.integrator_steps < 1 or self.step_s <= 0:
            raise ValueError("steps, integrator_steps and step_s must be positive")
        if min(self.position, self.attitude, self.velocity, self.rates, self.thrust) < 0:
            raise ValueError("weights must not be negative")

    @property
    def weights(self) -> Array:
        """Diagonal (NY,) of the stage weight; its first NY_END entries are the terminal one."""
        state = [self.position] * 3 + [self.attitude] * 3 + [self.velocity] * 3
        return np.array(state + [self.rates] * 3 + [self.thrust])


def load_settings(path: str | Path = Path(__file__).parent / "tracking.yaml") -> Settings:
    """Raises UserError for a missing or malformed file."""
    return load(path, Settings)


@dataclass(frozen=True)
class Symbols:
    """The problem as CasADi expressions."""

    x: ca.SX
    u: ca.SX
    p: ca.SX
    f: ca.SX  # dx/dt
    y: ca.SX  # stage residual (NY,)
    y_end: ca.SX  # terminal residual (NY_END,)


def symbols() -> Symbols:
    """Model and residuals as functions of state, input and stage parameters."""
    x, u, p = ca.SX.sym("x", NX), ca.SX.sym("u", NU), ca.SX.sym("p", NP)
    at = {name: p[field.at] for name, field in PARAMETERS.items()}
    par = RatesParameters(
        tuple(ca.vertsplit(at["rate_lag"])),
        at["thrust_lag"],
        tuple(ca.vertsplit(at["drag_linear"])),
        at["drag_quadratic"],
    )
    f = ca.vertcat(*rates(ca.vertsplit(x), ca.vertsplit(u), par))
    turn = product(conjugate(ca.vertsplit(at["q"])), ca.vertsplit(x[RATES_X["q"].at]))
    error = ca.vertcat(x[RATES_X["p"].at] - at["p"], 2 * ca.vertcat(*turn[1:]), x[RATES_X["v"].at] - at["v"])
    y = ca.vertcat(error, u - ca.vertcat(at["u_w"], at["u_c"]))
    return Symbols(x, u, p, f, y, error)


def vehicle_parameters(vehicle: Vehicle) -> Array:
    """The VEHICLE part of the stage parameters."""
    par = vehicle.rates_parameters
    return np.array([*par.rate_lag, par.thrust_lag, *par.drag_linear, par.drag_quadratic])


def input_limits(vehicle: Vehicle) -> tuple[Array, Array]:
    """Lower and upper bounds (NU,) of the inputs."""
    w = np.array(vehicle.rate_max_rad_s)
    return np.array([*-w, vehicle.thrust_min]), np.array([*w, vehicle.thrust_max])

"""Equations of motion, written once for NumPy, CasADi and Numba, with the layouts of state and input: slices, columns, units,
frames.

`rates`: mass-normalised thrust and body rates follow their commands with first-order lags (what a racing flight
controller gives; Foehn et al., Agilicious, Science Robotics 2022, sec. "Control").
`rotors`: rigid body with four rotor thrusts (Foehn et al., CPC, Science Robotics 2021, eq. 1-3).
World NED, body FRD, SI. Both return the time derivative of the state as a tuple of scalars.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from gate_racer.common.compiled import inlined
from gate_racer.vehicle.rotation import DOWN_W, Scalars, Scalars3, rate, rotate


@dataclass(frozen=True, slots=True)
class Field:
    at: slice
    columns: tuple[str, ...]  # names of its entries in CSV headers and logs, e.g. p_x
    unit: str
    frame: str  # frame or description


class Layout(dict[str, Field]):
    """Ordered mapping of names to `Field`; `x[RATES_X["v"].at]` is the velocity."""

    @cached_property
    def size(self) -> int:
        return sum(len(field.columns) for field in self.values())

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for field in self.values() for column in field.columns)


def layout(first: Layout | None = None, /, **fields: tuple[str, str, str]) -> Layout:
    """Build a layout from name=(component suffixes, unit, frame), behind a `first` one; no suffix means a scalar."""
    result, start = (Layout(first), first.size) if first else (Layout(), 0)
    for name, (suffixes, unit, frame) in fields.items():
        columns = tuple(f"{name}_{suffix}" for suffix in suffixes.split()) or (name,)
        result[name] = Field(slice(start, start + len(columns)), columns, unit, frame)
        start += len(columns)
    return result


GRAVITY = 9.80665  # m/s^2, standard gravity
G_W = GRAVITY * DOWN_W  # m/s^2, world NED

ROTORS_X = layout(
    p=("x y z", "m", "world NED"),
    q=("w x y z", "-", "body to world"),
    v=("x y z", "m/s", "world NED"),
    w=("x y z", "rad/s", "body rates, body FRD"),
)
ROTORS_U = layout(f=("1 2 3 4", "N", "rotor thrusts"))
RATES_X = layout(ROTORS_X, c=("", "m/s^2", "thrust over mass, along -z of the body"))
RATES_U = layout(
    u_w=("x y z", "rad/s", "commanded body rates, body FRD"),
    u_c=("", "m/s^2", "commanded thrust over mass"),
)


class RatesParameters(NamedTuple):
    rate_lag: tuple[float, float, float]  # s, per body axis
    thrust_lag: float  # s
    drag_linear: tuple[float, float, float]  # 1/s, per body axis
    drag_quadratic: float  # 1/m, isotropic
    lift: float  # 1/m, thrust gained per square of the speed across the rotors


class RotorsParameters(NamedTuple):
    mass: float  # kg
    inertia: tuple[float, float, float]  # kg m^2, principal
    rotor_x: tuple[float, float, float, float]  # m, forward of the centre
    rotor_y: tuple[float, float, float, float]  # m, right of the centre
    torque: tuple[float, float, float, float]  # m, yaw torque per thrust, signed
    drag_linear: tuple[float, float, float]  # 1/s, per body axis
    drag_quadratic: float  # 1/m, isotropic
    lift: float  # 1/m, as in `RatesParameters`


Parameters = TypeVar("Parameters", RatesParameters, RotorsParameters)


def flat(parameters: Parameters) -> list[Any]:
    """Flatten a model's parameters to a list of numbers, in order."""
    return [x for one in parameters for x in (one if isinstance(one, tuple) else (one,))]


def shaped(numbers: Sequence[Any], like: Parameters) -> Parameters:
    """Rebuild parameters of the same model as `like` from numbers or symbols in the order of `flat`."""
    rest = iter(numbers)
    return type(like)._make(tuple(next(rest) for _ in one) if isinstance(one, tuple) else next(rest) for one in like)


@inlined
def drag(q: Scalars, v: Scalars, linear: Scalars, quadratic: Any) -> Scalars3:
    """Return the acceleration by drag, world axes, m/s^2: -R diag(linear) R' v - quadratic |v| v."""
    v_b = rotate((q[0], -q[1], -q[2], -q[3]), v)
    d = rotate(q, (linear[0] * v_b[0], linear[1] * v_b[1], linear[2] * v_b[2]))
    # The small term keeps the square root differentiable at rest; it changes |v| by at most 1e-4 m/s.
    k = quadratic * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + 1e-8) ** 0.5
    return (-d[0] - k * v[0], -d[1] - k * v[1], -d[2] - k * v[2])


@inlined
def lifted(q: Scalars, v: Scalars, lift: Any) -> Any:
    """Return the lift of the rotors in translational flight, m/s^2, along the thrust: k (v_x^2 + v_y^2), v in body axes.

    Faessler et al., RA-L 2018; Sun et al., T-RO 2022, eq. 3.
    """
    v_b = rotate((q[0], -q[1], -q[2], -q[3]), v)
    return lift * (v_b[0] * v_b[0] + v_b[1] * v_b[1])


@inlined
def translation(q: Scalars, v: Scalars, c: Any, linear: Scalars, quadratic: Any, lift: Any) -> Scalars3:
    """Return dv/dt in world axes, m/s^2, under the mass-normalised thrust c, lift, drag and gravity."""
    t = rotate(q, (0.0, 0.0, -c - lifted(q, v, lift)))
    d = drag(q, v, linear, quadratic)
    return (t[0] + d[0], t[1] + d[1], t[2] + d[2] + GRAVITY)


@inlined
def authority(c: Any, thrust_max: float) -> Any:
    """Return the angular acceleration left at a thrust c, m/s^2, over that at half thrust: saturated rotors give no torque."""
    return 2.0 - 2.0 * c / thrust_max


@inlined
def rates(x: Scalars, u: Scalars, par: Any) -> tuple[Any, ...]:
    """Return dx/dt of the `rates` model, x as `RATES_X`, u as `RATES_U`, par with the fields of `RatesParameters`."""
    q = (x[3], x[4], x[5], x[6])
    v = (x[7], x[8], x[9])
    w = (x[10], x[11], x[12])
    dq = rate(q, w)
    a = translation(q, v, x[13], par.drag_linear, par.drag_quadratic, par.lift)
    return (
        *v,
        *dq,
        *a,
        (u[0] - w[0]) / par.rate_lag[0],
        (u[1] - w[1]) / par.rate_lag[1],
        (u[2] - w[2]) / par.rate_lag[2],
        (u[3] - x[13]) / par.thrust_lag,
    )


@inlined
def rotors(x: Scalars, u: Scalars, par: Any) -> tuple[Any, ...]:
    """Return dx/dt of the `rotors` model, x as `ROTORS_X`, u as `ROTORS_U`, par as `RotorsParameters`."""
    q = (x[3], x[4], x[5], x[6])
    v = (x[7], x[8], x[9])
    w = (x[10], x[11], x[12])
    J = par.inertia
    tx = -(par.rotor_y[0] * u[0] + par.rotor_y[1] * u[1] + par.rotor_y[2] * u[2] + par.rotor_y[3] * u[3])
    ty = par.rotor_x[0] * u[0] + par.rotor_x[1] * u[1] + par.rotor_x[2] * u[2] + par.rotor_x[3] * u[3]
    tz = par.torque[0] * u[0] + par.torque[1] * u[1] + par.torque[2] * u[2] + par.torque[3] * u[3]
    dq = rate(q, w)
    c = (u[0] + u[1] + u[2] + u[3]) / par.mass
    a = translation(q, v, c, par.drag_linear, par.drag_quadratic, par.lift)
    return (
        *v,
        *dq,
        *a,
        (tx - (J[2] - J[1]) * w[1] * w[2]) / J[0],
        (ty - (J[0] - J[2]) * w[2] * w[0]) / J[1],
        (tz - (J[1] - J[0]) * w[0] * w[1]) / J[2],
    )


def rk4(f: Callable[[Any, Any, Any], Any], x: Scalars, u: Scalars, par: Any, dt: Any) -> list[Any]:
    """Integrate by one classical Runge-Kutta step of length dt with constant input; scalars in, list of scalars out."""
    n = len(x)
    k1 = f(x, u, par)
    k2 = f([x[i] + dt / 2 * k1[i] for i in range(n)], u, par)
    k3 = f([x[i] + dt / 2 * k2[i] for i in range(n)], u, par)
    k4 = f([x[i] + dt * k3[i] for i in range(n)], u, par)
    return [x[i] + dt / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]) for i in range(n)]

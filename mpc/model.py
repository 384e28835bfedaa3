"""The controller's model of the vehicle: the `rates` model with a thrust scale, lift and a residual acceleration.

    dc/dt = (k u_c - c) / tau,    dw/dt = (u_w - w) / tau
    dv/dt = R (0, 0, -c - k_h (v_x^2 + v_y^2)) + drag + g + a_res

The lift is that of the rotors in translational flight, v in body FRD (Faessler et al., RA-L 2018; Sun et al., T-RO 2022, eq. 3).

All that distinguishes vehicles, or one vehicle's condition from flight to flight (battery, payload, wind), is a parameter, so
that one generated solver serves all of them.
"""

from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from gate_racer.vehicle.dynamics import GRAVITY, RATES_U, RATES_X, drag, rates
from gate_racer.vehicle.layout import layout
from gate_racer.vehicle.rotation import Array, Scalars, conjugate, rotate
from gate_racer.vehicle.vehicle import Vehicle

PARAMETERS = layout(
    rate_lag=("x y z", "s", "per body axis"),
    thrust_lag=("", "s", ""),
    drag_linear=("x y z", "1/s", "per body axis"),
    drag_quadratic=("", "1/m", ""),
    thrust_scale=("", "-", "actual over commanded thrust"),
    lift=("", "1/m", "thrust gained per square of the speed across the rotors"),
    residual=("x y z", "m/s^2", "unmodelled acceleration, world NED"),
)
Q, V = RATES_X["q"].at, RATES_X["v"].at
LAGGED = RATES_X["w"].at.start  # first of the states with a first-order lag: body rates and thrust


class ModelParameters(NamedTuple):
    """`RatesParameters` and the quantities estimated in flight; scalars, units as in `PARAMETERS`."""

    rate_lag: tuple
    thrust_lag: float
    drag_linear: tuple
    drag_quadratic: float
    thrust_scale: float
    lift: float
    residual: tuple


def unpack(p: Scalars) -> ModelParameters:
    """Unpack a vector (PARAMETERS.size,), symbolic or numeric."""

    def scalars(name: str) -> tuple[Any, ...]:
        at = PARAMETERS[name].at
        return tuple(p[i] for i in range(at.start, at.stop))

    return ModelParameters(
        scalars("rate_lag"),
        scalars("thrust_lag")[0],
        scalars("drag_linear"),
        scalars("drag_quadratic")[0],
        scalars("thrust_scale")[0],
        scalars("lift")[0],
        scalars("residual"),
    )


def derivative(x: Scalars, u: Scalars, par: ModelParameters) -> list[Any]:
    """Return dx/dt for a state x (RATES_X) and an input u (RATES_U), as lists of scalars."""
    dx = list(rates(x, equilibrium(u, par), par))
    q, v = tuple(x[Q]), tuple(x[V])
    for i, (gained, a) in enumerate(zip(rotate(q, (0.0, 0.0, -lifted(q, v, par))), par.residual, strict=True)):
        dx[V.start + i] += gained + a
    return dx


def equilibrium(u: Scalars, par: ModelParameters) -> tuple[Any, ...]:
    """Return the steady-state body rates, rad/s, and thrust, m/s^2, of a constant input."""
    return (*u[:3], par.thrust_scale * u[3])


def lifted(q: Scalars, v: Scalars, par: ModelParameters) -> Any:
    """Return the translational lift, m/s^2, at attitude q (wxyz) and velocity v (world); scalars or arrays."""
    v_b = rotate(conjugate(q), v)
    return par.lift * (v_b[0] ** 2 + v_b[1] ** 2)


def step(x: Scalars, u: Scalars, par: ModelParameters, dt: Any) -> list[Any]:
    """Integrate a state x (RATES_X) over dt, s, under a constant input; lists of scalars.

    The lags are linear, so body rates and thrust have a closed form, however short the lag; position, attitude and velocity
    are integrated along these by one Runge-Kutta step, accurate to 1 mm and 1 cm/s over 0.05 s.
    """
    start = x[LAGGED:]

    def lagged(t: Any) -> list[Any]:
        lags = (*par.rate_lag, par.thrust_lag)
        return [
            end + (now - end) * ca.exp(-t / lag) for now, end, lag in zip(start, equilibrium(u, par), lags, strict=True)
        ]

    def slope(y: Scalars, now: Scalars) -> list[Any]:
        return derivative([*y, *now], u, par)[:LAGGED]

    def moved(k: Scalars, t: Any) -> list[Any]:
        return [y + t * dy for y, dy in zip(x[:LAGGED], k, strict=True)]

    middle, end = lagged(dt / 2), lagged(dt)
    k1 = slope(x[:LAGGED], start)
    k2 = slope(moved(k1, dt / 2), middle)
    k3 = slope(moved(k2, dt / 2), middle)
    k4 = slope(moved(k3, dt), end)
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
    return moved(mean, dt) + end


def thrust_needed(q: Scalars, v: Scalars, a: Scalars, par: ModelParameters) -> tuple[Any, ...]:
    """Return the specific thrust (3,), m/s^2 world, for an acceleration a (3,) at attitude q, velocity v; scalars or arrays."""
    air = drag(q, v, par.drag_linear, par.drag_quadratic)
    return tuple(a[i] - (GRAVITY if i == 2 else 0.0) - air[i] - par.residual[i] for i in range(3))


def nominal_parameters(vehicle: Vehicle) -> Array:
    """Return the parameters (PARAMETERS.size,) of the vehicle's file, before any estimation in flight."""
    par = vehicle.rates_parameters
    return np.array([*par.rate_lag, par.thrust_lag, *par.drag_linear, par.drag_quadratic, 1.0, 0.0, *np.zeros(3)])


class Buffered:
    """A CasADi function over fixed buffers: a call allocates nothing and takes microseconds.

    CasADi stores by columns, NumPy by rows: an (n, m) argument is an array (m, n); a sparse one holds its nonzeros only.
    """

    def __init__(self, function: ca.Function):
        self._buffer, self._evaluate = function.buffer()
        self.arguments = [_room(function.sparsity_in(i)) for i in range(function.n_in())]
        self.results = [_room(function.sparsity_out(i)) for i in range(function.n_out())]
        for i, values in enumerate(self.arguments):
            self._buffer.set_arg(i, values.data)
        for i, values in enumerate(self.results):
            self._buffer.set_res(i, values.data)

    def __call__(self) -> None:
        """Evaluate `results` from `arguments`."""
        self._evaluate()

    @property
    def success(self) -> bool:
        """Whether the last call of a solver succeeded."""
        return bool(self._buffer.stats()["success"])


def _room(pattern: ca.Sparsity) -> Array:
    return np.zeros(pattern.shape[::-1] if pattern.is_dense() else pattern.nnz())


class Integrator:
    """Numeric Runge-Kutta step of the model (`step`)."""

    def __init__(self) -> None:
        x, u = ca.SX.sym("x", RATES_X.size), ca.SX.sym("u", RATES_U.size)
        p, dt = ca.SX.sym("p", PARAMETERS.size), ca.SX.sym("dt")
        after = step(ca.vertsplit(x), ca.vertsplit(u), unpack(p), dt)
        self._step = Buffered(ca.Function("step", [x, u, p, dt], [ca.vertcat(*after)]))
        self._x, self.u, self.p, self._dt = (one.ravel() for one in self._step.arguments)
        self._after = self._step.results[0].ravel()

    def __call__(self, x: Array, dt: float) -> Array:
        """Return the state (14,) dt seconds after x (14,), under the input `u` and parameters `p` set before."""
        self._x[:], self._dt[0] = x, dt
        self._step()
        return self._after.copy()

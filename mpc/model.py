"""The vehicle as the controller believes it: the `rates` model with a thrust scale, lift and what it does not explain.

    dc/dt = (k u_c - c) / tau,    dw/dt = (u_w - w) / tau
    dv/dt = R (0, 0, -c - k_h (v_x^2 + v_y^2)) + drag + g + a_res

The rotors' lift in translational flight, v in body axes, as in Faessler et al. (RA-L 2018) and Sun et al. (T-RO 2022, eq. 3).

Everything that tells one vehicle from another, or today's from yesterday's (battery, payload, wind), is a parameter, so that
one generated solver serves all of them.
"""

from typing import NamedTuple

import casadi as ca
import numpy as np

from vehicle.dynamics import GRAVITY, RATES_U, RATES_X, drag, rates
from vehicle.layout import layout
from vehicle.rotation import Array, conjugate, rotate
from vehicle.vehicle import Vehicle

PARAMETERS = layout(
    rate_lag=("x y z", "s", "per body axis"),
    thrust_lag=("", "s", ""),
    drag_linear=("x y z", "1/s", "per body axis"),
    drag_quadratic=("", "1/m", ""),
    thrust_scale=("", "-", "thrust that comes over thrust commanded"),
    lift=("", "1/m", "thrust gained per square of the speed across the rotors"),
    residual=("x y z", "m/s^2", "acceleration that the model does not explain, world NED"),
)
Q, V = RATES_X["q"].at, RATES_X["v"].at
LAGGED = RATES_X["w"].at.start  # body rates and thrust, which follow their commands


class ModelParameters(NamedTuple):
    """`RatesParameters` and what is estimated in flight; scalars."""

    rate_lag: tuple
    thrust_lag: float
    drag_linear: tuple
    drag_quadratic: float
    thrust_scale: float
    lift: float
    residual: tuple


def unpack(p) -> ModelParameters:
    """From a vector (PARAMETERS.size,), symbolic or numeric."""

    def scalars(name):
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


def derivative(x, u, par: ModelParameters) -> list:
    """dx/dt of x as RATES_X under u as RATES_U; scalars."""
    dx = list(rates(x, equilibrium(u, par), par))
    q, v = tuple(x[Q]), tuple(x[V])
    for i, (gained, a) in enumerate(zip(rotate(q, (0.0, 0.0, -lifted(q, v, par))), par.residual, strict=True)):
        dx[V.start + i] += gained + a
    return dx


def equilibrium(u, par: ModelParameters) -> tuple:
    """Body rates and thrust that an input leads to in the end."""
    return (*u[:3], par.thrust_scale * u[3])


def lifted(q, v, par: ModelParameters):
    """m/s^2 that flying across them adds to the rotors' thrust at attitude q and velocity v; scalars or arrays."""
    v_b = rotate(conjugate(q), v)
    return par.lift * (v_b[0] ** 2 + v_b[1] ** 2)


def step(x, u, par: ModelParameters, dt) -> list:
    """x as RATES_X after dt with the input held; scalars.

    The lags are linear, so body rates and thrust have a closed form, however short the lag; position, attitude and velocity
    are carried along these by one Runge-Kutta step, good to 1 mm and 1 cm/s over 0.05 s.
    """
    start = x[LAGGED:]

    def lagged(t):
        lags = (*par.rate_lag, par.thrust_lag)
        return [
            end + (now - end) * ca.exp(-t / lag) for now, end, lag in zip(start, equilibrium(u, par), lags, strict=True)
        ]

    def slope(y, now):
        return derivative([*y, *now], u, par)[:LAGGED]

    def moved(k, t):
        return [y + t * dy for y, dy in zip(x[:LAGGED], k, strict=True)]

    middle, end = lagged(dt / 2), lagged(dt)
    k1 = slope(x[:LAGGED], start)
    k2 = slope(moved(k1, dt / 2), middle)
    k3 = slope(moved(k2, dt / 2), middle)
    k4 = slope(moved(k3, dt), end)
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
    return moved(mean, dt) + end


def thrust_needed(q, v, a, par: ModelParameters) -> tuple:
    """Specific thrust (3,), m/s^2 world, that accelerates by `a` (3,) at attitude q and velocity v; scalars or arrays."""
    air = drag(q, v, par.drag_linear, par.drag_quadratic)
    return tuple(a[i] - (GRAVITY if i == 2 else 0.0) - air[i] - par.residual[i] for i in range(3))


def nominal_parameters(vehicle: Vehicle) -> Array:
    """(PARAMETERS.size,) before anything was learned in flight."""
    par = vehicle.rates_parameters
    return np.array([*par.rate_lag, par.thrust_lag, *par.drag_linear, par.drag_quadratic, 1.0, 0.0, *np.zeros(3)])


class Buffered:
    """A CasADi function over fixed buffers: nothing is allocated in a call, which takes microseconds.

    CasADi's columns are numpy's rows: an argument of (n, m) is an array (m, n); one that is sparse holds its entries only.
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
        """`results` from `arguments`."""
        self._evaluate()

    @property
    def success(self) -> bool:
        """Whether a solver's last call has succeeded."""
        return bool(self._buffer.stats()["success"])


def _room(pattern: ca.Sparsity) -> Array:
    return np.zeros(pattern.shape[::-1] if pattern.is_dense() else pattern.nnz())


class Integrator:
    """One Runge-Kutta step of the model on numbers."""

    def __init__(self) -> None:
        x, u = ca.SX.sym("x", RATES_X.size), ca.SX.sym("u", RATES_U.size)
        p, dt = ca.SX.sym("p", PARAMETERS.size), ca.SX.sym("dt")
        after = step(ca.vertsplit(x), ca.vertsplit(u), unpack(p), dt)
        self._step = Buffered(ca.Function("step", [x, u, p, dt], [ca.vertcat(*after)]))
        self._x, self.u, self.p, self._dt = (one.ravel() for one in self._step.arguments)
        self._after = self._step.results[0].ravel()

    def __call__(self, x: Array, dt: float) -> Array:
        """x (14,) after dt seconds with the input `u` and the parameters `p` set before."""
        self._x[:], self._dt[0] = x, dt
        self._step()
        return self._after.copy()

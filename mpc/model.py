"""The controller's model: dynamics with estimated parameters, actuator range, and prediction over the command delay.

Dynamics: the `rates` model with a thrust scale, lift and a residual acceleration,

    dc/dt = (k u_c - c) / tau,    dw/dt = (u_w - w) / tau
    dv/dt = R (0, 0, -c - k_h (v_x^2 + v_y^2)) + drag + g + a_res

All that distinguishes vehicles, or flights of one (battery, payload, wind), is a parameter: one generated solver serves all.

Allocation: thrust and body torque share the rotors' range. A change of body rates takes the fraction

    r = sum_i |u_i - w_i| / (tau_i slew_i)    of the torque at half thrust,    of which 2 - 2 c / c_max is left at thrust c

(`vehicle.dynamics.authority`). Beyond that no axis follows. Roll and pitch direct the thrust, yaw does not; hence the priorities
of Faessler, Falanga and Scaramuzza (RA-L 2017). Where thrust yields, all of the rate loop's torque is available at any thrust,
and takes its share of the rotors' own range.

Delay compensation (Sun et al., T-RO 2022, table V): the model is integrated over the inputs already sent to the time at which a
command issued now acts; thrust, which no sensor measures, is predicted in the same way.
"""

from collections import deque
from collections.abc import Iterator
from math import ceil, exp, inf
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from gate_racer.vehicle.dynamics import G_W, GRAVITY, RATES_U, RATES_X, authority, drag, layout, rates
from gate_racer.vehicle.rotation import Array, Scalars, matrix
from gate_racer.vehicle.vehicle import Vehicle

YAW, THRUST = 2, 3
WHOLE = 1.0  # -, largest fraction of the torque: below half thrust it does not grow


class Allocation:
    """Command saturation for one vehicle; the limits of each input follow in `PlanController`."""

    def __init__(self, vehicle: Vehicle):
        self._thrust_max = vehicle.thrust_max
        self._yields = vehicle.mixer is not None and vehicle.mixer.thrust_yields
        lag_s = np.array(vehicle.rate_lag_s)
        self._reach = lag_s * np.array(vehicle.slew_max)  # rad/s, rate error that takes all of the torque
        rotors = vehicle.rotors.slew_max_rad_s2 if self._yields and vehicle.rotors else vehicle.slew_max
        self._rotors_reach = lag_s * np.array(rotors)  # rad/s, rate error that takes half of the rotors' range

    def within(self, u: Array, w: Array) -> Array:
        """Return the command (4,) nearest to u (4,) by these priorities, at body rates w (3,), rad/s."""
        off = u[:THRUST] - w
        needed = np.abs(off) / self._reach
        tilting = float(needed[:YAW].sum())
        left = WHOLE if self._yields else min(authority(u[THRUST], self._thrust_max), WHOLE)
        u = u.copy()
        if tilting + needed[YAW] > left:
            off[YAW] *= max(left - tilting, 0.0) / needed[YAW] if needed[YAW] > 0 else 1.0
            u[YAW] = w[YAW] + off[YAW]
        if self._yields or tilting > left:
            taken = float((np.abs(off) / self._rotors_reach).sum()) / max(tilting, WHOLE)
            u[THRUST] = min(u[THRUST], self._thrust_max * (1 - taken / 2))
        return u


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
    fields = (tuple(p[i] for i in range(field.at.start, field.at.stop)) for field in PARAMETERS.values())
    numbers: list[Any] = [values if len(values) > 1 else values[0] for values in fields]
    return ModelParameters(*numbers)


def derivative(x: Scalars, u: Scalars, par: ModelParameters) -> list[Any]:
    """Return dx/dt for a state x (RATES_X) and an input u (RATES_U), as lists of scalars."""
    dx = list(rates(x, equilibrium(u, par), par))
    for i, a in enumerate(par.residual, V.start):
        dx[i] += a
    return dx


def equilibrium(u: Scalars, par: ModelParameters) -> tuple[Any, ...]:
    """Return the steady-state body rates, rad/s, and thrust, m/s^2, of a constant input."""
    return (*u[:3], par.thrust_scale * u[3])


def step(x: Scalars, u: Scalars, par: ModelParameters, dt: Any) -> list[Any]:
    """Integrate a state x (RATES_X) over dt, s, under a constant input; lists of scalars.

    The lags are linear, so body rates and thrust have a closed form, however short the lag; position, attitude and velocity
    are integrated along these by one Runge-Kutta step, accurate to 1 mm and 1 cm/s over 0.05 s.
    """
    start = x[LAGGED:]

    def lagged(t: Any) -> list[Any]:
        states = zip(start, equilibrium(u, par), (*par.rate_lag, par.thrust_lag), strict=True)
        return [end + (now - end) * ca.exp(-t / lag) for now, end, lag in states]

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
    return np.array([*par.rate_lag, par.thrust_lag, *par.drag_linear, par.drag_quadratic, 1.0, par.lift, *np.zeros(3)])


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
        self._evaluate()

    @property
    def success(self) -> bool:
        return bool(self._buffer.stats()["success"])


def _room(pattern: ca.Sparsity) -> Array:
    return np.zeros(pattern.shape[::-1] if pattern.is_dense() else pattern.nnz())


MEMORY_S = 0.3  # s, age of its successor at which a sent input is dropped: beyond delay, lags and the age of a state
LONGEST_STEP_S = 0.05  # s, longest integration step
SAMPLE_S, SLOPE_S = 0.01, 0.001  # s, between two predicted readings; s, of the finite difference for the acceleration
C, W = RATES_X["c"].at.start, RATES_X["w"].at
THRUST_SCALE = PARAMETERS["thrust_scale"].at.start


class Predictor:
    """History of the inputs sent, with the commanded thrust behind its lag, and the prediction over it."""

    def __init__(self, vehicle: Vehicle):
        self.delay_s, self._lag = vehicle.command_delay_s, vehicle.thrust_lag_s
        self._sent: deque[tuple[float, Array]] = deque([(-inf, np.zeros(4))])  # (s, input)
        self._thrust, self._thrust_time = 0.0, -inf  # m/s^2, commanded, behind its lag, unscaled; s
        x, u = ca.SX.sym("x", RATES_X.size), ca.SX.sym("u", RATES_U.size)
        p, dt = ca.SX.sym("p", PARAMETERS.size), ca.SX.sym("dt")
        after = step(ca.vertsplit(x), ca.vertsplit(u), unpack(p), dt)
        self._step = Buffered(ca.Function("step", [x, u, p, dt], [ca.vertcat(*after)]))
        # `acting` (4,) is the input that acted last in the most recent prediction.
        self._x, self.acting, self._p, self._dt = (one.ravel() for one in self._step.arguments)

    def sent(self, t: float, u: Array) -> None:
        """Record an input (4,) sent at t, s; it replaces later ones, sent for a time that did not come."""
        while self._sent[-1][0] >= t:
            self._sent.pop()
        self._sent.append((t, u))

    def thrust_at(self, t: float) -> float:
        """Return the commanded thrust behind its lag at t, s, in m/s^2. Call with non-decreasing times."""
        begin = self._thrust_time if self._thrust_time > -inf else t
        for start, stop, u in self._pieces(begin, t):
            self._thrust = float(u[3] + (self._thrust - u[3]) * exp(-(stop - start) / self._lag))
        self._thrust_time = t
        while len(self._sent) > 1 and self._sent[1][0] < t - MEMORY_S:
            self._sent.popleft()
        return self._thrust

    def ahead(self, t: float, x: Array, parameters: Array, age: float = 0.0) -> Array:
        """Predict the state (14,) at t + delay from x (14,) at t - age; the thrust entry of x is ignored."""
        state = x.copy()
        state[C] = parameters[THRUST_SCALE] * self.thrust_at(t - age)
        return self.fly(state, t - age, t + self.delay_s, parameters)

    def fly(self, x: Array, begin: float, end: float, parameters: Array) -> Array:
        """Predict the state (14,) at `end` from x (14,) at `begin`, s, under the inputs that act in between."""
        self._p[:] = parameters
        for start, stop, u in self._pieces(begin, end):
            self.acting[:] = u
            parts = ceil((stop - start) / LONGEST_STEP_S)
            for _ in range(parts):
                self._x[:], self._dt[0] = x, (stop - start) / parts
                self._step()
                x = self._step.results[0].ravel().copy()
        x[Q] /= np.sqrt(x[Q] @ x[Q])
        return x

    def readings(self, x: Array, begin: float, end: float, parameters: Array) -> list[tuple[float, Array, Array]]:
        """Predict IMU readings along `fly` every `SAMPLE_S` after `begin`: time s, (3,) m/s^2 and (3,) rad/s, body FRD."""
        x = x.copy()
        x[C] = parameters[THRUST_SCALE] * self.thrust_at(begin)
        readings = []
        for k in range(1, ceil((end - begin) / SAMPLE_S)):
            t = begin + k * SAMPLE_S
            x = self.fly(x, t - SAMPLE_S, t, parameters)
            slope = (self.fly(x, t, t + SLOPE_S, parameters)[V] - x[V]) / SLOPE_S
            readings.append((t, matrix(x[Q]).T @ (slope - G_W), x[W].copy()))
        return readings

    def rates_after(self, w: Array, begin: float, end: float, delay_s: Array, lag_s: Array) -> tuple[Array, Array]:
        """Predict body rates (M, 3), rad/s, at `end` from w (3,) at `begin`, s, for M delays (M,), s, and lags (M, 3), s.

        First-order lags are linear: with E(t) = exp((t - end) / lag), and input u_k from t_k to t_{k + 1},

            w(end) = E(begin) w + sum_k (E(t_{k + 1}) - E(t_k)) u_k

        Returns:
            The rates, and those (M, 3) that are commanded at `end`.
        """
        times, rates = np.array([t for t, _ in self._sent]), np.array([u[:3] for _, u in self._sent])
        edges = np.full((len(delay_s), len(times) + 1), end)
        edges[:, :-1] = np.clip(times + delay_s[:, None], begin, end)
        edges[:, 0] = begin
        kept = np.exp((edges - end)[:, :, None] / lag_s[:, None, :])
        acting = rates[np.maximum(times.searchsorted(end - delay_s, side="right") - 1, 0)]
        return kept[:, 0] * w + np.einsum("mki,ki->mi", np.diff(kept, axis=1), rates), acting

    def _pieces(self, begin: float, end: float) -> Iterator[tuple[float, float, Array]]:
        """Yield (start, stop, input) of each interval of constant input between two times."""
        sent, delay_s = self._sent, self.delay_s
        for k, (at, u) in enumerate(sent):
            if at + delay_s >= end:
                return
            until = sent[k + 1][0] + delay_s if k + 1 < len(sent) else inf
            if until > begin:
                yield max(at + delay_s, begin), min(until, end), u

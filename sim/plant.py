"""What really flies: the `rates` model of the vehicle, finely stepped, with its command delay and its attitude loop.

The vehicle stands on its pad until its thrust carries it. CasADi's virtual machine runs the text of `vehicle.dynamics`
as it is, at 20 us a tick and without a compiler.
"""

from collections import deque
from dataclasses import dataclass

import casadi as ca
import numpy as np

from link.messages import AttitudeTarget
from tracks.track import Start
from vehicle.dynamics import GRAVITY, RATES_U, RATES_X, rates, rk4
from vehicle.rotation import Array, conjugate, log, matrix, product
from vehicle.vehicle import Vehicle

SUBSTEPS = 8  # Runge-Kutta steps in a tick: 1 ms at 120 Hz, a twentieth of the shortest lag
ATTITUDE_GAIN = 8.0  # 1/s, of the attitude mode's loop: attitude error to body rates
P, Q, V, W = (RATES_X[name].at for name in "pqvw")


@dataclass(frozen=True, slots=True)
class Truth:
    """The vehicle's state at a time; world NED, body FRD."""

    t: float
    x: Array  # (14,) as RATES_X
    accel_b: Array  # (3,) specific force, m/s^2

    @property
    def p_wb(self) -> Array:
        return self.x[P]

    @property
    def q_wb(self) -> Array:
        return self.x[Q]


class Plant:
    """Steps the vehicle. Commands act one command delay after they were received."""

    def __init__(self, vehicle: Vehicle, start: Start):
        self._vehicle, self._start = vehicle, start
        self._step = _integrator(vehicle)
        self._limit = np.array(vehicle.rate_max_rad_s)
        self.reset(0.0)

    def reset(self, t: float) -> None:
        """Back to the pad, motors off."""
        x = np.zeros(RATES_X.size)
        x[P], x[Q] = self._start.p_wb, self._start.q_wb
        self.x, self.t, self.armed, self.on_pad = x, t, False, True
        self._pending: deque[tuple[float, AttitudeTarget]] = deque()
        self._active: AttitudeTarget | None = None
        self._force_b = -GRAVITY * matrix(x[Q])[2]

    @property
    def truth(self) -> Truth:
        return Truth(self.t, self.x.copy(), self._force_b.copy())

    def command(self, t: float, target: AttitudeTarget) -> None:
        """A command received at t; ignored while disarmed."""
        if self.armed:
            self._pending.append((t + self._vehicle.command_delay_s, target))

    def disarm(self) -> None:
        """Motors off, at once."""
        self.armed, self._active = False, None
        self._pending.clear()

    def advance(self, t: float) -> None:
        """Flies to time t; a command that starts to act in between splits the step there."""
        while self._pending and self._pending[0][0] < t:
            acts, target = self._pending.popleft()
            self._fly(max(acts, self.t))
            self._active = target
        self._fly(t)

    def _fly(self, t: float) -> None:
        dt, self.t = t - self.t, t
        if dt <= 0:
            return
        u = self._input()
        before = self.x[V].copy()
        x = self._step(self.x, u, dt).full().ravel()
        if self.on_pad and (x[V] - before)[2] >= 0:  # the thrust does not carry it yet
            x[: W.stop] = self.x[: W.stop]
            self.x = x
            self._force_b = -GRAVITY * matrix(x[Q])[2]
            return
        self.on_pad = False
        self.x = x
        dv = np.array(rates(x, u, self._vehicle.rates_parameters)[7:10])
        self._force_b = matrix(x[Q]).T @ (dv - np.array([0.0, 0.0, GRAVITY]))

    def _input(self) -> Array:
        """(4,) rates and thrust that the flight controller asks of the motors now."""
        target = self._active
        if target is None:
            return np.zeros(RATES_U.size)
        omega = np.array(target.omega)
        if not target.by_rates:
            omega = omega + ATTITUDE_GAIN * log(product(conjugate(self.x[Q]), np.array(target.q_wb)))
        thrust = self._vehicle.throttle.thrust(target.throttle)
        return np.array([*np.clip(omega, -self._limit, self._limit), thrust])


def _integrator(vehicle: Vehicle) -> ca.Function:
    """(x, u, dt) -> x, with the quaternion normalised after every sub-step."""
    x, u, dt = ca.SX.sym("x", RATES_X.size), ca.SX.sym("u", RATES_U.size), ca.SX.sym("dt")
    end = rk4(rates, ca.vertsplit(x), ca.vertsplit(u), vehicle.rates_parameters, dt)
    end = ca.vertcat(*end)
    norm = ca.sqrt(ca.sumsqr(end[Q]))
    one = ca.Function("substep", [x, u, dt], [ca.vertcat(end[P], end[Q] / norm, end[Q.stop :])])
    many = one.mapaccum(SUBSTEPS)
    return ca.Function(
        "step",
        [x, u, dt],
        [many(x, ca.repmat(u, 1, SUBSTEPS), ca.repmat(dt / SUBSTEPS, 1, SUBSTEPS))[:, -1]],
    )

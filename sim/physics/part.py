"""Plants that a user brings: their equations of motion, in our air, among our gates, behind our rate commands.

By name there are those of RotorPy (UPenn) and crazyflow (TUM), with their own vehicles, but two numbers of ours, so that they can
fly the same courses: the largest rotor speed and the rate lag (docs/parts.md).
"""

import math
import os
from typing import Any, Protocol
from unittest import mock

import numpy as np

from gate_racer.common.config import shown
from gate_racer.common.parts import Part, array_of
from gate_racer.sim.physics.contact import collide
from gate_racer.sim.physics.plant import P, Q, RatesPlant, V, W
from gate_racer.vehicle.dynamics import G_W, RATES_X
from gate_racer.vehicle.rotation import Array, as_vector, exp, matrix, product
from gate_racer.vehicle.vehicle import Vehicle

# From NED to NWU, and from FRD to FLU: half a turn about x.
NWU, NWU_Q = np.array([1.0, -1.0, -1.0]), np.array([1.0, 1.0, -1.0, -1.0])
XYZW, WXYZ = [1, 2, 3, 0], [3, 0, 1, 2]
CRAZYFLIE = "cf21B_500"
ARRAYS = "SCIPY_ARRAY_API"  # which its packages demand at import, for arrays other than NumPy's
MOTOR_S = 0.05  # s, lag of its motors about twice hover, by which its rate loop leads


def _state(p: Array, q: Array, v: Array, w: Array, thrust: float) -> Array:
    """Return the state (14,) as RATES_X from NWU and FLU, with the quaternion as xyzw; thrust over mass, m/s^2."""
    x = np.empty(RATES_X.size)
    x[P], x[Q], x[V], x[W], x[-1] = NWU * p, NWU_Q * q[WXYZ], NWU * v, NWU * w, thrust
    return x


class RotorPy:
    """The Hummingbird of RotorPy's `Multirotor`, with collective thrust and body rates (`cmd_ctbr`)."""

    def __init__(self, vehicle: Vehicle):
        from rotorpy.vehicles.hummingbird_params import quad_params
        from rotorpy.vehicles.multirotor import Multirotor

        fastest = math.sqrt(quad_params["mass"] * vehicle.thrust_max / (4 * quad_params["k_eta"]))
        own = quad_params | {"rotor_speed_max": fastest, "k_w": 1 / vehicle.rate_lag_s[0]}
        self._quad = Multirotor(own, control_abstraction="cmd_ctbr")
        self.reset()

    def reset(self) -> None:
        self._rotors = np.zeros(4)  # rad/s

    def step(self, x: Array, u: Array, dt: float) -> Array:
        state = {"x": NWU * x[P], "q": (NWU_Q * x[Q])[XYZW], "v": NWU * x[V], "w": NWU * x[W], "wind": np.zeros(3)}
        asked = {"cmd_thrust": self._quad.mass * u[3], "cmd_w": NWU * u[:3]}
        after = self._quad.step(state | {"rotor_speeds": self._rotors}, asked, dt)
        self._rotors = after["rotor_speeds"]
        thrust = self._quad.k_eta * float(self._rotors @ self._rotors) / self._quad.mass
        return _state(after["x"], after["q"], after["v"], after["w"], thrust)


class Crazyflow:
    """The Crazyflie of crazyflow's first-principles model, behind a rate loop that leads by its motors' lag.

    crazyflow's own step evaluates the same function of `drone_models`, by JAX in single precision and at fixed steps, and
    integrates it by Euler's method, as here.
    """

    def __init__(self, vehicle: Vehicle):
        with mock.patch.dict(os.environ, {ARRAYS: "1"}):
            from drone_controllers.mellinger.control import force_torque2rotor_vel
            from drone_models.core import load_params, parametrize
            from drone_models.first_principles import dynamics
        self._par = par = load_params("first_principles", CRAZYFLIE)
        self._slope = parametrize(dynamics, CRAZYFLIE)
        names = ("thrust_min", "L", "rpm2thrust", "thrust2torque", "mixing_matrix")
        self._allocation = {name: par[name] for name in names} | {"thrust_max": par["mass"] * vehicle.thrust_max / 4}
        self._allocate, self._gain_1_s = force_torque2rotor_vel, 1 / np.array(vehicle.rate_lag_s)
        self.reset()

    def reset(self) -> None:
        self._rotors, self._turn = np.zeros(4), np.zeros(3)  # rpm; rad/s^2

    def step(self, x: Array, u: Array, dt: float) -> Array:
        p, q, v, w = NWU * x[P], NWU_Q * x[Q], NWU * x[V], NWU * x[W]
        asked = self._gain_1_s * (NWU * u[:3] - w - MOTOR_S * self._turn)
        torque = self._par["J"] @ asked
        cmd = self._allocate(np.array([self._par["mass"] * u[3]]), torque, **self._allocation)
        _, _, acceleration, self._turn, spin = self._slope(p, q[XYZW], v, w, cmd, self._rotors)
        thrusts_n = np.polynomial.polynomial.polyval(self._rotors, self._par["rpm2thrust"])  # of speeds in rpm
        thrust = float(thrusts_n.sum()) / self._par["mass"]
        self._rotors = self._rotors + dt * spin
        turned = np.array(product(q, exp(dt * w)))
        return _state(p + dt * v, turned[XYZW], v + dt * acceleration, w + dt * self._turn, thrust)


class Plant(Protocol):
    """Equations of motion, a part that a user may bring. Made as `Mine(vehicle)`; docs/parts.md has an example.

    It may keep states of its own, such as motor speeds.

    Examples:
        >>> from gate_racer import Plant
        >>> hasattr(Plant, "step")
        True
    """

    def reset(self) -> None:
        """Return to rest, motors off. Optional."""
        ...

    def step(self, x: Array, u: Array, dt: float) -> Array:
        """Return the state (14,), as `RATES_X`, dt (s) after x (14,).

        The command u (4,) is body rates, rad/s, and thrust over mass, m/s^2. Command delay, contacts, pad and wind are added
        outside.
        """
        ...


class PartPlant(RatesPlant):
    """Plant of a user's class; the `rates` model where that fails."""

    def __init__(self, name: str, vehicle: Vehicle, *given: Any):
        """Make it. Raises UserError where the class cannot be loaded or made."""
        self._part = Part(name, "plant", ("step",), (vehicle,))
        super().__init__(vehicle, *given)

    def reset(self, t: float) -> None:
        super().reset(t)
        if self._part.has("reset"):
            self._part.call("reset")

    @property
    def trouble(self) -> str:
        return self._part.summary

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        thrust = self._vehicle.throttle.thrust(throttle) if self._active is not None else 0.0
        u, force_b = np.array([*omega.tolist(), thrust]), (0.0, 0.0, 0.0)
        for _ in range(substeps):
            v_w, after = self.x[V].copy(), self._after(u, dt)
            if after is None:
                force_b = super()._step(omega, throttle, 1, dt)
                continue
            self.x[:] = after
            self.x[V] += self._unknown_w * dt
            force_b = as_vector(matrix(after[Q]).T @ ((after[V] - v_w) / dt - G_W))
            solids, first, body, impulses = self._surroundings()
            collide(self.x, solids, first, body[0], impulses)
        return force_b

    def _after(self, u: Array, dt: float) -> Array | None:
        """Return the part's next state (14,), with a unit quaternion; None where it fails."""
        found, why = self._part.call("step", self.x.copy(), u.copy(), dt)
        if why:
            return None
        x = array_of(found, RATES_X.size)
        if x is None or not x[Q].any():
            self._part.fault(f"step returned {shown(found)}, not {RATES_X.size} finite numbers")
            return None
        x[Q] /= np.linalg.norm(x[Q])
        return x

"""Plants that a user brings: their equations of motion, in our air, among our gates, behind our rate commands."""

from typing import Any, Protocol

import numpy as np

from gate_racer.common.config import shown
from gate_racer.common.errors import UserError
from gate_racer.common.parts import CLASS, Part, array_of, is_part
from gate_racer.sim.physics.contact import collide
from gate_racer.sim.physics.foreign import PLANTS, class_of
from gate_racer.sim.physics.plant import Q, V
from gate_racer.sim.physics.plants import SETTINGS, RatesPlant, Setting
from gate_racer.vehicle.dynamics import G_W, RATES_X
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import Vehicle

NEEDED = ("step",)


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
        self._part = Part(name, "plant", NEEDED, (vehicle,))
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
            before, after = self.x.copy(), self._after(u, dt)
            if after is None:
                force_b = super()._step(omega, throttle, 1, dt)
                continue
            self.x[:] = after
            self.x[V] += self._unknown_w * dt
            force = matrix(after[Q]).T @ ((after[V] - before[V]) / dt - G_W)
            force_b = float(force[0]), float(force[1]), float(force[2])
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


def plant_setting(name: str) -> Setting | None:
    """Return the setting of a number of `SETTINGS`, of a name in `foreign.PLANTS` or of a user's class; None for an empty name.

    Raises:
        UserError: another name, or a package that is not installed.
    """
    if not name:
        return None
    if is_part(name) or name in PLANTS:
        return Setting(aerodynamic=False, noisy=False, part=class_of(name) if name in PLANTS else name)
    if name not in map(str, SETTINGS):
        raise UserError(f"plant {name}: must be one of {', '.join([*map(str, SETTINGS), *PLANTS])}, or {CLASS}")
    return SETTINGS[int(name)]

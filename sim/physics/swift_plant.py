"""The grey-box plant: `sim.physics.swift` with contacts, behind the plant's interface."""

import numpy as np

from sim.physics import swift
from sim.physics.battery import voltage
from sim.physics.contact import Colliders
from sim.physics.flight_controller import steady_speed
from sim.physics.jit import record
from sim.physics.plant import Plant, Residual
from sim.physics.swift import ALL, Terms
from tracks.track import Start
from vehicle.rotation import Array
from vehicle.vehicle import ThrottleCurve, Vehicle


class SwiftPlant(Plant):
    """State `x` as `sim.physics.swift.X`. Raises UserError when the vehicle has no grey-box sections."""

    def __init__(
        self,
        vehicle: Vehicle,
        start: Start,
        colliders: Colliders | None = None,
        residual: Residual | None = None,
        terms: Terms = ALL,
    ):
        """`terms.flight_controller` must be on: the plant is flown by rates and throttle."""
        if not terms.flight_controller:
            raise ValueError("a plant is flown by rates and throttle, so its flight controller cannot be switched off")
        self._par, self._terms = record(swift.parameters(vehicle)), terms
        super().__init__(vehicle, start, colliders, residual)

    @property
    def thrust(self) -> float:
        omega = self.x[swift.OMEGA]
        return float(self._par.c_l * (omega @ omega) / self._par.mass)

    @property
    def motor_speeds(self) -> Array:
        """(4,) rad/s."""
        return self.x[swift.OMEGA].copy()

    @property
    def battery_v(self) -> float:
        """Voltage of the pack now."""
        return float(voltage(self.x[swift.BATTERY], self._par.battery))

    def _at_rest(self) -> Array:
        return swift.at_rest(self._par)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        u, armed = np.array([*omega, throttle]), self._active is not None  # motors stand still until the first command
        given = self._unknown_w, self._par, self._terms, substeps, dt
        return swift.fly(self.x, u, armed, *given, *self._surroundings())


def static_curve(vehicle: Vehicle, points: int) -> ThrottleCurve:
    """Thrust over throttle in still air at nominal voltage: what the vehicle's `throttle` should hold."""
    par = record(swift.parameters(vehicle))
    command, thrust = np.linspace(0.0, 1.0, points), []
    for throttle in command:
        x = swift.at_rest(par)
        x[swift.OMEGA] = steady_speed(throttle, par.battery.nominal_v, par.loop, par.speed)
        thrust.append(-swift.specific_force(x, par, ALL)[2])
    return ThrottleCurve(tuple(command.tolist()), tuple(thrust))

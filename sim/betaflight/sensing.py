"""Measurements of the flight controller in counts, with the biases due to spinning propellers.

The specific force is low-pass filtered, the attitude is updated by a task of its own; rates are those of the present.
"""

import math
from dataclasses import replace

import numpy as np

from gate_racer.link.messages import Imu
from gate_racer.link.msp.messages import Altitude, RawAttitude, RawImu
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.msp.units import raw_attitude, raw_imu
from gate_racer.sim.physics.plant import P, Truth, V
from gate_racer.sim.sensors import Sensors
from gate_racer.sim.simulator import Simulator
from gate_racer.vehicle.rotation import Array

LONGEST = 0x7FFF


class SimulatedSensing:
    """Measurements of a simulator's vehicle; call `advance` at each of its ticks. Altitude is relative to the pad."""

    def __init__(self, profile: BetaflightProfile, simulator: Simulator, sensors: Sensors, rng: np.random.Generator):
        """Create it; `rng`: phase of the attitude task, and barometer noise."""
        self._profile, self._simulator, self._sensors, self._rng = profile, simulator, sensors, rng
        self._pad_z = float(simulator.truth.x[P][2])
        self._force = LowPass(profile.accel_lpf_hz, simulator.truth.accel_b)
        self._attitude, self._attitude_t = self._raw_attitude(), rng.uniform(0.0, 1 / profile.attitude_hz)

    def advance(self) -> None:
        """Filter the force, and update the attitude when it is due."""
        truth = self._simulator.truth
        self._force.advance(truth.accel_b, 1 / self._simulator.profile.physics_hz)
        self._sensors.follow(self._filtered)
        if truth.t >= self._attitude_t:
            self._attitude, self._attitude_t = self._raw_attitude(), self._attitude_t + 1 / self._profile.attitude_hz

    def imu(self) -> RawImu:
        sample: Imu = self._sensors.imu(self._filtered)
        x, y, z = sample.accel
        lost = self._profile.accel_loss_m_s2 if self._simulator.armed else 0.0
        return raw_imu(self._profile, (x, y, z + lost), sample.gyro)

    def attitude(self) -> RawAttitude:
        return self._attitude

    def altitude(self) -> Altitude:
        x, barometer = self._simulator.truth.x, self._profile.barometer
        height = self._pad_z - float(x[P][2]) + self._rng.normal(0.0, barometer.noise_m)
        if self._simulator.armed:
            height -= barometer.fall_m
        climb = min(max(round(-100 * float(x[V][2])), -LONGEST), LONGEST)
        return Altitude(round(100 * height), climb)

    @property
    def _filtered(self) -> Truth:
        return replace(self._simulator.truth, accel_b=self._force.y)

    def _raw_attitude(self) -> RawAttitude:
        return raw_attitude(self._profile, np.array(self._sensors.attitude(self._simulator.truth).q_wb))


class LowPass:
    """Butterworth filter of second order for a vector: y'' = w^2 (x - y) - sqrt(2) w y'."""

    def __init__(self, cutoff_hz: float, at_rest: Array):
        self._w, self.y, self._dy = 2 * math.pi * cutoff_hz, at_rest.copy(), np.zeros_like(at_rest)

    def advance(self, x: Array, dt: float) -> None:
        """Advance by dt (s), short compared with the time constant, at input x."""
        self._dy = self._dy + dt * self._w * (self._w * (x - self.y) - math.sqrt(2) * self._dy)
        self.y = self.y + dt * self._dy

"""Measurements of the flight controller in counts, with the biases due to spinning propellers."""

import numpy as np

from link.messages import Imu
from link.msp.messages import Altitude, RawAttitude, RawImu
from link.msp.profile import BetaflightProfile
from link.msp.units import raw_attitude, raw_imu
from sim.physics.plant import P, V
from sim.sensors import Sensors
from sim.simulator import Simulator

LONGEST = 0x7FFF


class SimulatedSensing:
    """Measurements at the current state of the simulator. Altitude is relative to the pad; `rng`: barometer noise."""

    def __init__(self, profile: BetaflightProfile, simulator: Simulator, sensors: Sensors, rng: np.random.Generator):
        self._profile, self._simulator, self._sensors, self._rng = profile, simulator, sensors, rng
        self._pad_z = float(simulator.truth.x[P][2])

    def imu(self) -> RawImu:
        sample: Imu = self._sensors.imu(self._simulator.truth)
        x, y, z = sample.accel
        lost = self._profile.accel_loss_m_s2 if self._simulator.armed else 0.0
        return raw_imu(self._profile, (x, y, z + lost), sample.gyro)

    def attitude(self) -> RawAttitude:
        return raw_attitude(self._profile, np.array(self._sensors.attitude(self._simulator.truth).q_wb))

    def altitude(self) -> Altitude:
        x, barometer = self._simulator.truth.x, self._profile.barometer
        height = self._pad_z - float(x[P][2]) + self._rng.normal(0.0, barometer.noise_m)
        if self._simulator.armed:
            height -= barometer.fall_m
        climb = min(max(round(-100 * float(x[V][2])), -LONGEST), LONGEST)
        return Altitude(round(100 * height), climb)

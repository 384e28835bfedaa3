"""What the vehicle feels: IMU with noise and a constant bias, and the attitude telemetry."""

import numpy as np

from link.messages import Attitude, Imu
from sim.physics.plant import Truth, W
from vehicle.vehicle import Vehicle


class Sensors:
    """Draws the biases once and the noise at every sample from its own random stream."""

    def __init__(self, vehicle: Vehicle, rng: np.random.Generator):
        self._imu, self._rng = vehicle.imu, rng
        self._accel_bias = rng.normal(0.0, self._imu.accel_bias_m_s2, 3)
        self._gyro_bias = rng.normal(0.0, self._imu.gyro_bias_rad_s, 3)

    def imu(self, truth: Truth) -> Imu:
        """One HIGHRES_IMU sample at the truth's time."""
        accel = truth.accel_b + self._accel_bias + self._rng.normal(0.0, self._imu.accel_noise_m_s2, 3)
        gyro = truth.x[W] + self._gyro_bias + self._rng.normal(0.0, self._imu.gyro_noise_rad_s, 3)
        return Imu(truth.t, tuple(accel.tolist()), tuple(gyro.tolist()))

    @staticmethod
    def attitude(truth: Truth) -> Attitude:
        """One ATTITUDE sample; the real simulator's carries no noise."""
        return Attitude(truth.t, tuple(truth.q_wb.tolist()))

"""IMU with noise, bias and the deviations of its world, and the attitude telemetry."""

from collections import deque

import numpy as np

from gate_racer.link.messages import Attitude, Imu
from gate_racer.sim.physics.plant import Truth, W
from gate_racer.sim.worlds.deviations import ImuDeviation
from gate_racer.sim.worlds.world import rotation_vector
from gate_racer.vehicle.rotation import Array, exp, matrix, product
from gate_racer.vehicle.vehicle import Vehicle

NO_ERRORS = ImuDeviation()
OLDEST_S = 0.05  # s, length of the history of specific forces


class Sensors:
    """IMU and attitude of one vehicle; biases are drawn once, noise at every sample, from one random stream.

    measured = (1 + scale) R_sb (true + loss by vibration) + bias + noise
    """

    def __init__(self, vehicle: Vehicle, rng: np.random.Generator, errors: ImuDeviation = NO_ERRORS):
        """Draw the biases. `errors`: deviations from the vehicle's file."""
        self._vehicle, self._imu, self._rng = vehicle, vehicle.imu, rng
        self._age_s = vehicle.imu.accel_delay_s + errors.accel_age_s
        self._accel_bias = rng.normal(0.0, self._imu.accel_bias_m_s2, 3) + errors.accel_bias_m_s2
        self._gyro_bias = rng.normal(0.0, self._imu.gyro_bias_rad_s, 3) + errors.gyro_bias_rad_s
        self._accel_noise = errors.noise_scale * self._imu.accel_noise_m_s2
        self._gyro_noise = errors.noise_scale * self._imu.gyro_noise_rad_s
        R_sb = matrix(exp(rotation_vector(errors.misalignment_deg))).T
        self._accel_axes = np.diag(1 + np.array(errors.accel_scale)) @ R_sb
        self._gyro_axes = np.diag(1 + np.array(errors.gyro_scale)) @ R_sb
        self._attitude_error = exp(rotation_vector(errors.attitude_deg))
        self._forces: deque[tuple[float, Array]] = deque()  # time and specific force, body axes

    def follow(self, truth: Truth) -> None:
        """Store the specific force of a tick, for samples that lag it."""
        if self._age_s:
            self._forces.append((truth.t, truth.accel_b))
            while self._forces[0][0] < truth.t - OLDEST_S:
                self._forces.popleft()

    def _force(self, truth: Truth) -> Array:
        """Return the specific force (3,), m/s^2, body FRD, delayed by the accelerometer's lag."""
        if not self._forces:
            return truth.accel_b
        t, forces = zip(*self._forces, strict=True)
        return np.array([np.interp(truth.t - self._age_s, t, axis) for axis in np.transpose(forces)])

    def imu(self, truth: Truth) -> Imu:
        """Return one HIGHRES_IMU sample at the time of `truth`."""
        force = self._force(truth) + [0.0, 0.0, self._vehicle.accel_loss(float(truth.x[-1]))]
        accel = self._accel_axes @ force + self._accel_bias + self._rng.normal(0.0, self._accel_noise, 3)
        gyro = self._gyro_axes @ truth.x[W] + self._gyro_bias + self._rng.normal(0.0, self._gyro_noise, 3)
        return Imu(truth.t, tuple(accel.tolist()), tuple(gyro.tolist()))

    def attitude(self, truth: Truth) -> Attitude:
        """Return one ATTITUDE sample; noise-free, as in the real simulator."""
        w, x, y, z = (float(part) for part in product(truth.q_wb, self._attitude_error))
        return Attitude(truth.t, (w, x, y, z))

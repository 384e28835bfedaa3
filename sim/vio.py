"""Simulated VIO of the vehicle: the true motion with drawn errors, from an origin and a heading of its own at the start."""

import numpy as np

from gate_racer.link.messages import Odometry
from gate_racer.sim.physics.plant import P, Q, Truth, V, W
from gate_racer.sim.physics.residual import ObservationModel
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import as_vector, conjugate, exp, from_euler, matrix, normalised, product

VIO_HZ = 100.0  # Hz, rate of the T265 of Swift


class SimulatedVio:
    def __init__(self, errors: ObservationModel, start: Start, rng: np.random.Generator):
        """Draw the errors as a function of the state, less those at the start."""
        self._errors, self._p_w = errors.sample(rng), start.p_wb
        rest = np.zeros(10)
        rest[P], rest[Q] = start.p_wb, start.q_wb
        self._at_start = self._errors.errors(rest)[0]
        self._q_vw = conjugate(from_euler(0.0, 0.0, np.radians(start.yaw_deg)))

    def sample(self, t: float, truth: Truth, resets: int) -> Odometry:
        """Return the sample at t (s) of a true state."""
        error, R_vw = self._errors.errors(truth.x)[0] - self._at_start, matrix(self._q_vw)
        q_wb = product(exp(error[6:9]), truth.q_wb)
        v_b = matrix(q_wb).T @ (truth.x[V] + error[3:6])
        w, x, y, z = normalised(product(self._q_vw, q_wb)).tolist()
        p_v = R_vw @ (truth.x[P] + error[:3] - self._p_w)
        return Odometry(t, as_vector(p_v), (w, x, y, z), as_vector(v_b), as_vector(truth.x[W]), resets)

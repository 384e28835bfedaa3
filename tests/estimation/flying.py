"""Flights as estimators see them, made from their own equations of motion."""

from dataclasses import replace

import numpy as np
from scipy.stats import chi2

from gate_racer.estimation.localisation import localise
from gate_racer.estimation.registry import make_estimator
from gate_racer.link.messages import Imu
from gate_racer.model.kalman import update
from gate_racer.model.reprojection import CameraContext, GateSighting, project, residual, stack
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import DELAY, Nominal
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import conjugate, exp, from_euler, log, matrix, normalised, product

HZ, NAN = 120.0, float("nan")
FIRST, SURE = np.array([0]), np.zeros(3)  # the place of the one gate; no doubt in the turn up to the exposure
PAD = np.array([0.5, -0.3, 0.1])
NO_SPIKE = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)


def before_gate(gate, rng):
    """A flight towards a gate, off its axis."""
    q = product(gate.q_wg, from_euler(*rng.normal(0, 0.1, 3)))
    p = gate.p_wg + gate.R_wg @ [-8.0, 0.5, -0.3]
    return Nominal.at(0.0, p, gate.R_wg @ [15.0, 1.0, 2.0], q, tilt=0.02, delay=0.003)


def sighted(gate, x, camera, rng=None, sigma=0.3, shown=(0, 1, 2, 3)):
    """A sighting of some corners of a gate from a true state."""
    px = project(x, looking(camera, x[DELAY]), FIRST, gate.corners()[None])[0][0]
    px = px + (0.0 if rng is None else rng.normal(0, sigma, (4, 2)))
    cov = np.array([np.eye(2) * (sigma**2 if k in shown else 1e8) for k in range(4)])
    visible = np.isin(np.arange(4), shown)
    return GateSighting(0.0, 0, x.p_wb, np.eye(3), np.zeros((3, 3)), 8.0, px, cov, visible, gate.corners())


def looking(camera, delay=0.0):
    """A camera on a body that does not turn."""
    return CameraContext(camera, np.zeros(3), delay, SURE, PAD)


def corrected(known, sighting, context):
    """The filter's state after a sighting of its only gate."""
    measured = stack([sighting], FIRST, known.x, context)
    return update(known, lambda x: residual(x, context, measured), measured.R)


def assert_consistent(squares, dof):
    """Normalised squared errors of so many degrees of freedom have a mean in its 95 % band."""
    low, high = chi2.ppf([0.025, 0.975], dof * len(squares)) / len(squares)
    assert low < np.mean(squares) < high


class Flight:
    """A vehicle that rests on VQ1's pad and then flies level towards its first gate, as estimators see it."""

    def __init__(
        self, track, vehicle, name="eskf", rest=120, bias=(0.0,) * 3, gyro_bias=(0.0,) * 3, spikes=None, filed=None
    ):
        """A flight from rest.

        Args:
            spikes: by the number of the sample at rest, what is added to accelerometer and gyro.
            filed: the track as the estimator knows it.
        """
        self.track, self.vehicle, self.rng = track, vehicle, np.random.default_rng(0)
        self.associator = Associator(track.gates, vehicle.camera)
        self.estimator = make_estimator(name, (filed or track).start, vehicle, GateAppearance())
        self.gate, self.bias, self.gyro_bias = track.gates[0], np.array(bias), np.array(gyro_bias)
        self.q, self.k = track.start.q_wb, 0
        self.last_w = np.zeros(3)
        self.p, self.v, self.a_b, self.w = track.start.p_wb.copy(), np.zeros(3), np.zeros(3), np.zeros(3)
        for k in range(rest):
            self.tick((spikes or {}).get(k, NO_SPIKE))
        self.estimator.release()

    @property
    def t(self):
        return self.k / HZ

    def tick(self, spike=NO_SPIKE):
        a_w = matrix(self.q) @ self.a_b
        self.p = self.p + self.v / HZ + 0.5 * a_w / HZ**2
        self.v = self.v + a_w / HZ
        self.q = normalised(product(self.q, exp(0.5 * (self.w + self.last_w) / HZ)))
        self.last_w = self.w
        self.k += 1
        force = matrix(self.q).T @ (a_w - [0, 0, GRAVITY]) + self.bias + spike[0]
        omega = self.w + self.gyro_bias + spike[1]
        return self.estimator.imu(Imu(self.t, tuple(force.tolist()), tuple(omega.tolist())))

    def detections(self):
        p_c = (self.gate.corners() - self.p) @ matrix(self.q) @ self.vehicle.camera.R_bc
        px = self.vehicle.camera.project(p_c) + self.rng.normal(0, 0.2, (4, 2))
        return [Detection.whole(px, 0.2, 1.0)]

    def look(self, stamp=None, detections=None):
        """The gate's corners at this moment."""
        detections = self.detections() if detections is None else detections
        stamp = self.t if stamp is None else stamp
        return localise(self.estimator, self.associator, stamp, detections).used

    def fly(self, seconds, every=4, **look):
        used = 0
        for _ in range(round(seconds * HZ)):
            self.tick()
            if every and self.k % every == 0:
                used += self.look(**look)
        return used

    @property
    def error(self):
        """Of the position, m."""
        return float(np.linalg.norm(self.estimator.state().p_wb - self.p))

    @property
    def turned(self):
        """Error of the attitude, rad."""
        return float(np.linalg.norm(log(product(conjugate(self.estimator.state().q_wb), self.q))))

    def astray(self, step_w):
        """Hold a wrong place for sure."""
        delayed = self.estimator.delayed
        moved = delayed.x.having(p=delayed.x.p_wb + step_w)
        self.estimator.propagator.correct(replace(delayed, x=moved))

"""One run against an independent estimator: GTSAM's smoother (Forster et al. 2017) on the same IMU samples and corners.

The newest state of a smoother is what a filter of the same model holds, up to linearisation.
"""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.eskf import ErrorStateEstimator
from gate_racer.estimation.localisation import localise
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import HEADING, PAD, STATES, THETA, Noise, P
from gate_racer.perception.association import Associator
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.uncertainty import Doubt
from tests.estimation.flying import HZ, Flight

gtsam = pytest.importorskip("gtsam")
POSE, VELOCITY, BIAS, CORNER = "xvbl"
PAD_SIGMA_P, PAD_SIGMA_ATTITUDE = 0.03, 0.005  # m, rad: wider ones are too much for the smoother's Cholesky factors
# What the smoother has no unknowns for is certain.
CERTAIN = {
    name: block if name in ("p", "v", "theta") else block._replace(prior=1e-9, walk=0.0)
    for name, block in STATES.items()
}
FLAT = GateAppearance(outline_m=0.0, depth_m=1e-3, edge_offset_px=1e-9, edge_offset_m=0.0)


def key(kind, k=0):
    return gtsam.symbol(kind, k)


def sigmas(*values):
    return gtsam.noiseModel.Diagonal.Sigmas(np.concatenate([np.atleast_1d(value) for value in values]).astype(float))


class Smoother:
    """A factor graph over the poses at exposures, fed as the filter is."""

    def __init__(self, x, noise, camera):
        imu, self.n, self.corners = noise.imu, 0, 0
        self.graph, self.guess = gtsam.NonlinearFactorGraph(), gtsam.Values()
        self.params = gtsam.PreintegrationParams(np.array([0.0, 0.0, GRAVITY]))
        self.params.setAccelerometerCovariance((imu.accel_noise_m_s2**2 / HZ + STATES["v"].walk ** 2) * np.eye(3))
        self.params.setGyroscopeCovariance((imu.gyro_noise_rad_s**2 / HZ + STATES["theta"].walk ** 2) * np.eye(3))
        self.params.setIntegrationCovariance(1e-12 * np.eye(3))
        self.K = gtsam.Cal3_S2(camera.fx_px, camera.fy_px, 0.0, camera.cx_px, camera.cy_px)
        self.T_bc = gtsam.Pose3(gtsam.Rot3(camera.R_bc), np.zeros(3))
        first = gtsam.Pose3(gtsam.Rot3(matrix(x.q_wb)), x.p_wb)
        bias = gtsam.imuBias.ConstantBias()
        pad = sigmas([PAD_SIGMA_ATTITUDE] * 3, [PAD_SIGMA_P] * 3)
        self.graph.add(gtsam.PriorFactorPose3(key(POSE), first, pad))
        self.graph.add(gtsam.PriorFactorVector(key(VELOCITY), np.zeros(3), sigmas([STATES["v"].prior] * 3)))
        of_bias = sigmas([imu.accel_bias_m_s2] * 3, [imu.gyro_bias_rad_s] * 3)
        self.graph.add(gtsam.PriorFactorConstantBias(key(BIAS), bias, of_bias))
        for kind, value in ((POSE, first), (VELOCITY, np.zeros(3)), (BIAS, bias)):
            self.guess.insert(key(kind), value)
        self.begin()

    def begin(self):
        self.between = gtsam.PreintegratedImuMeasurements(self.params, gtsam.imuBias.ConstantBias())

    def imu(self, a, b):
        """The mean of two readings over the time between, as the filter has it."""
        self.between.integrateMeasurement(0.5 * (a.accel + b.accel), 0.5 * (a.gyro + b.gyro), b.t - a.t)

    def see(self, sighting, state):
        k, self.n = self.n, self.n + 1
        keys = key(POSE, k), key(VELOCITY, k), key(POSE, k + 1), key(VELOCITY, k + 1), key(BIAS)
        self.graph.add(gtsam.ImuFactor(*keys, self.between))
        self.guess.insert(keys[2], gtsam.Pose3(gtsam.Rot3(matrix(state.q_wb)), state.p_wb))
        self.guess.insert(keys[3], state.v_w)
        for px, cov, corner in zip(sighting.corners_px, sighting.cov_px, sighting.corners_w, strict=True):
            mark = key(CORNER, self.corners)
            self.corners += 1
            self.graph.add(gtsam.PriorFactorPoint3(mark, corner, sigmas([1e-6] * 3)))
            self.guess.insert(mark, corner)
            noise = gtsam.noiseModel.Gaussian.Covariance(cov)
            self.graph.add(gtsam.GenericProjectionFactorCal3_S2(px, noise, keys[2], mark, self.K, self.T_bc))
        self.begin()

    def newest(self):
        """Position, attitude matrix and their covariance (6, 6), position first, attitude in body axes."""
        solved = gtsam.LevenbergMarquardtOptimizer(self.graph, self.guess).optimize()
        pose = solved.atPose3(key(POSE, self.n))
        cov = gtsam.Marginals(self.graph, solved).marginalCovariance(key(POSE, self.n))
        R = pose.rotation().matrix()
        to_world = np.block([[np.zeros((3, 3)), R], [np.eye(3), np.zeros((3, 3))]])
        return pose.translation(), R, to_world @ cov @ to_world.T


def test_the_filter_holds_what_a_smoother_finds(vq1, dcl):
    rng = np.random.default_rng(1)
    noise = Noise(dcl.imu, CERTAIN, Doubt(between=1e-9, misaligned=1e-9, map_m=1e-9, map_turn=1e-9))
    flight = Flight(vq1, dcl, rest=0)
    flight.associator = Associator(vq1.gates, dcl.camera, FLAT)
    estimator = flight.estimator = ErrorStateEstimator(vq1.start, dcl.camera, noise, FLAT)
    known = estimator.propagator.state.cov.copy()
    for constant in (PAD, HEADING):  # the pose has no other errors than those of the smoother's prior
        known[constant], known[:, constant] = 0.0, 0.0
    known[P, P], known[THETA, THETA] = PAD_SIGMA_P**2 * np.eye(3), PAD_SIGMA_ATTITUDE**2 * np.eye(3)
    estimator.propagator.correct(replace(estimator.propagator.state, cov=known))
    estimator.release()
    flight.gyro_bias, bias = rng.normal(0, dcl.imu.gyro_bias_rad_s, 3), rng.normal(0, dcl.imu.accel_bias_m_s2, 3)
    smoother, last = Smoother(estimator.delayed.x, noise, dcl.camera), estimator.delayed.reading
    flight.a_b = matrix(flight.q).T @ [-8.0, 0.0, -0.6]
    for _ in range(120):
        flight.w = np.array([0.2, 0.1 * np.cos(5 * flight.t), 0.4 * np.sin(9 * flight.t)])
        flight.bias = bias + rng.normal(0, dcl.imu.accel_noise_m_s2, 3)
        flight.tick()
        reading = estimator.propagator.now[1]
        smoother.imu(last, reading)
        last = reading
        if flight.k % 4 == 0:
            found = localise(estimator, flight.associator, flight.t, flight.detections())
            assert found.used == 1
            smoother.see(found.sightings[0], estimator.state())
    state, (p_wb, R_wb, cov) = estimator.state(), smoother.newest()
    pose = [*range(P.start, P.stop), *range(THETA.start, THETA.stop)]
    ours = state.cov[np.ix_(pose, pose)]
    turned = gtsam.Rot3.Logmap(gtsam.Rot3(matrix(state.q_wb).T @ R_wb))
    apart = np.concatenate([p_wb - state.p_wb, turned])
    assert np.abs(apart / np.sqrt(ours.diagonal())).max() < 0.15
    assert np.sqrt(ours.diagonal()) == pytest.approx(np.sqrt(cov.diagonal()), rel=0.01)

"""Swift's filters as published: a prediction per image, and a fix of the position by IPPE with a sampled covariance."""

from dataclasses import replace

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter

from gate_racer.estimation.drift import RELEASED_NOISE, SWIFT_NOISE, DriftFilter, PoseFix
from gate_racer.model.reprojection import GateSighting
from gate_racer.vehicle.rotation import from_euler, product


def test_swift_s_position_doubt_after_a_second_of_images_without_gates():
    """30 predictions of diag(0.05, 0.1): 30 0.05 + 0.1 dt^2 (0^2 + ... + 29^2)."""
    drift = DriftFilter(SWIFT_NOISE)
    drift.begin(0.0)
    for k in range(1, 31):
        drift.predict(k / 30)
    assert drift.P[0, 0] == pytest.approx(2.45, abs=0.001)


PAPER = [np.kron(np.diag([0.05, 0.1]), np.eye(3)), None, 0.0, np.inf]
RELEASED = [None, 50.0, 1.0, 0.5]


@pytest.mark.parametrize(("noise", "facts"), [(SWIFT_NOISE, PAPER), (RELEASED_NOISE, RELEASED)])
def test_published_filters_are_filterpys_over_images_without_gates_and_stretches_without_images(noise, facts):
    """Each image is one prediction, by eq. (13) or by the released Q = q [dt^4/4, dt^3/2; dt^3/2, dt^2] of at most 0.5 s."""
    Q, q, first, longest = facts
    rng, ours, theirs = np.random.default_rng(8), DriftFilter(noise), KalmanFilter(dim_x=6, dim_z=3)
    ours.begin(0.0)
    theirs.x, theirs.P, last = np.zeros(6), first * np.eye(6), 0.0
    for t in np.arange(1, 240) / 30:
        if 3.0 < t < 3.9:  # nothing comes from the camera
            continue
        dt = min(t - last, longest)
        F = np.kron(np.array([[1.0, dt], [0.0, 1.0]]), np.eye(3))
        grown = Q if q is None else q * np.kron(np.array([[dt**4 / 4, dt**3 / 2], [dt**3 / 2, dt**2]]), np.eye(3))
        theirs.predict(F=F, Q=grown)
        ours.predict(t)
        if not 5.0 < t < 6.2:  # images without gates
            drift, R = rng.normal(0, 0.3, 3), np.diag(rng.uniform(0.01, 0.2, 3) ** 2)
            theirs.update(drift, R=R, H=np.eye(3, 6))
            ours.update(t, drift[None], R[None])
        last = t
        assert ours.x == pytest.approx(theirs.x, abs=1e-9)
        assert pytest.approx(theirs.P, abs=1e-9) == ours.P


def sighted_from(camera, gate, q_wb, p_wb, rng=None, sigma_px=0.4):
    """A sighting of a whole opening by a camera at a true pose."""
    corners_w, cov_px = gate.corners(), np.tile(sigma_px**2 * np.eye(2), (4, 1, 1))
    at_w, R_wc = camera.pose(p_wb, q_wb)
    px = camera.project((corners_w - at_w) @ R_wc)
    px = px if rng is None else px + sigma_px * rng.standard_normal((4, 2))
    return GateSighting(0.0, 0, p_wb + 9.0, np.eye(3), np.zeros((3, 3)), 8.0, px, cov_px, np.full(4, True), corners_w)


@pytest.mark.parametrize("k1", [0.0, -0.1])
def test_a_pose_fix_is_where_the_corners_are_seen_from_and_wants_all_four(vq1, dcl, k1):
    camera, gate = replace(dcl.camera, k1=k1), vq1.gates[0]
    p_wb, q_wb = gate.p_wg + gate.R_wg @ [-7.0, 1.0, 0.5], product(gate.q_wg, from_euler(0.2, -0.3, 0.1))
    sighting, fix = sighted_from(camera, gate, q_wb, p_wb), PoseFix(camera, np.random.default_rng(0))
    assert fix(sighting, q_wb)[0] == pytest.approx(p_wb, abs=1e-3)
    assert fix(replace(sighting, visible=np.array([True, True, True, False])), q_wb) is None


def test_a_pose_fix_errs_as_its_sampled_covariance_says(vq1, dcl):
    camera, gate, rng = dcl.camera, vq1.gates[0], np.random.default_rng(5)
    fix, nees = PoseFix(camera, np.random.default_rng(0)), []
    for _ in range(300):
        p_wb = gate.p_wg + gate.R_wg @ (np.array([-6.0, 0.0, 0.0]) + rng.uniform(-1, 1, 3))
        q_wb = product(gate.q_wg, from_euler(*rng.normal(0, 0.1, 3)))
        found, cov = fix(sighted_from(camera, gate, q_wb, p_wb, rng), q_wb)
        nees.append((found - p_wb) @ np.linalg.solve(cov, found - p_wb) / 3)
    assert 0.7 < np.mean(nees) < 1.3

"""Rivals tracked by sight, and as told."""

import math

import numpy as np
import pytest

from gate_racer.estimation.estimator import State
from gate_racer.estimation.rivals import LOST_M, ReceivedRivals, SeenRivals, singer
from gate_racer.link.messages import RivalState
from gate_racer.perception.detection import RivalDetection
from tests.perception.test_rival import box_of

LEVEL = np.array([1.0, 0, 0, 0])
START = np.array([0.0, 0, -2.0])
BEHIND_M = 3.0


def own(t):
    return State(t, START + [10.0 * t, 0, 0], LEVEL, np.array([10.0, 0, 0]), np.zeros(3), np.zeros((9, 9)), 0.0)


def seen_at(vehicle, p_w, at, rng=None):
    """Return the detection of a level body at p_w (3,) m."""
    eye_w, R_wc = vehicle.camera.pose(at.p_wb, at.q_wb)
    box_px = box_of(vehicle.camera, vehicle.body_m, (p_w - eye_w) @ R_wc, R_wc.T)
    return RivalDetection(box_px + (rng.standard_normal(4) if rng else 0.0), 1.0, (False,) * 4, 1.0)


def weave(t):
    """A rival's place and velocity, that sways by 15 m/s^2."""
    p_w = START + [BEHIND_M + 9.5 * t, 0.6 * math.sin(5 * t), -1.0]
    return p_w, np.array([9.5, 3.0 * math.cos(5 * t), 0.0])


def test_the_manoeuvre_model_is_the_same_in_finer_steps():
    whole, noise = singer(0.1)
    half, half_noise = singer(0.05)
    assert whole == pytest.approx(half @ half)
    assert noise == pytest.approx(half @ half_noise @ half.T + half_noise, abs=1e-9)
    assert np.linalg.eigvalsh(noise).min() > -1e-12


def test_a_manoeuvring_rival_is_tracked_within_twice_its_sigma(dcl):
    tracker, rng, errors, speeds = SeenRivals(dcl.camera, dcl.body_m), np.random.default_rng(0), [], []
    for k in range(60):
        t = k / 30
        at, (p_w, v_w) = own(t), weave(t)
        tracker.see(t, [seen_at(dcl, p_w, at, rng)], at.p_wb, at)
        for one in tracker.estimates() if k > 15 else ():
            off = np.concatenate([one.p_w - p_w, one.v_w - v_w])
            errors.append(off @ np.linalg.solve(one.cov, off))
            speeds.append(np.linalg.norm(off[3:]))
    assert len(errors) == 44 and np.mean(errors) < 6 * 2.0**2, "six degrees of freedom, and twice the error at most"
    assert np.mean(speeds) < 3.0


def test_one_detection_is_nobody_and_the_unseen_are_forgotten(dcl):
    tracker, at = SeenRivals(dcl.camera, dcl.body_m), own(0.0)
    tracker.see(0.0, [seen_at(dcl, weave(0.0)[0], at)], at.p_wb, at)
    assert tracker.estimates() == []
    for t in (1 / 30, 2 / 30):
        tracker.see(t, [seen_at(dcl, weave(t)[0], own(t))], own(t).p_wb, own(t))
    (one,) = tracker.estimates()
    assert np.linalg.norm(one.cov[:3, :3]) < LOST_M
    tracker.see(1.0, [], own(1.0).p_wb, own(1.0))
    assert tracker.estimates() == []


def test_two_rivals_are_not_taken_for_one(dcl):
    tracker, rng = SeenRivals(dcl.camera, dcl.body_m), np.random.default_rng(0)
    aside = np.array([1.0, 1.5, 0.0])
    for k in range(10):
        t = k / 30
        at, p_w = own(t), weave(t)[0]
        both = [seen_at(dcl, p_w, at, rng), seen_at(dcl, p_w + aside, at, rng)]
        tracker.see(t, both if k % 2 else both[::-1], at.p_wb, at)
    found = sorted(tracker.estimates(), key=lambda one: one.p_w[1])
    assert len(found) == 2
    assert (found[1].p_w - found[0].p_w)[1] == pytest.approx(aside[1], abs=0.6)


def accelerating(t):
    return RivalState(t, 1, (4.0 * t * t, 0.0, 0.0), (8.0 * t, 0.0, 0.0))


def test_a_reported_rivals_acceleration_follows_from_velocities():
    told = ReceivedRivals(2)
    for k in range(20):
        told.receive(accelerating(k / 40))
    (one,) = told.estimates()
    assert one.a_w == pytest.approx([8.0, 0, 0], abs=0.1) and not one.cov.any()


LATE = {"a copy": (0.0, 1), "a late one": (0.1, 1), "as late as is admitted": (1.0, 1), "five copies": (0.0, 5)}


@pytest.mark.parametrize(("late_s", "times"), LATE.values(), ids=LATE)
def test_a_state_that_is_not_newer_changes_nothing(late_s, times):
    told, doubled = ReceivedRivals(2), ReceivedRivals(2)
    for k in range(60):
        for tracker in (told, doubled):
            tracker.receive(accelerating(k / 40))
        for _ in range(times):
            doubled.receive(accelerating(k / 40 - late_s))
    (one,), (other,) = told.estimates(), doubled.estimates()
    assert other.t == one.t and np.array_equal(other.v_w, one.v_w) and np.array_equal(other.a_w, one.a_w)


def test_a_rival_in_a_restarted_race_begins_anew():
    told = ReceivedRivals(2)
    for t in (100.0, 100.1, 3.0):
        told.receive(accelerating(t))
    (one,) = told.estimates()
    assert one.t == 3.0 and one.p_w == pytest.approx(accelerating(3.0).p_w) and not one.a_w.any()

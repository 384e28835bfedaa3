"""An outside VIO carries the drift filter: from its own origin, across resets, bad samples and losses."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.vio import LOST_S, VioDriftEstimator
from gate_racer.link.messages import Attitude, Imu, Odometry
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import conjugate, from_euler, matrix, product

START, SPEED_M_S = Start((3.0, -2.0, -1.0), 140.0), 8.0
Q_VW, P_VW = from_euler(0.0, 0.0, 1.1), np.array([5.0, 7.0, -2.0])  # of our world in the VIO's
NAN = float("nan")


def seen(t, p_w, v_w=(0.0, 0.0, 0.0), q_wb=START.q_wb, resets=3):
    """The sample of a perfect VIO in its own world."""
    q = product(Q_VW, q_wb)
    p, v_b = matrix(Q_VW) @ p_w + P_VW, matrix(q_wb).T @ v_w
    return Odometry(t, tuple(p), tuple(q), tuple(v_b), (0.0, 0.0, 0.0), resets)


def flown(estimator, until, samples=lambda t, sample: [sample], error=0.0, begin=1.0):
    """Fly at a constant velocity from `begin` (s) on, with an IMU at 100 Hz that has an error; return the true position."""
    v_w = matrix(START.q_wb) @ [SPEED_M_S, 0.0, 0.0]
    if begin == 1.0:
        for k in range(1, 101):
            estimator.imu(Imu(k / 100, (0.0, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
            estimator.odometry(seen(k / 100, START.p_wb))
        estimator.release()
        estimator.pose = replace(estimator.pose, v_w=v_w)
    for t in np.arange(round(100 * begin) + 1, round(100 * until) + 1) / 100:
        estimator.imu(Imu(t, (error, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
        for sample in samples(t, seen(t, START.p_wb + (t - 1) * v_w, v_w)):
            estimator.odometry(sample)
    return START.p_wb + (until - 1) * v_w


def test_the_vio_is_aligned_on_the_pad_and_followed_whatever_the_imu_integrates_to():
    estimator = VioDriftEstimator(START)
    p_w = flown(estimator, 4.0, error=1.0)
    state = estimator.state()
    assert state.p_wb == pytest.approx(p_w, abs=0.01) and state.q_wb == pytest.approx(START.q_wb, abs=1e-6)
    assert estimator.health.odometry_used == 400 and estimator.health.samples_refused == 0


def test_a_sample_of_the_past_moves_the_present_by_what_has_been_integrated_since():
    estimator, waiting = VioDriftEstimator(START), []

    def late(t, sample):
        waiting.append(sample)
        return [waiting.pop(0)] if len(waiting) > 4 else []

    p_w = flown(estimator, 3.0, late, error=1.0)
    assert estimator.state().p_wb == pytest.approx(p_w, abs=0.01)


def test_samples_ahead_of_the_imu_correct_it_once():
    estimator, v_w = VioDriftEstimator(START), matrix(START.q_wb) @ [SPEED_M_S, 0.0, 0.0]
    ahead = np.arange(1, 5) / 500  # s, of a VIO that is several times as fast as the IMU
    p_w = flown(
        estimator, 3.0, lambda t, _: [seen(t + s, START.p_wb + (t + s - 1) * v_w, v_w) for s in ahead], error=1.0
    )
    assert estimator.state().p_wb == pytest.approx(p_w, abs=0.01)


def moved(sample):
    return replace(sample, p_wb=(sample.p_wb[0] + 40.0, *sample.p_wb[1:]))


RESETS = {"told": lambda s: replace(moved(s), resets=4), "not told": moved}


@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_a_reset_moves_the_origin_and_not_the_vehicle(reset):
    estimator = VioDriftEstimator(START)
    p_w = flown(estimator, 4.0, lambda t, sample: [reset(sample) if t > 2 else sample])
    assert estimator.state().p_wb == pytest.approx(p_w, abs=0.01) and estimator.health.odometry_resets == 1


BAD = {
    "NaN": lambda s: replace(s, v_b=(NAN, 0.0, 0.0)),
    "no time": lambda s: replace(s, t=NAN),
    "sentinel": lambda s: replace(s, p_wb=(3e38, 0.0, 0.0)),
    "no quaternion": lambda s: replace(s, q_wb=(0.0, 0.0, 0.0, 0.0)),
    "repeated": lambda s: replace(s, p_wb=(0.0, 0.0, 0.0)),
    "backwards": lambda s: replace(s, t=s.t - 0.1, p_wb=(0.0, 0.0, 0.0)),
    "stale": lambda s: replace(s, t=s.t - 0.8),
    "of another clock": lambda s: replace(s, t=s.t + 1.7e9),
    "diverged": lambda s: replace(s, t=s.t + 1e-3, v_b=(90.0, 0.0, 0.0)),
    "turned over": lambda s: replace(s, t=s.t + 1e-3, q_wb=tuple(product(s.q_wb, from_euler(1.0, 0.0, 0.0)))),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_samples_are_counted_and_change_nothing(bad):
    estimator = VioDriftEstimator(START)
    p_w = flown(estimator, 4.0, lambda t, sample: [sample, bad(sample)])
    assert estimator.state().p_wb == pytest.approx(p_w, abs=0.01)
    assert (estimator.health.samples_refused, estimator.health.odometry_used) == (300, 400)


def test_a_lost_stream_is_counted_and_the_own_integration_flies_on_until_it_returns_from_anywhere():
    estimator = VioDriftEstimator(START)
    p_w = flown(estimator, 3.0, lambda t, sample: [sample] if t <= 2 else [])
    assert estimator.state().p_wb == pytest.approx(p_w, abs=0.01) and estimator.health.odometry_lost == 1
    p_w = flown(estimator, 4.0, lambda t, sample: [moved(sample)], begin=3.0)
    assert estimator.state().p_wb == pytest.approx(p_w, abs=0.01)
    assert estimator.health.odometry_resets == 0 and estimator.health.odometry_used == 300


def test_a_vio_that_never_came_is_lost():
    estimator = VioDriftEstimator(START)
    estimator.imu(Imu(0.01, (0.0, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
    estimator.release()
    assert estimator.health.odometry_lost == 1


def test_attitude_serves_while_there_is_no_vio():
    estimator = VioDriftEstimator(START)
    flown(estimator, 2.0)
    told = Attitude(2.0, tuple(product(START.q_wb, from_euler(0.1, 0.0, 0.0))))
    assert not estimator.attitude(told)
    for k in range(1, round(100 * LOST_S) + 3):
        estimator.imu(Imu(2.0 + k / 100, (0.0, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
    assert estimator.attitude(told)
    assert np.abs(product(conjugate(START.q_wb), estimator.state().q_wb)[1]) > 1e-3

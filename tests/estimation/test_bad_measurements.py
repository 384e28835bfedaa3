"""Impossible measurements are refused, counted, and do not move the estimate."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.config import names
from gate_racer.estimation.imu_samples import Agility
from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.imu import REPEATS_S, ImuReading, StandingImu
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES
from gate_racer.vehicle.vehicle import load_vehicle
from tests.estimation.flying import HZ, NAN, Flight, before_gate, sighted

REST, STILL = (0.0, 0.0, -9.8), (0.0, 0.0, 0.0)
BAD_SAMPLES = {  # time since the last sample, specific force, body rates
    "no number": (1 / HZ, (NAN, 0.0, 0.0), STILL),
    "an infinite stamp": (float("inf"), REST, STILL),
    "a stamp that is no number": (NAN, REST, STILL),
    "an absurd force": (1 / HZ, (0.0, 0.0, 1e6), STILL),
    "an impact": (1 / HZ, REST, (141.0, 0.0, 0.0)),
    "time going backwards": (-0.1, REST, STILL),
    "a repeated stamp": (0.0, REST, STILL),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_bad_samples_and_attitudes_are_refused_and_move_nothing(name, vq1, dcl):
    estimator = Flight(vq1, dcl, name).estimator
    before, t = estimator.state(), estimator.t
    for what, (step_s, force, omega) in BAD_SAMPLES.items():
        assert not estimator.imu(Imu(t + step_s, force, omega)), what
    for at, q in ((t, (NAN, 0.0, 0.0, 0.0)), (t, (0.0,) * 4), (t - 9.0, (1.0, 0.0, 0.0, 0.0))):
        assert not estimator.attitude(Attitude(at, q))
    after = estimator.state()
    assert estimator.health.samples_refused == len(BAD_SAMPLES) + 3
    assert (after.p_wb == before.p_wb).all() and (after.q_wb == before.q_wb).all() and after.t == before.t


@pytest.mark.parametrize("name", ESTIMATORS)
def test_frames_from_the_future_and_from_long_ago_are_left(name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.fly(0.5)
    before = flight.estimator.state()
    for stamp in (flight.t + 1.0, flight.t - 0.4, NAN, float("inf")):
        assert flight.look(stamp) == 0
    assert flight.estimator.health.images_late == 4 and (flight.estimator.state().p_wb == before.p_wb).all()


def changed(sighting, what):
    if what == "corners that are no numbers":
        return replace(sighting, corners_px=np.full((4, 2), NAN), p_wb=np.full(3, NAN))
    if what == "a singular covariance":
        return replace(sighting, cov_px=np.full((4, 2, 2), -1e12), cov=np.full((3, 3), -1e9))
    return replace(sighting, corners_px=sighting.corners_px + 60.0, p_wb=sighting.p_wb + 5.0, cov=1e-4 * np.eye(3))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("what", ["corners that are no numbers", "a singular covariance", "a wrong gate"])
def test_a_bad_sighting_moves_nothing(what, name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.fly(0.5)
    before = flight.estimator.state()
    x = replace(before_gate(vq1.gates[0], flight.rng), q_wb=np.array(flight.q)).having(p=flight.p, v=flight.v, tilt=0.0)
    seen = changed(sighted(vq1.gates[0], x, dcl.camera), what)
    flight.tick()
    assert flight.estimator.correct(flight.estimator.predict(flight.t), [seen], 0) == 0
    assert flight.estimator.health.gates_refused == 1
    assert np.linalg.norm(flight.estimator.state().p_wb - before.p_wb) < 1e-2


@pytest.mark.parametrize("seed", [15, 199])
def test_a_first_sighting_that_is_grossly_wrong_does_not_make_later_ones_wrong(seed, vq1, dcl):
    """It passes for an edge or a turn of the gate, and a filter sure of that would refuse what is right for ever."""
    flight = Flight(vq1, dcl)
    flight.fly(0.5, every=0)
    gross = np.random.default_rng(seed).normal(0, 1.5, (4, 2))
    [right] = flight.detections()
    assert flight.look(detections=[Detection.whole(right.corners_px + gross, 0.2, 1.0)])
    assert flight.fly(0.5, every=4) == 15 and flight.error < 0.03


SPIKES = {
    "gyro": ((0.0, 0.0, 0.0), (0.0, 10.0, 0.0)),
    "gyro in roll": ((0.0, 0.0, 0.0), (-10.0, 0.0, 0.0)),
    "accelerometer": ((0.0, 120.0, 0.0), (0.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("what", SPIKES)
@pytest.mark.parametrize("resting", [True, False])
def test_a_sample_that_no_vehicle_can_feel_is_refused(what, resting, vq1, dcl):
    """One sample off by 10 rad/s turned the attitude by 5 deg, which nothing but gates takes back; at rest it was a bias."""
    flight = Flight(vq1, dcl, spikes={60: SPIKES[what]} if resting else None)
    if not resting:
        flight.fly(0.3, every=0)
        flight.tick(SPIKES[what])
    flight.fly(1.0, every=0)
    assert flight.error < 0.05 and flight.estimator.health.samples_refused == 1
    assert flight.turned < 0.01


def test_a_sudden_turn_that_lasts_is_no_spike(vq1, dcl):
    """Faster than the vehicle's lags allow, but true: all samples count."""
    flight = Flight(vq1, dcl)
    for rate in np.repeat([0.0, 8.0, 0.0], 12):
        flight.w = np.array([rate + 1e-9 * flight.k, 0.0, 0.0])  # no two samples are equal
        flight.tick()
    assert flight.turned < 1e-5 and flight.estimator.health.samples_refused == 0


def test_values_still_for_longer_than_the_link_repeats_are_refused():
    standing, values = StandingImu(), [(1.0, 0.0, -9.8), (1.0, 0.1, -9.8)]
    times = np.arange(0, 0.06, 1 / 120)
    assert [standing.stands(Imu(t, values[0], (0.0, 0.0, 0.0))) for t in times] == [t > REPEATS_S for t in times]
    assert not standing.stands(Imu(0.06, values[1], (0.0, 0.0, 0.0))), "a fresh one"
    assert not standing.stands(Imu(0.08, values[1], (0.0, 0.0, 0.0)))
    assert not standing.stands(Imu(-3.0, values[1], (0.0, 0.0, 0.0))), "a clock set back"


@pytest.mark.parametrize("name", names(VEHICLES))
def test_roll_and_pitch_that_are_reversed_from_limit_to_limit_are_no_spike(name):
    """As commanded in a quick turn to and fro: else the attitude is lost there."""
    vehicle, dt = load_vehicle(name), 1 / 120
    most, lag = np.array(vehicle.rate_max_rad_s) * [1, 1, 0.5], np.array(vehicle.rate_lag_s)
    before = ImuReading(1.0, np.array([0.0, 0.0, -9.81]), -most)
    after = ImuReading(1.0 + dt, before.accel, most - 2 * most * np.exp(-dt / lag))
    assert Agility.of(vehicle).allows(before, after)

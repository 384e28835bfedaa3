"""Estimators in flight: what helps, what is late, missing, impossible or wrong, and what a link can bring."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.config import names
from gate_racer.estimation.imu_samples import Agility
from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.imu import REPEATS_S, ImuReading, StandingImu
from gate_racer.model.kalman import propagate
from gate_racer.model.states import DELAY
from gate_racer.perception.detection import Detection
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import exp, matrix, product
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES
from gate_racer.vehicle.vehicle import load_vehicle
from tests.estimation.flying import HZ, NAN, Flight, before_gate, sighted


@pytest.fixture
def flight(vq1, dcl):
    return Flight(vq1, dcl)


def test_rest_on_the_tilted_pad_tells_the_biases(vq1, dcl):
    flight = Flight(vq1, dcl, bias=(0.04, -0.03, 0.02), gyro_bias=(0.004, -0.003, 0.002))
    flight.fly(1.0, every=0)
    assert flight.error < 0.02
    assert flight.turned < 5e-3  # the pad is known no better: tilt and accelerometer bias look alike
    assert np.linalg.norm(flight.estimator.state().omega_b) < 1e-3


@pytest.mark.parametrize(("name", "most_m"), [("eskf", 0.05), ("drift", 0.06)])
def test_gates_hold_the_position_that_a_wrong_bias_would_lose(name, most_m, vq1, dcl):
    flight, blind = (Flight(vq1, dcl, name) for _ in range(2))
    for one, every in ((flight, 4), (blind, 0)):
        one.a_b, one.bias = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.05, 0.05])  # not there at rest
        one.fly(1.5, every=every)
    assert flight.error < most_m and flight.estimator.health.gates_used > 30
    assert blind.error > 0.07


@pytest.mark.parametrize(("name", "most_m"), [("eskf", 0.03), ("drift", 0.05)])
def test_a_late_image_counts_at_its_own_time(name, most_m, vq1, dcl):
    """Images of 50 ms ago, at 4 m/s: 0.2 m if used at arrival."""
    flight, queue = Flight(vq1, dcl, name), []
    flight.a_b = np.array([4.0, 0.0, 0.0])
    for _ in range(150):
        flight.tick()
        if flight.k % 4 == 0:
            queue.append((flight.k, flight.t, flight.detections()))
        if queue and queue[0][0] == flight.k - 6:
            flight.look(*queue.pop(0)[1:])
    assert flight.estimator.health.gates_used > 25 and flight.error < most_m


@pytest.mark.parametrize("name", ESTIMATORS)
def test_samples_repeated_under_new_stamps_change_nothing(name, vq1, dcl):
    """The real simulator repeats 29 % of its samples; with them or without, the true ones give the same flight."""
    ends = []
    for repeats in (True, False):
        flight = Flight(vq1, dcl, name)
        for k in range(1, 122):
            true = k if k % 3 or k > 120 else k - 1
            if repeats or k == true:
                s = true / HZ
                force = matrix(flight.q).T @ [0, 0, -GRAVITY] + [10 * s, 4 * np.sin(9 * s), 0.0]
                gyro = 0.3 * np.sin(5 * s), 0.1 * s, 0.8 * s
                flight.estimator.imu(Imu(flight.t + k / HZ, tuple(force.tolist()), gyro))
        ends.append(flight.estimator.state())
    for field in ("p_wb", "v_w", "q_wb"):
        assert getattr(ends[0], field) == pytest.approx(getattr(ends[1], field), abs=1e-3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_attitude_telemetry_is_not_needed_but_used(name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.gyro_bias = np.array([0.004, 0.004, 0.004])  # not there at rest: 7 mrad in a second
    for _ in range(120):
        flight.tick()
        assert flight.estimator.attitude(Attitude(flight.t, tuple(flight.q)))
        if flight.k % 4 == 0:
            flight.look()
    assert flight.turned < 3e-3


@pytest.mark.parametrize("north_deg", [3.0, -6.0, 20.0])
def test_an_attitude_of_another_north_does_not_turn_the_map(north_deg, vq1, dcl):
    flight, north = Flight(vq1, dcl), exp(np.radians([0.0, 0.0, north_deg]))
    for k in range(150):
        flight.w = np.array([0.0, -2.0 * np.sin(2 * np.pi * k / 150), 0.0])  # nose down by 55 deg, and up again
        flight.tick()
        flight.estimator.attitude(Attitude(flight.t, tuple(product(north, flight.q))))
        if flight.k % 4 == 0:
            flight.look()
    assert flight.turned < 0.02 and flight.error < 0.1


def test_gates_bring_back_a_pose_that_the_gyro_has_lost(dcl):
    """Twelve degrees wrong without a gate in view: a wider position alone does not fit the gates again."""
    flight = Flight(load_track("vq2"), dcl)
    flight.fly(0.5)
    flight.gyro_bias = np.array([0.3, 0.3, 0.1])
    flight.fly(0.5, every=0)
    flight.gyro_bias = np.zeros(3)
    assert flight.turned > 0.2
    flight.fly(3.0)
    assert flight.turned < 0.1 and flight.error < 0.6  # 0.22 and 11 m if the position alone is doubted


def test_an_estimated_delay_of_images_that_have_not_yet_been_exposed_does_not_lock_them_out(flight):
    flight.fly(0.5)
    filter_ = flight.estimator
    filter_.propagator.correct(replace(filter_.delayed, x=filter_.delayed.x.having(delay=0.08)))
    assert flight.fly(0.5) > 0 and filter_.health.images_late == 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_told_position_is_used_and_nonsense_is_not(name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.bias = np.array([0.3, 0.0, 0.0])  # not there at rest
    for _ in range(120):
        flight.tick()
        assert flight.estimator.position(flight.t, flight.p, flight.v)
    assert flight.error < 0.02
    assert not flight.estimator.position(flight.t, flight.p * NAN, flight.v)
    assert not flight.estimator.position(flight.t - 5.0, flight.p, flight.v)
    assert flight.estimator.health.samples_refused == 2


@pytest.mark.parametrize("seen", [True, False])
def test_told_positions_do_not_blur_a_gate_out_of_sight(seen, vq1, dcl):
    """The place of a gate relative to the vehicle stays as sure as it was; by the IMU alone it would be 2 % less sure."""
    flight = Flight(vq1, dcl)
    flight.a_b = np.array([2.0, 0.0, 0.0])
    variances = []
    for k in range(300):
        flight.tick()
        flight.estimator.position(flight.t, flight.p, flight.v)
        if seen and k < 60 and k % 4 == 0:
            flight.look()
        places = (flight.estimator.gate_covariance(gate, vq1.gates[gate].p_wg) for gate in (0, 1))
        variances.append([np.linalg.eigvalsh(cov).max() for cov in places])
    assert np.array(variances[60:]) == pytest.approx(np.array(variances[60:61] * 240), rel=1e-3)


def test_the_clocks_offset_is_found(flight):
    """Stamps 15 ms late while the vehicle sways in yaw: gyro against the motion in the image."""
    for _ in range(180):
        flight.w = np.array([0.0, 0.0, 1.5 * np.cos(6 * flight.t)])
        flight.tick()
        if flight.k % 4 == 0:
            seen = flight.detections()
            later = flight.t + 0.015
        if flight.k % 4 == 3 and flight.k > 123:
            flight.look(later, seen)
    assert flight.estimator.delayed.x[DELAY] == pytest.approx(-0.015, abs=0.003) and flight.error < 0.08


def test_the_clocks_offset_stays_uncertain_where_the_rates_jump(flight):
    """Stamps 15 ms late while the vehicle jerks in pitch: constant rates do not lead back to the exposure, and that is known."""
    errors, seen = [], None
    rates = np.repeat([6.0, -6.0, 5.0, -4.0, 5.0, -6.0], [5, 7, 6, 9, 11, 8])
    for rate in rates:
        flight.w = np.array([0.0, rate, 0.0])
        flight.tick()
        if flight.k % 4 == 0:
            seen = flight.t + 0.015, flight.detections()
        if flight.k % 4 == 3 and seen is not None:
            flight.look(*seen)
            delayed = flight.estimator.delayed
            errors.append(abs(delayed.x[DELAY] + 0.015) / np.sqrt(delayed.cov[DELAY, DELAY]))
    assert max(errors) < 4.0 and flight.estimator.health.gates_refused < 0.2 * len(errors)


def test_a_long_flight_without_images_is_lost_until_a_gate_is_seen(vq1, dcl):
    flight = Flight(vq1, dcl)
    assert not flight.estimator.state().lost
    flight.bias = np.array([0.02, -0.02, 0.0])  # not there at rest
    flight.fly(12.0, every=0)
    assert flight.estimator.state().lost and flight.error > 1.0
    assert flight.fly(1.0) > 20
    state = flight.estimator.state()
    assert not state.lost and flight.error < 1.0
    assert mahalanobis2(flight.p - state.p_wb, state.cov_p) < chi2_limit(3, 0.001)


def test_a_filter_led_astray_finds_back(vq1, dcl):
    """A wrong place, held for sure: gates that do not fit inflate the covariance until they do."""
    flight = Flight(vq1, dcl)
    flight.fly(0.5)
    flight.astray([0.0, 1.5, 0.0])
    assert flight.error > 1.4 and flight.look() == 0
    flight.fly(2.0)
    assert flight.error < 0.2 and flight.estimator.health.inflations > 0


def test_a_filter_whose_next_gate_contradicts_it_finds_back_by_parts_of_that(vq1, dcl):
    flight = Flight(vq1, dcl)
    flight.fly(0.5)
    flight.astray([0.0, 6 * np.sqrt(flight.estimator.delayed.cov[1, 1]), 0.0])
    for _ in range(5):
        flight.tick()
        shown = np.arange(4) < 2
        flight.look(detections=[Detection.partly(flight.detections()[0].corners_px, shown, shown, 0.3, 0.9)])
    assert flight.estimator.health.inflations > 0 and flight.estimator.health.gates_used > 15


@pytest.mark.parametrize("corners", [1, 2])
def test_parts_of_openings_that_nothing_explains_inflate_nothing(corners, vq1, dcl):
    """A corner at the image's edge fits many places: that it fits none is no sign that the filter is lost."""
    flight = Flight(vq1, dcl)
    flight.fly(0.5)
    shown = np.arange(4) < corners
    astray = Detection.partly(flight.detections()[0].corners_px + 60.0, shown, shown, 0.3, 0.9)
    before = flight.estimator.state()
    flight.fly(0.8, detections=[astray])
    after = flight.estimator.state()
    assert flight.estimator.health.inflations == 0
    assert np.sqrt(np.diag(after.cov)[3:6]).max() < np.sqrt(np.diag(before.cov)[3:6]).max() + 0.05


def test_a_gap_is_flown_through_and_counted(flight):
    flight.a_b = np.array([1.0, 0.0, 0.0])
    flight.fly(0.5)
    for _ in range(18):  # 150 ms of silence
        a_w = matrix(flight.q) @ flight.a_b
        flight.p, flight.v = flight.p + flight.v / HZ + 0.5 * a_w / HZ**2, flight.v + a_w / HZ
        flight.k += 1
    flight.fly(0.5)
    assert flight.estimator.health.gaps == 1 and flight.error < 0.05


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_samples_at_rest_are_no_repeats(name, vq1, dcl):
    """Equal samples at rest without noise are readings: the motion after them is integrated over its own step only."""
    flight = Flight(vq1, dcl, name)
    for _ in range(11):
        flight.tick()
    flight.w = np.array([0.0, 3.0, 0.0])
    flight.tick()
    assert flight.turned < 1e-6


@pytest.mark.parametrize("pitch_deg", [17.8, -17.8, 40.0])
def test_roll_and_pitch_at_rest_are_gravitys_and_not_the_files(pitch_deg, vq1, dcl):
    """The file's tilt was errors to 3 deg: a pad pitched by 17.8 deg left a bias of the accelerometer that is none."""
    track = replace(vq1, start=replace(vq1.start, pitch_deg=vq1.start.pitch_deg + pitch_deg, roll_deg=5.0))
    flight = Flight(track, dcl, filed=vq1)
    assert flight.turned < 2e-3
    flight.fly(1.0, every=0)
    assert flight.error < 0.02


def test_the_covariance_of_the_present_is_that_of_the_steps(flight):
    """In one stride from the delayed state, while the vehicle sways: the turn between samples is not known to an arc."""
    for _ in range(40):
        flight.w = np.array([4.0 * np.cos(20 * flight.t), 0.0, 0.0])
        flight.tick()
    estimator, delayed = flight.estimator, flight.estimator.delayed
    for x, reading in estimator.propagator.since:
        delayed = propagate(delayed, x, reading, estimator.noise.growth(delayed.reading, reading))
    stepwise, stride = (np.sqrt(np.diag(cov)[6:9]) for cov in (delayed.cov, estimator.state().cov))
    assert stride == pytest.approx(np.hypot(stepwise, estimator.noise.known.misaligned), rel=0.2)


# Impossible measurements are refused, counted, and do not move the estimate.


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


def spoiled(sighting, what):
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
    seen = spoiled(sighted(vq1.gates[0], x, dcl.camera), what)
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

"""The simulated vehicle behaves as measured, the referee judges exactly, and a seed is a seed."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics.contact import Colliders, Contact, body_of
from gate_racer.sim.physics.plant import P, Q, RatesPlant, Truth, V, W
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.sim.simulator import Sensors
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.rotation import from_euler, to_euler

LEVEL = (1.0, 0.0, 0.0, 0.0)
HZ = 120


def hover(throttle=0.266, omega=(0.0, 0.0, 0.0), q=LEVEL, by_rates=True):
    return AttitudeTarget(q, omega, throttle, by_rates)


def air(dcl, z=0.0):
    plant = RatesPlant(dcl, Start((0.0, 0.0, z), 0.0))
    plant.place(np.array([0.0, 0.0, z]), np.array(LEVEL), np.zeros(3))
    return plant


def fly(plant, target, seconds):
    for _ in range(round(seconds * HZ)):
        plant.command(plant.t, target)
        plant.advance(plant.t + 1 / HZ)
    return plant.x


def test_it_stands_on_its_tilted_pad_and_feels_it(dcl, vq1):
    plant = RatesPlant(dcl, vq1.start)
    plant.advance(1.0)
    assert plant.x[P] == pytest.approx(vq1.start.p_wb) and plant.on_pad
    # As the real simulator reads on its pad: norm g, nose down.
    assert plant.truth.accel_b == pytest.approx([-2.999, 0.0, -9.340], abs=0.01)


def test_it_lifts_off_when_thrust_carries_it_and_not_before(dcl, vq1):
    plant = RatesPlant(dcl, vq1.start)
    fly(plant, hover(1.0), 1.0)
    assert plant.on_pad and plant.x[13] == 0, "disarmed motors do not listen"
    plant.armed = True
    fly(plant, hover(0.2), 1.0)
    assert plant.on_pad
    fly(plant, hover(0.4), 0.5)
    assert not plant.on_pad and plant.x[2] < vq1.start.p_wb[2]


@pytest.mark.parametrize(("axis", "low", "high"), [(0, 0.02, 0.03), (1, 0.02, 0.03), (2, 0.045, 0.076)])
def test_rates_follow_as_the_real_simulator_s(dcl, axis, low, high):
    plant = air(dcl)
    omega = tuple(2.0 if k == axis else 0.0 for k in range(3))
    plant.command(0.0, hover(omega=omega))
    t, rate = [], []
    for k in range(1, 500):
        plant.advance(k / 1000)
        t.append(plant.t)
        rate.append(plant.x[W][axis])
    onset, lag = np.interp(0.02, rate, t), np.interp(2.0 * (1 - np.exp(-1)), rate, t)
    assert 0.035 <= onset <= 0.0415  # s after the command
    assert low <= lag - dcl.command_delay_s <= high
    assert lag - dcl.command_delay_s == pytest.approx(dcl.rate_lag_s[axis], abs=1e-3)
    assert rate[-1] == pytest.approx(2.0, rel=0.02)  # gain 1 of commands in rad/s


@pytest.mark.parametrize(
    ("throttle", "thrust"),
    [(0.10, 2.6), (0.265, 9.75), (0.40, 17.8), (0.60, 33.8), (0.665, 39.1), (0.80, 49.1), (1.0, 59.5)],
)
def test_static_thrust_is_the_measured_curve(dcl, throttle, thrust):
    plant = air(dcl)
    plant.command(0.0, hover(throttle))
    plant.advance(0.0401)
    plant.advance(0.5)
    assert plant.x[13] == pytest.approx(thrust, rel=0.03)


def test_full_throttle_climbs_at_the_measured_speed(dcl):
    x = fly(air(dcl), hover(1.0), 5.0)
    assert -x[V][2] == pytest.approx(31.0, rel=0.03)


def test_attitude_mode_turns_to_the_attitude(dcl):
    q = tuple(from_euler(0.3, -0.2, 0.5).tolist())
    x = fly(air(dcl), hover(q=q, by_rates=False), 2.0)
    assert to_euler(x[Q]) == pytest.approx((0.3, -0.2, 0.5), abs=0.01)


def test_sensor_noise_has_the_stated_size(dcl, vq1):
    sensors = Sensors(dcl, np.random.default_rng(0))
    truth = RatesPlant(dcl, vq1.start).truth
    accel = np.array([sensors.imu(truth).accel for _ in range(4000)])
    assert accel.std(axis=0) == pytest.approx(np.full(3, dcl.imu.accel_noise_m_s2), rel=0.1)
    biased = np.array([Sensors(dcl, np.random.default_rng(k)).imu(truth).accel for k in range(500)])
    assert biased.std(axis=0) == pytest.approx(np.hypot(accel.std(axis=0), dcl.imu.accel_bias_m_s2), rel=0.1)


def course(*gates):
    return Track("test", Start((0.0, 0.0, 0.0), 0.0), Bounds((-5, -20, -20), (50, 20, 20)), gates, False, None)


def square(x, y=0.0):
    return Gate((x, y, 0.0), 0.0, 0.0, 1.5, 2.7, 0.26)


def run(dcl, track, points, speed=10.0, limit_s=60.0):
    """Fly level along points at constant speed, in ticks, and through whatever is in the way."""
    referee, world, body = Referee(track, 1, limit_s), Colliders(track), body_of(dcl)
    t, path = 0.0, [np.array(points[0], float)]
    for a, b in zip(points, points[1:], strict=False):
        n = max(1, round(np.linalg.norm(np.subtract(b, a)) / speed * HZ))
        path += [np.add(a, np.subtract(b, a) * k / n) for k in range(1, n + 1)]
    referee.go(0.0)
    for p in path:
        x = np.zeros(14)
        x[P], x[Q] = p, LEVEL
        hits = tuple(Contact(t, kind, index, 1.0) for kind, index in world.touched(body, p, np.array(LEVEL)))
        referee.watch(Truth(t, x, np.zeros(3)), hits)
        t += 1 / HZ
    return referee.race


AROUND_TWO = [(0, 0, 0), (0, 4, 0), (9, 4, 0), (9, 0, 0), (12, 0, 0)]
AFTER_ONE = [(0, 0, 0), (3, 0, 0), (3, 4, 0), (9, 4, 0), (9, 0, 0), (12, 0, 0)]
BACK = [(0, 0, 0), (7, 0, 0), (3, 0, 0), (12, 0, 0)]
FROM_BEHIND = [(0, 4, 0), (12, 4, 0), (12, 0, 0), (8, 0, 0)]
THERE_AND_BACK = [(0, 0, 0), (8, 0, 0), (1, 0, 0)]
AROUND = [(0, 0, 0), (3, 4, 0), (7, 4, 0), (9, 0, 0), (12, 0, 0)]


@pytest.mark.parametrize(
    ("name", "gates", "points", "status", "passed"),
    [
        ("through both", [square(5), square(10)], [(0, 0, 0), (12, 0, 0)], RunStatus.FINISHED, 2),
        ("into the frame", [square(5)], [(0, 1.0, 0), (8, 1.0, 0)], RunStatus.CRASHED, 0),
        ("around the first", [square(5), square(10)], AROUND, RunStatus.MISSED_GATE, 0),
        ("around two", [square(4), square(7), square(10)], AROUND_TWO, RunStatus.MISSED_GATE, 0),
        ("around all but two", [square(x) for x in (2, 4, 6, 8, 10)], AFTER_ONE, RunStatus.MISSED_GATE, 1),
        ("back through the last one and on", [square(5), square(10)], BACK, RunStatus.FINISHED, 2),
        ("a later one backwards", [square(5), square(10)], FROM_BEHIND, RunStatus.RUNNING, 0),
        ("beside the only gate", [square(5)], [(0, 4, 0), (8, 4, 0)], RunStatus.RUNNING, 0),
        ("backwards", [square(5)], [(0, 4, 0), (8, 4, 0), (8, 0, 0), (2, 0, 0)], RunStatus.MISSED_GATE, 0),
        ("one frame either way", [square(5), replace(square(5), yaw_deg=180.0)], THERE_AND_BACK, RunStatus.FINISHED, 2),
        ("out of bounds", [square(5)], [(0, 0, 0), (0, 0, -30)], RunStatus.CRASHED, 0),
    ],
)  # fmt: skip
def test_the_referee_judges(dcl, name, gates, points, status, passed):
    race = run(dcl, course(*gates), points)
    assert race.status is status and len(race.gate_times_s) == passed, race


def test_times_and_margins_are_finer_than_a_tick(dcl):
    race = run(dcl, course(square(5.03)), [(0, 0.2, 0.1), (8, 0.2, 0.1)])
    assert race.gate_times_s[0] == pytest.approx(0.503, abs=1e-9)
    assert race.gate_margins_m[0] == pytest.approx(0.55, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "gates", "limit_s", "status", "passed"),
    [
        ("no finish", [40], 0.5, RunStatus.TIMEOUT, 0),
        ("a finish just before the end", [8.04], 0.8041, RunStatus.FINISHED, 1),
        ("a finish just after it, in the same tick", [8.04], 0.8039, RunStatus.TIMEOUT, 0),
        ("a gate just after it", [4.04, 30.0], 0.4039, RunStatus.TIMEOUT, 0),
    ],
)
def test_the_run_is_limited_to_the_moment(dcl, name, gates, limit_s, status, passed):
    race = run(dcl, course(*map(square, gates)), [(0, 0, 0), (20, 0, 0)], limit_s=limit_s)
    assert (race.status, len(race.gate_times_s)) == (status, passed), race

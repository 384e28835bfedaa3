"""Exploring: gates that no map tells of, one after the other, in a room, and the manoeuvres that tell of the vehicle."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.bootcamp.scenario import generate_track
from gate_racer.common.errors import UserError
from gate_racer.estimation.estimator import Landmark, State
from gate_racer.link.messages import AttitudeTarget, Imu
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.guidance.exciter import Excitation, Manoeuvres, parse_manoeuvres
from gate_racer.pilot.guidance.explorer import (
    ACCEL,
    AMPLITUDE_M,
    APPROACH_BRAKE,
    CLIMB,
    CROSSING,
    FAST,
    FRESH_S,
    MARGIN_M,
    NEAR_M,
    OPEN,
    STALE_S,
    STAND_OFF_M,
    WEAVE_AT_M,
    GateChoice,
    Room,
    Weave,
    approach,
    offset,
    parse_room,
)
from gate_racer.pilot.guidance.velocity import Aim, Landing, VelocityController
from gate_racer.sim.physics.plant import RatesPlant
from gate_racer.tracks.track import Bounds, Start
from gate_racer.vehicle.dynamics import GRAVITY, drag
from gate_racer.vehicle.rotation import matrix, to_euler
from tests.exploring import explored
from tests.flights import deviating

# Telemetry of a simulator that sends half as much of what an explorer uses, and nothing else.
LESS = {"imu_hz": 60.0, "imu_fresh_hz": 60.0, "motors_hz": 0.0, "local_position_hz": 0.0, "odometry_hz": 0.0}


def test_it_flies_through_all_gates_without_attitude_and_with_less_thrust_than_it_was_told(dcl, tmp_path):
    track, profile = generate_track(12, 2), replace(load_profile("dcl"), attitude_hz=0.0, video_hz=10.0, **LESS)
    pilot, explorer, verdict, _ = explored(track, dcl, profile, 12, tmp_path, deviating(dcl, 0.9))
    assert verdict.status == "finished" and len(explorer.passed) == 2, (verdict.cause, pilot.cause)
    assert min(verdict.gate_margins_m) > 0.3


def test_where_there_is_no_gate_it_looks_around_and_lands(dcl, tmp_path):
    course = generate_track(1, 1)
    nothing = replace(course, gates=(replace(course.gates[0], visible=False),), name="nothing")
    few_images = replace(load_profile("spec"), video_hz=5.0, attitude_hz=60.0, **LESS)
    pilot, explorer, verdict, _ = explored(nothing, dcl, few_images, 1, tmp_path)
    assert pilot.phase is Phase.FINISHED and not explorer.passed
    assert pilot.cause == "no further gate in sight"
    p_w, v_w = verdict.x[-1, :3] - course.start.p_wb, verdict.x[-1, 7:10]
    assert np.linalg.norm(p_w[:2]) < 10.0 and abs(p_w[2]) < 0.3 and np.linalg.norm(v_w) < 2.5


def test_the_velocity_controller_hovers_leans_and_meets_the_whole_drag(dcl):
    x = np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    controller = VelocityController(dcl, turn_limit=2.0)
    u, _ = controller.input(x, Aim(np.zeros(3), 0.0), 0.01)
    assert u == pytest.approx([0, 0, 0, GRAVITY])
    u, q_wb = controller.input(x, Aim(np.array([1.0, 0.0, 0.0]), 0.0), 0.01)
    assert to_euler(q_wb)[1] < -0.1 and u[1] < 0  # nose down to go ahead
    vehicle = replace(dcl, drag_linear_1_s=(0.3, 0.2, 0.1))
    x = np.array([0.0, 0, 0, 1, 0, 0, 0, 9.0, -4.0, 2.0, 0, 0, 0, 0])
    aim = Aim(x[7:10], 0.0)
    u, q_wb = VelocityController(vehicle, turn_limit=2.0).input(x, aim, 0.01)
    par = vehicle.rates_parameters
    air = np.array(drag(x[3:7], x[7:10], par.drag_linear, par.drag_quadratic))
    thrust_w = -u[3] * matrix(q_wb)[:, 2]
    assert thrust_w + air + [0.0, 0.0, GRAVITY] == pytest.approx(np.zeros(3), abs=1e-5)


def test_a_thrust_that_is_not_as_told_is_learned_while_speed_is_gained(dcl):
    x = np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0.3, 0, 0, 0, 0])
    controller, aim = VelocityController(dcl, turn_limit=2.0), Aim(np.array([8.0, 0.0, 0.0]), 0.0)
    lift = []
    for _ in range(100):
        u, q_wb = controller.input(x, aim, 0.01)
        lift.append(u[3] * matrix(q_wb)[2, 2])
    assert lift[-1] - lift[0] == pytest.approx(0.3, abs=0.05)  # TRIM_GAIN for a second


@pytest.mark.parametrize(("above_m", "landed"), [(0.1, True), (3.0, False)], ids=["near the floor", "in the air"])
def test_a_floor_that_carries_a_third_of_the_weight_is_felt_through_the_noise(above_m, landed, dcl):
    landing, rng = Landing(dcl, 0.0), np.random.default_rng(0)
    x = State(0.0, np.array([0.0, 0.0, -above_m]), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3), np.eye(9), 0.0)
    for k in range(100):
        commanded = landing.step(x, 0.01 * k, 0.01).u[3]
        carried = GRAVITY / 3 if k > 10 else 0.0
        landing.receive(Imu(0.01 * k, -np.array([0.0, 0.0, commanded + carried]) + rng.normal(0, 0.7, 3), np.zeros(3)))
    assert landing.done == landed


# Gates that no map tells of: which is the next, how it is approached, in what room, and the weave in front of the first.


NOW, HERE, NORTH = 10.0, np.zeros(3), np.array([1.0, 0.0, 0.0])


def landmark(number, x, y=0.0, z=0.0, yaw=0.0, last_t=NOW):
    return Landmark(number, np.array([x, y, z]), 0.01 * np.eye(3), yaw, seen=50, views=2, last_t=last_t)


# The next gate.

STACKED = [landmark(0, 8.0), landmark(1, 8.0, z=1.98)]


def fly(choice, gates):
    """Choose a gate and fly through it; return it."""
    chosen = choice.choose(gates, HERE, NORTH, NOW)
    choice.flown_through()
    return chosen


def test_it_is_the_nearest_one_ahead_that_was_seen_lately_and_not_yet_flown_through():
    gates = [landmark(0, 20.0), landmark(1, 8.0), landmark(2, -7.0), landmark(3, 5.0, last_t=NOW - STALE_S - 1.0)]
    choice = GateChoice(counted=False)
    assert [fly(choice, gates).number for _ in range(3)] == [1, 2, 0]
    assert fly(choice, gates) is None and choice.passed == [1, 2, 0]


@pytest.mark.parametrize("yaw", [0.4, 0.4 + math.pi])
def test_it_is_flown_through_from_the_side_that_the_vehicle_is_on(yaw):
    choice = GateChoice(counted=False)
    chosen = choice.choose([landmark(0, 8.0, yaw=yaw)], HERE, NORTH, NOW)
    assert chosen.ahead @ NORTH > 0
    missed = choice.choose([landmark(0, 8.0, yaw=yaw)], np.array([10.0, 2.0, 0.0]), NORTH, NOW)
    assert missed.ahead == pytest.approx(chosen.ahead)


def test_a_way_that_is_not_credited_is_left_out_until_another_is():
    choice = GateChoice(counted=True)
    assert fly(choice, STACKED).number == 0
    choice.check_credit()
    assert not choice.passed and fly(choice, STACKED).number == 1
    choice.credit(1)
    choice.check_credit()
    assert choice.passed == [1] and fly(choice, STACKED).number == 0


def test_with_no_other_gate_the_opposite_way_is_tried():
    choice = GateChoice(counted=True)
    first = fly(choice, STACKED[:1])
    choice.check_credit()
    assert fly(choice, STACKED[:1]).ahead == pytest.approx(-first.ahead)
    choice.check_credit()
    assert fly(choice, STACKED[:1]) is None
    choice.credit(1)
    assert choice.passed == [0], "credited late"


# Its approach.

GATE = landmark(0, 20.0, 5.0, -3.0, yaw=0.6)
SEEN = NOW + 0.1  # s
RIGHT = np.array([-GATE.ahead[1], GATE.ahead[0], 0.0])


def before(ahead_m, right_m=0.0, below_m=0.0):
    """(3,) m: a place in the gate's axes."""
    return GATE.p_w - ahead_m * GATE.ahead + right_m * RIGHT + below_m * np.array([0.0, 0.0, 1.0])


def along(place, gate=GATE):
    return float(approach(place, gate, SEEN, 1.0).v_w @ GATE.ahead)


@pytest.mark.parametrize("ahead_m", [1.0, 3.0, 6.0])
def test_a_gate_just_seen_from_two_places_is_flown_through(ahead_m):
    aim = approach(before(ahead_m), GATE, SEEN, 1.0)
    assert aim.v_w == pytest.approx(CROSSING * GATE.ahead) and not aim.accel_w.any()


@pytest.mark.parametrize("change", [{"last_t": SEEN - FRESH_S - 0.1}, {"views": 1}], ids=["stale", "once"])
def test_one_that_was_not_is_looked_at_from_afar(change):
    gate = replace(GATE, **change)
    assert along(before(4.0), gate) < 0
    there = approach(before(STAND_OFF_M), gate, SEEN, 0.5)
    assert np.linalg.norm(there.v_w) < 0.1 and np.linalg.norm(there.accel_w) > 1.0


@pytest.mark.parametrize("place", [(1.0, 0.8), (1.0, 0.0, 0.7), (-1.0, 2.0)], ids=["side", "below", "beside"])
def test_an_approach_that_would_hit_the_frame_is_repeated(place):
    assert along(before(*place)) < 0


@pytest.mark.parametrize("ahead_m", [8.0, 12.0, 20.0, 60.0])
def test_speed_at_a_far_gate_can_be_braked_to_that_of_crossing(ahead_m):
    speed = along(before(ahead_m))
    assert CROSSING < speed <= FAST
    assert (speed**2 - CROSSING**2) / (2 * APPROACH_BRAKE) <= ahead_m - STAND_OFF_M + 1e-9


def test_height_is_reached_before_the_gate_is():
    place = before(15.0, 0.0, -12.0)
    assert approach(place, GATE, SEEN, 1.0).v_w[2] == pytest.approx(CLIMB)
    assert 0 < along(place) < (15.0 - STAND_OFF_M) * CLIMB / 9.0


@pytest.mark.parametrize("across_m", [(0.0, 0.9), (1.2, 0.0), (0.0, -1.5)])
def test_one_that_was_missed_is_flown_back_past_clear_of_its_frame(across_m):
    p_w, dt = before(-1.5, *across_m), 0.01
    for _ in range(1000):
        beyond, across = offset(p_w, GATE)
        if beyond < -0.5:
            break
        assert abs(beyond) > 0.4 or max(np.hypot(across[0], across[1]), abs(across[2])) > 1.36 + 0.2, "hits the frame"
        p_w = p_w + dt * approach(p_w, GATE, SEEN, 1.0).v_w
    assert beyond < -0.5


@pytest.mark.parametrize("before_m", [12.0, 6.0])
def test_a_vehicle_that_weaves_banks_by_half_a_radian_to_both_sides_and_never_comes_nearer(before_m):
    p_w, t, dt = before(before_m, 0.5), 3.0, 0.01
    weave, sides, aims = Weave(p_w, GATE, t), [], []
    while not weave.done(t):
        aim = weave.aim(p_w, t)
        p_w, t = p_w + dt * aim.v_w, t + dt
        assert -(p_w - GATE.p_w) @ GATE.ahead >= min(before_m, WEAVE_AT_M) - 1e-9
        sides.append((p_w - GATE.p_w) @ RIGHT)
        aims.append(aim.v_w @ RIGHT)
    late = slice(len(sides) // 2, None)
    accel = np.diff(aims[late]) / dt
    assert np.ptp(sides[late]) / 2 == pytest.approx(AMPLITUDE_M, rel=0.05)
    assert all(math.atan(peak / GRAVITY) > 0.5 and peak < ACCEL for peak in (accel.max(), -accel.min()))


# Its room.

ROOM = Room(19.0, 12.7, 5.0, 4.3, 5.4, 0.6)
MIDDLE = np.array([7.0, 4.0, -2.5])
RESPONSE_S = 0.5  # s, of the velocity controller: its gain is 2/s


def test_a_vehicle_that_lags_its_aim_never_comes_to_a_side_whichever_way_it_flies():
    rng, dt = np.random.default_rng(2), 0.02
    low, high = ROOM.corners
    for _ in range(15):
        way = rng.standard_normal(3)
        p_w, v_w, aimed_w = MIDDLE, np.zeros(3), 9.0 * way / np.linalg.norm(way)
        for _ in range(500):
            v_w = v_w + dt / RESPONSE_S * (ROOM.slowed(aimed_w, p_w) - v_w)
            p_w = p_w + dt * v_w
            assert (p_w > low + MARGIN_M / 3).all() and (p_w < high - MARGIN_M / 3).all()
        assert np.linalg.norm(v_w) < 0.3


def test_aims_keep_their_direction_far_from_all_sides_and_lead_back_from_beyond():
    v_w = np.array([3.0, -1.0, 0.5])
    assert OPEN.slowed(v_w, np.array([500.0, 0.0, 20.0])) == pytest.approx(v_w)
    slow = ROOM.slowed(v_w, np.array([16.5, 4.0, -2.5]))
    assert slow == pytest.approx(np.linalg.norm(slow) / np.linalg.norm(v_w) * v_w) and 0 < slow[0] < 3.0
    assert ROOM.slowed(np.array([2.0, 0.0, 0.0]), np.array([18.8, 4.0, -2.5]))[0] < 0


def test_a_gate_near_a_wall_is_looked_at_from_inside():
    gate = replace(landmark(0, 0.5, 4.0, -1.5), views=1)
    ahead_m = ROOM.reach(gate.p_w, -gate.ahead, STAND_OFF_M)
    assert ahead_m == pytest.approx(5.5 - MARGIN_M) and ahead_m < NEAR_M
    p_w = gate.p_w - (ahead_m + 0.5) * gate.ahead + [0.0, 1.5, 0.0]
    for _ in range(1000):
        p_w = p_w + 0.01 * ROOM.slowed(approach(p_w, gate, SEEN, 1.0, ROOM).v_w, p_w)
    assert p_w == pytest.approx(gate.p_w - ahead_m * gate.ahead, abs=0.1)


def test_places_and_manoeuvres_are_moved_inside():
    assert ROOM.contains(HERE) and not ROOM.contains(np.array([0.0, 0.0, 0.9]))
    assert ROOM.inside(np.array([30.0, 0.0, -9.0])) == pytest.approx([19.0 - MARGIN_M, 0.0, MARGIN_M - 5.4])
    box = ROOM.around(np.array([0.0, 0.0, -1.0]), 12.0, 10.0)
    assert box.low_m == (-5.0, -4.3, -5.4) and box.high_m == (12.0, 12.0, -1.0)


@pytest.mark.parametrize(
    "text", ["", "1,2,3", "9,9,9,9,9,0.5,1", "9,9,x,9,9,0", "9,9,0.8,9,9,0", "9,9,9,9,9,-1", "nan,9,9,9,9,0"]
)
def test_a_room_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="expected NORTH,EAST,SOUTH,WEST,UP,DOWN"):
        parse_room(text)
    assert parse_room("19,12.7,5,4.3,inf,0.6") == Room(19.0, 12.7, 5.0, 4.3, math.inf, 0.6)


# The manoeuvres stay in the room that they are given, whatever the vehicle's file has wrong, and come to their end.


PERIOD_S = 1 / 60
START = Start((0.0, 0.0, -0.9), 0.0)
HALL, SMALL = Bounds((-12.0, -12.0, -10.9), (12.0, 12.0, 0.0)), Bounds((-8.0, -8.0, -9.0), (8.0, 8.0, 0.0))


def places(believed, flown, wanted, start=START.p_wb, room=HALL):
    """Return the positions (n, 3) m of all manoeuvres to their end, flown on the true state."""
    plant = RatesPlant(flown, START)
    plant.place(start, START.q_wb, np.zeros(3))
    excitation, p_w = Excitation(believed, START, room, wanted, 0, 1), []
    for k in range(int(60 / PERIOD_S)):
        command = excitation.step(k * PERIOD_S, plant.truth.x, PERIOD_S)
        if excitation.done:
            return np.array(p_w)
        throttle, (x, y, z) = believed.throttle.throttle(float(command.u[3])), command.u[:3].tolist()
        plant.command(k * PERIOD_S, AttitudeTarget((1.0, 0.0, 0.0, 0.0), (x, y, z), throttle, by_rates=True))
        plant.advance((k + 1) * PERIOD_S)
        p_w.append(plant.x[:3].copy())
    pytest.fail("the manoeuvres do not end")


WANTED = ("all", HALL), ("0.15,0.265,0.4,0.6,0.8,1,1,roll,pitch,yaw,speed", HALL), ("0.1,1", SMALL)


@pytest.mark.parametrize(("wanted", "room"), WANTED, ids=[wanted for wanted, _ in WANTED])
@pytest.mark.parametrize("strength", [0.86, 1.0, 1.14])
def test_it_stays_in_its_room_with_a_thrust_that_it_was_not_told(dcl, strength, wanted, room):
    p_w = places(dcl, deviating(dcl, strength), parse_manoeuvres(wanted), room=room)
    settled = p_w[int(2 / PERIOD_S) :]
    assert settled[:, 2].max() < -1.0, "it sinks to the ground"
    assert (p_w > room.low_m).all() and (p_w < room.high_m).all()


def test_it_comes_to_its_end_where_it_begins_far_aside(dcl):
    p_w = places(dcl, dcl, Manoeuvres(axes=(), speed=False), START.p_wb + [0.0, 14.0, -3.0])
    assert np.linalg.norm(p_w[-1, :2]) < 1.0


def test_manoeuvres_are_named_as_they_are_read():
    assert parse_manoeuvres("all") == Manoeuvres() == parse_manoeuvres(str(Manoeuvres()))
    for text in ("0.7,0.8,yaw,speed", "roll", "1"):
        assert str(parse_manoeuvres(text)) == text
    for text in ("loop", "1.5", "", "0.5,,yaw"):
        with pytest.raises(UserError, match="is not a manoeuvre; known: all, a throttle"):
            parse_manoeuvres(text)

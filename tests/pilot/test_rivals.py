"""Giving way and overtaking, by reported rivals and its prediction, and two pilots in one race."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.benchmarks.true_state import COMMAND_TICKS, PHYSICS_HZ
from gate_racer.estimation.estimator import State
from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import RivalState
from gate_racer.link.profile import load_profile
from gate_racer.link.server import ServerCodec
from gate_racer.mpc.avoidance import ACROSS, DOWN, GATE, P, V, smoothed
from gate_racer.mpc.reference import CORRIDOR_S, OPEN_M, Reference
from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.terms import NR, REFERENCE
from gate_racer.pilot.flight import EndReason, set_point
from gate_racer.pilot.guidance import rivals
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import Entry, fly_together
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plant import make_plant
from gate_racer.sim.physics.registry import natural
from gate_racer.sim.referee import Referee
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Bounds, Obstacle, load_track
from gate_racer.tracks.track import place as gridded
from tests.conftest import HALF_SEEN
from tests.flights import SPEC, eye_of, racer_of

Q, U_C = REFERENCE["q"].at, REFERENCE["u_c"].at.start
SPEED = 10.0  # m/s
BEGUN_S = 2.0  # of plan time: since long enough that a pace tells
DRAG_M_S2 = 40.0
RADIUS_M = 0.2
BOX = Bounds((-50.0, -20.0, -20.0), (50.0, 20.0, 20.0))
ALONE = np.array([1.0, 0, 0, 0])


class Straight:
    """A plan north along the x axis against drag, at the origin after `begun_s`, through openings that leave a half width."""

    def __init__(self, *gates_s, half_m=0.3, begun_s=BEGUN_S):
        """`gates_s`: after the origin."""
        passed_s = 0.25 * begun_s  # the first gate, so that all have set off
        self.gate_times_s = np.array([passed_s, *(np.array(gates_s) + begun_s)])
        self.half_m, self.begun_s = half_m, begun_s

    def sample(self, theta):
        rows = np.zeros((len(theta), NR))
        rows[:, P.start], rows[:, V.start] = SPEED * (theta - self.begun_s), SPEED
        pitch = -math.atan2(DRAG_M_S2, 9.81)
        rows[:, Q], rows[:, U_C] = [math.cos(pitch / 2), 0, math.sin(pitch / 2), 0], math.hypot(DRAG_M_S2, 9.81)
        rows[:, GATE] = rows[:, P]
        near = (np.abs(theta[:, None] - self.gate_times_s) < CORRIDOR_S).any(axis=1)
        half_m = np.where(near, self.half_m, OPEN_M)
        rows[:, ACROSS.start + 1] = rows[:, DOWN.start + 2] = 1 / half_m
        return rows


def room_of(bounds=BOX, obstacles=()):
    return rivals.PassingRoom(SimpleNamespace(bounds=bounds, obstacles=obstacles, gates=()), RADIUS_M)


def watch_of(own=2, **course):
    return rivals.RivalWatch(rivals.StartGrid(own, {}), RADIUS_M, room_of(**course))


def here(t=1.0, x=0.0, y=0.0):
    return State(t, np.array([x, y, 0.0]), ALONE, np.array([SPEED, 0, 0]), np.zeros(3), np.zeros((9, 9)), 0.0)


def way(p_w, place=1, own=2, t=1.0, speed=SPEED, line=None, **course):
    """Return the constraints from one rival, for a pilot at the origin."""
    watch = watch_of(own, **course)
    watch.received.receive(RivalState(t, place, p_w, (speed, 0.0, 0.0)))
    return watch.way(here(), line or Straight(5.0), BEGUN_S, 1.0, 1.0)


def test_who_is_behind_gives_way_and_side_by_side_exactly_one_of_two():
    assert len(way((2.0, 0.5, 0.0), place=2, own=1).tubes) == 1
    behind = way((-2.0, 0.5, 0.0))
    assert not behind.tubes and behind.pace == math.inf
    for lead in (-0.2, 0.0, 0.2):
        first, second = way((lead, -1.0, 0.0), place=2, own=1), way((-lead, 1.0, 0.0), place=1, own=2)
        assert [len(first.tubes), len(second.tubes)] == [0, 1]


def test_who_is_overtaken_holds_its_line_until_the_other_is_clear_ahead_and_who_overtakes_leaves_it_till_then():
    overtaken, passer, line, clear_m = watch_of(own=1), watch_of(own=2), Straight(20.0), 2 * RADIUS_M + rivals.CLEAR_M
    for k, lead in enumerate(np.arange(-2.05, 2.0, 0.1).tolist()):
        t = 1.0 + 0.01 * k
        overtaken.received.receive(RivalState(t, 2, (lead, 0.6, 0.0), (SPEED, 0.0, 0.0)))
        passer.received.receive(RivalState(t, 1, (-lead, -0.6, 0.0), (0.7 * SPEED, 0.0, 0.0)))
        assert bool(overtaken.way(here(t), line, BEGUN_S, 1.0, 1.0).tubes) == (lead > clear_m)
        assert bool(passer.way(here(t), line, BEGUN_S, 1.0, 1.0).tubes) == (lead < clear_m)


def beside(*others_m, opening_s=0.7):
    """The pace left to the third of a grid, beside of whom others are, to the next opening."""
    watch, line = watch_of(own=3), Straight(opening_s)
    for place, y in enumerate(others_m, 1):
        watch.received.receive(RivalState(1.0, place, (0.0, y, 0.0), (SPEED, 0.0, 0.0)))
    return watch.way(here(), line, BEGUN_S, 1.0, 1.0).pace


def test_who_is_beside_others_makes_room_for_each_of_them_before_the_opening_and_not_sooner():
    assert beside(-1.0, opening_s=2.0) > 1.05
    assert beside(-2.0, -1.0) < beside(-1.0) < 1.0


class Slowing(Straight):
    """... and are 4 m/s slow after 0.5 s."""

    def sample(self, theta):
        rows = super().sample(theta)
        rows[theta > BEGUN_S + 0.5, V.start] = 4.0
        return rows


def test_a_follower_makes_room_in_time_and_stays_on_its_own_side():
    assert way((1.7, 0.0, 0.0)).pace > 1.0 > way((1.7, 0.0, 0.0), line=Slowing(5.0)).pace
    paces = [way((lead, 0.3, 0.0)).pace for lead in (0.0, rivals.ROOM_M / 2, rivals.ROOM_M, rivals.ROOM_M + 1.0)]
    assert rivals.LEAST <= paces[0] < paces[1] < paces[2] == pytest.approx(1.0) and paces[3] > 1.0
    assert way((0.5, 1.0, 0.0)).tubes[0].side_w == pytest.approx([0.0, -1.0, 0.0])


NOBODY = {
    "far": {"p_w": (rivals.NEAR_M + 1.0, 0.0, 0.0)},
    "told of long ago": {"t": 1.0 - 2 * rivals.OLD_S},
    "itself": {"place": 2},
}
NOBODY |= {f"place {place}": {"place": place} for place in (0, 9, 65535)}


@pytest.mark.parametrize("told", NOBODY.values(), ids=NOBODY)
def test_who_is_far_or_old_or_at_no_place_does_not_count(told):
    assert not way(**{"p_w": (1.0, 0.0, 0.0), **told}).tubes


def test_a_rival_is_found_on_the_plan_and_predicted_along_it():
    line = Straight()
    rival = rivals.locate(line, np.array([3.0, 0.7, 0.0]), np.array([8.0, 0.0, 0.0]), BEGUN_S)
    assert rival.theta == pytest.approx(BEGUN_S + 0.3, abs=1e-2) and rival.off_w == pytest.approx([0.0, 0.7, 0.0])
    assert 0.8 <= rival.pace < 0.85
    later = rival.at(line, rivals.HORIZON)
    assert (np.diff(later[:, 0]) > 0).all() and (np.diff(np.abs(later[:, 1])) < 0).all(), "it comes to the line"


def passes(p_w=(1.6, -0.1, 0.0), speed=7.0, line=None, **course):
    """The side on which a slower rival is passed; None: it is not."""
    found = way(p_w, speed=speed, line=line, **course)
    assert len(found.tubes) == 1
    return None if found.pace < math.inf else found.tubes[0].side_w


def test_a_slower_rival_is_passed_on_the_side_where_the_line_is_left_least():
    assert passes() == pytest.approx([0.0, 1.0, 0.0])
    assert passes((1.6, 0.1, 0.0)) == pytest.approx([0.0, -1.0, 0.0])
    assert passes((1.6, 0.0, 0.2)) == pytest.approx([0.0, 0.0, -1.0])


@pytest.mark.parametrize("speed", [9.8, 10.0, 11.0])
def test_who_is_hardly_slower_is_followed(speed):
    assert passes(speed=speed) is None


def test_nobody_is_passed_side_by_side_through_an_opening_nor_through_a_wall():
    assert passes(line=Straight(0.5, 5.0)) is None
    assert passes(line=Straight(0.4, 3.0)) is None, "no time is left to step aside behind the first"
    assert passes(line=Straight(0.0, 3.0)) is not None, "after the one and before the other"
    assert passes(line=Straight(0.5, 5.0, half_m=0.8)) is not None, "the opening has room for both"
    wall = Obstacle((0.0, 0.5, -20.0), (50.0, 2.0, 20.0))
    assert passes(obstacles=(wall,)) == pytest.approx([0.0, -1.0, 0.0])
    assert passes(bounds=Bounds((-50.0, -0.6, -0.6), (50.0, 0.6, 0.6))) is None


@pytest.mark.parametrize(("ahead_m", "speed"), [(3.0, 9.9), (1.0, 8.0)])
def test_one_who_may_not_pass_follows_at_the_rival_s_pace_without_swinging(ahead_m, speed):
    tight, line = Bounds((-500.0, -0.6, -0.6), (500.0, 0.6, 0.6)), Straight()
    watch, x, v, dt = watch_of(bounds=tight), 0.0, SPEED, 1 / 60
    leads = []
    for k in range(300):
        t, lead = k * dt, ahead_m + speed * k * dt - x
        watch.received.receive(RivalState(t, 1, (x + lead, 0.0, 0.0), (speed, 0.0, 0.0)))
        state = here(t, x)
        pace = min(watch.way(state, line, BEGUN_S + x / SPEED, v / SPEED, 1.0).pace, 1.05)
        v += (SPEED * pace - v) * dt / 0.1  # a vehicle that takes a while
        x, leads = x + v * dt, [*leads, lead]
    room_m = (
        rivals.ROOM_M if speed > 9.6 else 2 * RADIUS_M + rivals.IN_ROW_M + rivals.LURK_M
    )  # behind a slower one, to be passed, less
    assert min(leads) > min(ahead_m, room_m) - 0.2
    assert np.ptp(leads[-120:]) < 0.05 and v == pytest.approx(speed, abs=0.05)


def test_a_pass_once_begun_keeps_its_side_until_it_is_done():
    watch, line, sides = watch_of(), Straight(9.0), []
    for lead in np.arange(1.6, -2.0, -0.1):
        watch.received.receive(RivalState(1.0, 1, (float(lead), 0.1, 0.0), (7.0, 0.0, 0.0)))
        found = watch.way(here(), line, BEGUN_S, 1.0, 1.0)
        assert found.pace == math.inf
        sides += [tube.side_w for tube in found.tubes]
    assert len(sides) > 20 and np.ptp(sides, axis=0).max() == 0


def accelerating(t):
    return RivalState(t, 1, (4.0 * t * t, 0.0, 0.0), (8.0 * t, 0.0, 0.0))


def test_a_reported_rivals_acceleration_follows_from_velocities():
    told = rivals.ReceivedRivals(2)
    for k in range(20):
        told.receive(accelerating(k / 40))
    (one,) = told.known.values()
    assert one.a_w == pytest.approx([8.0, 0, 0], abs=0.1)


LATE = {"a copy": (0.0, 1), "a late one": (0.1, 1), "as late as is admitted": (1.0, 1), "five copies": (0.0, 5)}


@pytest.mark.parametrize(("late_s", "times"), LATE.values(), ids=LATE)
def test_a_state_that_is_not_newer_changes_nothing(late_s, times):
    told, doubled = rivals.ReceivedRivals(2), rivals.ReceivedRivals(2)
    for k in range(60):
        for tracker in (told, doubled):
            tracker.receive(accelerating(k / 40))
        for _ in range(times):
            doubled.receive(accelerating(k / 40 - late_s))
    (one,), (other,) = told.known.values(), doubled.known.values()
    assert other.t == one.t and np.array_equal(other.v_w, one.v_w) and np.array_equal(other.a_w, one.a_w)


def test_a_rival_in_a_restarted_race_begins_anew():
    told = rivals.ReceivedRivals(2)
    for t in (100.0, 100.1, 3.0):
        told.receive(accelerating(t))
    (one,) = told.known.values()
    assert one.t == 3.0 and one.p_w == pytest.approx(accelerating(3.0).p_w) and not one.a_w.any()


def test_a_rival_s_place_goes_over_the_wire():
    profile, told = load_profile("spec"), RivalState(12.5, 2, (1.5, -2.25, 0.5), (20.0, 0.5, -1.0))
    datagrams = ServerCodec(profile).encode(told)
    assert [message for datagram in datagrams for message in ClientCodec(profile).decode(datagram)] == [told]
    broken = ServerCodec(profile).encode(RivalState(12.5, 2, (math.nan, 0.0, 0.0), (0.0, 0.0, 0.0)))
    assert [message for datagram in broken for message in ClientCodec(profile).decode(datagram)] == []


def test_who_is_told_nothing_at_the_start_leaves_the_line_to_the_one_on_its_left_for_a_while():
    watch = rivals.RivalWatch(rivals.StartGrid(2, {1: (0.0, -1.0, 0.0)}), RADIUS_M, room_of())
    line = Straight(5.0, begun_s=0.0)
    assert len(watch.way(here(0.0), line, 0.0, 1.0, 1.0).tubes) == 1
    assert len(watch.way(here(0.5, 4.0), line, 0.4, 1.0, 1.0).tubes) == 1
    assert not watch.way(here(rivals.OLD_S + 0.1, 10.0), line, 1.0, 1.0, 1.0).tubes


# Predicted thrust and pace of displaced lines, and when overtaking is aborted.


def test_steps_that_need_no_acceleration_stay_and_a_jump_becomes_one_that_can_be_flown():
    weights = np.ones(len(rivals.HORIZON))
    steady = np.outer(rivals.HORIZON, [0.3, -0.2, 0.0]) + [0.1, 0.0, 0.4]
    assert smoothed(steady, weights, rivals.STEP_S) == pytest.approx(steady)
    jump = np.where(rivals.HORIZON > 1.2, 0.8, 0.0)[:, None] * [0.0, 1.0, 0.0]
    flown = smoothed(jump, weights, rivals.STEP_S)
    assert (
        np.abs(np.diff(flown, 2, axis=0)).max() / rivals.STEP_S**2 < 15.0 and np.abs(flown - jump)[[0, -1]].max() < 0.01
    )


@pytest.mark.parametrize("lead_m", [-0.3, 0.5, 2.0])
@pytest.mark.parametrize("time_s", [0.3, 1.0])
def test_who_closes_in_as_fast_as_is_allowed_is_just_behind_at_the_opening(lead_m, time_s):
    closing = rivals.most_closing_m_s(lead_m, 0.66, time_s)
    assert rivals.fallen_back_m(lead_m, closing, time_s) == pytest.approx(0.66)
    t = np.linspace(0.0, time_s, 101)
    gap = lead_m - np.trapezoid(closing - rivals.BRAKING_M_S2 * t, t)
    assert gap == pytest.approx(0.66)


def pursuit(lead_m, y_m, rival_pace, pace, line):
    """A rival on the line, `lead_m` ahead of oneself, who is y_m aside."""
    own = rivals.PathState(BEGUN_S, pace, np.array([0.0, y_m, 0.0]), np.zeros(3))
    rival = rivals.PathState(BEGUN_S + lead_m / SPEED, rival_pace, np.zeros(3), np.zeros(3))
    return rivals.Pursuit(line, own, pace, 1.0, rival, rival.at(line, rivals.HORIZON), lead_m)


def goes_on(lead_m, y_m, opening_s):
    """Whether one who has begun to pass goes on when the rival turns out to be as fast, with an opening ahead."""
    overtaking = rivals.Overtaking(room_of(), RADIUS_M)
    assert overtaking.tube(1, pursuit(1.6, 0.0, 0.7, 1.0, Straight(9.0))) is not None
    return overtaking.tube(1, pursuit(lead_m, y_m, 1.0, 1.0, Straight(opening_s))) is not None


def test_a_pass_is_given_up_while_one_can_still_fall_back_and_gone_on_with_when_one_no_longer_can():
    assert not goes_on(1.2, 0.0, 1.0)
    assert not goes_on(0.3, -0.7, 1.0)
    assert goes_on(0.3, -0.7, 0.3)


# Two pilots in one race, in lock-step in one process, and one that passes a rival on rails.


FEW_IMAGES = replace(SPEC, video_hz=10.0)


def duel(sprint, vehicle, until_s, published=False):
    """The race and its verdicts, once its pilots were stopped then."""
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    race = MultiVehicleRace(
        as_believed(track, vehicle), FEW_IMAGES, 7, MultiVehicleSetup(pilots=2, publish_states=published)
    )
    entries = []

    def stop(pilot):
        if race.t > until_s:
            pilot.abort(EndReason.ERROR, "enough")

    for place, (world, seed) in enumerate(zip(race.worlds, race.seeds, strict=True), 1):
        grid = rivals.StartGrid(place, {}) if published else None
        pilot = racer_of(world.published, vehicle, plan, FEW_IMAGES, "tracking", grid=grid)
        entries.append(Entry(pilot, eye_of(world, vehicle, FEW_IMAGES, seed), Recorder(NoLog()), stop))
    return race, [verdict for _, verdict in fly_together(race, entries)]


def test_two_pilots_race_from_one_go_and_who_knows_nothing_of_rivals_meets_them(sprint, dcl):
    race, verdicts = duel(sprint, dcl, 1.7)
    go = {simulator.referee.race.go_t for simulator in race.simulators}
    assert len(go) == 1 and None not in go
    assert len(race.encounters) == 1, "both take the same line from places beside each other"
    paths = [verdict.x[:, :2] for verdict in verdicts]
    assert paths[0][0, 1] > 0.4 and paths[1][0, 1] < -0.4
    assert all(abs(path[-1, 0]) > 2.0 for path in paths), "both have set off"


def test_pilots_told_of_each_other_do_not_touch_and_pass_the_first_gate_one_behind_the_other(sprint, vq1, dcl):
    race, verdicts = duel(sprint, dcl, 3.1, published=True)
    assert race.encounters == []
    gate = vq1.gates[0]
    ahead_m = [float((verdict.x[-1, :3] - gate.p_wg) @ gate.R_wg[:, 0]) for verdict in verdicts]
    assert ahead_m[0] > 0, "it is through"
    assert ahead_m[1] < ahead_m[0] - 2 * dcl.half_diagonal, "pilot 2 has left the line to pilot 1"


UNTIL_S = 2.6
LEAD_S = 0.42  # of the rival at GO, in plan time
BESIDE_M = 1.0  # m, offset of the pilot's start from the line
START_M = 0.07, -0.12  # m, and of the pad


@pytest.mark.parametrize(("half_seen", "share", "passed"), [(True, 0.8, True), (False, 1.04, False)])
def test_a_slower_rival_is_passed_without_contact_and_one_as_fast_is_followed(vq1, plan, dcl, half_seen, share, passed):
    course = replace(vq1, gates=vq1.gates[:3]) if half_seen else vq1
    if half_seen:
        plan, _ = make_plan(course, dcl, replace(HALF_SEEN, guesses=1))
    track = gridded(course, 2, 2, 2 * BESIDE_M)
    (x, y, z), (dx, dy) = track.start.position_m, START_M
    line, controller = Reference(plan, dcl, track.course(1)), make_controller("mpcc", plan, dcl, track)
    watch = rivals.RivalWatch(rivals.StartGrid(2, {}), dcl.half_diagonal, rivals.PassingRoom(track, dcl.half_diagonal))
    start = replace(track.start, position_m=(x + dx, y + dy, z))
    plant, referee = make_plant(dcl, start, natural(dcl), Colliders(track)), Referee(track, plan.laps, UNTIL_S)
    plant.armed, least_m, lead_m, count = True, np.inf, np.nan, 0
    referee.go(0.0)
    while not referee.race.over:
        t, now = count / PHYSICS_HZ, plant.truth.x
        there = line.sample(np.array([share * t + LEAD_S]))[0]
        off = plant.truth.p_wb - there[P]
        least_m = min(least_m, float(np.linalg.norm(off)))
        lead_m = float(off @ there[V] / np.linalg.norm(there[V]))
        watch.received.receive(RivalState(t, 1, tuple(there[P]), tuple(share * there[V])))
        if count % COMMAND_TICKS == 0:
            state = State(t, now[:3], now[3:7], now[7:10], now[10:13], np.zeros((9, 9)), 0.0)
            progress = controller.progress
            way = watch.way(state, controller.reference, progress.theta, progress.pace, progress.attainable)
            controller.others = way.tubes
            progress.allowed = way.pace
            control = controller.step(t, now, COMMAND_TICKS / PHYSICS_HZ)
            controller.prepare()
            plant.command(t, set_point(control, dcl))
        count += 1
        referee.watch(plant.truth, plant.advance(count / PHYSICS_HZ))
    margins_m = referee.race.gate_margins_m
    assert least_m > 2 * dcl.half_diagonal + 0.1
    assert margins_m and min(margins_m) > 0.3
    assert (lead_m > 1.0) is passed and (lead_m < -1.0) is not passed

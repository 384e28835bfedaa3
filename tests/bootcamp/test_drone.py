"""Four commands, the states that they are legal in, the programs that fly by them, and when a goal counts as reached."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import gate_racer.bootcamp.scenario
from gate_racer.bootcamp.api import Box, Go, Halt, Land, Location, Null, Report, Status, Unreadable
from gate_racer.bootcamp.drone import Drone, SimulatedBody, _world
from gate_racer.bootcamp.judge import Judge, ProgramEnd, shortest_tour
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import DRONES, PROFILE, load_world, make_scenario
from gate_racer.bootcamp.stages import FlightRecord, Player, fly_alone, replay
from gate_racer.common.errors import UserError
from gate_racer.link.messages import Arm
from gate_racer.link.profile import load_profile
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.wire.position import KP_1_S
from tests.conftest import ROOT

WORLD = load_world()


def until(drone, status, steps=400):
    """Null commands until the drone is in a state; its last report."""
    for _ in range(steps):
        report = drone.step(Null())
        if report.status is status:
            return report
    raise AssertionError(f"not {status} after {steps} steps")


def flown(state):
    """A drone that halts, moves, or has landed."""
    drone = Drone(make_scenario("figure8", 0))
    if state is Status.MOVING:
        assert drone.step(Go(10.0, 5.0)).status is Status.MOVING
    elif state is Status.LANDED:
        drone.step(Land())
        until(drone, Status.LANDED)
    return drone


CASES = [
    ("null is always legal", Null(), "HMX"),
    ("a destination needs a halted drone", Go(3.0, -4.0), "H"),
    ("beyond the boundary is refused", Go(0.0, WORLD.boundary_m + 1), ""),
    ("a place that is no number is refused", Go(math.nan, 0.0), ""),
    ("halting needs motion", Halt(), "M"),
    ("landing needs a halted drone", Land(), "H"),
    ("what is no command is refused", Unreadable("'left'"), ""),
]


@pytest.mark.parametrize("state", [Status.HALTED, Status.MOVING, Status.LANDED])
def test_which_commands_are_legal(state):
    letter = {Status.HALTED: "H", Status.MOVING: "M", Status.LANDED: "X"}[state]
    drone, refused = flown(state), 0
    for sentence, command, legal in CASES:
        if letter in legal and not isinstance(command, Null):
            continue  # would change the state
        before = drone.report()
        report = drone.step(command)
        refused += letter not in legal
        assert report.ignored == refused, sentence
        assert bool(report.warning) == (letter not in legal), sentence
        assert report.destination == pytest.approx(before.destination, abs=0.1), sentence
    assert refused >= 4


def test_a_destination_is_reached_within_the_acceptance_radius_and_along_a_straight_line():
    drone = flown(Status.HALTED)
    start = drone.report().position
    report, drift, fastest = drone.step(Go(30.0, -20.0)), 0.0, 0.0
    assert report.status is Status.MOVING and report.ignored == 0
    goal = Location(start.north + 30.0, start.east - 20.0)
    assert report.destination == pytest.approx(goal)
    while report.status is Status.MOVING:
        report = drone.step(Null())
        drift, fastest = max(drift, report.drift), max(fastest, report.speed)
    assert report.position.distance(goal) < WORLD.acceptance_m and drift < 0.5
    assert 4.5 < fastest <= WORLD.speed_m_s == 5.0, "as the document says"
    assert report.height == pytest.approx(WORLD.height_m, abs=WORLD.acceptance_m)


def test_the_drone_flies_as_the_race_simulators_vehicle_does_to_the_last_bit():
    """Fly in wind from the pad and back to the ground: the omitted parts of the simulator affect no motion."""
    scenario = make_scenario("wind", 3)
    body, simulator = SimulatedBody(scenario), Simulator(_world(scenario), load_profile(PROFILE), scenario.seed)
    simulator.command(Arm())
    follow, set_points = body._cascade.follow, []
    body._cascade.follow = lambda goal, truth: (set_points.append(goal), follow(goal, truth))
    body.head_for(np.array([3.0, -2.0, -4.0]))
    for tick in range(1000):
        if tick == 400:
            body.descend()
        body.tick()
        if set_points:
            simulator.command(set_points.pop())
        simulator.tick()
        if body.touched:
            simulator.command(Arm(False))
        assert body.bits() == simulator.truth.x.tobytes(), tick
    assert body.touched and not body.hit


def test_halt_brakes_at_once_short_of_the_destination_and_ends_a_descent():
    drone = flown(Status.MOVING)
    for _ in range(10):
        before = drone.step(Null())
    assert before.speed > 2
    drone.step(Halt())
    report = until(drone, Status.HALTED)
    assert report.position.distance(before.position) == pytest.approx(before.speed / KP_1_S, rel=0.4)
    assert report.position.distance(Location(10.0, 5.0)) > 1
    drone = flown(Status.HALTED)
    drone.step(Land())
    for _ in range(10):
        drone.step(Null())
    drone.step(Halt())
    assert WORLD.height_m - 15 < until(drone, Status.HALTED).height < WORLD.height_m - 2


def test_landing_ends_on_the_ground_and_time_goes_on_without_the_drone():
    drone, fastest = flown(Status.HALTED), 0.0
    report = drone.step(Land())
    while report.status is not Status.LANDED:
        report = drone.step(Null())
        fastest = max(fastest, report.speed)
    assert 4.5 < fastest <= WORLD.speed_m_s
    assert report.height < 0.1 and report.speed < 0.02  # half the body's height: it stands
    later = drone.step(Null())
    assert replace(later, step=report.step, t=report.t, taken=report.taken) == report and later.step == report.step + 1


def test_the_kinematic_drone_keeps_the_documents_rules():
    """Rules: 5 m/s or standing still, implicit Euler, placed at its destination instead of overshooting, vertical landing."""
    drone = Drone(make_scenario("figure8", 0, replace(WORLD, drone="kinematic")))
    reports = [drone.step(Go(3.0, 4.2))]
    assert reports[0].position == pytest.approx((0.5 * 3 / math.hypot(3, 4.2), 0.5 * 4.2 / math.hypot(3, 4.2)))
    while reports[-1].status is Status.MOVING:
        reports.append(drone.step(Null()))
    assert {round(report.speed, 9) for report in reports} == {5.0, 0.0} and len(reports) == 11
    assert reports[-1].position == (3.0, 4.2) and reports[-1].height == WORLD.height_m
    drone.step(Land())
    report = until(drone, Status.LANDED)
    assert (report.height, report.speed, report.position) == (0.0, 0.0, (3.0, 4.2))


def test_a_step_is_as_long_as_asked_or_refused():
    drone = Drone(make_scenario("figure8", 0, replace(WORLD, step_s=0.05)))
    assert drone.step(Null()).t == 0.05
    with pytest.raises(
        UserError, match=r"a step of 0.07 s: must be a multiple of 1/120 s; --drone kinematic accepts any"
    ):
        make_scenario("figure8", 0, replace(WORLD, step_s=0.07))
    assert Drone(make_scenario("figure8", 0, replace(WORLD, step_s=0.07, drone="kinematic"))).step(Null()).t == 0.07


def test_a_collision_ends_the_flight(monkeypatch):
    monkeypatch.setattr(gate_racer.bootcamp.scenario, "WALL_M", 20.0 - WORLD.boundary_m)
    drone = flown(Status.HALTED)
    drone.step(Go(0.0, 40.0))
    report = until(drone, Status.CRASHED)
    assert report.warning == "hit bounds" and report.position.east == pytest.approx(20, abs=0.5)
    assert drone.step(Go(0.0, -5.0)).warning.endswith("the drone has crashed")


@pytest.mark.parametrize("task", ["detector", "figure8", "waypoint", "pads"])
def test_an_example_reaches_its_goal_and_its_log_replays_to_the_last_bit(task, tmp_path):
    """A changed log does not."""
    example, log, steps = ROOT / f"examples/{task}.py", tmp_path / "flight.log", []
    scenario = make_scenario(load_program(example).scenario, 7, replace(WORLD, drone=DRONES[task == "figure8"]))
    flight = fly_alone(Player(example, scenario), scenario, lambda step, drone: steps.append((step, drone.digest())))
    assert flight.verdict.done and not flight.verdict.score.warnings
    if task != "detector":
        return
    record = FlightRecord(log, scenario)
    for (before, _), (step, digest) in pairwise(steps):
        record.step(before.command, step.report, digest, step.image)
    record.close()
    lines = log.read_text().splitlines()
    assert lines[0].startswith('{"seed": 7')
    assert replay(log) == len(steps) - 1
    lines[3] = lines[3].replace('["Null", {}]', '["Go", {"north": 1e-9, "east": 0.0}]').replace('["Land", {}]', "null")
    log.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"flight.log:\d+: step \d+ differs"):
        replay(log)
    log.write_text(lines[0] + "\n{")
    with pytest.raises(UserError, match=r"flight.log:2: not a line of a flight log"):
        replay(log)


def test_a_program_is_taken_at_its_word_or_refused_in_one_line(tmp_path):
    file = tmp_path / "mine.py"
    said = "Go(1, np.float32(2)), Go('1', 2), 'left', None, Go(True, 0), Go(10**400, 0), Ugly(), Endless()"
    file.write_text(
        "import itertools\nimport numpy as np\nfrom gate_racer.bootcamp.api import *\n"
        "class Ugly:\n    def __repr__(self): return 1 / 0\n"
        "class Endless(Go):\n    north = property(lambda self: 1 / 0)\n    def __init__(self): pass\n"
        f"ANSWERS = iter([{said}])\n"
        "def decide(report, pads): return next(ANSWERS)\n"
        "def detect(image): return [(1, 2, '3', 4), (3, 2, 1, 4), 'box', (0, 0, float('nan'), 1), (0, 0, 1.1e6, 9),\n"
        "    (0, 0, 10**400, 1), itertools.count()]\n"
    )
    program = load_program(file)
    answers = [program.command(None, []) for _ in range(8)]
    assert answers[0] == Go(1.0, 2.0) and all(isinstance(answer, Unreadable) for answer in answers[1:])
    dropped = Counter()
    assert program.boxes(np.zeros((2, 2, 3), np.uint8), dropped) == [Box(1, 2, 3, 4)] and dropped.total() == 6
    assert "whose repr raises ZeroDivisionError" in answers[-2].text and "OverflowError" in answers[-3].text
    for text, line in [
        ("x = 1 +", r"mine.py:1: SyntaxError"),
        ("\n1 / 0", r"mine.py:2: ZeroDivisionError"),
        ("decide = 3", r"no function decide\(report, pads\)"),
    ]:
        file.write_text(text)
        with pytest.raises(UserError, match=line):
            load_program(file)


# Judge: when a goal counts as reached, and the reasons given otherwise.


WAY = make_scenario("route", 7).route


def reports(scenario, *places, status=Status.LANDED, **changes):
    """Reports of a drone that was at these places, in this status at the end."""
    there = Location(*places[-1])
    last = Report(
        len(places), len(places) / 10, status, there, 0.0, 0.0, (1.0, 0.0, 0.0, 0.0), there, 0.0, scenario.waypoint,
        True, 7, load_world().camera, gates=scenario.gates, taken=9, **changes,
    )  # fmt: skip
    before = [replace(last, position=Location(*place), status=Status.MOVING) for place in places[:-1]]
    return [*before, last]


def judged(name, *places, end=ProgramEnd.LANDED, cause="", **changes):
    scenario = make_scenario(name, 7)
    judge = Judge(scenario)
    for one in reports(scenario, *places, **changes):
        judge.see(one)
    return judge.verdict(end, cause)


EIGHT = [(0, 0), (20, 10), (20, -10), (0, 0), (-20, 10), (-20, -10), (0, 0)]
ROUND = [(0, 0), (20, 10), (-20, 10), (-20, -10), (20, -10), (0, 0)]
GOALS = {  # scenario, places, and what else is reported, by what is told
    "done: landed 0.50 m from the waypoint": ("hear", [(0, 0), (10, 0.5)], {}),
    "not done: landed 2.00 m from the waypoint, at most 1 m are allowed": ("hear", [(0, 0), (10, 2)], {}),
    "landed 41 m from the waypoint": ("hear", [(0, 0), (51, 0)], {}),
    "2 commands ignored, at most 0 are allowed": ("hear", [(10, 0)], {"ignored": 2}),
    "not landed": ("hear", [(10, 0)], {"status": Status.HALTED, "end": ProgramEnd.TIMEOUT}),
    "not landed (hit bounds)": ("hear", [(10, 0)], {"status": Status.CRASHED, "cause": "hit bounds"}),
    "done: landed 0.00 m from the pad": ("figure8", EIGHT, {}),
    "did not fly a figure of eight": ("figure8", ROUND, {}),
    "3 of 5 places visited": ("route", [(0, 0)], {"route": WAY[:2]}),
    "the shortest path through all places is": ("route", [(0, 0), (50, 50)] * 9, {}),
    "3 of 4 gates passed": ("gates", [(0, 0)], {"passed": 3}),
    "done: landed": ("gates", [(0, 0)], {"passed": 4}),
}


@pytest.mark.parametrize("told", GOALS)
def test_a_goal_that_is_reached_is_done_and_what_was_missed_is_told(told):
    name, places, changes = GOALS[told]
    verdict = judged(name, *places, **changes)
    assert told in str(verdict) and verdict.done == told.startswith("done")


def test_the_score_counts_and_a_flight_without_a_report_is_judged_as_well():
    score = judged("hear", (0, 0), (3, 4), (10, 4), ignored=1).score
    assert (score.time_s, score.distance_m, score.commands, score.warnings) == (0.3, 12.0, 9, 1)
    verdict = Judge(make_scenario("hear", 1)).verdict(ProgramEnd.WORKER_DIED, "worker decision died")
    assert not verdict.done and verdict.reasons == ("not landed (worker decision died)",)


def test_the_shortest_tour_is_never_longer_than_any_and_ends_at_the_last_place():
    square = (Location(10, 10), Location(0, 10), Location(10, 0))
    assert shortest_tour(Location(0, 0), square) == 30.0

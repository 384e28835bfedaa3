"""Courses that are hard, odd, absurd or impossible: a certified plan, or one clear line."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.planner import attempt, winding
from gate_racer.planner import search as stretches
from gate_racer.planner.certificate.replay import ReplayedPath, clearances, seen
from gate_racer.planner.course import FreeSpace, resolve
from gate_racer.planner.guess import Guess, solve_point_mass
from gate_racer.planner.mesh import Point
from gate_racer.planner.models import P, Q
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem import TimeOptimalProblem
from gate_racer.planner.search import LEVELS, from_guess, of_plan, refined
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.terms import GatesInView
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track, bars
from gate_racer.vehicle.camera import LEAST_SIDE_PX
from gate_racer.vehicle.rotation import from_euler, product
from tests.conftest import ONE_GUESS, refused
from tests.planner.test_planner import gate, straight
from tests.processes import run_here

ONE = PlanOptions(see=0.0, guesses=1)
WIDE = Bounds((-50.0, -60.0, -40.0), (1200.0, 60.0, 3.0))


def course(*gates, bounds=WIDE, **more):
    return Track("hard", Start((0.0, 0.0, 0.0), 0.0), bounds, tuple(gates), False, None, **more)


HARD = {  # course; whether gates are to be in view
    "one gate": (course(gate(10.0)), False),
    "a gate that faces away": (course(gate(10.0, yaw=180.0)), False),
    "a hairpin": (course(gate(10.0), gate(10.0, 4.0, yaw=180.0)), False),
    "one gate to and fro": (course(gate(10.0), gate(10.0, yaw=180.0)), False),
    "two openings, one above the other": (course(gate(10.0, z=-2.7), gate(10.0, yaw=180.0)), False),
}
HARDEST = {  # which take as long as all others, some since their many ways are all searched
    "one gate twice": (course(gate(10.0), gate(18.0, 3.0, yaw=90.0), gate(10.0)), False),
    "gates a body and its margins apart, in line": (course(gate(10.0), gate(10.95)), True),
    "a start inside a gate": (course(gate(0.0), gate(10.0)), True),
    "three in a row, the last two flown back to": (course(gate(10.0), gate(22.0), gate(16.0)), False),
    "two gates in one place, in view": (course(gate(10.0), gate(10.0)), True),
    "gates in line, the farthest first, flown back to": (course(gate(30.0), gate(20.0), gate(10.0)), True),
}
CASES = [pytest.param(*case, id=name) for name, case in HARD.items()]
CASES += [pytest.param(*case, id=name, marks=pytest.mark.soak) for name, case in HARDEST.items()]


@pytest.mark.parametrize(("track", "seen"), CASES)
def test_feasible_courses_are_certified_clear_of_every_frame(track, seen, dcl):
    plan, certificate = make_plan(track, dcl, replace(ONE, see=0.5 * seen))
    assert certificate.ok, certificate.status
    _, x, _ = plan.dense(dcl, 40)
    for one in track.gates:
        assert min(bar.distance(x[:, P]).min() for bar in bars(one)) >= dcl.contact_radius_m - 2e-3


BENDS = {  # course; whether all is small, with corners of the body beyond its contact radius
    "a bend": (course(gate(10.0), gate(14.0, 6.0, yaw=90.0)), False),
    "half a loop": (course(gate(8.0), gate(12.0, 3.0, yaw=60.0), gate(12.0, 9.0, yaw=150.0)), True),
}


@pytest.mark.parametrize(("track", "small"), BENDS.values(), ids=BENDS)
def test_a_curve_within_a_frame_is_clear_without_a_margin(track, small, dcl):
    vehicle = dcl
    if small:
        vehicle = replace(dcl, body_m=(0.09, 0.09, 0.07), contact_radius_m=0.057)
        track = replace(track, gates=tuple(replace(one, opening_m=0.4, outer_m=0.7) for one in track.gates))
    _, certificate = make_plan(track, vehicle, replace(ONE, reserve=1.0, margin_m=0.0))
    assert certificate.ok, certificate.status


TWO = gate(10.0), gate(30.0)
WALL, BEHIND = Obstacle((20.0, -60.0, -40.0), (20.5, 60.0, 3.0)), Obstacle((10.2, -9, -9), (10.4, 9, 2))
IMPOSSIBLE = [
    (course(gate(0.0, 1.05)), {}, "the start lies .* from the frame of gates"),
    (course(gate(10.0, z=2.9)), {}, r"gates\[0\]: no position there"),
    (course(gate(10.0, opening=0.2)), {}, "is too small"),
    (course(*TWO, obstacles=(WALL,)), {}, r"gates\[1\]: cannot be reached: no path .* clear of obstacles and gates"),
    (course(*TWO, obstacles=(BEHIND,)), {}, r"gates\[0\]: no position there .* clear of obstacles\[0\]"),
    (course(gate(10.0), gate(10.7)), {}, r"gates\[0\]: no position .* the frame of gates\[1\]"),
    (course(*TWO), {"flying_lap": True}, "flying_lap needs a closed course"),
    (course(*TWO), {"model": "rotors"}, "no `rotors` section"),
    (course(*TWO), {"stop_m": (80.0, 0.0, 2.9)}, "the end position: no position there"),
]


@pytest.mark.parametrize(("track", "options", "words"), IMPOSSIBLE, ids=[words for _, _, words in IMPOSSIBLE])
def test_an_infeasible_course_is_refused_at_once_in_one_line(track, options, words, dcl):
    with refused(words):
        make_plan(track, dcl, replace(ONE, **options))


def test_a_gates_post_is_a_solid_for_planner_and_certificate(dcl):
    posted = course(replace(gate(10.0, z=-6.0), stand_m=0.3), gate(10.0, z=-3.3), gate(20.0))
    lone = course(replace(gate(10.0, z=-6.0), stand_m=0.3), gate(20.0))
    under = np.array([[10.0, y, -2.0] for y in np.linspace(-5, 5, 101)])
    assert "the stand of gates[0]" in [solid.name for solid in FreeSpace.of(Task(lone, dcl, ONE)).solids]
    assert min(clearances(lone, under), key=lambda near: near.distance_m).solid == "the stand of gates[0]"
    for one in (posted, course(gate(10.0, z=-6.0), gate(20.0))):  # carried by another frame, or without a post
        assert not [solid for solid in FreeSpace.of(Task(one, dcl, ONE)).solids if "stand" in solid.name]
        assert not [near for near in clearances(one, under) if "stand" in near.solid]


def test_a_gate_of_several_passages_is_one_thing():
    track = course(gate(10.0), gate(18.0, 3.0), gate(10.0), gate(10.0, yaw=180.0))
    assert track.landmarks == (0, 1, 0, 0)
    assert np.isfinite([bar.half for bar in bars(track.gates[0])]).all() and straight(gate(1.0)).landmarks == (0,)


def test_no_certified_plan_of_a_random_course_is_contradicted(dcl):
    """Both controllers fly it without contact; `make fuzz-plans` tries many more."""
    outcome = attempt(1001, dcl, ONE)
    assert not outcome.contradicted and outcome.answer == "certified", outcome


# Long courses are solved in stretches first, and every search ends.


def test_the_optimum_by_stretches_is_that_of_the_whole(dcl, monkeypatch):
    free = replace(dcl, mixer=None)  # with one, or with more thrust, two optima lie 0.2 % apart
    flight = resolve(Task(winding(4, 2), free, replace(ONE_GUESS, reserve=0.85)))
    point_mass, times = solve_point_mass(flight), []
    for long in (99, 1):
        monkeypatch.setattr(stretches, "LONG", long)
        monkeypatch.setattr(stretches, "STRETCH", 2)
        monkeypatch.setattr(stretches, "AHEAD", 1)
        problem = TimeOptimalProblem(flight)
        best = refined(problem, from_guess(problem, point_mass, Guess("forward", 1.1), 2), LEVELS)
        assert best.success
        times.append(best.total_time)
    assert times[1] == pytest.approx(times[0], rel=1e-3), "refined where its own first solution was coarse"


def test_a_search_ends_in_time_and_a_leg_of_kilometres_is_refused_at_once(dcl):
    with refused(r"no plan within 0\.01 s of CPU time.*limit_s"):
        make_plan(winding(7, 1), dcl, replace(ONE_GUESS, limit_s=0.01))
    bounds = replace(course(gate(10.0)).bounds, high_m=(6000.0, 60.0, 3.0))
    with refused(r"gates\[1\]: lies \d+ m from the previous goal"):
        make_plan(course(gate(10.0), gate(2000.0), bounds=bounds), dcl, ONE_GUESS)


# Visibility windows: asked for and judged from where a detector finds a gate on; what looks away between nodes is refined.


SEEN = PlanOptions(see=0.5, guesses=1)


def straight_flight(dcl, looks_from_m: float, length: float = 200.0, count: int = 2001) -> ReplayedPath:
    """Return a flight at constant speed to a gate `length` m ahead, facing away until `looks_from_m` before it."""
    x = np.zeros((count, 14))
    x[:, 0] = np.linspace(0.0, length, count)
    ahead, back = from_euler(0.0, -np.radians(dcl.camera.tilt_deg), 0.0), from_euler(0.0, 0.0, np.pi)
    x[:, 3:7] = np.where((length - x[:, 0] <= looks_from_m)[:, None], ahead, back)
    return ReplayedPath(np.linspace(0.0, 10.0, count), x, np.zeros((count - 1, 14)))


@pytest.mark.parametrize(("looks_from", "share"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0), (2.0, 1.0)])
@pytest.mark.parametrize(("away_m", "opening_m"), [(200.0, 1.5), (200.0, 0.65), (40.0, 1.5)])
def test_the_view_counts_from_where_a_detector_finds_the_opening(away_m, opening_m, looks_from, share, dcl):
    own = gate(away_m, z=0.0, opening=opening_m)
    reach = min(dcl.camera.fx_px * opening_m / LEAST_SIDE_PX, away_m)
    path = straight_flight(dcl, looks_from * reach, away_m)
    found = seen(path, [10.0], Task(course(own), dcl, SEEN))
    assert found[0][0] == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("metres", [40.0, 200.0])
def test_the_planner_asks_for_the_view_over_the_same_part(metres, dcl):
    task = Task(course(gate(metres, z=0.0)), dcl, SEEN)
    term, parts = GatesInView(resolve(task)), 100
    legs = resolve(task).legs
    ends = np.array([0.0, *(leg.target[0] for leg in legs)])
    x = np.concatenate([ends[:1], *(np.linspace(a, b, parts + 1)[1:] for a, b in zip(ends, ends[1:], strict=False))])
    mesh, durations = [np.full(parts, 1 / parts)] * len(legs), np.diff(ends) / 20.0
    ((_, way, window, _),) = term.windows(mesh, durations, np.column_stack([x, 0 * x, 0 * x]))
    begin = min(task.view_range_m(task.gates[0]), metres)  # m before the gate
    step = ends[1] / parts
    assert metres - x[way[0]] == pytest.approx(begin, abs=1.01 * step)
    assert metres - x[window[[0, -1]] + 1] == pytest.approx([0.65 * begin, 0.15 * begin], abs=1.01 * step)


def test_intervals_that_look_away_in_part_are_refined(plan, vq1, dcl):
    """Turned about before the window, once within it and behind it: what is refined are intervals of which a part is not seen."""
    course = resolve(Task(vq1, dcl, PlanOptions()))
    term, (mesh, point) = GatesInView(course), of_plan(plan, course)
    _, way, window, _ = list(term.windows(mesh, point.durations, point.x[:3].T))[1]
    x = point.x.copy()
    for k in (*range(way[0], window[0] + 1), window[4], *range(window[-1] + 2, way[-1] + 1)):
        x[Q, k] = product(from_euler(0.0, 0.0, np.pi), x[Q, k])
    turned = Point(x, point.u, point.durations)
    ends = x[:3].T
    path = np.stack([ends[:-1] + s * (ends[1:] - ends[:-1]) for s in np.linspace(0, 1, 9)])
    assert not term.strays(mesh, point, path).any()
    assert np.flatnonzero(term.strays(mesh, turned, path)).tolist() == [window[0], window[3], window[4]]


# Numbers that are none, or absurd, through the command: one line that names what, where, and what would be right.


TRACK = """\
name: odd
source: test
start: {position_m: [0.0, 0.0, 0.0], yaw_deg: 0.0}
bounds: {low_m: [-60.0, -60.0, -40.0], high_m: [100.0, 60.0, 0.5]}
frame: {opening_m: 1.5, outer_m: 2.7, depth_m: 0.26}
gates: [{centre_m: [12.0, 0.0, -2.0], yaw_deg: 0.0, pitch_deg: 0.0}]
end_m: [20.0, 0.0, -2.0]
"""
OPTIONS = [
    ("--margin .nan", "--margin .nan: margin_m: expected a finite number"),
    ("--see 1", "--see 1: see 1: must lie between 0 and 0.8"),
    ("--set limit_s=0", "limit_s 0: must be positive"),
    ("--set stop_m=[9,1e300,-2]", "the end (9.0, 1e+300, -2.0) lies outside the bounds"),
    ("--out plan.csv", "--out plan.csv: must be a folder"),
]
ROWS = [  # cell of a trajectory, what stands there instead, what the line says
    ((40, "p_x"), "nan", "row 40: p_x is 'nan', must be a number from -1e+09 to 1e+09"),
    ((2, "v_z"), "fast", "row 2: v_z is 'fast', must be a number"),
    ((5, "t"), "0.0", "row 5: t is 0, must be later than the 0"),
]


def refused_command(words, *arguments):
    done = run_here("gate_racer.race.plan_track", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ") and words in done.stderr, done.stderr


@pytest.mark.parametrize(("flags", "words"), OPTIONS, ids=[flags for flags, _ in OPTIONS])
def test_an_option(flags, words, tmp_path):
    (tmp_path / "odd.yaml").write_text(TRACK)
    out = () if "--out" in flags else ("--out", tmp_path)
    refused_command(words, tmp_path / "odd.yaml", *out, *flags.split())


@pytest.mark.parametrize("key", ["import_csv", "warm"])
@pytest.mark.parametrize(("cell", "value", "words"), ROWS, ids=[f"{cell[1]} {value}" for cell, value, _ in ROWS])
def test_a_row_of_a_trajectory(key, cell, value, words, plan_folder, tmp_path):
    rows = [line.split(",") for line in (plan_folder / "vq1.csv").read_text().splitlines()]
    rows[cell[0]][rows[0].index(cell[1])] = value
    (tmp_path / "peer.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    given = "vq1", "--set", f"{key}={tmp_path / 'peer.csv'}", "--out", tmp_path
    refused_command(words, *given)
    if key == "warm":  # a plan of this project, too
        shutil.copy(plan_folder / "vq1.json", tmp_path / "peer.json")
        refused_command(words, *given)


STARTS = [  # what the state has beside or instead of a place in the room, what the line says
    ("thrust_m_s2: .nan", "plan.yaml: start.thrust_m_s2"),
    ("position_m: [0, 60.5, -2]", "the start (0.0, 60.5, -2.0) lies outside the bounds"),
    ("velocity_m_s: [0, 60, 0]", "the speed, in m/s, of the start is 60; dcl allows 35 at most"),
    ("thrust_m_s2: 1000", "the thrust, in m/s^2, of the start is 1000; dcl allows 59.5"),
    ("position_m: [12, 1, -2]", "the start lies 0.00 m from the frame of gates[0]"),
    ("next_gate: 1", "next_gate 1: must be a gate from 0 to 0"),
]


@pytest.mark.parametrize(("field", "words"), STARTS, ids=[field for field, _ in STARTS])
def test_a_state_to_begin_from(field, words, tmp_path):
    (tmp_path / "odd.yaml").write_text(TRACK)
    position = "" if field.startswith("position") else "position_m: [0, 0, -2], "
    (tmp_path / "plan.yaml").write_text(f"start: {{{position}{field}}}\n")
    refused_command(words, tmp_path / "odd.yaml", "--config", tmp_path / "plan.yaml", "--out", tmp_path)

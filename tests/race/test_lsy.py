"""The levels of lsy_drone_racing: draws, referee's geometry, the model, the program over a course, and a flight in crazyflow."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gate_racer.race.lsy import bench, model
from gate_racer.race.lsy.bench import missing, observed
from gate_racer.race.lsy.flyer import UNSEEN_M_S, Flyer, legs_left
from gate_racer.race.lsy.level import Observation, boxes_of, draw, rules, support


@pytest.mark.parametrize("level", range(4))
def test_a_draw_keeps_to_the_published_ranges_and_its_seed(level):
    r = rules()
    for seed in range(20):
        race, again, other = draw(level, seed), draw(level, seed), draw(level, seed + 100)
        assert np.array_equal(race.true.centres, again.true.centres) and race.mass_offset == again.mass_offset
        assert (race.mass_offset != other.mass_offset) == (level >= r.vehicle_from)
        off = np.abs(race.true.centres - race.told.centres)
        assert np.all(off <= r.gate_m) and off.any() == (level >= r.places_from)
        assert np.all(np.abs(race.true.poles - race.told.poles) <= r.pole_m)
        assert abs(race.mass_offset) <= r.mass_kg
        if level == 3:
            apart = np.linalg.norm(race.told.centres[1:, :2] - race.told.centres[:-1, :2], axis=1)
            assert np.all(apart > r.layout.apart_m - 0.1)


def test_the_reach_of_the_body_is_that_of_its_corners():
    rotations = Rotation.random(20, rng=np.random.default_rng(1)).as_matrix()
    corners = np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T * rules().body_half_m
    direction = np.array([0.6, 0.0, 0.8])
    for R in rotations:
        assert support(R, direction) == pytest.approx((corners @ R.T @ direction).max())


def test_boxes_leave_the_openings_free_and_fill_the_frames():
    places = draw(0, 0).told
    boxes = boxes_of(places)

    def gap(point):
        return (np.linalg.norm(point - boxes.nearest(point), axis=-1) - boxes.radius).min()

    for centre, R in zip(places.centres, places.rotations, strict=True):
        assert gap(centre) == pytest.approx(0.2)
        assert gap(centre + R @ (0, 0.28, 0)) == gap(centre + R @ (0, 0, -0.5)) == 0


DRONE = model.drone()
HOVER = model.Spin(np.full(4, model.GRAVITY * DRONE.mass_kg / 4), np.zeros(3), np.zeros(3))


def test_hover_is_an_equilibrium_of_the_model_and_of_the_loop():
    x, u = np.zeros(model.NX), np.zeros(4)
    x[model.F] = u[model.FC] = model.GRAVITY
    x[model.Q.start] = 1.0
    assert np.allclose(np.asarray(model.step(x, u, 1.0, 0.1, DRONE)).ravel(), x[:-1], atol=1e-12)
    after = model.turned(HOVER, np.eye(3)[None], model.GRAVITY * DRONE.mass_kg, 0.1)
    assert np.allclose(after.rotors, HOVER.rotors) and np.allclose(after.rates, 0.0)


def test_a_tilt_is_reached_and_held():
    rotation, spin, thrust = np.eye(3), HOVER, model.GRAVITY * DRONE.mass_kg
    aimed = model.tilted(np.array([[0.3, -0.2]]))[0]
    for _ in range(50):
        after = model.turned(spin, (rotation.T @ aimed)[None], thrust, 0.02)
        middle = (spin.rates + after.rates[0]) / 2
        rotation = rotation @ Rotation.from_rotvec(0.02 * middle).as_matrix()
        spin = model.Spin(after.rotors[0], after.rates[0], after.slope[0])
    assert np.allclose(rotation, aimed, atol=0.01) and np.abs(spin.rates).max() < 0.05


@pytest.mark.parametrize("wanted", [(0.4, -0.2), (-0.5, 0.5), (0.0, 0.1)])
def test_the_loop_is_inverted(wanted):
    thrust = model.GRAVITY * DRONE.mass_kg
    tilt = model.tilt_for(HOVER, np.array(wanted), thrust, 0.02)
    reached = model.turned(HOVER, model.tilted(tilt[None]), thrust, 0.02).rates[0, :2]
    assert np.allclose(reached, wanted, atol=0.02)


def test_a_deviation_is_found_again():
    q, by = np.array([0.5, -0.5, 0.5, 0.5]), np.array([0.1, -0.4, 0.7])
    moved = np.asarray(model.deviated(q, by)).ravel()
    assert np.linalg.norm(moved) == pytest.approx(1.0)
    assert np.allclose(np.asarray(model.deviation(q, moved)).ravel(), by)


def test_legs_share_all_intervals_but_the_first_of_any_rest():
    for first in range(4):
        for done in (0, 1):
            legs = legs_left(first, 4, done)
            assert sum(leg.steps for leg in legs) == model.STEPS - 1 and legs[-1].gate == 3
            assert all(leg.steps > 0 for leg in legs)


def seen_whole(race):
    gates, poles = np.ones(len(race.true.centres), bool), np.ones(len(race.true.poles), bool)
    return Observation(0.0, race.start, race.rotation, np.zeros(3), np.zeros(3), 0, race.true, gates, poles)


@pytest.fixture(scope="module")
def solver():
    return model.Solver()


@pytest.fixture(scope="module")
def begun(solver):
    """A race of which all is seen, the program after its first step, and its command."""
    race, flyer = draw(0, 0), Flyer(solver)
    command = flyer.step(seen_whole(race))
    return race, flyer, command


def test_a_flight_is_planned_through_all_openings_within_the_first_step_and_iterates_settle(begun):
    race, flyer, command = begun
    told = seen_whole(race)
    assert np.all(np.abs(command[:3]) < np.pi / 2) and DRONE.thrust_n[0] <= command[3] <= DRONE.thrust_n[1]
    planned = flyer.planned
    assert 2.0 < planned.times[-1] < 3.5
    for centre, R in zip(race.true.centres, race.true.rotations, strict=True):
        local = (planned.x[:, model.P] - centre) @ R
        nearest = np.abs(local[:, 0]) < 0.1
        assert np.abs(local[nearest][:, 1:]).max(axis=1).min() < 0.15
    durations = []
    for _ in range(10):
        flyer._iterate(flyer._state(told), told)
        durations.append(flyer.planned.times[-1])
    assert np.ptp(durations) < 0.02


def test_a_flight_towards_a_wall_turns_before_it(solver):
    told = replace(seen_whole(draw(0, 0)), position=np.array([2.2, 0.0, 1.8]), velocity=np.array([2.5, 0.0, 2.0]))
    flyer = Flyer(solver)
    flyer.step(told)
    reached = flyer.planned.x[:, model.P].max(axis=0)
    assert reached[0] > 2.25 and np.all(reached < np.array(rules().high_m) - model.ARENA_M + 0.02)


def test_a_published_observation_is_read_as_ours():
    told = {"pos": [0, 0, 1], "quat": [0, 0, 0, 1], "vel": [1, 0, 0], "ang_vel": [0, 0, 0], "target_gate": 2}
    told |= {"gates_pos": np.zeros((4, 3)), "gates_quat": np.tile([0, 0, 1, 0], (4, 1)), "gates_visited": [True] * 4}
    told |= {"obstacles_pos": np.zeros((4, 3)), "obstacles_visited": [False] * 4}
    ours = observed(told, 0.5, known=False)
    assert ours.target == 2 and np.allclose(ours.rotation, np.eye(3)) and ours.gates_seen.all()
    assert np.allclose(ours.places.rotations[0], np.diag([-1, -1, 1]))


def test_the_score_is_the_mean_of_the_finished_if_half_finish():
    flights = [bench.Result(i, "finished" if i % 2 else "contact", 3.0 + i, 4, 0.02) for i in range(20)]
    assert bench.summary(flights)["score_s"] == pytest.approx(np.mean([3.0 + i for i in range(1, 20, 2)]))
    assert bench.summary(flights[:1])["score_s"] is None and "seed 0: contact" in bench.table(2, flights)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_race_is_finished_in_crazyflow(tmp_path):
    import subprocess

    file = tmp_path / "one.json"
    command = [Path(sys.executable).with_name("race-bench"), "lsy", "0", "--seeds", "1", "--json", file]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    found = json.loads(file.read_text())
    assert found["completion"] == 1.0 and found["flights"][0]["gates"] == 4


def test_an_unseen_gate_is_planned_at_a_speed_at_which_it_can_be_met(begun, solver):
    race, seen, _ = begun
    cautious = Flyer(solver)
    cautious.step(replace(seen_whole(race), gates_seen=np.zeros(4, bool), poles_seen=np.zeros(4, bool)))
    assert cautious.planned.times[-1] > seen.planned.times[-1]
    centres, axes = race.told.centres, race.told.rotations[:, :, 0]
    x = cautious.planned.x
    off = np.linalg.norm(x[:, None, :2] - centres[:, :2], axis=-1)
    speed = np.abs(np.einsum("ki,gi->kg", x[:, model.V], axes))
    at = off.argmin(axis=0)
    assert np.all(speed[at, range(4)] <= UNSEEN_M_S + 0.05)

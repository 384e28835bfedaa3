"""The environment to learn in: observations, rewards, episodes and starts are what the paper says."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.sim.environment.kernel import ErrorTables, Reward, through, unmodelled
from gate_racer.sim.environment.racing import Options, Perturbation, RacingEnvironment, Randomisation
from gate_racer.sim.physics.residual import Kernel, ObservationModel, ResidualAcceleration
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.observation import Scaling
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.vehicle import load_vehicle

N, DCL = 12, load_vehicle("dcl")
STILL = Perturbation(0.0, 0.0, 0.0)
EXACT = Options(start=STILL)
LEVEL = np.array([1.0, 0, 0, 0])


@pytest.fixture
def make(dcl, vq1):
    made = []

    def environment(options=EXACT, track=vq1, n=N, seed=0, **more):
        made.append(RacingEnvironment(dcl, track, n, np.random.default_rng(seed), options, **more))
        return made[-1]

    yield environment
    for one in made:
        one.close()


def hover(environment, vehicle=DCL):
    return np.tile([2 * GRAVITY / vehicle.thrust_max - 1, 0, 0, 0], (environment.n, 1))


def scattered(environment, rng):
    environment.reset()
    n, x = environment.n, environment.state
    x[:, :3], x[:, 7:10] = rng.uniform(-8, 8, (n, 3)), rng.normal(0, 8, (n, 3))
    x[:, 3:7] = rng.normal(size=(n, 4))
    x[:, 3:7] /= np.linalg.norm(x[:, 3:7], axis=1)[:, None]
    environment.next_gate[:] = rng.integers(0, 6, n)


def put(environment, p, v=(0.0, 0.0, 0.0), gate=0, q=LEVEL):
    """All vehicles there, in the air, with that gate as the next one."""
    environment.reset()
    environment.state[:] = [*p, *q, *v, 0, 0, 0, GRAVITY]
    environment.next_gate[:] = gate


def before(environment, gate, aside=0.0, due=0):
    """All vehicles 5 cm before a gate, at 10 m/s along its axis."""
    along, right, _ = gate.R_wg.T
    put(environment, gate.p_wg - 0.05 * along + aside * right, 10.0 * along, gate=due)


def test_an_observation_is_scaled_state_gate_and_last_action(make, vq1, dcl):
    env, rng = make(n=4 * N), np.random.default_rng(4)
    seen = env.reset()
    assert seen.shape == (4 * N, 31) and np.abs(seen).max() < 2.5
    scattered(env, rng)
    action = rng.uniform(-1, 1, (4 * N, 4))
    step = env.step(action)
    x, low, high = env.state, np.array(vq1.bounds.low_m), np.array(vq1.bounds.high_m)
    flying, law = np.flatnonzero(~step.terminated), Scaling.of(vq1, dcl)
    assert len(flying) > N
    for i in flying:
        R, o = matrix(x[i, 3:7]), step.observation[i]
        assert o[:3] == pytest.approx((x[i, :3] - (low + high) / 2) / ((high - low) / 2))
        assert o[3:6] == pytest.approx(x[i, 7:10] / dcl.speed_max_m_s) and o[6:15] == pytest.approx(R.ravel())
        corners_b = (vq1.gates[env.next_gate[i]].corners() - x[i, :3]) @ R
        assert o[15:27] * np.linalg.norm(high - low) / 2 == pytest.approx(corners_b.ravel())
        assert o[27:] == pytest.approx(action[i])
        assert o == pytest.approx(law.observation(x[i], vq1.gates[env.next_gate[i]].corners(), action[i]), abs=1e-12)
    assert env.truth() == pytest.approx(step.observation[:, :15], abs=1e-12)


@pytest.mark.parametrize(("hz", "whole", "rest"), [(100.0, 4, 0.0), (60.0, 2, 0.4), (30.0, 1, 0.2), (10.0, 0, 0.4)])
def test_a_command_acts_within_a_step_where_its_delay_ends_there(vq1, dcl, hz, whole, rest):
    env = RacingEnvironment(replace(dcl, mixer=None), vq1, N, np.random.default_rng(0), replace(EXACT, control_hz=hz))
    put(env, (-10.0, 0, -3.0))
    for _ in range(whole):
        env.step(np.tile([0.0, 1.0, 0, 0], (N, 1)))
        assert np.abs(env.state[:, 10]).max() < 1e-9
    env.step(np.tile([0.0, 1.0, 0, 0], (N, 1)))
    acted_s = (1 - rest) / hz
    turned_by = dcl.rate_max_rad_s[0] * (1 - np.exp(-acted_s / dcl.rate_lag_s[0]))
    assert env.state[:, 10] == pytest.approx(np.full(N, turned_by), rel=0.01)


def test_passages_are_those_of_the_gate(make, vq1):
    gate, rng = vq1.gates[2], np.random.default_rng(5)
    a = gate.p_wg + rng.normal(0, 0.8, (2000, 3))
    b = a + rng.normal(0, 0.8, (2000, 3))
    crossings = [gate.crossing(p, q) for p, q in zip(a, b, strict=True)]
    truly = [crossing is not None and crossing.margin >= 0 for crossing in crossings]
    found = [through(tuple(p), tuple(q), gate.R_wg, gate.p_wg, gate.half) for p, q in zip(a, b, strict=True)]
    assert found == truly and 50 < sum(truly) < 1000


def test_the_reward_is_the_paper_s_term_by_term(make, vq1, dcl):
    weights = {name: 0.0 for name in ("progress", "perception", "rates", "change", "crash")}
    gate, ahead = vq1.gates[0], vq1.gates[0].R_wg[:, 0]
    p = gate.p_wg - 6.0 * ahead
    for name, value in (("progress", 2.0), ("perception", 0.5), ("rates", -0.1), ("change", -0.01)):
        env = make(replace(EXACT, reward=Reward(**weights | {name: value})))
        put(env, p, 5.0 * ahead, q=gate.q_wg)
        action = hover(env) + [0.1, 0.2, 0, 0]
        before = np.linalg.norm(env.state[0, :3] - gate.p_wg)
        step = env.step(action)
        x = env.state[0]
        to_gate = gate.p_wg - x[:3]
        axis = matrix(x[3:7]) @ dcl.camera.R_bc[:, 2]
        delta = np.arccos(axis @ to_gate / np.linalg.norm(to_gate))
        expected = {
            "progress": 2.0 * (before - np.linalg.norm(to_gate)),
            "perception": 0.5 * np.exp(-10 * delta**4),
            "rates": -0.1 * 0.2 * dcl.rate_max_rad_s[0],
            "change": -0.01 * (0.1**2 + 0.2**2),
        }
        assert step.reward == pytest.approx(np.full(N, expected[name])) and abs(expected[name]) > 1e-4


@pytest.mark.parametrize(("aside", "passes"), [(0.0, True), (0.5, True), (1.05, False)])
def test_a_gate_is_passed_through_its_opening_only(make, vq1, aside, passes):
    env = make()
    before(env, vq1.gates[0], aside)
    step = env.step(hover(env))
    assert step.passed.all() == step.passed.any() == passes
    if passes:
        assert (env.next_gate == 1).all()
        there, begins = env.state[0, :3].copy(), []
        for _ in range(200):
            env.reset()
            begins.append(np.abs(env.state[:, :3] - there).max(axis=1).min())
        assert min(begins) < 1e-9, "episodes begin there as well"


def towards_the_frame(track):
    along, right, _ = track.gates[0].R_wg.T
    return track.gates[0].p_wg - 0.6 * along + 1.0 * right, 10.0 * along


def backwards(track):
    along = track.gates[0].R_wg[:, 0]
    return track.gates[0].p_wg + 0.4 * along, -8.0 * along


HARM = {
    "a frame": towards_the_frame,
    "the due gate from behind": backwards,
    "the floor": lambda track: (np.array([-10.0, 0.0, track.bounds.high_m[2] - 0.3]), np.array([0.0, 0.0, 6.0])),
    "a wall": lambda track: (np.array([track.bounds.high_m[0] - 0.5, 0.0, -4.0]), np.array([9.0, 0.0, 0.0])),
}


@pytest.mark.parametrize("what", HARM)
def test_a_crash_costs_and_ends_the_episode_and_another_begins(make, vq1, what):
    env = make(replace(EXACT, reward=Reward(0.0, 0.0, -10.0, 0.0, 0.0, -5.0)))
    put(env, *HARM[what](vq1))
    for _ in range(8):
        step = env.step(hover(env))
        if step.terminated.any():
            break
    assert step.terminated.all() and step.reward == pytest.approx(np.full(N, -5.0)) and not step.truncated.any()
    assert not np.allclose(step.observation, step.final_observation)
    assert not env.step(hover(env)).terminated.any()


def test_an_episode_has_its_length(make):
    env = make(replace(EXACT, episode_steps=3))
    put(env, (-10.0, 0, -3.0))
    assert [env.step(hover(env)).truncated.all() for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(("course", "ends"), [("vq1", True), ("splits_swift", False)])
def test_an_open_course_has_an_end_and_a_closed_one_goes_on(make, course, ends):
    track = load_track(course)
    env = make(track=track)
    before(env, track.gates[-1], due=len(track.gates) - 1)
    step = env.step(hover(env))
    assert step.passed.all() and not step.terminated.any()
    assert step.truncated.all() == ends and (ends or (env.next_gate == 0).all())


def test_episodes_begin_at_every_gate_and_on_the_pad(make, vq1):
    env = make(Options(), n=400)
    env.reset()
    assert set(env.next_gate) == set(range(len(vq1.gates)))
    first = env.next_gate == 0
    pad = vq1.start.p_wb
    assert np.abs(env.state[first, :2] - pad[:2]).max() < 0.11 and (env.state[first, 2] < pad[2]).all()
    for gate in range(1, len(vq1.gates)):
        of = vq1.gates[gate - 1].local(env.state[env.next_gate == gate, :3])
        assert (of[:, 0] > 0).all() and np.abs(of[:, 1:]).max() <= 0.11 * np.sqrt(2)
    assert np.linalg.norm(env.state[:, 3:7], axis=1) == pytest.approx(np.ones(400))
    assert env.state[:, :3].std(axis=0).min() > 0 and not env.step(hover(env)).terminated.any()


def test_a_generator_gives_the_same_races_with_any_threads(make):
    def flown(**more):
        env, rng = make(Options(episode_steps=20), seed=3, n=40, **more), np.random.default_rng(9)
        seen = [env.reset()] + [s.observation for s in (env.step(rng.uniform(-1, 1, (40, 4))) for _ in range(30))]
        return np.array(seen)

    assert np.array_equal(flown(), flown()) and np.array_equal(flown(), flown(threads=2))


def test_actions_that_are_none_are_refused_or_harmless(make):
    env = make()
    env.reset()
    with pytest.raises(ValueError, match=r"expected \(12, 4\)"):
        env.step(np.zeros((N, 3)))
    put(env, (-10.0, 0, -3.0))
    wild = np.full((N, 4), np.nan)
    wild[1] = 1e9
    step = env.step(wild)
    assert np.isfinite(step.observation).all() and np.isfinite(step.reward).all()
    env.state[2] = np.nan
    step = env.step(hover(env))
    assert step.terminated[2] and np.isfinite(step.observation).all() and np.isfinite(step.reward).all()


def test_randomisation_errs_within_its_bounds(make, vq1, dcl):
    wide = Randomisation(thrust=0.2, drag=0.5, position_m=0.3, velocity_m_s=0.4)
    env = make(replace(EXACT, randomisation=wide), n=64)
    put(env, (-10.0, 0, -3.0), (8.0, 0, 0))
    true = make(n=64)
    put(true, (-10.0, 0, -3.0), (8.0, 0, 0))
    seen, exact = env.step(hover(env)).observation, true.step(hover(true)).observation
    scaling = Scaling.of(vq1, dcl)
    off = (seen - exact)[:, :6] * np.repeat([scaling.half_m, np.full(3, scaling.speed_m_s)], 1, axis=0).ravel()
    assert 0.2 < np.abs(off[:, :3]).max() < 0.35 and 0.3 < np.abs(off[:, 3:]).max() < 0.45
    gap = (env.state - true.state)[:, 7:10] / 0.01
    assert 0.1 * GRAVITY < np.abs(gap[:, 2]).max() < 0.21 * GRAVITY
    assert 0.2 < np.abs(gap[:, 0]).max() / (8.0**2 * dcl.drag_quadratic_1_m) < 0.6


def test_wind_acts_on_a_vehicle_at_rest_as_the_air_of_a_flight_the_other_way(dcl):
    still, flying = np.tile(np.eye(10)[3], (2, 1))
    flying[7:9] = -3.0, 4.0
    winds = np.array([[0.0, 0.0, 3.0, -4.0], [0.0, 1.0, 0.0, 0.0]])  # the second: its flight's drag once more
    blown, slowed = unmodelled(np.array([still, flying]), np.full(2, GRAVITY), winds, dcl)
    assert blown == pytest.approx(slowed) and np.linalg.norm(blown) == pytest.approx(5.0**2 * dcl.drag_quadratic_1_m)


def test_finetuning_flies_by_residual_models(make, vq1, dcl):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 10, (30, 13))
    x[:, :3] = 0.1 * x[:, :3] + [-10.0, 0, -3.0]  # their table is small
    x[:, 3:7] /= np.linalg.norm(x[:, 3:7], axis=1)[:, None]
    push = ResidualAcceleration(x, rng.uniform(5, 20, 30), np.tile([0.0, 3.0, 0.0], (30, 1)))
    kernel = Kernel(np.full(15, 3.0), 0.5, 0.4)
    model = ObservationModel(x, np.tile(0.3 * rng.normal(size=(30, 1)), 9), np.zeros(30, int), [kernel] * 9)
    env, true = make(replace(EXACT, realisations=2), residual=push, observation=model), make()
    for one in (env, true):
        put(one, (-10.0, 0, -3.0))
    seen, exact = env.step(hover(env)).observation, true.step(hover(true)).observation
    assert (env.state - true.state)[:, 8] == pytest.approx(np.full(N, 0.03), rel=0.05)
    different = {tuple(row) for row in np.round((seen - exact)[:, :6], 9)}
    assert len(different) == 2 and np.abs((seen - exact)[:, :3]).max() > 0.01 / Scaling.of(vq1, dcl).half_m.min()


def test_a_course_that_cannot_be_observed_is_refused(make, vq1):
    ball = replace(vq1, gates=(Gate((0.0, 0.0, -2.0), radius_m=0.5),))
    with pytest.raises(UserError, match=r"gates\[0\]: the observation needs four corners"):
        make(track=ball)


def path_model(x, errors, length_m):
    """Errors that are functions of the position along states x (n, 13), correlated over a length."""
    spread = x[:, :3].std(axis=0)
    kernel = Kernel(np.concatenate([length_m / spread, np.full(12, 1e3)]), 0.0, 1.0)
    return ObservationModel(x, errors, np.zeros(len(x), int), [kernel] * 9)


def test_tabulated_errors_are_the_realisations_along_the_data():
    rng, s = np.random.default_rng(0), np.linspace(0, 2 * np.pi, 60)
    x = np.zeros((60, 13))
    x[:, :3], x[:, 3] = np.column_stack([12 * np.cos(s), 6 * np.sin(s), 2 * np.sin(2 * s)]), 1.0
    model = path_model(x, 0.3 * rng.normal(size=(60, 9)), 8.0)
    tables, drawn = ErrorTables(model, 2, np.random.default_rng(1)), np.arange(60) % 2
    again = np.random.default_rng(1)
    exact = np.array([model.sample(again).errors(x) for _ in range(2)])[drawn, np.arange(60)]
    found = tables.errors(x, drawn)
    assert np.sqrt(((found - exact) ** 2).mean()) < 0.15 * exact.std()
    assert np.abs(tables.errors(x, 1 - drawn) - exact).max() > 0.1
    away = np.vstack([x[:2], x[:2]])
    away[2:, 0], away[3, 1] = 1e9, np.nan
    assert np.isfinite(tables.errors(away, np.zeros(4, int))).all(), "beyond the table its border counts"

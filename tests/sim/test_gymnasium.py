"""The races to learn in, as Gymnasium has environments."""

import importlib

import numpy as np
import pytest

from gate_racer.sim.environment.racing import Options
from gate_racer.vehicle.dynamics import GRAVITY


@pytest.fixture
def gym():
    pytest.importorskip("gymnasium")
    from gate_racer.sim.environment import gym

    return gym


def test_gymnasium_learners_take_a_vector_of_races(gym, dcl, vq1):
    env = gym.GymRacing(dcl, vq1, 4, Options(episode_steps=3))
    seen, info = env.reset(seed=1)
    assert isinstance(env, gym.gymnasium.vector.VectorEnv) and info["state"].shape == (4, 14)
    for k in range(1, 7):
        assert seen in env.observation_space
        seen, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert reward.shape == terminated.shape == truncated.shape == (4,)
        if k % 3 == 0:
            assert (terminated | truncated).all() and info["_final_obs"].all()
            assert info["final_obs"] in env.observation_space and not np.array_equal(info["final_obs"], seen)
    env.close()


def test_a_seed_is_the_whole_of_a_vector_of_races(gym, dcl, vq1):
    env, actions = (
        gym.GymRacing(dcl, vq1, 3, Options(episode_steps=4)),
        np.random.default_rng(0).uniform(-1, 1, (9, 3, 4)),
    )
    runs = []
    for seed in (1, 1, 2):
        first = env.reset(seed=seed)[0]
        runs.append([first, *(env.step(action)[0] for action in actions)])
        assert env.np_random_seed == seed
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])
    assert not np.array_equal(env.reset()[0], runs[2][0]), "without a seed the races go on"


def test_gymnasium_s_statistics_count_whole_episodes(gym, dcl, vq1):
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    env = RecordEpisodeStatistics(gym.GymRacing(dcl, vq1, 2, Options(episode_steps=5)))
    env.reset(seed=3)
    total = np.zeros(2)
    hover = np.tile([2 * GRAVITY / dcl.thrust_max - 1, 0.0, 0.0, 0.0], (2, 1))
    for _ in range(5):
        _, reward, _, _, info = env.step(hover)
        total += reward
    assert info["episode"]["l"].tolist() == [5, 5] and info["episode"]["r"] == pytest.approx(total)


@pytest.mark.filterwarnings("ignore:.*infinity")  # of the observations, which nothing bounds
@pytest.mark.filterwarnings("ignore:.*not having a spec")
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")
def test_gymnasium_s_checker_passes_one_race(gym, dcl, vq1):
    from gymnasium.utils.env_checker import check_env

    env = gym.GymRace(dcl, vq1, Options(episode_steps=20))
    check_env(env)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample()) for _ in range(20)]
    assert [truncated or terminated for _, _, terminated, truncated, _ in ends][-1]
    last, (fresh, _) = ends[-1][0], env.reset()
    assert not np.array_equal(last, fresh), "what was seen last is of the episode that ended"
    env.close()


def test_gymnasium_knows_the_race_by_its_name():
    gymnasium = pytest.importorskip("gymnasium")
    importlib.import_module("gate_racer.environments")
    race = gymnasium.make("gate_racer/Race-v0", track="vq1")
    observation, _ = race.reset(seed=1)
    assert observation.shape == (31,) and race.step(np.zeros(4))[0].shape == (31,)
    races = gymnasium.make_vec("gate_racer/Race-v0", num_envs=3)
    assert races.reset(seed=1)[0].shape == (3, 31)
    race.close()
    races.close()

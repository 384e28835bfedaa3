"""The races to learn in, as other people's learners have them: Gymnasium's and rsl_rl's.

PyTorch is loaded in processes of its own: in one that renders, its LLVM and that of OpenGL do not get along."""

import importlib
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from gate_racer.sim.environment.racing import Options


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
    env = gym.GymRacing(dcl, vq1, 3, Options(episode_steps=4))
    actions = np.random.default_rng(0).uniform(-1, 1, (9, 3, 4))
    runs = []
    for seed in (1, 1, 2):
        first = env.reset(seed=seed)[0]
        runs.append([first, *(env.step(action)[0] for action in actions)])
        assert env.np_random_seed == seed
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])
    assert not np.array_equal(env.reset()[0], runs[2][0]), "without a seed the races go on"


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


RSL_RL = """
import numpy as np, torch
from gate_racer.sim.environment.racing import Options, RacingEnvironment
from gate_racer.sim.environment.rsl_rl import RslRaces
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
course = load_vehicle("dcl"), load_track("vq1")
def made(n): return RacingEnvironment(*course, n, np.random.default_rng(n), Options(episode_steps=3))
races, alone = RslRaces([made(2), made(3)]), [made(2), made(3)]
seen, exact = races.get_observations(), np.concatenate([one.reset() for one in alone])
actions = np.random.default_rng(0).uniform(-1, 1, (7, 5, 4)).astype(np.float32)
ended = 0
for action in actions:
    assert seen["seen"].dtype == torch.float32 and np.allclose(seen["seen"].numpy(), exact)
    assert np.allclose(seen["truth"].numpy(), np.concatenate([one.truth() for one in alone]))
    seen, reward, done, extras = races.step(torch.as_tensor(action))
    steps = [one.step(part) for one, part in zip(alone, np.split(action, [2]))]
    exact = np.concatenate([step.observation for step in steps])
    crashed, truncated = (np.concatenate([getattr(step, name) for step in steps]) for name in ("terminated", "truncated"))
    assert np.allclose(reward.numpy(), np.concatenate([step.reward for step in steps]))
    assert np.array_equal(done.numpy(), crashed | truncated) and np.array_equal(extras["time_outs"].numpy() > 0, truncated)
    ended += int(truncated.sum())
assert ended
"""
SB3 = """
import numpy as np
from stable_baselines3 import PPO
from gate_racer.sim.environment.racing import Options, RacingEnvironment
from gate_racer.sim.environment.sb3 import Sb3Races
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
races = Sb3Races(RacingEnvironment(load_vehicle("dcl"), load_track("vq1"), 4, np.random.default_rng(0), Options(episode_steps=3)))
races.reset()
for k in range(1, 4):
    seen, reward, done, infos = races.step(np.tile([-0.5, 0, 0, 0], (4, 1)))
assert done.all() and all(info["TimeLimit.truncated"] for info in infos), "longer than an episode is not flown"
assert not np.array_equal(infos[0]["terminal_observation"], seen[0]) and infos[0]["truth"].shape == (15,)
learner = PPO("MlpPolicy", races, n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(64)
assert learner.num_timesteps == 64
"""


@pytest.mark.parametrize(("library", "law"), [("rsl_rl", RSL_RL), ("stable_baselines3", SB3)])
def test_a_learner_of_other_people_s_takes_the_races(library, law):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run([sys.executable, "-c", law], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""The races to learn in, as the learners of other people's have environments: rsl_rl's and Stable-Baselines3's.

PyTorch is loaded in processes of its own: in one that renders, its LLVM and that of OpenGL do not get along.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

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

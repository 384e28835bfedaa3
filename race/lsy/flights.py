"""Flights of `race-bench lsy`: races of a level in crazyflow, or in the published environment."""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.errors import UserError
from gate_racer.race.lsy.arena import Arena, Observation
from gate_racer.race.lsy.bench import FINISHED, Result
from gate_racer.race.lsy.flyer import Flyer
from gate_racer.race.lsy.level import Places, draw, rules
from gate_racer.race.lsy.rotations import rotation
from gate_racer.race.lsy.solver import Solver


def fly(level: int, seeds: list[int], checkout: Path | None) -> list[Result]:
    """Fly races of a level, in crazyflow or in a checkout of the published environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of crazyflow's dependencies
        return _in_checkout(level, seeds, checkout) if checkout else _in_arena(level, seeds)


def _in_arena(level: int, seeds: list[int]) -> list[Result]:
    arena, solver = Arena([draw(level, seed) for seed in seeds]), Solver()
    flyers = [Flyer(solver=solver) for _ in seeds]
    commands, second = np.zeros((len(seeds), 4)), 0
    while going := [i for i, referee in enumerate(arena.referees) if not referee.status]:
        observations = arena.observe()
        if observations[going[0]].t >= second:
            remark(f"level {level}, seeds {seeds[0]} to {seeds[-1]}: {second} s, {len(going)} flying")
            second += 1
        for i in going:
            commands[i] = flyers[i].step(observations[i])
        arena.step(commands)
    step_s, gates = rules().control_s, len(rules().gates)
    return [
        Result(seed, ref.status, ref.t - step_s, ref.target if ref.target >= 0 else gates, float(ref.clearance))
        for seed, ref in zip(seeds, arena.referees, strict=True)
    ]


def _in_checkout(level: int, seeds: list[int], checkout: Path) -> list[Result]:
    environment, known = _environment(level, checkout), level < rules().places_from
    return [_one_in_checkout(environment, seed, known) for seed in seeds]


def _environment(level: int, checkout: Path) -> Any:
    """Return the published environment of a level.

    Raises:
        UserError: it cannot be loaded from there.
    """
    import tomllib

    sys.path.insert(0, str(checkout))
    try:
        from lsy_drone_racing.envs.drone_race import DroneRaceEnv
        from ml_collections import ConfigDict

        config = ConfigDict(tomllib.loads((checkout / "config" / f"level{level}.toml").read_text(encoding="utf-8")))
    except (ImportError, OSError) as error:
        raise UserError(f"{checkout}: no checkout of lsy_drone_racing that can be loaded ({error})") from None
    env = config.env
    given = {"disturbances": env.get("disturbances"), "randomizations": env.get("randomizations"), "seed": 0}
    given |= {"freq": env.freq, "sim_config": config.sim, "sensor_range": env.sensor_range, "track": env.track}
    return DroneRaceEnv(control_mode="attitude", **given)


def _one_in_checkout(environment: Any, seed: int, known: bool) -> Result:
    flyer, gates = Flyer(), len(rules().gates)
    told, _ = environment.reset(seed=seed)
    observation = observed(told, 0.0, known)
    passed, over = 0, False
    while not over:
        passed = observation.target
        told, _, ended, late, _ = environment.step(flyer.step(observation).astype(np.float32))
        observation, over = observed(told, observation.t + rules().control_s, known), ended or late
    done = observation.target < 0
    time_s = observation.t - rules().control_s
    remark(f"seed {seed}: {FINISHED if done else 'lost'} at {time_s:.2f} s")
    return Result(seed, FINISHED if done else "lost", time_s, gates if done else passed, None)


def observed(told: dict[str, Any], t: float, known: bool) -> Observation:
    """Return the published environment's observation as ours; quaternions there are xyzw.

    Where a level displaces no place, all are `known` from the start.
    """
    a = {name: np.asarray(value) for name, value in told.items()}
    rotations = rotation().from_quat(a["gates_quat"].astype(float)).as_matrix()
    return Observation(
        t,
        a["pos"].astype(float),
        rotation().from_quat(a["quat"].astype(float)).as_matrix(),
        a["vel"].astype(float),
        a["ang_vel"].astype(float),
        int(a["target_gate"]),
        Places(a["gates_pos"].astype(float), rotations, a["obstacles_pos"].astype(float)),
        np.logical_or(a["gates_visited"], known),
        np.logical_or(a["obstacles_visited"], known),
    )

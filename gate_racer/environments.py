"""Registration of `gate_racer/Race-v0` with Gymnasium, which calls it when it is imported: all else is loaded by `make`."""

from gymnasium.envs.registration import register as registered

GYM = "gate_racer.sim.environment.gym"


def register() -> None:
    """Register the environment of one race, and of many at once for `gymnasium.make_vec`."""
    registered("gate_racer/Race-v0", entry_point=f"{GYM}:make_race", vector_entry_point=f"{GYM}:make_races")

"""Registers `gate_racer/Race-v0` with Gymnasium, which since 1.0 finds no environments by itself: import this module first."""

import gymnasium

GYM = "gate_racer.sim.environment.gym"

gymnasium.register("gate_racer/Race-v0", entry_point=f"{GYM}:make_race", vector_entry_point=f"{GYM}:make_races")

"""Compile in advance what later programs find cached: python -m tools.compile functions|solvers

`functions`: all Numba functions, a minute of one core in a new checkout. `solvers`: the functions of the planner's models and the
controllers' solvers, half a minute, once per machine.
"""

import sys
from dataclasses import replace

import numpy as np

from gate_racer.common.compiled import warm_up
from gate_racer.link.profile import load_profile
from gate_racer.mpc.registry import make_controller
from gate_racer.perception.registry import CLASSICAL, open_detector
from gate_racer.planner.models import MODELS
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem import flight_block
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.physics.batch import Batch
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.registry import natural
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

TRACK, PROFILE = "vq1", "dcl"
FLOWN = ("dcl", "swift")  # one vehicle of each plant
PLANNED = {"rates": "dcl", "rotors": "cpc"}  # one vehicle of each model of the planner
CONTROLLERS = ("mpcc", "tracking")


def functions() -> None:
    """Compile what has a signature, and run one step of each plant, which compiles its functions."""
    open_detector(CLASSICAL, load_vehicle(FLOWN[0]).camera)
    warm_up()
    track = load_track(TRACK)
    for name in FLOWN:
        vehicle = load_vehicle(name)
        Simulator(as_believed(track, vehicle), load_profile(PROFILE), seed=0)
        Batch(vehicle, natural(vehicle), 1, Colliders(track)).step(np.zeros((1, 3)), np.zeros(1), 1 / 120)


def solvers() -> None:
    """Plan a course of one gate, and make each controller for it."""
    for model, vehicle in PLANNED.items():
        flight_block(MODELS[model](load_vehicle(vehicle)))
    whole, dcl = load_track(TRACK), load_vehicle("dcl")
    track = replace(whole, gates=whole.gates[:1])
    plan, _ = make_plan(track, dcl, PlanOptions(guesses=1))
    for controller in CONTROLLERS:
        make_controller(controller, plan, dcl, track)


if __name__ == "__main__":
    {"functions": functions, "solvers": solvers}[sys.argv[1]]()

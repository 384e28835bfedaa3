"""Compile the functions of the planner's models and the controllers' solvers in advance: half a minute, once per machine."""

from dataclasses import replace

from gate_racer.mpc.registry import make_controller
from gate_racer.planner.models import MODELS
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem import flight_block
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

TRACK, VEHICLES = "vq1", {"rates": "dcl", "rotors": "cpc"}  # one vehicle of each model
CONTROLLERS = ("mpcc", "tracking")


def main() -> None:
    """Plan a course of one gate, and make each controller for it."""
    for model, vehicle in VEHICLES.items():
        flight_block(MODELS[model](load_vehicle(vehicle)))
    whole, dcl = load_track(TRACK), load_vehicle("dcl")
    track = replace(whole, gates=whole.gates[:1])
    plan, _ = make_plan(track, dcl, PlanOptions(guesses=1))
    for controller in CONTROLLERS:
        make_controller(controller, plan, dcl, track)


if __name__ == "__main__":
    main()

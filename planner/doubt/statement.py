"""What a plan's certificate says of its risk: by gate and edge, from where the plan passes, whatever it was asked to keep."""

from dataclasses import dataclass

import numpy as np

from planner.course.solids import FreeSpace
from planner.doubt.allocation import risk_of
from planner.doubt.prediction import Crossing, Prediction, Spread, predict
from planner.doubt.solids import near_solids
from planner.plan import Plan
from planner.task import Task


@dataclass(frozen=True)
class GateRisk:
    """Of one passage. Edges in the order of `Gate.edges`: up, right, down and left of a square."""

    cov_m2: list[list[float]]  # (2, 2) right and down, of where the gate's plane is crossed, about the planned place
    short_m: list[
        list[float]
    ]  # (2, 2) right and down, where one standard deviation less thrust, or more drag, moves that
    estimate_m: list[float]  # (2,) right and down, standard deviation of what the estimate has wrong of that
    rooms_m: list[float]  # from the body's ball to each edge, across the path
    sigmas_m: list[float]  # towards each edge, across the path
    risks: list[float]  # of touching each edge

    @property
    def spread(self) -> Spread:
        """Of the crossing, right and down."""
        return Spread(np.array(self.cov_m2), np.array(self.short_m))


@dataclass(frozen=True)
class FlightRisk:
    """Of a whole flight; `total` bounds the chance of touching anything by the sum of all chances."""

    total: float
    gates: list[GateRisk]
    solids: dict[str, float]  # by name, those that the flight comes near to


def flight_risk(plan: Plan, task: Task) -> FlightRisk:
    """The risk of a plan, from rest on the pad, under the doubt of its options."""
    return stated(predict(plan, task, task.options.doubt), task)


def stated(prediction: Prediction, task: Task) -> FlightRisk:
    """The same of a prediction."""
    gates = [_gate(one, task.vehicle.contact_radius_m) for one in prediction.crossings if not one.gate.is_ball]
    near = near_solids(prediction, task, FreeSpace.of(task).solids)
    solids = {one.name: float(risk_of(np.array(one.room_m), np.array(one.sigma_m))) for one in near}
    return FlightRisk(sum(sum(gate.risks) for gate in gates) + sum(solids.values()), gates, solids)


def _gate(crossing: Crossing, radius_m: float) -> GateRisk:
    across, seen = crossing.across, np.sqrt(np.diag(crossing.estimate_across))
    rooms, sigmas = crossing.distances_m - radius_m, crossing.sigmas_m
    parts = across.cov, across.short, seen, rooms, sigmas, risk_of(rooms, sigmas)
    return GateRisk(*(part.tolist() for part in parts))

"""What a plan's certificate says of its risk: by gate and edge, from where the plan passes, whatever it was asked to keep."""

from dataclasses import dataclass

import numpy as np

from planner.course.solids import FreeSpace
from planner.doubt.allocation import risk_of
from planner.doubt.prediction import Crossing, Prediction, predict
from planner.doubt.solids import near_solids
from planner.plan import Plan
from planner.task import Task
from vehicle.rotation import Array


@dataclass(frozen=True)
class GateRisk:
    """Of one passage. Edges in the order of `Gate.edges`: up, right, down and left of a square."""

    sigma_right_m: float  # of where the gate's plane is crossed, about the planned place
    sigma_down_m: float
    correlation: float  # of both
    sigma_estimate_m: tuple[float, float]  # right and down, of that what the estimate has wrong
    rooms_m: list[float]  # from the body's ball to each edge, across the path
    sigmas_m: list[float]  # towards each edge, across the path
    risks: list[float]  # of touching each edge

    @property
    def cov(self) -> Array:
        """(2, 2) m^2, right and down."""
        off = self.correlation * self.sigma_right_m * self.sigma_down_m
        return np.array([[self.sigma_right_m**2, off], [off, self.sigma_down_m**2]])


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
    cov, seen = crossing.across(), np.sqrt(np.diag(crossing.across(crossing.estimate_cov)))
    right, down = np.sqrt(np.diag(cov)).tolist()
    rooms, sigmas = crossing.distances_m - radius_m, crossing.sigmas_m
    risks = risk_of(rooms, sigmas)
    estimate = (float(seen[0]), float(seen[1]))
    return GateRisk(
        right, down, float(cov[0, 1] / (right * down)), estimate, rooms.tolist(), sigmas.tolist(), risks.tolist()
    )

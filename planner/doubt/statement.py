"""Risk in a plan's certificate, by gate and edge, from the plan's actual distances, whatever margins were requested."""

from dataclasses import dataclass

import numpy as np

from gate_racer.planner.course.solids import FreeSpace
from gate_racer.planner.doubt.prediction import Crossing, Prediction, Spread, predict
from gate_racer.planner.doubt.solids import near_solids
from gate_racer.planner.doubt.tails import Tails
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task


@dataclass(frozen=True)
class GateRisk:
    """Risk of one passage. Edges in the order of `Gate.edges`: up, right, down and left of a square."""

    drawn_m: list[float]  # (2,) m, right and down, mean shift of the crossing by the controller's corridor
    cov_m2: list[list[float]]  # (2, 2) m^2, right and down, of the crossing point about the planned one so shifted
    short_m: list[
        list[float]
    ]  # (2, 2) m, right and down, shift of the crossing by one standard deviation less thrust, or more drag
    estimate_m: list[float]  # (2,) m, right and down, standard deviation of the estimate's error in it
    rooms_m: list[float]  # m, from the body's sphere to each edge, across the path
    sigmas_m: list[float]  # m, standard deviation towards each edge, across the path
    risks: list[float]  # probability of a collision with each edge

    @property
    def spread(self) -> Spread:
        """Distribution of the crossing point about the planned one plus `drawn_m`, right and down."""
        return Spread(np.array(self.cov_m2), np.array(self.short_m))


@dataclass(frozen=True)
class FlightRisk:
    """Risk of a whole flight; `total` is an upper bound, the sum of all probabilities (Boole)."""

    total: float
    gates: list[GateRisk]
    solids: dict[str, float]  # probability of a collision, by name, for solids near the flight


def flight_risk(plan: Plan, task: Task) -> FlightRisk:
    """Return the risk of a plan, from rest on the pad, under the uncertainty model of its options."""
    return stated(predict(plan, task, task.options.doubt), task)


def stated(prediction: Prediction, task: Task) -> FlightRisk:
    """Return the risk of a prediction."""
    gates = [_gate(one, task.vehicle.contact_radius_m) for one in prediction.crossings if not one.gate.is_ball]
    near = near_solids(prediction, task, FreeSpace.of(task).solids)
    solids = {one.name: float(Tails.normal(np.array([one.sigma_m])).risks(np.array([one.room_m]))[0]) for one in near}
    return FlightRisk(sum(sum(gate.risks) for gate in gates) + sum(solids.values()), gates, solids)


def _gate(crossing: Crossing, radius_m: float) -> GateRisk:
    across, seen, tails = crossing.across, np.sqrt(np.diag(crossing.estimate_across)), crossing.slanted
    rooms = crossing.distances_m - radius_m
    parts = crossing.drawn_m, across.cov, across.short, seen, rooms, tails.spread_m, tails.risks(rooms)
    return GateRisk(*(part.tolist() for part in parts))

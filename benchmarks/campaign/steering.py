"""Commands from given states: by a controller along its plan, or by a policy from gate to gate."""

from typing import Protocol, cast

import numpy as np

from gate_racer.benchmarks.campaign.choice import CONTROLLERS, PreparedCourse
from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.mpc.control import Control
from gate_racer.mpc.policy.controller import PolicyController
from gate_racer.mpc.policy.policy import load_policy
from gate_racer.perception.association import Associator
from gate_racer.pilot.guidance.learned_policy import LearnedPolicy
from gate_racer.pilot.guidance.plan_follower import OVERDUE_S
from gate_racer.pilot.guidance.protocol import GateObserver, state_vector
from gate_racer.vehicle.rotation import Array


class Steering(Protocol):
    """Source of commands for given states."""

    def step(self, state: State, dt: float) -> tuple[Control, str]:
        """Return the command in a state, dt (s) before the next, and the reason to end the flight (empty: none)."""


class ByPlan:
    """Controller by name, along its plan."""

    def __init__(self, name: str, course: PreparedCourse):
        self._controller = CONTROLLERS[name](course)

    def step(self, state: State, dt: float) -> tuple[Control, str]:
        """Return the control for a state, and why the flight shall end, or ""."""
        controller = self._controller
        control = controller.step(state.t, state_vector(state), dt)
        over = controller.theta > controller.reference.end + OVERDUE_S
        return control, "the plan has ended" if over else ""


class ByPolicy:
    """Policy by name, with gate passages judged from the given states."""

    def __init__(self, name: str, course: PreparedCourse, laps: int, command_hz: float):
        policy, track = load_policy(name), course.track
        policy.require(course.vehicle, command_hz)
        observer = GateObserver(Associator(track.gates, course.vehicle.camera), track.gates)
        self._guidance = LearnedPolicy(track, laps, PolicyController(policy, course.vehicle), observer)
        self._map = cast(MapEstimator, _AsMapped())

    def step(self, state: State, dt: float) -> tuple[Control, str]:
        """Return the control for a state, and why the flight shall end, or ""."""
        end = self._guidance.judge(state, state.t, 0.0, self._map)
        return self._guidance.step(state, state.t, dt, self._map), end.cause if end is not None else ""


class _AsMapped:
    """The part of `MapEstimator` that guidance uses, for a given state: gates without offsets from the map."""

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        return np.zeros(3)


def steering(name: str, course: PreparedCourse, laps: int, command_hz: float) -> Steering:
    """Return the controller or policy of a name. Raises UserError for a policy that does not fit vehicle or rate."""
    return ByPlan(name, course) if name in CONTROLLERS else ByPolicy(name, course, laps, command_hz)

"""What turns states that are given into commands: a controller along its plan, or a policy from gate to gate."""

from typing import Protocol, cast

import numpy as np

from benchmarks.campaign.choice import CONTROLLERS, PreparedCourse
from estimation.estimator import MapEstimator, State
from mpc.control import Control
from mpc.policy.controller import PolicyController
from mpc.policy.policy import load_policy
from perception.association import Associator
from pilot.guidance.learned_policy import LearnedPolicy
from pilot.guidance.plan_follower import OVERDUE_S
from pilot.guidance.protocol import GateObserver, state_vector
from vehicle.rotation import Array


class Steering(Protocol):
    """Asked for one command after the other."""

    def step(self, state: State, dt: float) -> tuple[Control, str]:
        """The command in a state, dt (s) before the next, and why the flight should end (empty: it should not)."""


class ByPlan:
    """The controller of a name, by its plan's time."""

    def __init__(self, name: str, course: PreparedCourse):
        self._controller = CONTROLLERS[name](course)

    def step(self, state: State, dt: float) -> tuple[Control, str]:
        controller = self._controller
        control = controller.step(state.t, state_vector(state), dt)
        over = controller.theta > controller.reference.end + OVERDUE_S
        return control, "the plan has ended" if over else ""


class ByPolicy:
    """A policy, which counts its gates by the states that it is given."""

    def __init__(self, name: str, course: PreparedCourse, laps: int, command_hz: float):
        policy, track = load_policy(name), course.track
        policy.require(course.vehicle, command_hz)
        observer = GateObserver(Associator(track.gates, course.vehicle.camera), track.gates)
        self._guidance = LearnedPolicy(track, laps, PolicyController(policy, course.vehicle), observer)
        self._map = cast(MapEstimator, _AsMapped())

    def step(self, state: State, dt: float) -> tuple[Control, str]:
        end = self._guidance.judge(state, state.t, 0.0, self._map)
        return self._guidance.step(state, state.t, dt, self._map), end.cause if end is not None else ""


class _AsMapped:
    """Of an estimator what guidance asks for where the state is given: the gates stand as on the map."""

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        return np.zeros(3)


def steering(name: str, course: PreparedCourse, laps: int, command_hz: float) -> Steering:
    """Of a controller or policy by its name. Raises UserError for a policy that does not fit."""
    return ByPlan(name, course) if name in CONTROLLERS else ByPolicy(name, course, laps, command_hz)

"""The drone of the bootcamp: the race simulator behind four commands and three states, one step at a time.

Not a point that jumps: it flies by the simulator's position set-points, tilts, and needs a moment to stop.
"""

import math
from dataclasses import astuple
from hashlib import sha256

import numpy as np

from bootcamp.api import Command, Go, Halt, Land, Location, Null, Report, Status, Unreadable
from bootcamp.scenario import Scenario
from link.messages import Arm, PositionTarget
from link.profile import load_profile, ticks
from sim.simulator import Simulator
from sim.wire.position import KP_1_S
from sim.worlds.world import as_believed
from vehicle.rotation import Array
from vehicle.vehicle import load_vehicle

TOUCH_DOWN_M = 0.3  # at this height the motors stop
AIM_M = 0.2  # height that a descent heads for
TAKE_OFF_S = 60.0


class Drone:
    """Flies a scenario. The same seed and commands give the same bits."""

    def __init__(self, scenario: Scenario):
        """Takes off; the first step begins halted at the flight's height.

        Raises:
            UserError: steps that are no whole number of physics ticks.
        """
        world, profile = scenario.world, load_profile("spec")
        self.scenario, self._world = scenario, world
        self.camera = world.camera
        self._simulator = Simulator(as_believed(scenario.track(), load_vehicle("dcl")), profile, scenario.seed)
        self._ticks = ticks(1 / world.step_s, profile.physics_hz)
        self._status, self._landing, self._hit = Status.MOVING, False, ""
        self._step = self._taken = self._ignored = 0
        self._reached = False
        self._here_since: float | None = None  # s: at the destination, and slow
        self._simulator.command(Arm())
        self._head_for(np.array([0.0, 0.0, -world.height_m]))
        while self._status is Status.MOVING and self._simulator.t < TAKE_OFF_S:
            self._tick()
        assert self._status is Status.HALTED, "the way up is free"

    def report(self, warning: str = "") -> Report:
        """How it stands now."""
        position, goal = self._position(), Location(*self._goal[:2].tolist())
        w, x, y, z = self._simulator.truth.q_wb.tolist()
        moving = self._status is Status.MOVING
        return Report(
            self._step, self._step * self._world.step_s, self._status, position, self._height, self._speed,
            (w, x, y, z), goal if moving else position, self._drift() if moving else 0.0, self.scenario.waypoint,
            self._reached, self.scenario.seed, self._taken, self._ignored, warning or self._hit,
        )  # fmt: skip

    @property
    def p_wb(self) -> Array:
        """(3,) m, world NED."""
        return self._simulator.truth.p_wb.copy()

    def digest(self) -> str:
        """16 hex digits of every bit of the simulator's state that flies on."""
        return sha256(self._simulator.truth.x.tobytes() + repr(astuple(self.report())).encode()).hexdigest()[:16]

    def step(self, command: Command | Unreadable | None) -> Report:
        """Takes a command and flies one step. An invalid one is ignored, counted, and said in the report's `warning`.

        Args:
            command: None when none has come in time.
        """
        warning = ""
        if command is not None:
            self._taken += 1
            warning = self._refusal(command)
            self._ignored += bool(warning)
            if not warning:
                self._carry_out(command)
        self._step += 1
        for _ in range(self._ticks):
            self._tick()
        return self.report(warning)

    def _refusal(self, command: Command | Unreadable) -> str:
        """Why a command is invalid now, or ""."""
        halted = self._status is Status.HALTED
        match command:
            case Null():
                return ""
            case Unreadable():
                return f"{command.text} is no command: expected Null(), Go(north, east), Halt() or Land()"
            case _ if self._status in (Status.LANDED, Status.CRASHED):
                return f"{command}: the drone has {self._status}"
            case Halt():
                return "Halt(): the drone is already halted" if halted else ""
            case _ if not halted:
                return f"{command}: the drone is {self._status}, it must be halted first"
            case Go():
                return self._out_of_reach(command)
        return ""

    def _out_of_reach(self, go: Go) -> str:
        if not all(isinstance(value, float) and math.isfinite(value) for value in (go.north, go.east)):
            return f"{go}: north and east must be finite numbers, in m"
        here, limit = self._position(), self._world.boundary_m
        north, east = here.north + go.north, here.east + go.east
        if max(abs(north), abs(east)) > limit:
            return f"{go}: leads to {north:.1f} m north, {east:.1f} m east, outside the boundary of {limit:g} m"
        return ""

    def _carry_out(self, command: Command | Unreadable) -> None:
        truth = self._simulator.truth
        match command:
            case Go():
                self._head_for(np.array([truth.p_wb[0] + command.north, truth.p_wb[1] + command.east, self._goal[2]]))
            case Halt():  # v* = k_p (p* - p) = v: it brakes at once, without a jerk
                self._head_for(truth.p_wb + truth.x[7:10] / KP_1_S)
                self._landing = False
            case Land():
                self._head_for(np.array([*self._goal[:2], -AIM_M]))
                self._landing = True

    def _head_for(self, goal_w: Array) -> None:
        self._goal, self._from = goal_w, self._simulator.truth.p_wb.copy()
        self._status, self._here_since = Status.MOVING, None
        n, e, d = goal_w.tolist()
        self._simulator.command(PositionTarget((n, e, d), (None, None, None)))

    def _tick(self) -> None:
        """One tick of physics, and what follows from it."""
        if self._status in (Status.LANDED, Status.CRASHED):
            return
        contacts = self._simulator.tick().contacts
        if contacts:
            self._status, self._hit = Status.CRASHED, f"hit {contacts[0].kind}"
        elif self._landing and self._height < TOUCH_DOWN_M:
            self._simulator.command(Arm(False))
            self._status = Status.LANDED
        elif self._status is Status.MOVING and not self._landing:
            gap = float(np.linalg.norm(self._goal - self._simulator.truth.p_wb))
            here = gap < self._world.acceptance_m and self._speed < self._world.arrived_m_s
            self._here_since = (self._here_since or self._simulator.t) if here else None
            if self._here_since is not None and self._simulator.t - self._here_since >= self._world.settled_s:
                self._status = Status.HALTED
        waypoint = self.scenario.waypoint
        if waypoint is not None and self._status is Status.HALTED:
            self._reached |= waypoint.distance(self._position()) < 2 * self._world.acceptance_m

    def _position(self) -> Location:
        return Location(*self._simulator.truth.p_wb[:2].tolist())

    @property
    def _height(self) -> float:
        return -float(self._simulator.truth.p_wb[2])

    @property
    def _speed(self) -> float:
        return float(np.linalg.norm(self._simulator.truth.x[7:10]))

    def _drift(self) -> float:
        """m, from the straight line that this leg began with."""
        leg, made = self._goal - self._from, self._simulator.truth.p_wb - self._from
        length = float(np.linalg.norm(leg))
        along = leg / length if length > 0 else np.zeros(3)
        return float(np.linalg.norm(made - (made @ along) * along))

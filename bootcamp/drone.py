"""Drone of the bootcamp: a body controlled by four commands, one step at a time."""

import math
from dataclasses import astuple
from hashlib import sha256

import numpy as np

from gate_racer.bootcamp.api import Command, Go, Halt, Land, Location, Null, Report, Status, Unreadable
from gate_racer.bootcamp.bodies import TAKE_OFF_S, make_body
from gate_racer.bootcamp.scenario import HEADROOM_M, Scenario
from gate_racer.bootcamp.world import KINEMATIC, LOSS
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array

VISIT_M = 1.0  # m, distance within which a place of the route counts as visited
HEIGHT_MIN_M = 1.0  # m, least height of a destination
OVER = (Status.LANDED, Status.CRASHED)  # final states


class Drone:
    """Drone that flies a scenario; bit-identical for the same seed and commands."""

    def __init__(self, scenario: Scenario):
        """Take off; the first step begins halted at the flight's height.

        Raises:
            UserError: it does not settle after take-off, as the wind is too strong.
        """
        self.scenario, self._world = scenario, scenario.world
        self._body = make_body(scenario)
        self._gates = scenario.course.gates if scenario.course else ()
        self._unvisited = scenario.route
        self._step = self._taken = self._ignored = self._passed = 0
        self._reached = False
        self._head_for(np.array([*self._body.p_w[:2], -scenario.height_m]))
        self._halting = True  # hover wherever the wind allows
        while self._status is Status.MOVING and self._body.t < TAKE_OFF_S:
            self._tick()
        if self._status is not Status.HALTED:
            raise UserError(f"{self._world.name}: no take-off within {TAKE_OFF_S:g} s: the wind may be too strong")

    def report(self, warning: str = "") -> Report:
        """Return the current report."""
        position, goal = self._position(), Location(*self._goal[:2].tolist())
        w, x, y, z = self._body.q_wb.tolist()
        moving = self._status is Status.MOVING
        return Report(
            self._step, self._step * self._world.step_s, self._status, position, self._height, self._speed,
            (w, x, y, z), goal if moving else position, self._drift() if moving else 0.0, self.scenario.waypoint,
            self._reached, self.scenario.seed, self._world.camera, self._unvisited, self.scenario.gates, self._passed,
            self._image_arrives(), self._taken, self._ignored, warning or self._body.hit,
        )  # fmt: skip

    @property
    def p_wb(self) -> Array:
        """Position (3,) m, world NED."""
        return self._body.p_w

    def digest(self) -> str:
        """Return a hash of the complete state of the flight, as 16 hex digits."""
        return sha256(self._body.bits() + repr(astuple(self.report())).encode()).hexdigest()[:16]

    def step(self, command: Command | Unreadable | None) -> Report:
        """Apply a command and fly one step. An invalid one is ignored, counted, and explained in the report's `warning`.

        Args:
            command: None if none arrived in time.
        """
        warning = ""
        if command is not None:
            self._taken += 1
            warning = self._refusal(command)
            self._ignored += bool(warning)
            if not warning:
                self._carry_out(command)
        self._step += 1
        for _ in range(self._body.per_step):
            self._tick()
        return self.report(warning)

    def _refusal(self, command: Command | Unreadable) -> str:
        """Return the reason for which a command is invalid now, or ""."""
        halted = self._status is Status.HALTED
        match command:
            case Null():
                return ""
            case Unreadable():
                hint = f"; {command.hint}" if command.hint else ""
                return f"{command.text} is not a command: expected Null(), Go(north, east), Halt() or Land(){hint}"
            case _ if self._status in OVER:
                return f"{command}: the drone has {self._status}"
            case _ if self._body.touched:
                return f"{command}: the drone is already on the ground"
            case Halt():
                return "Halt(): the drone is already halted" if halted else ""
            case Go() if halted or (self._gates and not self._landing):
                return self._out_of_reach(command)
            case _ if not halted:
                return f"{command}: the drone is {self._status}, it must be halted first"
        return ""

    def _out_of_reach(self, go: Go) -> str:
        if not all(isinstance(value, float) and math.isfinite(value) for value in (go.north, go.east, go.up)):
            return f"{go}: north, east and up must be finite numbers, in m"
        here, limit, ceiling = self._position(), self._world.boundary_m, self.scenario.height_m + HEADROOM_M / 2
        north, east, height = here.north + go.north, here.east + go.east, self._hold_height + go.up
        if max(abs(north), abs(east)) > limit:
            return (
                f"{go}: leads to {north:.1f} m north, {east:.1f} m east, outside the boundary of {limit:g} m; Go is relative to"
                f" the drone, which is at {here.north:.1f} m north, {here.east:.1f} m east: subtract report.position"
            )
        if not HEIGHT_MIN_M <= height <= ceiling:
            return f"{go}: leads to a height of {height:.1f} m, outside {HEIGHT_MIN_M:g} to {ceiling:g} m"
        return ""

    def _carry_out(self, command: Command | Unreadable) -> None:
        match command:
            case Go():
                here = self._body.p_w
                self._head_for(
                    np.array([here[0] + command.north, here[1] + command.east, -self._hold_height - command.up])
                )
            case Halt() if not self._halting:  # repeated halts have no effect
                self._head_for(self._body.stop())
                self._halting = True
            case Land():
                self._head_for(np.array([*self._goal[:2], 0.0]))
                self._body.descend()
                self._landing = True

    @property
    def _hold_height(self) -> float:
        """Height (m) to which `Go.up` is relative: the present one on a course of gates, else that of the last destination."""
        return self._height if self._gates else -float(self._goal[2])

    def _head_for(self, goal_w: Array) -> None:
        self._goal, self._from = goal_w, self._body.p_w
        self._status = Status.MOVING
        self._halting = self._landing = False
        self._since: float | None = None  # s, time since which it has been there, and slow
        self._body.head_for(goal_w)

    def _tick(self) -> None:
        """Advance the body by one tick, and update the status."""
        if self._status in OVER:
            return
        before = self._body.p_w
        self._body.tick()
        if self._body.hit:
            self._status = Status.CRASHED
        elif self._body.landed:
            self._status = Status.LANDED
        elif self._status is Status.MOVING and not self._landing:
            self._settle()
        self._watch(before, self._body.p_w)

    def _settle(self) -> None:
        """Set the status to halted after being slow for `settled_s`, at the destination unless halting."""
        gap = self._goal - self._body.p_w
        near = abs(gap[2]) if self._halting else np.linalg.norm(gap)
        there = near < self._world.acceptance_m and self._speed < self._world.arrived_m_s
        now = self._body.t
        self._since = (now if self._since is None else self._since) if there else None
        if self._since is not None and (now - self._since >= self._world.settled_s or self._world.drone == KINEMATIC):
            self._status = Status.HALTED

    def _watch(self, before: Array, after: Array) -> None:
        """Record the waypoint, places and gates passed in a tick."""
        here, waypoint = Location(*after[:2].tolist()), self.scenario.waypoint
        if waypoint is not None and self._status is Status.HALTED:
            self._reached |= waypoint.distance(here) < 2 * self._world.acceptance_m
        if self._unvisited and min(map(here.distance, self._unvisited)) < VISIT_M:
            self._unvisited = tuple(place for place in self._unvisited if here.distance(place) >= VISIT_M)
        if self._passed < len(self._gates):
            crossing = self._gates[self._passed].crossing(before, after)
            self._passed += crossing is not None and crossing.margin > 0

    def _image_arrives(self) -> bool:
        """Check whether this step's image arrives; gaps of several steps are drawn from the seed."""
        conditions = self.scenario.conditions
        if not conditions.lost:
            return True
        gap = self._step // conditions.lost_steps
        return bool(np.random.default_rng([self.scenario.seed, LOSS, gap]).random() >= conditions.lost)

    def _position(self) -> Location:
        return Location(*self._body.p_w[:2].tolist())

    @property
    def _height(self) -> float:
        return -float(self._body.p_w[2])

    @property
    def _speed(self) -> float:
        return float(np.linalg.norm(self._body.v_w))

    def _drift(self) -> float:
        """Return the distance (m) from the straight line of this leg."""
        leg, made = self._goal - self._from, self._body.p_w - self._from
        length = float(np.linalg.norm(leg))
        along = leg / length if length > 0 else np.zeros(3)
        return float(np.linalg.norm(made - (made @ along) * along))

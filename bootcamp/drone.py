"""Drone of the bootcamp: a body controlled by four commands, one step at a time. World NED, body FRD.

Its body flies to a goal, tick by tick: it is the race simulator's vehicle, or a point at constant speed.
"""

import math
from dataclasses import astuple
from hashlib import sha256

import numpy as np

from gate_racer.bootcamp.api import Command, Go, Halt, Land, Location, Null, Report, Status, Unreadable
from gate_racer.bootcamp.scenario import HEADROOM_M, KINEMATIC, LOSS, PROFILE, SIMULATED, WIND, Scenario
from gate_racer.common.errors import UserError
from gate_racer.link.messages import UNASKED, PositionTarget
from gate_racer.link.profile import load_profile, ticks
from gate_racer.sim.physics.contact import ColliderKind, Colliders
from gate_racer.sim.physics.plant import P, Q, V, make_plant
from gate_racer.sim.physics.registry import natural
from gate_racer.sim.wire.position import KP_1_S, PositionControl
from gate_racer.sim.worlds.forces import forces_of
from gate_racer.sim.worlds.world import AirDeviation, Deviations, World, as_believed
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import load_vehicle

UNDERGROUND_M = 0.1  # m below the floor, the goal of a descent, for a slow touch-down (chosen)
TAKE_OFF_S = 60.0  # s, greatest time of a take-off (chosen)
CRUISE = 0.92  # -, commanded speed over the limit: overshoot and a tailwind of 7 m/s stay below the limit
OVERSPEED_GAIN = 4.0  # -, reduction of the commanded speed per excess of the actual speed over it
REST_M, REST_S = 0.002, 0.2  # change of pose (m or -) and time (s) that define rest: rates never vanish in contact
HANGS_M_S, WIND_HOLD_M = 0.2, 1.0  # speed and distance to the goal below which wind is taken to hold the body off
STANDING_M = 0.3  # m, height below which contact with the bounds is with the floor


class SimulatedBody:
    """Vehicle of the race simulator with position control: it tilts to accelerate, takes time to stop, and drifts in wind.

    `hit` is the obstacle that ended the flight, or "", `landed` whether it rests on the ground, `touched` whether it has touched
    anything since take-off, and `per_step` the number of ticks of a step.
    """

    def __init__(self, scenario: Scenario):
        """Start on the ground, armed: the simulator's plant and control cascade, without sensors and referee."""
        profile, true = load_profile(PROFILE), _world(scenario)
        track, vehicle, forces = true.track, true.vehicle, forces_of(true, scenario.seed)
        self._hz, self._count = profile.physics_hz, 0
        self._plant = make_plant(vehicle, track.start, natural(vehicle), Colliders(track), forces)
        self._plant.armed = True
        self._cascade = PositionControl(vehicle, profile.position_yaw)
        self._cruise_m_s = CRUISE * scenario.world.speed_m_s
        self.per_step = ticks(1 / scenario.world.step_s, profile.physics_hz)
        self.hit, self.landed, self.touched = "", False, False
        self._descending, self._still = False, 0  # ticks at rest
        self._rest_pose: Array | None = None
        self._read_plant()
        self._goal_w = self.p_w

    def _read_plant(self) -> None:
        """Set time (s), position (3,) m, velocity (3,) m/s and attitude (4,), body to world, wxyz."""
        x = self._plant.x
        self.t, self.p_w, self.v_w, self.q_wb = self._count / self._hz, x[P].copy(), x[V].copy(), x[Q].copy()

    def head_for(self, goal_w: Array) -> None:
        """Fly to a goal (3,) m and stop there."""
        self._goal_w, self._descending = goal_w, False

    def stop(self) -> Array:
        """Brake at once, without a jump of the commanded velocity: v* = k_p (p* - p) = v. If wind holds it off, keep its goal.

        Returns the new goal (3,) m.
        """
        hangs = np.linalg.norm(self.v_w) < HANGS_M_S and np.linalg.norm(self._goal_w - self.p_w) < WIND_HOLD_M
        self.head_for(self._goal_w if hangs and not self._descending else self.p_w + self.v_w / KP_1_S)
        return self._goal_w

    def descend(self) -> None:
        self._goal_w, self._descending = np.array([*self._goal_w[:2], UNDERGROUND_M]), True

    def tick(self) -> None:
        self._count += 1
        if not self.touched:
            truth = self._plant.truth
            self._cascade.follow(self._set_point(truth.x[P], truth.x[V]), truth)
            self._plant.command(self._count / self._hz, self._cascade.target(truth))
        contacts = self._plant.advance(self._count / self._hz)
        self._read_plant()
        ground = [contact.kind is ColliderKind.BOUNDS and -self.p_w[2] < STANDING_M for contact in contacts]
        if not all(ground) or (contacts and not self._descending):
            self.hit = "hit the ground" if all(ground) else f"hit {contacts[ground.index(False)].kind}"
        elif contacts and not self.touched:
            self.touched = True
            self._plant.disarm()
        elif self.touched:
            self._settle()

    def _settle(self) -> None:
        """Set `landed` after the pose has been constant for `REST_S`."""
        pose = self._plant.x[: Q.stop]
        moved = self._rest_pose is None or np.abs(pose - self._rest_pose).max() > REST_M
        self._rest_pose = pose.copy() if moved else self._rest_pose
        self._still = 0 if moved else self._still + 1
        self.landed = self._still >= REST_S * self._hz

    def _set_point(self, p: Array, v: Array) -> PositionTarget:
        """Return a set point on the line to the goal, near enough for the cascade to command no more than the speed limit."""
        gap = self._goal_w - p
        length, excess = math.hypot(*gap), max(0.0, math.hypot(*v) - self._cruise_m_s)
        reach_m = max(0.0, self._cruise_m_s - OVERSPEED_GAIN * excess) / KP_1_S
        n, e, d = (p + gap * min(1.0, reach_m / length) if length > 0 else p).tolist()
        return PositionTarget((n, e, d), UNASKED)

    def bits(self) -> bytes:
        """Return the full state as bytes, to compare flights."""
        return self._plant.truth.x.tobytes()


class KinematicBody:
    """Point at the speed limit or at rest: p' = p + v' dt (implicit Euler), set to its goal instead of passing it.

    Its interface is that of `SimulatedBody`.
    """

    hit = ""
    per_step = 1

    def __init__(self, scenario: Scenario):
        world = scenario.world
        self._dt, self._speed, self._acceptance_m = world.step_s, world.speed_m_s, world.acceptance_m
        self.p_w = np.array([*scenario.track().start.p_wb[:2], -scenario.height_m])
        self.q_wb, self.v_w = np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3)
        self.t, self.landed, self.touched = 0.0, False, False
        self._goal_w, self._descending = self.p_w, False

    def head_for(self, goal_w: Array) -> None:
        self._goal_w, self._descending = goal_w, False

    def stop(self) -> Array:
        """Stop at once; return the position (3,) m."""
        self.head_for(self.p_w)
        return self._goal_w

    def descend(self) -> None:
        self._goal_w, self._descending = np.array([*self.p_w[:2], 0.0]), True

    def tick(self) -> None:
        self.t += self._dt
        gap = self._goal_w - self.p_w
        length = float(np.linalg.norm(gap))
        if length <= max(self._speed * self._dt, self._acceptance_m):
            self.p_w, self.v_w = self._goal_w, np.zeros(3)
            self.landed = self.touched = self._descending
        else:
            self.v_w = self._speed / length * gap
            self.p_w = self.p_w + self.v_w * self._dt

    def bits(self) -> bytes:
        return self.p_w.tobytes() + self.v_w.tobytes()


def _world(scenario: Scenario) -> World:
    """Return the simulator's world: calm, or with a wind in a direction drawn from the seed."""
    track, vehicle, conditions = scenario.track(), load_vehicle("dcl"), scenario.conditions
    if not conditions.wind_m_s and not conditions.gust_m_s:
        return as_believed(track, vehicle)
    to = float(np.random.default_rng([scenario.seed, WIND]).uniform(-math.pi, math.pi))
    north, east = conditions.wind_m_s * math.cos(to), conditions.wind_m_s * math.sin(to)
    air = AirDeviation(north, east, conditions.gust_m_s, scenario.height_m)
    return World.of(scenario.world.name, Deviations(air=air), track, vehicle)


VISIT_M = 1.0  # m, distance within which a place of the route counts as visited
HEIGHT_MIN_M = 1.0  # m, least height of a destination
OVER = (Status.LANDED, Status.CRASHED)  # final states


class Drone:
    """Drone that flies a scenario; bit-identical for the same seed and commands."""

    def __init__(self, scenario: Scenario):
        """Take off; the first step begins halted. Raises UserError if it does not settle, as the wind is too strong."""
        self.scenario, self._world = scenario, scenario.world
        self._body = SimulatedBody(scenario) if self._world.drone == SIMULATED else KinematicBody(scenario)
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
        """Apply a command (None: none in time) and fly one step; the report's `warning` says why one was ignored."""
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
                f"{go}: leads from {here.north:.1f} m north, {here.east:.1f} m east to {north:.1f} m north, {east:.1f} m east,"
                f" outside the boundary of {limit:g} m"
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

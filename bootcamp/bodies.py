"""Bodies that fly to a goal: the race simulator's vehicle, or a point at constant speed, both as `FlyingBody`."""

import math
from typing import Protocol

import numpy as np

from gate_racer.bootcamp.scenario import Scenario
from gate_racer.bootcamp.world import KINEMATIC, PROFILE, SIMULATED, WIND
from gate_racer.link.messages import UNASKED, PositionTarget
from gate_racer.link.profile import load_profile, ticks
from gate_racer.sim.physics.contact import ColliderKind, Colliders
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.sim.physics.setting import make_plant, natural
from gate_racer.sim.wire.position import KP_1_S, PositionControl
from gate_racer.sim.worlds.deviations import AirDeviation, Deviations
from gate_racer.sim.worlds.forces import forces_of
from gate_racer.sim.worlds.world import World, as_believed
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import load_vehicle

UNDERGROUND_M = 0.1  # m below the floor, the goal of a descent, for a slow touch-down (chosen)
TAKE_OFF_S = 60.0  # s, greatest time of a take-off (chosen)
CRUISE = 0.92  # -, commanded speed over the limit: overshoot and a tailwind of 7 m/s stay below the limit
OVERSPEED_GAIN = 4.0  # -, reduction of the commanded speed per excess of the actual speed over it
REST_M, REST_S = 0.002, 0.2  # change of pose (m or -) and time (s) that define rest: rates never vanish in contact
HANGS_M_S, WIND_HOLD_M = 0.2, 1.0  # speed and distance to the goal below which wind is taken to hold the body off
STANDING_M = 0.3  # m, height below which contact with the bounds is with the floor


class FlyingBody(Protocol):
    """Body that flies to goals (3,) m, world NED, tick by tick."""

    hit: str  # obstacle that ended the flight, or ""
    landed: bool  # at rest on the ground
    per_step: int  # ticks per step

    @property
    def t(self) -> float:
        """Time, s."""
        ...

    @property
    def p_w(self) -> Array:
        """Position (3,) m."""
        ...

    @property
    def v_w(self) -> Array:
        """Velocity (3,) m/s."""
        ...

    @property
    def q_wb(self) -> Array:
        """Attitude (4,), body to world, wxyz."""
        ...

    @property
    def touched(self) -> bool:
        """Whether it has touched anything since take-off."""
        ...

    def head_for(self, goal_w: Array) -> None:
        """Fly to a goal (3,) m and stop there."""
        ...

    def stop(self) -> Array:
        """Brake; return the new goal (3,) m."""
        ...

    def descend(self) -> None:
        """Land vertically."""
        ...

    def tick(self) -> None:
        """Advance one tick."""
        ...

    def bits(self) -> bytes:
        """Return the full state as bytes, to compare flights."""
        ...


class SimulatedBody:
    """Vehicle of the race simulator with position control: it tilts to accelerate, takes time to stop, and drifts in wind."""

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
        self._goal_w = self.p_w

    @property
    def t(self) -> float:
        return self._count / self._hz

    @property
    def p_w(self) -> Array:
        return self._plant.x[P].copy()

    @property
    def v_w(self) -> Array:
        return self._plant.x[V].copy()

    @property
    def q_wb(self) -> Array:
        return self._plant.x[Q].copy()

    def head_for(self, goal_w: Array) -> None:
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
            self._plant.command(self.t, self._cascade.target(truth))
        contacts = self._plant.advance(self.t)
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
        return self._plant.truth.x.tobytes()


class KinematicBody:
    """Point at the speed limit or at rest: p' = p + v' dt (implicit Euler), set to its goal instead of passing it."""

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


def make_body(scenario: Scenario) -> FlyingBody:
    """Return the body named by the world."""
    kinds: dict[str, type[SimulatedBody] | type[KinematicBody]] = {
        SIMULATED: SimulatedBody,
        KINEMATIC: KinematicBody,
    }
    return kinds[scenario.world.drone](scenario)


def _world(scenario: Scenario) -> World:
    """Return the simulator's world: calm, or with a wind in a direction drawn from the seed."""
    track, vehicle, conditions = scenario.track(), load_vehicle("dcl"), scenario.conditions
    if not conditions.wind_m_s and not conditions.gust_m_s:
        return as_believed(track, vehicle)
    to = float(np.random.default_rng([scenario.seed, WIND]).uniform(-math.pi, math.pi))
    north, east = conditions.wind_m_s * math.cos(to), conditions.wind_m_s * math.sin(to)
    air = AirDeviation(north, east, conditions.gust_m_s, scenario.height_m)
    return World.of(scenario.world.name, Deviations(air=air), track, vehicle)

"""The explorer: a pilot without a map or a plan, who flies gate to gate by sight, slowly, and leaves the log for `map-track`.

take off -> search <-> approach -> pass -> search ..., until the race is over, or a turn all round has shown no further gate: then
it lands where it is.
Before the first gate it may fly manoeuvres, for `identify-vehicle`; `map-track` learns from them how long a metre is, which
only accelerations tell.
"""

import enum
import math
from dataclasses import replace
from typing import cast

import numpy as np

from estimation.estimator import State
from estimation.landmarks import APART_M, Landmark, LandmarkEstimator
from link.messages import Command, Imu, RaceStatus, Telemetry
from link.profile import Profile
from mpc.controller import Controller
from mpc.geometric import limited
from perception.association import Associator, Look
from pilot.excite import Exciter
from pilot.flight import Phase, Picture
from pilot.manoeuvres import Manoeuvres
from pilot.pilot import Pilot
from pilot.servo import Aim, Servo
from tracks.track import Bounds, Start, Track
from vehicle.rotation import Array, to_euler
from vehicle.vehicle import Vehicle

NAME = "explored"
REST_S = 4.0  # on the pad, before GO or after it: the longer the rest, the better the biases are known
CRUISE = 5.0  # m/s, between gates: dead reckoning errs with the time, not with the way
CROSSING = 4.0  # m/s, through them; to brake is to look up, so there is little of it
LIFT_M = 1.0  # above the pad before anything else
STAND_OFF_M = 7.0  # before a gate, from where it is flown at straight
BEYOND_M = 1.5  # behind a gate, where it counts as passed
CONE = 0.12  # sideways over ahead, within which a gate is flown at
SLOPE = 0.12  # down over ahead, beyond which height comes first: a level camera sees only 9 deg below the horizon
CLIMB = 2.0  # m/s
PULL, CENTRE = 1.0, 1.8  # 1/s, distance to velocity, in general and towards the axis of a gate
LOOK_S = 0.8  # of looking ahead after a gate, before a search
TURN = math.radians(45.0)  # rad/s, of a search
NOD_S, NOD = 2.0, 3.0  # period in s and amplitude in m/s^2 of the nod, which shows what lies above and below
SEARCH_S = 2 * math.pi / TURN + 2.0  # of a search, before it moves on
SEARCHES = 2  # in a row that may be in vain
STEP_M = 5.0  # onwards between them
STALE_S = 20.0  # after which a gate that was not seen again is looked for anew
RETRY_S = 25.0  # of flying at one gate
SINK, LAND_S = 1.5, 20.0  # m/s, and most s of a landing
PUSH = 4.0  # m/s^2 beyond the thrust asked for: the ground
ROOM_M, ROOF_M = 12.0, 10.0  # around the pad and above it, that manoeuvres may use where nobody knows the room


class Stage(enum.StrEnum):
    TAKE_OFF = "take off"
    SEARCH = "search"
    EXCITE = "excite"
    APPROACH = "approach"
    PASS = "pass"
    LAND = "land"


class Explorer(Pilot):
    """Heard and asked like any pilot; `passed` are the numbers of the landmarks that it has flown through."""

    def __init__(
        self, vehicle: Vehicle, profile: Profile, estimator: LandmarkEstimator, wanted: Manoeuvres | None, seed: int
    ):
        """`wanted` is flown before the first gate; the seed draws its order."""
        self._nowhere = Track(NAME, Start((0.0,) * 3, 0.0), Bounds((-np.inf,) * 3, (np.inf,) * 3), (), False, None)
        self._servo, self._wanted, self._seed = Servo(vehicle), wanted, seed
        self._exciter: Exciter | None = None
        controller = cast(Controller, self._servo)  # answers `step` and `prepare`, which is all that flying asks
        super().__init__(self._nowhere, vehicle, profile, estimator, Associator((), vehicle.camera), controller, 1)
        self.passed: list[int] = []
        self.stage = Stage.TAKE_OFF
        self._target: int | None = None
        self._hold = np.zeros(3)
        self._rest_t = 0.0  # when the rest on the pad began
        self._way = 0.0  # rad, in which the course has led so far
        self._stage_t = 0.0
        self._vain = 0
        self._credited = 0  # gates, as the race status says
        self._wrong: set[int] = set()  # landmarks whose passing was not credited: not their turn yet

    @property
    def map(self) -> LandmarkEstimator:
        """What it finds out as it flies."""
        return cast(LandmarkEstimator, self.estimator)

    def _follow_race(self, status: RaceStatus) -> None:
        super()._follow_race(status)
        if status.gate > self._credited:
            self._credited = status.gate
            self._wrong.clear()
        if status.finish is not None and self.go_t is not None and self.phase is Phase.RACE:
            if self._target is not None:
                self.passed.append(self._target)
            self._end(self.estimator.t, "the race is over")

    def _see(self, picture: Picture) -> None:
        if self.phase not in (Phase.LAUNCH, Phase.RACE):
            return
        used = self.map.see(picture.t, picture.detections)
        self.tally.sightings += len(used)
        self.tally.rejected += len(picture.detections) - len(used)

    def _fly(self, t: float) -> list[Command]:
        standing = self.phase is Phase.LAUNCH and t - self._rest_t < REST_S
        return [] if standing else super()._fly(t)

    def _enter(self, phase: Phase, t: float) -> None:
        if self.phase is Phase.CALIBRATE:
            self._rest_t = self._since
        super()._enter(phase, t)

    def _judge(self, state: State, t: float) -> None:
        assert self.go_t is not None
        if self.phase is Phase.LAUNCH:
            self._way = to_euler(state.q_wb)[2]
            self._hold = state.p_wb - [0.0, 0.0, LIFT_M]
            self._stage_t = t
            self._enter(Phase.RACE, t)
        elif t - self.go_t > self._profile.run_limit_s:
            self._end(t, "the time is over")
        self._servo.aim = self._steer(state, t)

    def hear(self, message: Telemetry | Picture) -> None:
        super().hear(message)
        if isinstance(message, Imu) and self._landing and self.last_step is not None:
            push = float(np.linalg.norm(message.accel)) - self.last_step.control.u[3]
            if push > PUSH or message.t - self._stage_t > LAND_S:
                self._end(message.t, self.reason)

    def abort(self, reason: str) -> None:
        """Whatever ends a landing, even a simulator that counts the ground as a crash, ends no exploration."""
        if self._landing:
            self._end(self.estimator.t, self.reason)
        super().abort(reason)

    @property
    def _landing(self) -> bool:
        return self.stage is Stage.LAND and self.phase is Phase.RACE

    def _steer(self, state: State, t: float) -> Aim:
        """The aim of the present stage, after any change of stage."""
        since = t - self._stage_t
        if self.stage is Stage.LAND:
            return Aim.towards(np.array([0.0, 0.0, SINK]), self._way)
        if self.stage is Stage.TAKE_OFF:
            if state.p_wb[2] - self._hold[2] > LIFT_M / 4 and since < 2 * LIFT_M + 2:
                return Aim.towards(self._pull(self._hold - state.p_wb, CLIMB), self._way)
            self._change(Stage.SEARCH, t)
        if self.stage is Stage.PASS:
            return self._fly_on(state, t)
        if self.stage is Stage.EXCITE:
            return self._excite(state, t)
        target = self._choose(state, t)
        if target is not None and self._wanted is not None:
            return self._begin_to_excite(state, t, target, self._wanted)
        if target is not None:
            if self.stage is not Stage.APPROACH or target.number != self._target:
                self._target, self._vain = target.number, 0
                self._change(Stage.APPROACH, t)
            return self._approach(state, t, target)
        if self.stage is Stage.APPROACH:
            self._hold = state.p_wb
            self._change(Stage.SEARCH, t)
        return self._search(state, t)

    def _change(self, stage: Stage, t: float) -> None:
        self.stage, self._stage_t = stage, t

    def _end(self, t: float, reason: str) -> None:
        self.reason = reason
        self._enter(Phase.FINISHED, t)

    def _choose(self, state: State, t: float) -> Landmark | None:
        """The nearest next gate: near, ahead, and not yet flown through."""
        best, least = None, math.inf
        way = np.array([math.cos(self._way), math.sin(self._way), 0.0])
        gates = self.map.landmarks
        behind = [gate.p_w for gate in gates if gate.number in self.passed]
        for gate in gates:
            given_up = gate.number == self._target and t - self._stage_t > RETRY_S
            again = any(np.linalg.norm(gate.p_w - p_w) < APART_M for p_w in behind)  # seen twice, first from afar
            if again or gate.number in self._wrong or t - gate.last_t > STALE_S or given_up:
                continue
            to = gate.p_w - state.p_wb
            distance = float(np.linalg.norm(to))
            cost = distance * (1.5 - 0.5 * float(to @ way) / max(distance, 1e-9))
            if gate.number == self._target:
                cost *= 0.7  # no change of mind for little
            if cost < least:
                best, least = gate, cost
        return best

    def _begin_to_excite(self, state: State, t: float, gate: Landmark, wanted: Manoeuvres) -> Aim:
        """Facing the first gate, in the room before it."""
        to = gate.p_w - state.p_wb
        side = min(ROOM_M, math.hypot(to[0], to[1]))
        start = Start(_triple(state.p_wb), math.degrees(math.atan2(to[1], to[0])))
        room = Bounds(_triple(state.p_wb - [side, side, ROOF_M]), _triple(state.p_wb + [side, side, 0.0]))
        before = replace(self._nowhere, start=start, bounds=room)
        self._exciter = Exciter(self._vehicle, before, wanted, self._seed, 1)
        self.controller, self._wanted = cast(Controller, self._exciter), None
        self._change(Stage.EXCITE, t)
        return self._servo.aim

    def _excite(self, state: State, t: float) -> Aim:
        """The controller flies; afterwards all is as before."""
        if self._exciter is not None and self._exciter.done:
            self.controller, self._hold = cast(Controller, self._servo), state.p_wb
            self._change(Stage.SEARCH, t)
        return Aim.towards(np.zeros(3), self._way)

    def _approach(self, state: State, t: float, gate: Landmark) -> Aim:
        """To a place before the gate, then straight through; its direction is kept in view."""
        off = state.p_wb - gate.p_w
        along = float(off @ gate.ahead)
        across = off - along * gate.ahead
        ahead, sideways = max(-along, 0.0), math.hypot(across[0], across[1])
        if along > BEYOND_M / 2:
            if math.hypot(sideways, across[2]) < BEYOND_M:
                self._pass(t, gate)
                return self._fly_on(state, t)
            self._wrong.add(gate.number)  # it stands with its back this way: not its turn
            self._hold = state.p_wb
            self._change(Stage.SEARCH, t)
            return self._search(state, t)
        bearing = math.atan2(-off[1], -off[0]) if ahead > 1.5 else gate.yaw
        height = np.array([0.0, 0.0, np.clip(-CENTRE * across[2], -CLIMB, CLIMB)])
        if sideways < CONE * ahead + 0.25 or ahead < 1.0:
            speed = CROSSING if ahead < STAND_OFF_M else CRUISE
            level = speed * gate.ahead + limited(-CENTRE * across * [1, 1, 0], CROSSING / 2)
        else:
            before = gate.p_w - min(STAND_OFF_M, 0.7 * ahead + 1.5) * gate.ahead
            level = self._pull((before - state.p_wb) * [1, 1, 0], CRUISE)
        if abs(across[2]) > SLOPE * ahead + 0.25:
            level = 0.25 * level
        return Aim.towards(level + height, bearing)

    def _pass(self, t: float, gate: Landmark) -> None:
        self.passed.append(gate.number)
        self._way, self._target = gate.yaw, None
        self.tally.gate_times_s.append(t - (self.go_t or t))
        self._hold = gate.p_w + BEYOND_M * gate.ahead
        self._change(Stage.PASS, t)

    def _fly_on(self, state: State, t: float) -> Aim:
        """A little onwards behind a gate, looking ahead; then to the next."""
        if t - self._stage_t > LOOK_S:
            if self._profile.race is not None and len(self.passed) > self._credited + 1:
                self._wrong.add(self.passed.pop())
            self._hold = state.p_wb
            self._change(Stage.SEARCH, t)
        way = np.array([math.cos(self._way), math.sin(self._way), 0.0])
        return Aim.towards(CROSSING * way + self._pull((self._hold - state.p_wb) * [0, 0, 1], CLIMB), self._way)

    def _search(self, state: State, t: float) -> Aim:
        """Turns on the spot and nods; after a whole turn a little onwards, and at last the end."""
        since = t - self._stage_t
        if since > SEARCH_S:
            self._vain += 1
            if self._vain >= SEARCHES:
                self.reason = "no further gate is in sight"
                self._change(Stage.LAND, t)
                return Aim.towards(np.array([0.0, 0.0, SINK]), self._way)
            self._hold = state.p_wb + STEP_M * np.array([math.cos(self._way), math.sin(self._way), 0.0])
            self._change(Stage.SEARCH, t)
        heading = self._way + sweep(since)
        nose = np.array([math.cos(heading), math.sin(heading), 0.0])
        nod = NOD * math.sin(2 * math.pi * since / NOD_S)
        return Aim(self._pull(self._hold - state.p_wb, CROSSING), heading, nod * nose)

    @staticmethod
    def _pull(to: Array, limit: float) -> Array:
        """Velocity (3,) towards a place that lies at `to` from here, m/s."""
        return limited(PULL * np.asarray(to, float), limit)


def sweep(t: float) -> float:
    """rad off the course's way, t seconds into a search: a quarter to the right, then all round to the left."""
    quarter = math.pi / 2 / TURN
    return TURN * t if t < quarter else TURN * (2 * quarter - t)


def make_explorer(
    vehicle: Vehicle, profile: Profile, opening_m: float, wanted: Manoeuvres | None = None, seed: int = 0
) -> Explorer:
    """An explorer on its pad, who knows the gates' size."""
    return Explorer(vehicle, profile, LandmarkEstimator(vehicle.camera, opening_m, Look()), wanted, seed)


def _triple(p_w: Array) -> tuple[float, float, float]:
    x, y, z = p_w.tolist()
    return x, y, z

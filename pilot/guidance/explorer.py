"""Guidance without a map or a plan: from gate to gate by sight, slowly. Its log is the input of `map-track`.

take off -> search <-> approach -> pass -> search ..., until the race is over, or a full turn has shown no further gate: then
it lands on the spot. Before the first gate it weaves, and may fly manoeuvres for `identify-vehicle`.

Next gate: the nearest ahead, from the vehicle's side, that was not flown through. Where the simulator reports the gates it
credits, a way through a gate that was not credited is excluded until another one is; the opposite ways are then candidates too.

Approach: from a stand-off in front, where the gate is in view, then straight through. A camera that is tilted up by 20 deg loses
a gate's lower edge at 4.5 m; nearer than that the vehicle flies by dead reckoning, for a second or so. A gate that was not seen
lately, or from one position only, is first observed from the stand-off.

Weave: a sideways oscillation in front of a gate gives a map its metric scale. An opening's size and the focal length are known
to a percent; a level vehicle that banks by phi accelerates by g tan(phi), without a sensor's scale factor.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.strenum import StrEnum
from gate_racer.estimation.estimator import Landmark, Mapper, State
from gate_racer.estimation.localisation import Localised
from gate_racer.link.messages import Imu, RaceStatus, Telemetry
from gate_racer.mpc.control import Control
from gate_racer.mpc.geometric import limited
from gate_racer.perception.roi import RoiPredictor, SearchWindow
from gate_racer.pilot.flight import DetectedImage, End, EndReason, Passages
from gate_racer.pilot.guidance.exciter import Excitation, Manoeuvres
from gate_racer.pilot.guidance.protocol import FlightGuidance, state_vector
from gate_racer.pilot.guidance.velocity import Aim, Landing, VelocityController, control
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start
from gate_racer.vehicle.rotation import Array, as_vector, to_euler
from gate_racer.vehicle.vehicle import Vehicle

SAME_M = 1.5  # m, side of an opening: landmarks closer than this are one gate, first seen from far away
STALE_S = 20.0  # s since the last view of a gate, after which it is ignored
KEPT = 0.7  # -, factor on the cost of the gate that is approached, against switching
OPPOSITE_M = 15.0  # m, detour that an approach from the other side is worth (chosen)


class GateChoice:
    """Gates flown through, ways excluded, and the present target; `passed` holds numbers of landmarks in order."""

    def __init__(self, counted: bool):
        """Create it; `counted`: the simulator reports the number of gates credited."""
        self.passed = list[int]()
        self.target: int | None = None
        self._way = 1  # of the target: along the landmark's yaw, or against it (-1)
        self._counted, self._credited = counted, 0
        self._wrong = set[tuple[int, int]]()  # ways through gates that were not credited
        self._doubted: int | None = None  # newest gate taken back

    def credit(self, gates: int) -> None:
        if gates > self._credited:
            self._credited = gates
            self._wrong.clear()
            if self._doubted is not None and gates > len(self.passed):  # credited late
                self.passed.append(self._doubted)
            self._doubted = None

    def flown_through(self) -> None:
        if self.target is not None:
            self.passed.append(self.target)
            self.target = None

    def check_credit(self) -> None:
        """Take back the newest passage, if the simulator had time to credit it and did not."""
        if self._counted and len(self.passed) > self._credited:
            self._doubted = self.passed.pop()
            self._wrong.add((self._doubted, self._way))

    def choose(self, gates: Sequence[Landmark], p_w: Array, course_w: Array, t: float) -> Landmark | None:
        """Return the next gate, with its yaw in the direction of flight; None without a candidate.

        p_w (3,) m: the vehicle; course_w (3,): direction of the course so far.
        """
        behind = [gate.p_w for gate in gates if gate.number in self.passed]
        best, chosen, least = None, 1, math.inf
        for gate in gates:
            if t - gate.last_t > STALE_S or any(np.linalg.norm(gate.p_w - passed) < SAME_M for passed in behind):
                continue
            to_gate = gate.p_w - p_w
            distance = float(np.linalg.norm(to_gate))
            cost = distance * (1.5 - 0.5 * float(to_gate @ course_w) / max(distance, 1e-9))
            facing = 1 if to_gate @ gate.ahead > 0 else -1
            kept = gate.number == self.target
            for way in (self._way,) if kept else (1, -1):
                opposite = way != facing and not kept
                if (gate.number, way) in self._wrong or (opposite and not self._wrong):
                    continue
                whole = KEPT * cost if kept else cost + OPPOSITE_M * opposite
                if whole < least:
                    best, chosen, least = gate, way, whole
        if best is None:
            self.target = None
            return None
        self.target, self._way = best.number, chosen
        return best if chosen > 0 else replace(best, yaw=math.remainder(best.yaw + math.pi, 2 * math.pi))


MARGIN_M = 0.8  # m from every side: half of a drone, and the explorer's error of position (chosen)
BRAKE = 2.0  # m/s^2, deceleration before a wall, half of what an explorer commands (chosen)
ROOM_LAG_S = 0.4  # s from a commanded velocity to the vehicle's, by the velocity controller's gain of 2/s (chosen)


@dataclass(frozen=True)
class Room:
    """Box in the axes of the explorer's map: distances (m) of its sides from the pad; infinite ones do not exist."""

    north: float = math.inf
    east: float = math.inf
    south: float = math.inf
    west: float = math.inf
    up: float = math.inf
    down: float = math.inf  # of the floor below the pad, 0 for a pad on the floor

    def __post_init__(self) -> None:
        *sides, down = astuple(self)
        if not all(side > MARGIN_M for side in sides) or not down >= 0:
            raise ValueError("a side is too near")

    @property
    def corners(self) -> tuple[Array, Array]:
        """Corners (3,) m, of the lowest and of the highest coordinates, world NED, from the pad."""
        return np.array([-self.south, -self.west, -self.up]), np.array([self.north, self.east, self.down])

    def contains(self, p_w: Array) -> bool:
        low, high = self.corners
        return bool(((low < p_w) & (p_w < high)).all())

    def inside(self, p_w: Array) -> Array:
        """Return the place (3,) m to fly at that is nearest to p_w (3,) m."""
        low, high = self.corners
        return np.clip(p_w, low + MARGIN_M, high - MARGIN_M)

    def reach(self, p_w: Array, way_w: Array, most_m: float) -> float:
        """Return the distance (m) that is free from p_w (3,) m along a unit vector way_w (3,), at most `most_m`."""
        ahead, moving = self._ahead(p_w, way_w), np.abs(way_w) > 1e-9
        return float(np.clip((ahead[moving] / np.abs(way_w[moving])).min(initial=most_m), 0.0, most_m))

    def slowed(self, v_w: Array, p_w: Array) -> Array:
        """Return the velocity v_w (3,) m/s at p_w (3,) m, slowed along its direction so that it can be braked in the room."""
        ahead = np.maximum(self._ahead(p_w, v_w), 0.0)
        limit = BRAKE * (np.sqrt(ROOM_LAG_S**2 + 2 * ahead / BRAKE) - ROOM_LAG_S)
        share = np.divide(limit, np.abs(v_w), out=np.ones(3), where=np.abs(v_w) > limit).min()
        return np.asarray(share * v_w + self.inside(p_w) - p_w)  # back by 1 m/s for each metre beyond

    def _ahead(self, p_w: Array, way_w: Array) -> Array:
        """Return the free distances (3,) m along each axis in the direction of way_w (3,)."""
        low, high = self.corners
        return np.where(way_w > 0, high - p_w, p_w - low) - MARGIN_M

    def around(self, p_w: Array, side_m: float, roof_m: float) -> Bounds:
        """Return the part inside the room of the box that reaches `side_m` to each side of p_w (3,) m, and `roof_m` up."""
        low, high = self.corners
        x, y, z = np.maximum(low, p_w - [side_m, side_m, roof_m]).tolist()
        far_x, far_y, floor = np.minimum(high, p_w + [side_m, side_m, 0.0]).tolist()
        return Bounds((x, y, z), (far_x, far_y, floor))


OPEN = Room()


def parse_room(text: str) -> Room:
    """Return the room of NORTH,EAST,SOUTH,WEST,UP,DOWN. Raises UserError unless these are distances that leave space."""
    try:
        north, east, south, west, up, down = (float(part) for part in text.split(","))
        return Room(north, east, south, west, up, down)
    except ValueError:
        raise UserError(
            f"explore.room {text!r}: expected NORTH,EAST,SOUTH,WEST,UP,DOWN, distances from the pad in m, each greater than"
            f" {MARGIN_M:g}, that of the floor at least 0"
        ) from None


CRUISE = 5.0  # m/s, towards the stand-off
CROSSING = 4.0  # m/s, through a gate: low, since braking pitches the camera up
FAST = 9.0  # m/s, straight at a far gate: dead reckoning errs with time, and fast flight pitches the camera down
# m/s^2, deceleration before a gate: no more than drag at such a speed, so that the nose stays down.
APPROACH_BRAKE = 2.5
STAND_OFF_M, NEAR_M = 7.0, 5.0  # m, greatest and least stand-off in front of a gate
FRESH_S = 1.5  # s since the last view of a gate, up to which dead reckoning is trusted
VIEWS = 2  # consistent views from different positions required before a gate is flown through
BEHIND_M = 1.0  # m behind a gate, from where it has to be approached again
ROUND_M = 1.9  # m to the side of a gate's axis, where the vehicle flies back past it, clear of a frame of 2.7 m
COMMITTED_M = 3.0  # m before a gate, from where it is flown through if the path is clear: braking would take as long
CONE = 0.12  # lateral over longitudinal distance within which a gate is flown at
CLEAR_M = 0.45  # m, added to the cone, and largest offset in the opening: 0.2 m of body stay clear of edges at 0.75 m
CLIMB = 2.5  # m/s
PULL, CENTRE = 1.0, 1.4  # 1/s, distance to velocity, in general and towards the axis of a gate
NEAR_AXIS_M = 0.15  # m, offset from the axis to reach before the gate
NOD_S, NOD = 2.0, -3.0  # s and m/s^2, period and amplitude of the nod, which shows what lies above, then below
AT_M = 2.0  # m from the stand-off, where the vehicle nods
LEVEL = np.array([1.0, 1.0, 0.0])


def offset(p_wb: Array, gate: Landmark) -> tuple[float, Array]:
    """Return the distance beyond a gate's plane (m) of a vehicle at p_wb (3,) m, and its offset from the axis (3,) m."""
    off = p_wb - gate.p_w
    along = float(off @ gate.ahead)
    return along, off - along * gate.ahead


def approach(p_wb: Array, gate: Landmark, t: float, since: float, room: Room = OPEN) -> Aim:
    """Return the aim at t (s), `since` s after the gate was chosen, for a vehicle at p_wb (3,) m on any side of it."""
    along, across = offset(p_wb, gate)
    if along > BEHIND_M or (along > 0 and np.linalg.norm(across) > CLEAR_M):
        return _back(p_wb, across, gate, room)
    ahead, sideways = max(-along, 0.0), math.hypot(across[0], across[1])
    to = gate.p_w - p_wb
    bearing = math.atan2(to[1], to[0]) if ahead > COMMITTED_M else gate.yaw
    known = gate.views >= VIEWS and t - gate.last_t < FRESH_S
    climb_s = max(abs(float(across[2])) - CONE * ahead - CLEAR_M, 0.0) / CLIMB
    lined_up = sideways < CONE * ahead + CLEAR_M and (ahead > STAND_OFF_M or (known and climb_s == 0.0))
    stand_off_m = min(max(min(ahead, STAND_OFF_M), NEAR_M), room.reach(gate.p_w, -gate.ahead, STAND_OFF_M))
    to_stand_off = (to - stand_off_m * gate.ahead) * LEVEL
    if lined_up or (ahead < COMMITTED_M and np.abs(across).max() < CLEAR_M):
        centred_s = math.log(max(float(np.linalg.norm(across)) / NEAR_AXIS_M, 1.01)) / CENTRE
        most = math.sqrt(CROSSING**2 + 2 * APPROACH_BRAKE * max(ahead - STAND_OFF_M, 0.0))
        speed = min(FAST, most, ahead / centred_s if ahead > COMMITTED_M else CROSSING)
        level = speed * gate.ahead + limited(-CENTRE * across * LEVEL, CROSSING / 2)
    else:
        level = pull(to_stand_off, CRUISE)
    if climb_s > 0.0:  # reach the height at the stand-off
        level = limited(level, float(np.linalg.norm(to_stand_off)) / climb_s)
    height = np.array([0.0, 0.0, np.clip(-CENTRE * across[2], -CLIMB, CLIMB)])
    looking = not known and np.linalg.norm(to_stand_off) < AT_M
    return Aim(level + height, bearing, nod(since, bearing) if looking else np.zeros(3))


def _back(p_wb: Array, across: Array, gate: Landmark, room: Room) -> Aim:
    """Return the aim behind a gate that is to be approached again: away from its axis, then back past the frame."""
    right = np.array([-gate.ahead[1], gate.ahead[0], 0.0])
    side = float(across @ right)
    if abs(side) > ROUND_M:
        return Aim(-CROSSING * gate.ahead, gate.yaw)
    way = math.copysign(1.0, side) * right
    blocked = room.reach(p_wb, way, ROUND_M) < ROUND_M - abs(side)
    return Aim(-CLIMB * way if blocked else CLIMB * way, gate.yaw)


def pull(to: Array, limit: float) -> Array:
    """Return the velocity (3,) m/s towards a place at the relative position `to` (3,) m, at most `limit` m/s."""
    return limited(PULL * np.asarray(to, float), limit)


def nod(since: float, heading: float) -> Array:
    """Return the acceleration (3,) m/s^2 along the nose, alternating, `since` s into a look around."""
    return NOD * math.sin(2 * math.pi * since / NOD_S) * np.array([math.cos(heading), math.sin(heading), 0.0])


WEAVE_AT_M = 10.0  # m before the gate, where all of it stays in the image of a banked camera tilted up by 20 deg
FROM_M = 13.0  # m before the gate, from where the vehicle brakes for it
AMPLITUDE_M, PERIOD_S, PERIODS = 2.0, 3.6, 5  # a bank of 32 deg, by the peak acceleration of 6.1 m/s^2 (chosen)
ACCEL = 7.0  # m/s^2, greatest acceleration of the aim


class Weave:
    """The manoeuvre in front of one gate."""

    def __init__(self, p_wb: Array, gate: Landmark, t: float):
        """Begin at t (s) at p_wb (3,) m; the middle is on the gate's axis."""
        before_m = min(-offset(p_wb, gate)[0], WEAVE_AT_M)
        self._begun, self._p_w, self._heading = t, gate.p_w - before_m * gate.ahead, gate.yaw
        self._right = np.array([-math.sin(gate.yaw), math.cos(gate.yaw), 0.0])

    def done(self, t: float) -> bool:
        return t - self._begun >= PERIODS * PERIOD_S

    def aim(self, p_wb: Array, t: float) -> Aim:
        rate = 2 * math.pi / PERIOD_S
        phase = rate * (t - self._begun)
        p_w = self._p_w + AMPLITUDE_M * math.sin(phase) * self._right
        swing = AMPLITUDE_M * rate * math.cos(phase) * self._right
        return Aim(pull(p_w - p_wb, CROSSING) + swing, self._heading)


NAME = "explored"
REST_S = 4.0  # s on the pad, before GO or after it: the longer the rest, the better the biases are estimated
LIFT_M = 1.0  # m above the pad before anything else
BEYOND_M = 1.5  # m behind a gate, where it counts as passed
INSIDE_M = 1.0  # m from a gate's axis, within which it was flown through: the opening, and the estimate's error
LOOK_S = 0.8  # s of flight straight on after a gate, before a search
TURN_LIMIT = 2.0  # rad/s, greatest body rate
SLEW = 4.0  # m/s^2, greatest acceleration of the aim: the velocity controller's own limit
LAG_S = 0.2  # s from a commanded acceleration to the vehicle's: attitude loop, rate lag and delay (dcl: 0.125 + 0.03 + 0.04)
TURN = math.radians(45.0)  # rad/s, turn rate of a search
SEARCH_S = 2 * math.pi / TURN + 2.0  # s of a search, before the vehicle moves on
SEARCHES = 2  # consecutive searches without a result before landing
STEP_M = 5.0  # m onwards between searches
ROOM_M, ROOF_M = 12.0, 10.0  # m around the pad and above it for manoeuvres, where the bounds are unknown


class ExplorerStage(StrEnum):
    TAKE_OFF = "take off"
    SEARCH = "search"
    EXCITE = "excite"
    WEAVE = "weave"
    APPROACH = "approach"
    PASS = "pass"
    LAND = "land"


class Explorer(FlightGuidance[Mapper]):
    """Guidance of a pilot with a `Mapper`; `passed` holds the numbers of the landmarks flown through."""

    course: tuple[Gate, ...] = ()

    def __init__(
        self, vehicle: Vehicle, counted: bool, manoeuvres: Manoeuvres | None = None, seed: int = 0, room: Room = OPEN
    ):
        """Create it on the pad.

        counted: the simulator reports the number of gates passed; manoeuvres: flown before the first, in an order that the seed
        draws; room: walls, ceiling and floor to keep away from.
        """
        self.passages, self.stage = Passages(), ExplorerStage.TAKE_OFF
        self._gates, self._room = GateChoice(counted), room
        self._vehicle, self._manoeuvres, self._seed = vehicle, manoeuvres, seed
        self._velocity, self._aim = VelocityController(vehicle, TURN_LIMIT), Aim(np.zeros(3), 0.0)
        self._v_w = np.zeros(3)  # m/s, commanded velocity, within the acceleration limit
        self._excitation: Excitation | None = None
        self._whole_image = RoiPredictor((), vehicle.camera).whole_image
        self._before = False  # whether the vehicle was before the target since it is the target
        self._hold = np.zeros(3)
        self._go_t: float | None = None  # s, as of the first command
        self._landing = Landing(vehicle)
        self._weave: Weave | None = None  # in front of the first gate
        self._course_yaw = 0.0  # rad, direction of the course so far
        self._stage_t = 0.0
        self._searches = 0  # consecutive searches without a result
        self._why_landing = ""

    @property
    def passed(self) -> list[int]:
        return self._gates.passed

    def window(self, state: State | None) -> SearchWindow:
        return self._whole_image

    def see(self, image: DetectedImage, estimator: Mapper) -> Localised:
        used = len(estimator.see(image.t, image.detections))
        return Localised(used, len(image.detections) - used)

    def receive(self, message: Telemetry) -> End | None:
        """Process the race status, and detect the ground at the end of a landing."""
        if isinstance(message, RaceStatus):
            self._gates.credit(message.gate)
            if message.finish is not None:
                self._gates.flown_through()
                return End(EndReason.FINISHED, "the simulator reported the finish")
        if isinstance(message, Imu):
            self._landing.receive(message)
        return End(EndReason.FINISHED, self._why_landing) if self._landing.done else None

    def ready(self, rested_s: float) -> bool:
        return rested_s >= REST_S

    def judge(self, state: State, t: float, go_t: float, estimator: Mapper) -> None:
        if self._go_t is None:
            self._go_t, self._stage_t, self._course_yaw = go_t, t, to_euler(state.q_wb)[2]
            self._hold = state.p_wb - [0.0, 0.0, LIFT_M]
        aim = self._steer(state, t, [gate for gate in estimator.landmarks if self._room.contains(gate.p_w)])
        self._aim = replace(aim, v_w=self._room.slowed(aim.v_w, state.p_wb))

    def step(self, state: State, t: float, dt: float, estimator: Mapper) -> Control:
        if self.stage is ExplorerStage.LAND:
            return self._landing.step(state, t, dt)
        x = state_vector(state)
        if self._excitation is not None:
            self._v_w = state.v_w
            return self._excitation.step(t, x, dt)
        most = ACCEL if self.stage is ExplorerStage.WEAVE else SLEW
        # A command that is late by a whole period has no time left.
        a_w = limited((self._aim.v_w - self._v_w) / max(dt, 1e-6), most)
        self._v_w = self._v_w + dt * a_w  # that can be reached by now, with the acceleration fed forward
        aim = replace(self._aim, v_w=self._v_w - LAG_S * a_w, accel_w=self._aim.accel_w + a_w)
        return control(x, *self._velocity.input(x, aim, dt), aim)

    def conclude(self, end: End) -> End:
        """Count every end during a landing as finished, even if the simulator takes the ground for a crash."""
        if self.stage is ExplorerStage.LAND:
            return End(EndReason.FINISHED, self._why_landing)
        if end.reason is EndReason.TIME_LIMIT:
            return End(EndReason.FINISHED, "time limit reached")
        return end

    def _steer(self, state: State, t: float, gates: list[Landmark]) -> Aim:
        """Return the aim of the current stage, after any change of stage."""
        since = t - self._stage_t
        if self.stage is ExplorerStage.LAND:
            return self._aim
        if self.stage is ExplorerStage.TAKE_OFF:
            if state.p_wb[2] - self._hold[2] > LIFT_M / 4 and since < 2 * LIFT_M + 2:
                return Aim(pull(self._hold - state.p_wb, CLIMB), self._course_yaw)
            self._change(ExplorerStage.SEARCH, t)
        if self.stage is ExplorerStage.PASS:
            return self._fly_on(state, t)
        if self.stage is ExplorerStage.EXCITE:
            if self._excitation is not None and self._excitation.done:
                self._excitation, self._hold = None, state.p_wb
                self._change(ExplorerStage.SEARCH, t)
            return Aim(np.zeros(3), self._course_yaw)
        if self._weave is not None and self.stage is ExplorerStage.WEAVE:
            if not self._weave.done(t):
                return self._weave.aim(state.p_wb, t)
            self._change(ExplorerStage.APPROACH, t)
        last = self._gates.target
        target = self._gates.choose(gates, state.p_wb, self._course_w, t)
        if target is not None and self._manoeuvres is not None:
            return self._begin_to_excite(state, t, target, self._manoeuvres)
        if target is not None:
            if self.stage is not ExplorerStage.APPROACH or target.number != last:
                self._before, self._searches = False, 0
                self._change(ExplorerStage.APPROACH, t)
            return self._approach(state, t, target)
        if self.stage is ExplorerStage.APPROACH:
            self._hold = self._room.inside(state.p_wb)
            self._change(ExplorerStage.SEARCH, t)
        return self._search(state, t)

    def _change(self, stage: ExplorerStage, t: float) -> None:
        self.stage, self._stage_t = stage, t

    def _begin_to_excite(self, state: State, t: float, gate: Landmark, manoeuvres: Manoeuvres) -> Aim:
        """Start the manoeuvres, facing the first gate, in the space before it."""
        to_gate = gate.p_w - state.p_wb
        side = min(ROOM_M, math.hypot(to_gate[0], to_gate[1]))
        start = Start(as_vector(state.p_wb), math.degrees(math.atan2(to_gate[1], to_gate[0])))
        room = self._room.around(state.p_wb, side, ROOF_M)
        self._excitation, self._manoeuvres = Excitation(self._vehicle, start, room, manoeuvres, self._seed, 1), None
        self._change(ExplorerStage.EXCITE, t)
        return self._aim

    def _approach(self, state: State, t: float, gate: Landmark) -> Aim:
        along, across = offset(state.p_wb, gate)
        self._before |= along < 0
        if self._before and along > BEYOND_M / 2 and np.linalg.norm(across) < INSIDE_M:
            self._gates.flown_through()
            self._course_yaw, self._hold = gate.yaw, gate.p_w + BEYOND_M * gate.ahead
            self.passages.times_s.append(t - (self._go_t or 0.0))
            self._change(ExplorerStage.PASS, t)
            return self._fly_on(state, t)
        if self._weave is None and self._before and gate.views >= VIEWS and -along < FROM_M:
            self._weave = Weave(state.p_wb, gate, t)
            self._change(ExplorerStage.WEAVE, t)
        return approach(state.p_wb, gate, t, t - self._stage_t, self._room)

    def _fly_on(self, state: State, t: float) -> Aim:
        if t - self._stage_t > LOOK_S:
            self._gates.check_credit()
            self._hold = self._room.inside(state.p_wb)
            self._change(ExplorerStage.SEARCH, t)
        height = pull((self._hold - state.p_wb) * [0, 0, 1], CLIMB)
        return Aim(CROSSING * self._course_w + height, self._course_yaw)

    @property
    def _course_w(self) -> Array:
        return np.array([math.cos(self._course_yaw), math.sin(self._course_yaw), 0.0])

    def _search(self, state: State, t: float) -> Aim:
        """Turn on the spot and nod; after a full turn move on, and land after several in vain."""
        since = t - self._stage_t
        if since > SEARCH_S:
            self._searches += 1
            if self._searches >= SEARCHES:
                self._why_landing = "no further gate in sight"
                self._change(ExplorerStage.LAND, t)
                return self._aim
            self._hold = self._room.inside(state.p_wb + STEP_M * self._course_w)
            self._change(ExplorerStage.SEARCH, t)
        quarter_s = math.pi / 2 / TURN  # a quarter turn to the right, then a full turn to the left
        heading = self._course_yaw + TURN * (since if since < quarter_s else 2 * quarter_s - since)
        return Aim(pull(self._hold - state.p_wb, CROSSING), heading, nod(since, heading))

"""Guidance without a map or a plan: from gate to gate by sight, slowly. Its log is the input of `map-track`.

take off -> search <-> approach -> pass -> search ..., until the race is over, or a full turn has shown no further gate: then
it lands on the spot. Before the first gate it weaves for the metric scale of `map-track`, which only accelerations show, and
may fly manoeuvres for `identify-vehicle`.
"""

import enum
import math
from dataclasses import replace

import numpy as np

from gate_racer.estimation.estimator import Landmark, Mapper, State
from gate_racer.estimation.localisation import Localised
from gate_racer.link.messages import Imu, RaceStatus, Telemetry
from gate_racer.mpc.control import Control
from gate_racer.mpc.geometric import limited
from gate_racer.perception.roi import RoiPredictor, SearchWindow
from gate_racer.pilot.flight import DetectedImage, End, EndReason, Passages
from gate_racer.pilot.guidance.approach import CLIMB, CROSSING, VIEWS, approach, nod, offset, pull
from gate_racer.pilot.guidance.exciter import Excitation
from gate_racer.pilot.guidance.gate_choice import GateChoice
from gate_racer.pilot.guidance.landing import Landing
from gate_racer.pilot.guidance.manoeuvres import Manoeuvres
from gate_racer.pilot.guidance.protocol import Guidance, state_vector
from gate_racer.pilot.guidance.room import OPEN, Room
from gate_racer.pilot.guidance.velocity_controller import Aim, VelocityController, control
from gate_racer.pilot.guidance.weave import ACCEL, FROM_M, Weave
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import Array, to_euler
from gate_racer.vehicle.vehicle import Vehicle

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


class ExplorerStage(enum.StrEnum):
    """Stage of an exploration flight."""

    TAKE_OFF = "take off"
    SEARCH = "search"
    EXCITE = "excite"
    WEAVE = "weave"
    APPROACH = "approach"
    PASS = "pass"
    LAND = "land"


class Explorer(Guidance[Mapper]):
    """Guidance of a pilot with a `Mapper`; `passed` holds the numbers of the landmarks flown through."""

    course: tuple[Gate, ...] = ()

    def __init__(
        self, vehicle: Vehicle, counted: bool, manoeuvres: Manoeuvres | None = None, seed: int = 0, room: Room = OPEN
    ):
        """Create it on the pad.

        Args:
            counted: the simulator reports the number of gates passed.
            manoeuvres: flown before the first gate; the seed draws their order.
            room: walls, ceiling and floor to keep away from.
        """
        self.passages, self.stage = Passages(), ExplorerStage.TAKE_OFF
        self._gates, self._room = GateChoice(counted), room
        self._vehicle, self._manoeuvres, self._seed = vehicle, manoeuvres, seed
        self._velocity, self._aim = VelocityController(vehicle, TURN_LIMIT), Aim.towards(np.zeros(3), 0.0)
        self._v_w = np.zeros(3)  # m/s, commanded velocity, within the acceleration limit
        self._excitation: Excitation | None = None
        self._whole_image = RoiPredictor((), vehicle.camera).whole_image
        self._landmarks: list[Landmark] = []
        self._before = False  # whether the vehicle was before the target since it is the target
        self._hold = np.zeros(3)
        self._go_t = 0.0  # s
        self._begun = False
        self._landing = Landing(vehicle)
        self._weave: Weave | None = None  # in front of the first gate
        self._course_yaw = 0.0  # rad, direction of the course so far
        self._stage_t = 0.0
        self._searches = 0  # consecutive searches without a result
        self._why_landing = ""

    @property
    def passed(self) -> list[int]:
        """Numbers of the landmarks flown through, in order."""
        return self._gates.passed

    def window(self, state: State | None) -> SearchWindow:
        return self._whole_image

    def see(self, image: DetectedImage, estimator: Mapper) -> Localised:
        used = len(estimator.see(image.t, image.detections))
        return Localised(used, len(image.detections) - used)

    def receive(self, message: Telemetry) -> End | None:
        """Process the race status, and detect the ground at the end of a landing."""
        if isinstance(message, RaceStatus):
            return self._follow_race(message)
        if isinstance(message, Imu):
            self._landing.receive(message)
        return End(EndReason.FINISHED, self._why_landing) if self._landing.done else None

    def _follow_race(self, status: RaceStatus) -> End | None:
        self._gates.credit(status.gate)
        if status.finish is None:
            return None
        self._gates.flown_through()
        return End(EndReason.FINISHED, "the simulator reported the finish")

    def ready(self, rested_s: float) -> bool:
        return rested_s >= REST_S

    def judge(self, state: State, t: float, go_t: float, estimator: Mapper) -> None:
        """Update the stage and the aim from the estimate."""
        if not self._begun:
            self._begun, self._go_t = True, go_t
            self._course_yaw = to_euler(state.q_wb)[2]
            self._hold = state.p_wb - [0.0, 0.0, LIFT_M]
            self._stage_t = t
        self._landmarks = [gate for gate in estimator.landmarks if self._room.contains(gate.p_w)]
        aim = self._steer(state, t)
        self._aim = replace(aim, v_w=self._room.slowed(aim.v_w, state.p_wb))

    def step(self, state: State, t: float, dt: float, estimator: Mapper) -> Control:
        if self.stage is ExplorerStage.LAND:
            return self._landing.step(state, t, dt)
        x = state_vector(state)
        if self._excitation is not None:
            self._v_w = state.v_w
            return self._excitation.step(t, x, dt)
        aim = self._slewed(dt)
        return control(x, *self._velocity.input(x, aim, dt), aim)

    def conclude(self, end: End) -> End:
        """Count every end during a landing as finished, even if the simulator takes the ground for a crash."""
        if self.stage is ExplorerStage.LAND:
            return End(EndReason.FINISHED, self._why_landing)
        if end.reason is EndReason.TIME_LIMIT:
            return End(EndReason.FINISHED, "time limit reached")
        return end

    def _slewed(self, dt: float) -> Aim:
        """Return the aim with the velocity that can be reached by now, and the acceleration towards it fed forward."""
        most = ACCEL if self.stage is ExplorerStage.WEAVE else SLEW
        a_w = limited((self._aim.v_w - self._v_w) / dt, most)
        self._v_w = self._v_w + dt * a_w
        return replace(self._aim, v_w=self._v_w - LAG_S * a_w, accel_w=self._aim.accel_w + a_w)

    def _steer(self, state: State, t: float) -> Aim:
        """Return the aim of the current stage, after any change of stage."""
        since = t - self._stage_t
        if self.stage is ExplorerStage.LAND:
            return self._aim
        if self.stage is ExplorerStage.TAKE_OFF:
            if state.p_wb[2] - self._hold[2] > LIFT_M / 4 and since < 2 * LIFT_M + 2:
                return Aim.towards(pull(self._hold - state.p_wb, CLIMB), self._course_yaw)
            self._change(ExplorerStage.SEARCH, t)
        if self.stage is ExplorerStage.PASS:
            return self._fly_on(state, t)
        if self.stage is ExplorerStage.EXCITE:
            return self._excite(state, t)
        if self._weave is not None and self.stage is ExplorerStage.WEAVE:
            if not self._weave.done(t):
                return self._weave.aim(state.p_wb, t)
            self._change(ExplorerStage.APPROACH, t)
        last = self._gates.target
        target = self._gates.choose(self._landmarks, state.p_wb, self._course_yaw, t)
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
        start = Start(_triple(state.p_wb), math.degrees(math.atan2(to_gate[1], to_gate[0])))
        room = self._room.around(state.p_wb, side, ROOF_M)
        self._excitation, self._manoeuvres = Excitation(self._vehicle, start, room, manoeuvres, self._seed, 1), None
        self._change(ExplorerStage.EXCITE, t)
        return self._aim

    def _excite(self, state: State, t: float) -> Aim:
        """Fly the manoeuvres; afterwards return to the search."""
        if self._excitation is not None and self._excitation.done:
            self._excitation, self._hold = None, state.p_wb
            self._change(ExplorerStage.SEARCH, t)
        return Aim.towards(np.zeros(3), self._course_yaw)

    def _approach(self, state: State, t: float, gate: Landmark) -> Aim:
        """Fly at the gate until it is passed."""
        along, across = offset(state.p_wb, gate)
        self._before |= along < 0
        if self._before and along > BEYOND_M / 2 and np.linalg.norm(across) < INSIDE_M:
            self._pass(t, gate)
            return self._fly_on(state, t)
        if self._weave is None and self._before and gate.views >= VIEWS and -along < FROM_M:
            self._weave = Weave(state.p_wb, gate, t)
            self._change(ExplorerStage.WEAVE, t)
        return approach(state.p_wb, gate, t, t - self._stage_t, self._room)

    def _pass(self, t: float, gate: Landmark) -> None:
        self._gates.flown_through()
        self._course_yaw = gate.yaw
        self.passages.times_s.append(t - self._go_t)
        self._hold = gate.p_w + BEYOND_M * gate.ahead
        self._change(ExplorerStage.PASS, t)

    def _fly_on(self, state: State, t: float) -> Aim:
        """Fly on straight behind a gate for a moment; then search the next."""
        if t - self._stage_t > LOOK_S:
            self._gates.check_credit()
            self._hold = self._room.inside(state.p_wb)
            self._change(ExplorerStage.SEARCH, t)
        course_w = np.array([math.cos(self._course_yaw), math.sin(self._course_yaw), 0.0])
        return Aim.towards(CROSSING * course_w + pull((self._hold - state.p_wb) * [0, 0, 1], CLIMB), self._course_yaw)

    def _search(self, state: State, t: float) -> Aim:
        """Turn on the spot and nod; after a full turn move on, and land after several in vain."""
        since = t - self._stage_t
        if since > SEARCH_S:
            self._searches += 1
            if self._searches >= SEARCHES:
                self._why_landing = "no further gate in sight"
                self._change(ExplorerStage.LAND, t)
                return self._aim
            course_w = np.array([math.cos(self._course_yaw), math.sin(self._course_yaw), 0.0])
            self._hold = self._room.inside(state.p_wb + STEP_M * course_w)
            self._change(ExplorerStage.SEARCH, t)
        heading = self._course_yaw + sweep(since)
        return Aim(pull(self._hold - state.p_wb, CROSSING), heading, nod(since, heading))


def sweep(t: float) -> float:
    """Return the yaw (rad) relative to the course t seconds into a search: a quarter turn right, then a full turn left."""
    quarter = math.pi / 2 / TURN
    return TURN * t if t < quarter else TURN * (2 * quarter - t)


def _triple(p_w: Array) -> tuple[float, float, float]:
    x, y, z = p_w.tolist()
    return x, y, z

"""Missed gates: their detection without the simulator's truth, and the attempts at them.

A gate is missed, or the estimate lost, if

- the estimate has crossed the gate's plane beyond the middle of its frame: a vehicle that flies on has not hit it,
- the race status does not count a gate that was passed some time before it was sent,
- the plan has advanced past the gate, and the gate's plane was not crossed near it, or
- the position has been too uncertain for any gate for some time, or for the next, for which it is time to brake.

An attempt flies by velocities; afterwards the plan is resumed, slowly at first.

    stop     brake and climb, since the next gate must not be passed before this one
    search   turn on the spot, only while the estimate is lost, beginning at the bearing of the gate on the map
    return   fly to a place before the gate, around the frame if it is in between
    look     wait there until the gate was recognised in several images and the uncertainty is small
    through  fly slowly along the gate's axis

A ball is not seen: instead of the last three, the places about it are visited until the race status counts it.

Positions are in the frame of the plan, in which the gate has its planned position, whatever its offset from the map.
"""

import math
from dataclasses import replace
from math import inf

import numpy as np

from gate_racer.common.strenum import StrEnum
from gate_racer.estimation.estimator import State
from gate_racer.link.messages import RaceStatus
from gate_racer.mpc.control import Control
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.geometric import limited
from gate_racer.pilot.flight import SAME_START_S, End, EndReason, Passages, Retry
from gate_racer.pilot.guidance.velocity import Aim, P, VelocityController, control
from gate_racer.tracks.gate import Gate, sigma_across
from gate_racer.tracks.track import Track, gate_solids, of_obstacle
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import greatest_sigma
from gate_racer.vehicle.vehicle import Vehicle

# Thresholds of the detection, set by hand unless stated otherwise.

# s, delay after a passage from which a status without it contradicts; real builds count up to three quarters of a second late.
# Once passages were counted, the delay is the longest seen, plus a status period, plus SLACK_S; once COUNTS were counted with
# what may be one delay, that one plus SLACK_S.
STATUS_S = 1.0
SLACK_S = 0.15
COUNTS = 5
OVERDUE_S = 0.5  # s of plan time beyond a gate
BLIND = 1.0  # standard deviation across the opening over the room in it, above which a gate is braked for
BRAKE_S = 0.25  # s until the thrust has turned against the flight, before such a gate
BRAKE_M_S2 = 25.0  # deceleration assumed then, of the 53 m/s^2 used
BRAKE_M = 2.0  # m, distance at which the vehicle comes to rest before it
LOST_S = 1.5  # s without a position accurate enough for a gate
BLIND_S = 30.0  # s on end without one that end the flight: longer than an attempt, or a restart of perception
FINISH_S = 5.0  # s after the last gate, beyond which no status is awaited any more


def missed_margin(gate: Gate) -> float:
    """Return the margin (m) below which a passage by the estimate has missed the gate."""
    return -(gate.outer_m - gate.opening_m) / 4 if gate.has_frame else 0.0


def room_in(gate: Gate, contact_radius_m: float) -> float:
    """Return the distance (m) from an opening's middle to contact: infinite in a ball, negative in a slot."""
    return inf if gate.is_ball else gate.half - contact_radius_m


def brakes(gate: Gate, state: State, room_m: float) -> bool:
    """Return whether a gate with `room_m` (`room_in`) is more likely missed than hit, and now is the time to brake for it."""
    speed = float(np.linalg.norm(state.v_w))
    rest_m = -float(gate.local(state.p_wb)[0]) - speed * BRAKE_S - speed**2 / (2 * BRAKE_M_S2)
    return 0 < rest_m < BRAKE_M and 0 < BLIND * room_m < sigma_across(gate, state.cov_to_gate)


class StatusWatch:
    """Comparison of the gates counted by the race status with those passed by the estimate.

    The status that first counts a gate bounds the delay of the count from above, the one before it from below.
    """

    def __init__(self) -> None:
        self._before: RaceStatus | None = None
        self._status: RaceStatus | None = None
        self._delays_s: list[tuple[float, float]] = []  # s, bounds of the delay, of each gate counted so far

    def receive(self, status: RaceStatus) -> None:
        self._before, self._status = self._status, status

    def counted(self, go_t: float) -> int | None:
        """Return the number of gates counted by the newest status of the race that began at go_t (s); None without one."""
        status = self._status
        if status is None or status.start is None or abs(status.start - go_t) > SAME_START_S:
            return None
        return status.gate

    def confirms(self, number: int, go_t: float) -> bool:
        """Return whether gate `number` is counted or the race finished; True without a status of the race begun at go_t (s)."""
        counted = self.counted(go_t)
        return counted is None or counted > number or (self._status is not None and self._status.finish is not None)

    def missed(self, passed_s: list[float], go_t: float) -> int | None:
        """Return the first gate passed by the estimate, times in s since GO, that should be counted but is not; else None."""
        counted, status = self.counted(go_t), self._status
        if counted is None or status is None:
            return None
        for k in range(len(self._delays_s), min(counted, len(passed_s))):
            since = self._before.t if self._before is not None and self._before.gate <= k else -inf
            self._delays_s.append((since - go_t - passed_s[k], status.t - go_t - passed_s[k]))
        if counted >= len(passed_s):
            return None
        return counted if status.t > go_t + passed_s[counted] + self._patience_s else None

    @property
    def _patience_s(self) -> float:
        """Delay after a passage from which a status without it contradicts, s: as the gates counted so far were delayed."""
        if not self._delays_s:
            return STATUS_S
        lows, highs = zip(*self._delays_s, strict=True)
        if len(highs) >= COUNTS and max(lows) <= min(highs):  # one delay explains them all
            return max(min(highs), 0.0) + SLACK_S
        period_s = max(self._status.t - self._before.t, 0.0) if self._status and self._before else 0.0
        return max(*highs, 0.0) + period_s + SLACK_S


class RecoveryStage(StrEnum):
    STOP = "stop"
    SEARCH = "search"
    RETURN = "return"
    LOOK = "look"
    THROUGH = "through"


# Set by hand on races in which one gate was moved by 2 m, unless stated otherwise.
BRAKE_SHARE = 0.9  # fraction of the vehicle's thrust used for braking
TURN_RAD_S = 10.0  # greatest body rate
AGAINST_M_S = 8.0  # commanded backwards until at rest: the force does not fade with the speed
CLIMB_M_S = 2.0  # during the stop
STANDING_M_S = 1.5  # speed at which the vehicle counts as at rest
BEFORE_M = 6.5  # distance of the look from the gate: a level camera sees 9 deg below the horizon
BESIDE_M = 1.3  # clearance from the frame, on the way past it
CLEAR_M = 1.0  # clearance from all else on the map
RETURN_M_S = 5.0  # speed on the way to the gate
THROUGH_M_S = 4.0  # speed through the gate
ACCEL_M_S2 = 6.0  # greatest acceleration after the stop
ARRIVED_M = 0.7  # distance at which a way point counts as reached
PULL_1_S = 1.2  # gain from distance to velocity
CENTRE_1_S = 1.8  # gain from the distance to the gate's axis to velocity
IMAGES = 8  # images of the gate required before it is flown through
SURE_M = 0.25  # standard deviation of the position to the gate, for flying through
SEARCH_RAD_S = math.radians(60.0)  # turn rate
BLANK_S = 2.0  # time without seeing the gate, after which a sweep begins
SWEEP_RAD = math.radians(50.0)  # amplitude of the sweep in yaw
SWEEP_S = 6.0  # period of the sweep
NOD_M = 1.2  # amplitude of the sweep in height
ASTRAY_M = 0.45  # offset from the axis, at the plane, beyond which the vehicle returns
ASTRAY_SLOPE = 0.15  # growth of that offset per metre before the plane
# Radii about a ball within which it is searched: a map's greatest errors.
RINGS_M = (0.0, 1.2, 2.4)
PAST_M = 1.0  # distance before the plane, below which it is too late to return
TRY_S = 25.0  # time-out of an attempt


class Recovery:
    """One attempt at a gate of the course."""

    def __init__(self, gate: Gate, track: Track, t: float):
        self.stage, self.gate = RecoveryStage.STOP, gate
        self._begun = self._stage_t = t
        others = (k for k, other in enumerate(track.gates) if not other.same_frame(gate))
        self._others = [solid for k in others for solid in gate_solids(track, k)]
        self._others += [of_obstacle(one) for one in track.obstacles]
        self._low, self._high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        self._hold: Array | None = None
        self._way: list[Array] = []
        self._seen = 0
        self._seen_t = t

    def failed(self, t: float) -> bool:
        return t - self._begun > TRY_S

    def record_sighting(self, t: float) -> None:
        self._seen, self._seen_t = self._seen + 1, t

    def aim(self, p_w: Array, v_w: Array, sigma_m: float, lost: bool, t: float) -> Aim:
        """Return the aim at t (s), for p_w (3,) m, v_w (3,) m/s and a standard deviation sigma_m of the position to the gate."""
        if self.stage is RecoveryStage.STOP:
            speed = float(np.linalg.norm(v_w))
            if speed > STANDING_M_S:
                back = -AGAINST_M_S * v_w / speed
                return Aim(back - [0.0, 0.0, CLIMB_M_S], self._yaw)
            self._change(RecoveryStage.SEARCH, p_w, t)
        if self.stage is RecoveryStage.SEARCH:
            if lost or sigma_m > 2 * SURE_M:
                heading = self._bearing(p_w) + SEARCH_RAD_S * (t - self._stage_t)
                return Aim(self._to(self._hold, p_w), heading)
            self._way = self._around(p_w)
            self._change(RecoveryStage.RETURN, p_w, t)
        if self.stage is RecoveryStage.RETURN:
            while self._way and np.linalg.norm(self._way[0] - p_w) < ARRIVED_M:
                self._hold = self._way.pop(0)
            if self.gate.is_ball:
                self._way = self._way or self._about()
                step_w = self._way[0] - p_w
                v_w = THROUGH_M_S * step_w / max(float(np.linalg.norm(step_w)), ARRIVED_M)
                return Aim(v_w, self._bearing(p_w))
            if self._way:
                return Aim(self._to(self._way[0], p_w), self._bearing(p_w))
            self._change(RecoveryStage.LOOK, p_w, t)
        if self.stage is RecoveryStage.LOOK:
            ready = self._seen >= IMAGES and sigma_m < SURE_M and t - self._seen_t < BLANK_S / 4
            if not ready:
                return self._look(p_w, t)
            self._change(RecoveryStage.THROUGH, p_w, t)
        return self._through(p_w, t)

    def _change(self, stage: RecoveryStage, p_w: Array, t: float) -> None:
        self.stage, self._stage_t, self._seen = stage, t, 0
        if stage is RecoveryStage.LOOK:
            self._hold, self._seen_t = self._before, t
        elif stage is not RecoveryStage.THROUGH:
            self._hold = p_w.copy()

    def _look(self, p_w: Array, t: float) -> Aim:
        """Hold the place before the gate; if the gate is not seen, sweep in yaw and height."""
        blank = t - max(self._seen_t, self._stage_t) - BLANK_S
        hold, heading = self._before, self._bearing(p_w)
        if blank > 0:
            phase = 2 * math.pi * blank / SWEEP_S
            heading += SWEEP_RAD * math.sin(phase)
            hold = hold + [0.0, 0.0, NOD_M * math.sin(phase / 2)]
        return Aim(self._to(hold, p_w), heading)

    def _through(self, p_w: Array, t: float) -> Aim:
        p_g = self.gate.local(p_w)
        aside = float(np.linalg.norm(p_g[1:]))
        if p_g[0] < -PAST_M and aside > ASTRAY_M - ASTRAY_SLOPE * p_g[0]:
            self._way = self._around(p_w)
            self._change(RecoveryStage.RETURN, p_w, t)
            return Aim(self._to(self._before, p_w), self._yaw)
        v_g = np.array([THROUGH_M_S, 0.0, 0.0])
        v_g[1:] = limited(-CENTRE_1_S * p_g[1:], THROUGH_M_S / 2)
        return Aim(self.gate.R_wg @ v_g, self._yaw)

    @property
    def _yaw(self) -> float:
        """Course angle (rad) of the flight through the gate."""
        x, y, _ = self.gate.R_wg[:, 0].tolist()
        return math.atan2(y, x)

    @property
    def _before(self) -> Array:
        far = [BEFORE_M * share for share in (1.0, 0.85, 0.7, 0.55)]
        places = [self.gate.p_wg - d * self.gate.R_wg[:, 0] for d in far]
        return next((p_w for p_w in places if self._clearance([p_w]) > CLEAR_M), places[-1])

    def _bearing(self, p_w: Array) -> float:
        """Return the bearing (rad) of the gate; its axis if too near."""
        x, y, _ = (self.gate.p_wg - p_w).tolist()
        return math.atan2(y, x) if math.hypot(x, y) > 1.5 else self._yaw

    def _to(self, place: Array | None, p_w: Array) -> Array:
        assert place is not None
        return limited(PULL_1_S * (place - p_w), RETURN_M_S)

    def _around(self, p_w: Array) -> list[Array]:
        """Return way points (3,) m to the place before the gate: the way with the most clearance, then the shortest."""
        if self.gate.is_ball:
            return self._about()
        gate, goal = self.gate, self._before
        aside = max(gate.outer_m / 2, gate.half) + BESIDE_M
        x, y, z = gate.local(p_w).tolist()
        if x < -BESIDE_M:
            return [goal]
        ways = []
        for side in ((aside, 0.0), (-aside, 0.0), (0.0, -aside)):
            behind = np.array([max(x, BESIDE_M), *side])
            ahead = np.array([-BEFORE_M / 2, *side])
            if max(abs(y), abs(z)) > aside:  # already beside it
                behind[1:] = ahead[1:] = y, z
            ways.append([gate.p_wg + gate.R_wg @ behind, gate.p_wg + gate.R_wg @ ahead, goal])

        def merit(way: list[Array]) -> tuple[float, float]:
            line = [p_w, *way]
            return min(self._clearance(line), CLEAR_M), -float(np.linalg.norm(np.diff(line, axis=0), axis=1).sum())

        return max(ways, key=merit)

    def _about(self) -> list[Array]:
        """Return the places (3,) m about a ball, level with it, then above, that are clear of all else."""
        places = list[Array]()
        for up_m in (0.0, self.gate.half, 2 * self.gate.half):
            for ring_m in RINGS_M:
                count = math.ceil(2 * math.pi * ring_m / (2 * self.gate.half)) or 1
                for angle in 2 * np.pi * np.arange(count) / count:
                    places.append(self.gate.p_wg + [ring_m * math.cos(angle), ring_m * math.sin(angle), -up_m])
        return [p_w for p_w in places if self._clearance([p_w]) > ARRIVED_M] or [self.gate.p_wg]

    def _clearance(self, way: list[Array]) -> float:
        """Return the clearance (m) of a way from all on the map but the gate itself."""
        points = np.array(way)
        if len(way) > 1:
            s = np.linspace(0.0, 1.0, 12)[:, None]
            points = np.concatenate([a + s * (b - a) for a, b in zip(way, way[1:], strict=False)])
        walls = np.minimum(points - self._low, self._high - points).min()
        return float(min([walls, *(solid.distance(points).min() for solid in self._others)]))


DENIED = "the race status does not count it"
BALL_TRIES = 3  # attempts at a ball, which all visit the same places
REJOIN_PACE = 0.4  # of the plan, behind a gate that was flown again (set by hand, as the next)
QUICKEN_1_S = 0.3  # 1/s, by which it rises


class GateRetries:
    """Retries of one flight; gates are numbered as in its course."""

    def __init__(
        self,
        track: Track,
        course: tuple[Gate, ...],
        controller: PlanController,
        vehicle: Vehicle,
        searches: bool = True,
    ):
        """Create them; unless it `searches`, every crossing counts and the plan is followed to its end, wherever gates stand."""
        self.searches = searches
        self._track, self._course, self._controller, self._vehicle = track, course, controller, vehicle
        self.status = StatusWatch()
        self._lost_since = inf  # s, since when the estimate is lost on end
        self.recovery: Recovery | None = None  # the current attempt; None while the plan is followed
        self._velocity = VelocityController(vehicle, TURN_RAD_S)
        self._rejoined_t = -inf  # s

    def record_sighting(self, t: float) -> None:
        if self.recovery is not None:
            self.recovery.record_sighting(t)

    def searches_ball(self, gate: Gate, go_t: float) -> bool:
        """Return whether a ball is searched until the race status of the race begun at go_t (s) counts it."""
        return gate.is_ball and self.recovery is not None and self.status.counted(go_t) is not None

    def judge(self, number: int, outside: bool, passages: Passages, state: State, t: float, go_t: float) -> End | None:
        """Begin an attempt at the next gate if one is due; finish with the last gate.

        A gate is flown at until the run's time is over, or the estimate was lost for too long; a ball, which is never seen,
        BALL_TRIES times. `outside`: its plane was just crossed outside of its opening. Of the passages by the estimate, those
        that the race status denies are removed, and one that it credits is added.
        """
        finished = len(passages.times_s) == len(self._course)
        if not self.searches:
            return End(EndReason.FINISHED) if finished else None
        if finished:
            return self._await_finish(number, passages, t, go_t)
        self._lost_since = min(self._lost_since, t) if state.lost else inf
        if t - self._lost_since > BLIND_S:
            return End(EndReason.BLIND, f"no position accurate enough for a gate for {BLIND_S:g} s")
        if self.recovery is not None:
            counted = self.status.counted(go_t)
            if counted is not None and counted > number and len(passages.times_s) == number:
                passages.times_s.append(t - go_t)
                passages.margins_m.append(0.0)  # it was passed within, by an unknown margin
                if number + 1 == len(self._course):
                    return End(EndReason.FINISHED)
                self.recovery = self._try(number + 1, t)
            elif self.recovery.failed(t):
                tries = sum(one.gate == number for one in passages.retries)
                if self.recovery.gate.is_ball and tries >= BALL_TRIES:
                    return End(EndReason.BLIND, f"gate {number}, which no camera sees, was not found in {tries} tries")
                self._begin(number, "a try took too long", passages, t, go_t)
            return None
        number, why = self._incident(number, outside, passages, state, t, go_t)
        if why:
            self._begin(number, why, passages, t, go_t)
        return None

    def _incident(
        self, number: int, outside: bool, passages: Passages, state: State, t: float, go_t: float
    ) -> tuple[int, str]:
        """Return the gate to be flown at again, and why; no reason if there is none. Arguments as in `judge`."""
        if (denied := self._take_back(passages, go_t)) is not None:
            return denied, DENIED
        overdue_s = self._controller.theta - (t - state.t) - float(self._controller.reference.gate_times_s[number])
        if outside:
            return number, "passed outside of its opening"
        if overdue_s > OVERDUE_S:
            return number, "its plane was not crossed near it"
        gate = self._course[number]
        if brakes(gate, state, room_in(gate, self._vehicle.contact_radius_m)):
            return number, "the estimate is too uncertain for it"
        return number, "the estimate is lost" if t - self._lost_since > LOST_S else ""

    def resume(self, number: int, t: float) -> None:
        """Resume the plan behind a gate that was passed by another control, slowly at first."""
        self.recovery, self._rejoined_t = None, t
        self._controller.rejoin(float(self._controller.reference.gate_times_s[number]), REJOIN_PACE)

    def pace(self, t: float) -> float:
        """Return the greatest pace at t (s); inf: no limit."""
        return REJOIN_PACE + QUICKEN_1_S * (t - self._rejoined_t)

    def step(self, x: Array, state: State, t: float, dt: float) -> Control:
        """Return the command of an attempt for the state x (14,), with the position in the frame of the plan."""
        assert self.recovery is not None
        sigma_m = greatest_sigma(state.cov_p if state.cov_to_gate is None else state.cov_to_gate)
        aim = self.recovery.aim(x[P], state.v_w, sigma_m, state.lost, t)
        stopping = self.recovery.stage is RecoveryStage.STOP
        most = BRAKE_SHARE * self._vehicle.thrust_max if stopping else ACCEL_M_S2
        u, q_wb = self._velocity.input(x, aim, dt, most, learn=not stopping)  # the integral would wind up
        self._controller.predictor.sent(t, u)
        return replace(control(x, u, q_wb, aim), theta=self._controller.theta)

    def _await_finish(self, number: int, passages: Passages, t: float, go_t: float) -> End | None:
        """Finish unless the race status contradicts; brake until it confirms."""
        waited_s = t - go_t - passages.times_s[-1]
        if self.status.confirms(number, go_t) or waited_s > FINISH_S:
            return End(EndReason.FINISHED)
        if (denied := self._take_back(passages, go_t)) is not None:
            self._begin(denied, DENIED, passages, t, go_t)
        self.recovery = self.recovery or self._try(number, t)
        return None

    def _take_back(self, passages: Passages, go_t: float) -> int | None:
        """Remove the passages that the race status denies; return the number of the first such gate, None if there is none."""
        denied = self.status.missed(passages.times_s, go_t)
        if denied is not None:
            del passages.times_s[denied:], passages.margins_m[denied:]
        return denied

    def _begin(self, number: int, why: str, passages: Passages, t: float, go_t: float) -> None:
        passages.retries.append(Retry(number, t - go_t, why))
        self.recovery = self._try(number, t)

    def _try(self, number: int, t: float) -> Recovery:
        self._velocity = VelocityController(self._vehicle, TURN_RAD_S)
        return Recovery(self._course[number], self._track, t)

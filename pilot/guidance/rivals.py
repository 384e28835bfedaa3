"""Racing against others: the follower keeps clear of the leader, and overtakes where both have room, in openings too.

Rivals are reported or seen (`estimation.rivals`). They fly the same course, so each rival that may be overtaken, or is out of
sight for a moment, is predicted along the own plan at its last pace. The leader flies as if alone, and keeps its line until
the other is clear ahead; side by side at the start, the one farther right yields. Whether and on which side to overtake is
the best response to that prediction, without a game about the rival's answer (the prediction-only baseline of Spica et al.,
T-RO 2020, and Wang et al., RSS 2019, whose own methods solve that game).
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.estimator import State
from estimation.rivals import RivalEstimate, RivalTracker
from link.messages import RivalState
from mpc.giving_way import ACROSS, AvoidanceTube, P, V, aside
from mpc.reference import OPEN_M, Reference
from perception.rival import RivalDetection
from pilot.guidance.passing_room import PassingRoom
from pilot.guidance.rival_line import DRIFT_S, SPEED_FLOOR, PathState, locate
from vehicle.rotation import Array
from vehicle.vehicle import Vector

# Set by duels on VQ1 and the Split-S, where nothing else is said.
LEVEL_M = 0.3  # along the line, within which both count as side by side
NEAR_M = 8.0  # who is farther is no concern
ROOM_M = 1.5  # ahead, that is enough to share the line
LURK_M = 0.4  # ... beyond `IN_ROW_M`, behind one that is to be passed: a leg is short
SET_OFF_S = 1.0  # of plan time, up to which a pace says little: all begin at rest
CLEAR_M = 0.4  # between the bodies' balls: errors of estimate, control and prediction
FALL_BACK_S = 0.4  # in which what is missing of that room is made
BRAKE_S = 1.0  # before which room for a slower place need not be made
BRAKING_M = 0.45  # between the bodies' balls there: a rival brakes before its pace tells
LEAST = 0.5  # of the plan's pace: no slower for anybody
FRESH_S = 0.2  # age up to which a rival is believed to fly on as it did
OLD_S = 1.5  # ... and beyond which its place along the plan is no longer believed: passes and climbs take about that
DOUBT_M = 2.5  # the most that is left for doubt about a place: else a rival out of sight would be fled from
SAME_M = 3.0  # between where one out of sight should be and one that comes into sight, that are then taken for one
BELIEVED_S = 0.5  # for which an acceleration is; then the velocity stays
PACE_S = 0.3  # time constants of the pace that a rival is seen to fly, and of one's own
PACES = 0.1  # standard deviation of rivals' paces: from equal ones to a plan with 0.6 of the thrust
SLOWER = 0.04  # of the plan's pace: who flies less than that below it is not worth passing
AHEAD_S = 2.5  # a leg or two, in which a rival has to be passed
STEP_S = 0.05  # of predictions
IN_ROW_M = 0.25  # between the bodies' balls, one behind the other through an opening
SPARE_M = (
    0.15  # by which the room to go on with a pass may be less: who gives up half-way is beside the other in an opening
)
STEP_ASIDE_S = 0.3  # in which the line is left: 0.8 m by 35 m/s^2 there and as much back
ASIDE_M_S = 0.8 / STEP_ASIDE_S  # mean speed across the line then

HORIZON: Array = np.arange(0.0, AHEAD_S + STEP_S / 2, STEP_S)


class Known(enum.StrEnum):
    """Information about rivals that a pilot has."""

    UNKNOWN = "unknown"  # nothing
    TOLD = "told"  # where they are
    SEEN = "seen"  # what its camera shows of them


@dataclass(frozen=True)
class StartGrid:
    """Start positions, from one pilot's view."""

    place: int  # its own, from 1
    known: Known
    others_w: Mapping[int, Vector]  # m, world, of the rivals, by their places


@dataclass(frozen=True, slots=True)
class RivalConstraints:
    """Constraints from rivals: tubes to keep out of, and the greatest pace."""

    tubes: Sequence[AvoidanceTube] = ()
    pace: float = math.inf  # the most


@dataclass(frozen=True, slots=True)
class RivalTrack:
    """A rival's last known motion."""

    t: float  # s
    rival: PathState
    estimate: RivalEstimate | None = None  # None: not met yet, and expected to set off as oneself does

    def sigmas_m(self, along: Array, age: float) -> tuple[float, float]:
        """Return the standard deviations (m) of its position, `age` s later, along a direction (3,) and across it.

        The deviation across does not grow, since a rival returns to the line.
        """
        if self.estimate is None:
            return 0.0, 0.0
        cov = self.estimate.cov[:3, :3] + DRIFT_S**2 * self.estimate.cov[3:, 3:]
        far = float(along @ cov @ along)
        later = age * math.sqrt(max(float(along @ self.estimate.cov[3:, 3:] @ along), 0.0))
        across = math.sqrt(max((float(np.trace(cov)) - far) / 2, 0.0))
        return min(math.sqrt(max(far, 0.0)) + later, DOUBT_M), min(across, DOUBT_M)


class RivalWatch:
    """Record of each rival's position, and of overtaking in progress."""

    def __init__(self, grid: StartGrid, radius_m: float, room: PassingRoom, tracker: RivalTracker):
        """Create it; `radius_m`: radius of the body, also of the rivals."""
        self._grid, self._room, self._tracker = grid, room, tracker
        self._reach_m, self._row_m = 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._known: dict[int, RivalTrack] = {}
        self._set_off = False
        self._brake_m = 2 * radius_m + BRAKING_M
        self._passing: dict[int, Array] = {}  # (3,) unit vector: the side
        self._ahead: dict[int, bool] = {}  # whether it has the line

    def receive(self, told: RivalState) -> None:
        """Process a rival's reported state."""
        self._tracker.receive(told)

    def see(self, t: float, found: Sequence[RivalDetection], p_wb: Array, at: State) -> None:
        """Process the rivals detected in an image, as `RivalTracker.see`."""
        self._tracker.see(t, found, p_wb, at)

    def way(self, state: State, line: Reference, theta: float, pace: float, attainable: float) -> RivalConstraints:
        """Return the constraints for a pilot at theta (s) on its line, at this pace, with the pace attainable alone."""
        tubes, most, own = list[AvoidanceTube](), math.inf, locate(line, state.p_wb, state.v_w, theta)
        self._remember(state, line, own.theta)
        v = line.sample(np.array([own.theta]))[0, V]
        speed = max(float(np.linalg.norm(v)), SPEED_FLOOR)
        for number, known in self._known.items():
            age = max(state.t - known.t, 0.0)
            rival = known.rival.after(age)
            along_m, across_m = known.sigmas_m(v / speed, age)
            path_w = rival.at(line, HORIZON)
            off = path_w[0] - state.p_wb
            if off @ off > NEAR_M**2:
                self._passing.pop(number, None)
                continue
            lead = (rival.theta - own.theta) * speed + float((rival.off_w - own.off_w) @ v) / speed
            passing = self._pass(number, rival, path_w, lead, own.theta, pace, attainable, across_m, line)
            if passing is not None:
                tubes.append(replace(passing, times=state.t + HORIZON))
            elif self._yields(number, lead):
                across = off @ v / speed**2 * v - off
                side = across / max(float(np.linalg.norm(across)), 1e-6)
                if known.estimate is not None and age < FRESH_S:
                    path_w = _flown_on(known.estimate, age)
                reach_m, box_w = self._reach_m + across_m, self._room.box_w
                tubes.append(AvoidanceTube(state.t + HORIZON, path_w, reach_m, 2 * reach_m + along_m, side, box_w))
                lurks = own.theta > SET_OFF_S and rival.pace < attainable - SLOWER
                room_m = (self._row_m + LURK_M if lurks else ROOM_M) + along_m
                most = min(most, max(rival.pace + self._surplus(line, own.theta, rival.pace, lead, room_m), LEAST))
        return RivalConstraints(tubes, most)

    def _yields(self, number: int, lead: float) -> bool:
        """Return whether a rival, `lead` m ahead, has right of way: the leader keeps it until the other is clear ahead."""
        before = self._ahead.get(number, lead > LEVEL_M or (lead > -LEVEL_M and number < self._grid.place))
        self._ahead[number] = lead > self._reach_m or (before and lead > -self._reach_m)
        return self._ahead[number]

    def _surplus(self, line: Reference, theta: float, pace: float, lead: float, room_m: float) -> float:
        """Return the greatest excess over the pace of a rival `lead` m ahead of theta (s); below 0 to fall back.

        A gap that is constant in time is shortest where both are slow: the room is made before that point.
        """
        soon = HORIZON[HORIZON < BRAKE_S]
        speeds = np.maximum(np.linalg.norm(line.sample(theta + pace * soon)[:, V], axis=1), SPEED_FLOOR)
        gaps_s = lead / speeds[0] - np.where(soon > 0, min(room_m, self._brake_m), room_m) / speeds
        return float((gaps_s / np.maximum(soon, FALL_BACK_S)).min())

    def _remember(self, state: State, line: Reference, theta: float) -> None:
        """Update all rivals; one that was never measured is predicted to start like the own vehicle."""
        if not self._set_off:
            self._set_off = True
            for place, p_w in self._grid.others_w.items():
                off = p_w - line.sample(np.zeros(1))[0, P]
                self._known[place] = RivalTrack(state.t, PathState(0.0, 1.0, off, np.zeros(3)))
        estimates = self._tracker.estimates()
        for one in estimates:
            if one.number not in self._known:
                self._recognise(one, line, {other.number for other in estimates})
            last = self._known.get(one.number)
            if last is None or last.estimate is None or one.t > last.t:
                rival = locate(line, one.p_w, one.v_w, theta)
                self._known[one.number] = RivalTrack(one.t, _steady(rival, last, one), one)
        self._known = {number: known for number, known in self._known.items() if state.t - known.t < OLD_S}
        self._ahead = {number: ahead for number, ahead in self._ahead.items() if number in self._known}

    def _recognise(self, one: RivalEstimate, line: Reference, present: set[int]) -> None:
        """Match a rival that comes into sight with the nearest of those that went out of it."""
        best, least_m = None, SAME_M
        for number, known in self._known.items():
            there = known.rival.at(line, np.array([max(one.t - known.t, 0.0)]))[0]
            if number not in present and (off := float(np.linalg.norm(there - one.p_w))) < least_m:
                best, least_m = number, off
        if best is not None:
            self._known[one.number] = self._known.pop(best)
            if (side := self._passing.pop(best, None)) is not None:
                self._passing[one.number] = side
            if (ahead := self._ahead.pop(best, None)) is not None:
                self._ahead[one.number] = ahead

    def _pass(
        self,
        number: int,
        rival: PathState,
        path_w: Array,
        lead: float,
        theta: float,
        pace: float,
        fastest: float,
        sigma_m: float,
        line: Reference,
    ) -> AvoidanceTube | None:
        """Return the tube to overtake a rival `lead` m ahead, within sigma_m of path_w (M, 3) m; None to stay behind.

        Each side is tested on the prediction with the same function that shifts the line: openings limit the shift, so that
        both pass an opening together only if it has room for two.
        """
        begun = self._passing.pop(number, None)
        if lead < -self._reach_m or (begun is None and (lead < self._reach_m or rival.pace > fastest - SLOWER)):
            return None
        rows = line.sample(theta + fastest * HORIZON - (fastest - pace) * PACE_S * (1 - np.exp(-HORIZON / PACE_S)))
        speeds = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
        along = rows[:, V] / np.maximum(speeds, SPEED_FLOOR)
        leads = np.einsum("ij,ij->i", path_w - rows[:, P], along)
        beside = np.abs(leads) < self._row_m
        if lead > LEVEL_M and (leads[-1] > -self._reach_m or not beside.any()):
            return None
        within = np.linalg.norm(rows[:, ACROSS], axis=1) > 2 / OPEN_M  # an opening, which keeps off its own frame
        best, least_m, reach_m = None, np.inf, self._reach_m + sigma_m
        least_apart_m = self._row_m + sigma_m - (0.0 if begun is None else SPARE_M)
        length_m = 2 * reach_m + STEP_ASIDE_S * max(fastest - rival.pace, 0.0) * float(speeds[0, 0])
        if begun is not None:
            begun = begun - begun @ along[0] * along[0]
            begun /= max(float(np.linalg.norm(begun)), 1e-6)
        for side in [begun] if begun is not None else self._room.sides(along[0]):
            tube = AvoidanceTube(HORIZON, path_w, reach_m, length_m, side, self._room.box_w)
            steps = reachable(aside(rows, HORIZON, [tube]), begun is not None)
            led_w = rows[:, P] + steps
            most_m = float(np.linalg.norm(steps, axis=1).max())
            if lead > LEVEL_M and np.linalg.norm(led_w - path_w, axis=1).min() < least_apart_m:
                continue
            if most_m < least_m and (begun is not None or self._room.free(led_w[beside & ~within])):
                best, least_m = tube, most_m
        if best is not None:
            self._passing[number] = best.side_w
        return best


def reachable(steps: Array, begun: bool) -> Array:
    """Limit lateral shifts (M, 3) m over the horizon to the speed `ASIDE_M_S`, given those bounded by openings.

    With `begun` the first shift is already reached; else it begins on the line.
    """
    wanted = np.linalg.norm(steps, axis=1)
    from_there = wanted if begun else np.concatenate([[0.0], wanted[1:]])
    reached = (from_there + ASIDE_M_S * np.abs(HORIZON[:, None] - HORIZON)).min(axis=1)
    return np.asarray(steps * (reached / np.maximum(wanted, 1e-9))[:, None])


def _steady(rival: PathState, last: RivalTrack | None, one: RivalEstimate) -> PathState:
    """Return the rival with a low-pass filtered pace, regularised towards the plan's by the covariance of its velocity."""
    before, share = 1.0, 1.0
    if last is not None and last.estimate is not None:
        before, share = last.rival.pace, min((one.t - last.t) / PACE_S, 1.0)
    doubt = float(np.trace(one.cov[3:, 3:])) / 3 / (float(one.v_w @ one.v_w) + SPEED_FLOOR**2)
    share *= PACES**2 / (PACES**2 + doubt)
    return replace(rival, pace=before + share * (rival.pace - before))


def _flown_on(one: RivalEstimate, age: float) -> Array:
    """Return positions (M, 3) m over the horizon by its motion `age` s ago; more accurate than any plan during the start."""
    since = age + HORIZON
    short = np.minimum(since, BELIEVED_S)
    return one.p_w + np.outer(since, one.v_w) + np.outer((since - short / 2) * short, one.a_w)

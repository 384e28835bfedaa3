"""Racing others: whoever is behind keeps clear of the one ahead, and passes where both have room, in openings too.

Where rivals are is told or seen (`estimation.rivals`). They fly the same course, so each that may be passed, and each that is out
of sight for a moment, is predicted along one's own plan, at the pace at which it flew last. The one ahead flies as if alone; side
by side, who stands farther right on the start yields. Whether and on which side to pass is the best response to that prediction,
without a game about what the other may answer (the prediction-only baseline of Spica et al., T-RO 2020, and Wang et al., RSS
2019, whose own methods solve that game).
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.estimator import State
from estimation.rivals import RivalEstimate, RivalTracker
from link.messages import RivalState
from mpc.giving_way import P, Tube, aside
from mpc.reference import Reference
from perception.rival import RivalDetection
from pilot.guidance.passing_room import PassingRoom
from pilot.guidance.rival_line import (
    AHEAD_S,
    DRIFT_S,
    HORIZON,
    RETURN_S,
    SET_OFF_S,
    SPEED_FLOOR,
    OnLine,
    OwnFlight,
    locate,
    reachable,
    setting_off,
)
from vehicle.rotation import Array
from vehicle.vehicle import Vector

# Set by duels on VQ1 and the Split-S, where nothing else is said.
RESTING_M_S = 1.0  # slower, a rival has not set off
LEVEL_M = 0.3  # along the line, within which both count as side by side
NEAR_M = 8.0  # who is farther is no concern
ROOM_M = 1.5  # ahead, that is enough to share the line
IN_ROW = 1.2  # length over radius of the bell around one who has the line: 0.64 m from its centre on all sides of it
LURK_M = 0.4  # ... beyond `IN_ROW_M`, behind one that is to be passed: a leg is short
CLEAR_M = 0.3  # between the bodies' balls: errors of estimate, control and prediction
GIVE_UP_S = 1.0  # before which a pass that will not fit is given up: time enough to fall back behind
LEAST = 0.5  # of the plan's pace: no slower for anybody
FRESH_S = 0.2  # age up to which a rival is believed to fly on as it did
OLD_S = 1.5  # ... and beyond which its place along the plan is no longer believed: passes and climbs take about that
DOUBT_M = 2.5  # the most that is left for doubt about a place: else a rival out of sight would be fled from
SAME_M = 3.0  # between where one out of sight should be and one that comes into sight, that are then taken for one
BELIEVED_S = 0.5  # for which an acceleration is; then the velocity stays
PACE_S = 0.3  # time constant of the pace that a rival is seen to fly
MEAN_PACE_S = 1.0  # over which it is averaged
PACES = 0.1  # standard deviation of rivals' paces: from equal ones to a plan with 0.6 of the thrust
SLOWER = 0.04  # of the plan's pace: who flies less than that below it is not worth passing
IN_ROW_M = 0.25  # between the bodies' balls, one behind the other through an opening
BRAKING_M = 0.45  # likewise behind one that comes to a slower place: it brakes before its pace tells
SPARE_M = (
    0.15  # by which the room to go on with a pass may be less: who gives up half-way is beside the other in an opening
)
STEP_ASIDE_S = 0.4  # in which the line is left: 0.8 m by 20 m/s^2 there and as much back
ASIDE_M_S = 0.8 / STEP_ASIDE_S  # mean speed across the line then


class Known(enum.StrEnum):
    """What a pilot knows of its rivals."""

    UNKNOWN = "unknown"  # nothing
    TOLD = "told"  # where they are
    SEEN = "seen"  # what its camera shows of them


@dataclass(frozen=True)
class StartGrid:
    """Who stands where on the start, by a pilot's own lights."""

    place: int  # its own, from 1
    known: Known
    others_w: Mapping[int, Vector]  # m, world, of the rivals, by their places


@dataclass(frozen=True, slots=True)
class Way:
    """What to leave to others."""

    tubes: Sequence[Tube] = ()
    pace: float = math.inf  # the most


@dataclass(frozen=True, slots=True)
class Remembered:
    """A rival as it was at a time."""

    t: float  # s
    rival: OnLine
    estimate: RivalEstimate | None = None  # None: not met yet, and expected to set off as oneself does
    flown_s: float = 0.0  # over which its pace was averaged

    def sigmas_m(self, along: Array, age: float) -> tuple[float, float]:
        """Standard deviations of its place, `age` s later and in a moment, along a direction (3,) and across it.

        Across it comes back to the line.
        """
        if self.estimate is None:
            return 0.0, 0.0
        cov = self.estimate.cov[:3, :3] + DRIFT_S**2 * self.estimate.cov[3:, 3:]
        far = float(along @ cov @ along)
        later = age * math.sqrt(max(float(along @ self.estimate.cov[3:, 3:] @ along), 0.0))
        across = math.sqrt(max((float(np.trace(cov)) - far) / 2, 0.0))
        return min(math.sqrt(max(far, 0.0)) + later, DOUBT_M), min(across, DOUBT_M)


class RivalWatch:
    """Remembers where each rival was, and whom it is passing."""

    def __init__(self, grid: StartGrid, radius_m: float, room: PassingRoom, tracker: RivalTracker):
        """`radius_m` of the body, the rivals' as well."""
        self._grid, self._room, self._tracker = grid, room, tracker
        self._reach_m, self._row_m = 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._brake_m = 2 * radius_m + BRAKING_M
        self._known: dict[int, Remembered] = {}
        self._set_off = False
        self._passing: dict[int, Array] = {}  # (3,) unit vector: the side
        self._ahead: dict[int, bool] = {}  # whether it has the line
        self._starts: dict[int, Array] = {}  # (3,) m, where it stood

    def hear(self, told: RivalState) -> None:
        """Where one of them was."""
        self._tracker.hear(told)

    def see(self, t: float, found: Sequence[RivalDetection], p_wb: Array, at: State) -> None:
        """What an image shows of them, as `RivalTracker.see` takes it."""
        self._tracker.see(t, found, p_wb, at)

    def way(self, state: State, line: Reference, theta: float, pace: float, attainable: float) -> Way:
        """What is left to whom, by a pilot at theta, s, on its line, at this pace, with that pace attainable alone."""
        tubes, most = list[Tube](), math.inf
        own = OwnFlight.ahead(line, locate(line, state.p_wb, state.v_w, theta), pace, attainable)
        self._remember(state, line, own.at.theta)
        for number, known in self._known.items():
            age = max(state.t - known.t, 0.0)
            rival = known.rival.after(age)
            path_w = rival.at(line, HORIZON)
            if (path_w[0] - state.p_wb) @ (path_w[0] - state.p_wb) > NEAR_M**2:
                self._passing.pop(number, None)
                continue
            lead, apart_w = own.relative(rival)
            along_m, across_m = known.sigmas_m(own.v_w / own.speed, age)
            tube = self._pass(number, rival, path_w, lead, apart_w, own, across_m)
            if tube is None and self._yields(number, lead):
                if known.estimate is not None and age < FRESH_S:
                    path_w = _flown_on(known.estimate, age)
                tube = self._yield(path_w, path_w[0] - state.p_wb, own, along_m, across_m)
                near = rival.theta < SET_OFF_S or rival.mean_pace < attainable - SLOWER
                room_m = self._row_m + LURK_M if near else ROOM_M
                room_m = math.sqrt(max(room_m**2 - float(apart_w @ apart_w), 0.0)) + along_m
                most = min(most, max(rival.pace + own.falls_back(lead, room_m, self._brake_m), LEAST))
            if tube is not None:
                tubes.append(replace(tube, times=state.t + HORIZON))
        return Way(tubes, most)

    def _yield(self, path_w: Array, off_w: Array, own: OwnFlight, along_m: float, across_m: float) -> Tube | None:
        """The tube round one who has the line, on the side on which one is; none where that leads into something.

        Its path_w (M, 3) is known to along_m and across_m, and it is off_w (3,) m away.
        """
        across_w = off_w @ own.v_w / own.speed**2 * own.v_w - off_w
        reach_m = self._reach_m + across_m
        side_w = across_w / max(float(np.linalg.norm(across_w)), 1e-6)
        tube = Tube(HORIZON, path_w, reach_m, IN_ROW * reach_m + along_m, side_w, self._room.box_w)
        steps = aside(own.rows, HORIZON, [tube])
        led = steps.any(axis=1) & ~own.within
        return tube if self._room.free((own.rows[:, P] + steps)[led], spare_m=0.0) else None

    def _yields(self, number: int, lead: float) -> bool:
        """Whether a rival, `lead` m ahead, has the line: who was ahead keeps it, until the other is clear ahead."""
        before = self._ahead.get(number, lead > LEVEL_M or (lead > -LEVEL_M and number < self._grid.place))
        self._ahead[number] = lead > self._reach_m or (before and lead > -self._reach_m)
        return self._ahead[number]

    def _remember(self, state: State, line: Reference, theta: float) -> None:
        """Take what is known of all of them now; whom nothing was heard or seen of sets off as oneself does."""
        if not self._set_off:
            self._set_off = True
            for place, p_w in self._grid.others_w.items():
                off = p_w - line.sample(np.zeros(1))[0, P]
                self._known[place] = Remembered(state.t, OnLine(0.0, 1.0, off, np.zeros(3)))
        estimates = self._tracker.estimates()
        for one in estimates:
            if one.number not in self._known:
                self._recognise(one, line, {other.number for other in estimates})
            last = self._known.get(one.number)
            if last is None or last.estimate is None or one.t > last.t:
                rival = locate(line, one.p_w, one.v_w, theta)
                if one.v_w @ one.v_w < RESTING_M_S**2:
                    self._starts.setdefault(one.number, one.p_w)
                if one.number in self._starts:
                    rival = setting_off(line, self._starts[one.number], one.p_w, one.v_w, rival)
                self._known[one.number] = _averaged(_steady(rival, last, one), last, one)
        self._known = {number: known for number, known in self._known.items() if state.t - known.t < OLD_S}
        self._ahead = {number: ahead for number, ahead in self._ahead.items() if number in self._known}

    def _recognise(self, one: RivalEstimate, line: Reference, present: set[int]) -> None:
        """One that comes into sight may be the nearest of those that went out of it."""
        best, least_m = None, SAME_M
        for number, known in self._known.items():
            there = known.rival.at(line, np.array([max(one.t - known.t, 0.0)]))[0]
            if number not in present and (off := float(np.linalg.norm(there - one.p_w))) < least_m:
                best, least_m = number, off
        if best is not None:
            self._known[one.number] = self._known.pop(best)
            if (side := self._passing.pop(best, None)) is not None:
                self._passing[one.number] = side

    def _pass(
        self,
        number: int,
        rival: OnLine,
        path_w: Array,
        lead: float,
        apart_w: Array,
        own: OwnFlight,
        sigma_m: float,
    ) -> Tube | None:
        """The tube round which a rival, within sigma_m of its path_w (M, 3), is passed, if it is.

        Each side is tried on the prediction by what leads the line itself: openings cut the step aside, so that both go
        through one together only where it has room for two. Who is beside it already stays on its side. `lead`, `apart_w`: as
        `OwnFlight.relative`.
        """
        begun = self._passing.pop(number, None)
        if lead < -self._reach_m or (begun is None and rival.mean_pace > own.fastest - SLOWER):
            return None
        leads = (rival.thetas(HORIZON) - own.thetas) * own.speeds
        leads += (lead - leads[0]) * np.exp(-HORIZON / RETURN_S)
        going_on, others = list[Array](), list[Array]()
        if begun is not None:
            across_w = begun - begun @ own.along[0] * own.along[0]
            going_on = [across_w / max(float(np.linalg.norm(across_w)), 1e-6)]
        elif lead <= self._reach_m and (apart_m := float(np.linalg.norm(apart_w))) > self._row_m + sigma_m:
            others = [-apart_w / apart_m]
        if lead > self._reach_m:
            others = list(self._room.sides(own.along[0]))
        for sides, until_s in ((going_on, AHEAD_S), (others, AHEAD_S), (going_on, GIVE_UP_S)):
            best = self._round(sides, until_s, leads, rival, path_w, own, sigma_m, begun is not None)
            if best is not None:
                self._passing[number] = best.side_w
                return best
        return None

    def _round(
        self,
        sides: Sequence[Array],
        until_s: float,
        leads: Array,
        rival: OnLine,
        path_w: Array,
        own: OwnFlight,
        sigma_m: float,
        begun: bool,
    ) -> Tube | None:
        """The tube to that of the sides, (3,) each, on which the line is left the least, and there is room until then, s.

        `leads` (M,) m of the rival over the horizon; once it is behind, the room is its concern.
        """
        if not begun and not (leads < -LEVEL_M).any():
            return None
        reach_m = self._reach_m + sigma_m
        judged = (until_s > HORIZON) & ~np.maximum.accumulate(leads < -self._row_m)
        open_w = judged & (np.abs(leads) < self._row_m) & ~own.within
        least_apart_m = self._row_m + sigma_m - (SPARE_M if begun else 0.0)
        length_m = 2 * reach_m + STEP_ASIDE_S * max(own.fastest - rival.pace, 0.0) * own.speed
        best, least_m = None, np.inf
        for side in sides:
            tube = Tube(HORIZON, path_w, reach_m, length_m, side, self._room.box_w)
            steps = reachable(aside(own.rows, HORIZON, [tube]), HORIZON, ASIDE_M_S, float(own.at.off_w @ side))
            led_w, most_m = own.rows[:, P] + steps, float(np.linalg.norm(steps, axis=1).max())
            if leads[0] > 0 and np.linalg.norm(led_w - path_w, axis=1)[judged].min() < least_apart_m:
                continue
            if most_m < least_m and (leads[0] < 0 or self._room.free(led_w[open_w], 0.0 if begun else SPARE_M)):
                best, least_m = tube, most_m
        return best


def _steady(rival: OnLine, last: Remembered | None, one: RivalEstimate) -> OnLine:
    """The rival with its pace as it was over a while, or the plan's, as far as its velocity is in doubt."""
    before, share = 1.0, 1.0
    if last is not None and last.estimate is not None:
        before, share = last.rival.pace, min((one.t - last.t) / PACE_S, 1.0)
    doubt = float(np.trace(one.cov[3:, 3:])) / 3 / (float(one.v_w @ one.v_w) + SPEED_FLOOR**2)
    share *= PACES**2 / (PACES**2 + doubt)
    return replace(rival, pace=before + share * (rival.pace - before))


def _averaged(rival: OnLine, last: Remembered | None, one: RivalEstimate) -> Remembered:
    """What is remembered of a rival, with the mean of its pace since it set off, over `MEAN_PACE_S` at most."""
    if last is None or last.estimate is None or rival.theta < SET_OFF_S:
        return Remembered(one.t, replace(rival, mean_pace=rival.pace), one)
    flown_s = min(last.flown_s + one.t - last.t, MEAN_PACE_S)
    share = (one.t - last.t) / flown_s
    mean_pace = last.rival.mean_pace + share * (rival.pace - last.rival.mean_pace)
    return Remembered(one.t, replace(rival, mean_pace=mean_pace), one, flown_s)


def _flown_on(one: RivalEstimate, age: float) -> Array:
    """Places (M, 3) over the horizon by its motion `age` s before; nearer the truth than any plan while both set off."""
    since = age + HORIZON
    short = np.minimum(since, BELIEVED_S)
    return one.p_w + np.outer(since, one.v_w) + np.outer((since - short / 2) * short, one.a_w)

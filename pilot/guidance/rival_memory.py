"""What is remembered of each rival: where it is by one's own plan, and at what pace it flies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.estimator import State
from estimation.rivals import RivalEstimate, RivalTracker
from link.messages import RivalState
from mpc.giving_way import P
from mpc.reference import Reference
from perception.rival import RivalDetection
from pilot.guidance.rival_line import DRIFT_S, HORIZON, SET_OFF_S, SPEED_FLOOR, OnLine, locate, setting_off
from vehicle.rotation import Array
from vehicle.vehicle import Vector

RESTING_M_S = 1.0  # slower, a rival has not set off
OLD_S = 1.5  # age beyond which a place along the plan is no longer believed: passes and climbs take about that
DOUBT_M = 2.5  # the most that is left for doubt about a place: else a rival out of sight would be fled from
SAME_M = 3.0  # between where one out of sight should be and one that comes into sight, that are then taken for one
BELIEVED_S = 0.5  # for which an acceleration is; then the velocity stays
PACE_S = 0.3  # time constant of the pace that a rival is seen to fly
MEAN_PACE_S = 1.0  # over which it is averaged
PACES = 0.1  # standard deviation of rivals' paces: from equal ones to a plan with 0.6 of the thrust


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


class RivalMemory:
    """Remembers rivals, those out of sight for a while too."""

    def __init__(self, tracker: RivalTracker, others_w: Mapping[int, Vector]):
        """`others_w`: m, world, where rivals stand on the start, by their places."""
        self.tracker = tracker
        self.known: dict[int, Remembered] = {}
        self._others_w = others_w
        self._starts: dict[int, Array] = {}  # (3,) m, where each was seen to stand
        self._set_off = False

    def hear(self, told: RivalState) -> None:
        """Where one of them was."""
        self.tracker.hear(told)

    def see(self, t: float, found: Sequence[RivalDetection], p_wb: Array, at: State) -> None:
        """What an image shows of them, as `RivalTracker.see` takes it."""
        self.tracker.see(t, found, p_wb, at)

    def update(self, t: float, line: Reference, theta: float) -> dict[int, int]:
        """Take what is known of all of them at t, s, by a pilot at theta, s, on its line; whom nothing is heard or seen of sets
        off as oneself does. Returns new numbers, by the old, of those that came into sight again.
        """
        if not self._set_off:
            self._set_off = True
            for place, p_w in self._others_w.items():
                self.known[place] = Remembered(t, OnLine(0.0, 1.0, p_w - line.sample(np.zeros(1))[0, P], np.zeros(3)))
        estimates, renamed = self.tracker.estimates(), dict[int, int]()
        for one in estimates:
            if one.number not in self.known:
                before = self._recognise(one, line, {other.number for other in estimates})
                if before is not None:
                    self.known[one.number], renamed[before] = self.known.pop(before), one.number
            last = self.known.get(one.number)
            if last is None or last.estimate is None or one.t > last.t:
                rival = locate(line, one.p_w, one.v_w, theta)
                if one.v_w @ one.v_w < RESTING_M_S**2:
                    self._starts.setdefault(one.number, one.p_w)
                if one.number in self._starts:
                    rival = setting_off(line, self._starts[one.number], one.p_w, rival)
                self.known[one.number] = _averaged(_steady(rival, last, one), last, one)
        self.known = {number: known for number, known in self.known.items() if t - known.t < OLD_S}
        return renamed

    def _recognise(self, one: RivalEstimate, line: Reference, present: set[int]) -> int | None:
        """The number of the nearest of those that went out of sight, that one which comes into sight may be."""
        best, least_m = None, SAME_M
        for number, known in self.known.items():
            there = known.rival.at(line, np.array([max(one.t - known.t, 0.0)]))[0]
            if number not in present and (off := float(np.linalg.norm(there - one.p_w))) < least_m:
                best, least_m = number, off
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


def flown_on(one: RivalEstimate, age: float) -> Array:
    """Places (M, 3) over the horizon by its motion `age` s before; nearer the truth than any plan while both set off."""
    since = age + HORIZON
    short = np.minimum(since, BELIEVED_S)
    return one.p_w + np.outer(since, one.v_w) + np.outer((since - short / 2) * short, one.a_w)

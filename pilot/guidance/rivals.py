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

from gate_racer.estimation.estimator import State
from gate_racer.estimation.rivals import RivalEstimate, RivalTracker
from gate_racer.link.messages import RivalState
from gate_racer.mpc.giving_way import AvoidanceTube, P, V
from gate_racer.mpc.reference import Reference
from gate_racer.perception.rival import RivalDetection
from gate_racer.pilot.guidance.overtaking import (
    CLEAR_M,
    HORIZON,
    IN_ROW_M,
    LEAST,
    PACE_S,
    SLOWER,
    Overtaking,
    Pursuit,
    driven,
    most_closing_m_s,
    opening_s,
)
from gate_racer.pilot.guidance.passing_room import PassingRoom
from gate_racer.pilot.guidance.rival_line import DRIFT_S, SPEED_FLOOR, PathState, locate
from gate_racer.vehicle.rotation import Array, Vector

# Set by duels on VQ1 and the Split-S, where nothing else is said.
ROW, LANE = 2.0, 4.0  # half length of a tube over its radius, behind a rival and beside it
LEVEL_M = 0.3  # along the line, within which both count as side by side
NEAR_M = 8.0  # who is farther is no concern
ROOM_M = 1.5  # m, gap behind a rival at which the line can be shared
LURK_M = 0.15  # m beyond `IN_ROW_M`, gap behind a rival that is to be overtaken: a leg is short
FALL_BACK_S = 0.4  # s in which a missing gap is made
BRAKE_S = 1.0  # s, look-ahead within which the gap for a slower section is made
BRAKING_M = 0.45  # m between the bodies' spheres within that time: a rival brakes before its pace shows it
FRESH_S = 0.2  # s, age up to which a rival is predicted by its own measured motion
OLD_S = 1.5  # s, age beyond which a rival is dropped: overtaking manoeuvres and climbs take about that long
DOUBT_M = 2.5  # m, bound on the standard deviation of a rival's position: an unbounded one would be avoided without end
SAME_M = 3.0  # m between a predicted and a detected position within which they are of one rival
BELIEVED_S = 0.5  # s for which a measured acceleration is extrapolated; then the velocity is constant
PACES = 0.1  # -, standard deviation of rivals' paces: from equal ones to a plan with 0.6 of the thrust


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
        self._overtaking = Overtaking(room, radius_m)
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
        near = dict[int, tuple[PathState, Array, float]]()  # state, predicted path and lead of each rival
        for number, known in self._known.items():
            rival = known.rival.after(max(state.t - known.t, 0.0))
            path_w = rival.at(line, HORIZON)
            if np.linalg.norm(path_w[0] - state.p_wb) > NEAR_M:
                self._overtaking.forget(number)
                continue
            lead = (rival.theta - own.theta) * speed + float((rival.off_w - own.off_w) @ v) / speed
            near[number] = rival, path_w, lead
        place = 0  # number of rivals with right of way
        for number, (rival, path_w, lead) in sorted(near.items(), key=lambda one: one[1][2]):
            known = self._known[number]
            along_m, across_m = known.sigmas_m(v / speed, max(state.t - known.t, 0.0))
            others = [other_w for _, other_w, beyond in near.values() if beyond > lead]
            pursuit = Pursuit(line, own, pace, attainable, rival, path_w, across_m, lead, others)
            passing = self._overtaking.tube(number, pursuit)
            if passing is not None:
                tubes.append(replace(passing, times=state.t + HORIZON))
            elif self._yields(number, lead):
                place += 1
                tube, pace_most = self._give_way(known, state, pursuit, v / speed, speed, along_m, place)
                tubes.append(tube)
                most = min(most, pace_most)
        return RivalConstraints(tubes, most)

    def _give_way(
        self, known: RivalTrack, state: State, at: Pursuit, along: Array, speed: float, along_m: float, place: int
    ) -> tuple[AvoidanceTube, float]:
        """Return the tube that leaves a rival its line, and the greatest pace beside or behind it.

        `along` (3,), speed (m/s): direction and speed of the line; `place`: rank of the rival, by its lead, among those with
        right of way: so many positions behind each other are needed at the next opening.
        """
        age, off = max(state.t - known.t, 0.0), at.path_w[0] - state.p_wb
        across = off @ along * along - off
        apart_m = float(np.linalg.norm(across))
        path_w = at.path_w if known.estimate is None or age >= FRESH_S else _flown_on(known.estimate, age)
        beside = not at.setting_off and apart_m > self._row_m + at.sigma_m and at.lead_m < self._reach_m
        reach_m = self._reach_m + at.sigma_m
        length_m = (LANE if beside else ROW) * reach_m + along_m
        tube = AvoidanceTube(
            state.t + HORIZON, path_w, reach_m, length_m, across / max(apart_m, 1e-6), self._room.box_w
        )
        lurks = not at.setting_off and at.rival.pace < at.attainable - SLOWER
        room_m = (self._row_m + LURK_M if lurks else ROOM_M) + along_m
        paces = [LEAST, at.rival.pace + self._surplus(at.line, at.own.theta, at.rival.pace, at.lead_m, room_m)]
        if known.estimate is not None and beside:
            rows = driven(at.line, at.own.theta, at.pace, np.full(len(HORIZON), at.attainable))
            closing_m_s = most_closing_m_s(at.lead_m, place * self._row_m + along_m, opening_s(rows))
            paces.append((float(known.estimate.v_w @ along) + closing_m_s) / speed)
        return tube, max(paces)

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
            self._overtaking.rename(best, one.number)
            if (ahead := self._ahead.pop(best, None)) is not None:
                self._ahead[one.number] = ahead


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

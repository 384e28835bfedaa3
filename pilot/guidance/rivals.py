"""Racing others: whoever is behind keeps clear of the one ahead, and passes where that is done before the next opening.

Where a rival is has to be told (`RivalState`). Rivals fly the same course, so each that may be passed is predicted along one's
own plan, at the pace at which it flies now. The one ahead flies as if alone; side by side, who stands farther right on the start
yields. Whether and on which side to pass is the best response to that prediction, without a game about what the other may answer
(the prediction-only baseline of Spica et al., T-RO 2020, and Wang et al., RSS 2019, whose own methods solve that game).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.estimator import State
from link.messages import RivalState
from mpc.giving_way import P, Tube, V, aside
from mpc.reference import Reference
from pilot.guidance.passing_room import PassingRoom
from tracks.grid import MOST
from vehicle.rotation import Array

# Set by duels on VQ1 and the Split-S, where nothing else is said.
LEVEL_M = 0.3  # along the line, within which both count as side by side
NEAR_M = 8.0  # who is farther is no concern
ROOM_M = 1.5  # ahead, that is enough to share the line
CLEAR_M = 0.4  # between the bodies' balls: errors of estimate, control and prediction
FALL_BACK_1_S = 2.5  # closing speed over what is missing of that room
LEAST = 0.5  # of the plan's pace: no slower for anybody
SPEED_FLOOR = 3.0  # m/s, below which a ratio of speeds says too little
OLD_S = 0.2  # age beyond which a place is no longer believed
SEARCH_S = 1.0  # of plan time, on both sides of one's own place, in which a rival is looked for
ACCELERATION_S = 0.05  # time constant of what is made of the velocities told
BELIEVED_S = 0.5  # for which an acceleration is; then the velocity stays
DRIFT_S = 0.3  # for which a motion across the line is believed
RETURN_S = 1.0  # time constant with which a rival comes to the line
PACE_S = 0.3  # time constants of the pace that a rival is seen to fly, and of one's own
SLOWER = 0.04  # of the plan's pace: who flies less than that below it is not worth passing
AHEAD_S = 2.5  # a leg or two, in which a rival has to be passed
STEP_S = 0.05  # of predictions
IN_ROW_M = 0.25  # between the bodies' balls, one behind the other through an opening
STEP_ASIDE_S = 0.3  # in which the line is left: 0.8 m by 35 m/s^2 there and as much back
ASIDE_M_S = 0.8 / STEP_ASIDE_S  # mean speed across the line then

HORIZON: Array = np.arange(0.0, AHEAD_S + STEP_S / 2, STEP_S)


@dataclass(frozen=True, slots=True)
class Way:
    """What to leave to others."""

    tubes: Sequence[Tube] = ()
    pace: float = math.inf  # the most


@dataclass(frozen=True, slots=True)
class OnLine:
    """A rival's place and motion by one's own plan."""

    theta: float  # s of plan time
    pace: float  # plan time over time
    off_w: Array  # (3,) m, from the line
    drift_w: Array  # (3,) m/s, across it

    def at(self, line: Reference, since: Array) -> Array:
        """Where it will be (M, 3), since (M,) s from now: it keeps its pace, and comes to the line."""
        off = self.off_w + np.minimum(since, DRIFT_S)[:, None] * self.drift_w
        rows: Array = line.sample(self.theta + self.pace * since)
        return rows[:, P] + off * np.exp(-since / RETURN_S)[:, None]


def locate(line: Reference, p_w: Array, v_w: Array, theta: float) -> OnLine:
    """Who is at p_w (3,) with v_w (3,), by the plan about theta, s."""
    thetas = np.maximum(theta + np.linspace(-SEARCH_S, SEARCH_S, 81), 0.0)
    rows = line.sample(thetas)
    off = p_w - rows[:, P]
    against = np.maximum(-(rows[:, V] @ v_w), 0.0)  # the course may cross itself
    k = int(np.argmin(np.einsum("ij,ij->i", off, off) + against))
    v = rows[k, V]
    square = float(v @ v) + SPEED_FLOOR**2
    step = float(off[k] @ v) / square
    pace = (float(v_w @ v) + SPEED_FLOOR**2) / square
    return OnLine(float(thetas[k]) + step, pace, off[k] - step * v, v_w - pace * v)


class RivalWatch:
    """Remembers what was told of each rival, and whom it is passing."""

    def __init__(self, place: int, radius_m: float, room: PassingRoom):
        """`place` on the start, from 1; `radius_m` of the body, the rivals' as well."""
        self._place, self._room = place, room
        self._reach_m, self._row_m = 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._told: dict[int, RivalState] = {}
        self._accelerations: dict[int, Array] = {}  # (3,) m/s^2
        self._paces: dict[int, tuple[float, float]] = {}  # time in s, and the pace flown
        self._passing: dict[int, Array] = {}  # (3,) unit vector: the side

    def hear(self, told: RivalState) -> None:
        """Where one of them was; a place that there is not is not believed."""
        if told.place == self._place or not 1 <= told.place <= MOST:
            return
        last = self._told.get(told.place)
        if last is not None and told.t > last.t:
            dt, known = told.t - last.t, self._accelerations.get(told.place, np.zeros(3))
            now = (np.array(told.v_w) - last.v_w) / dt
            self._accelerations[told.place] = known + (now - known) * dt / (dt + ACCELERATION_S)
        self._told[told.place] = told

    def way(self, state: State, line: Reference, theta: float, pace: float) -> Way:
        """What is left to whom, by a pilot whose progress on its line is theta, s, and grows at this pace."""
        if not self._told:
            return Way()
        tubes, most, own = list[Tube](), math.inf, locate(line, state.p_wb, state.v_w, theta)
        v = line.sample(np.array([own.theta]))[0, V]
        speed = max(float(np.linalg.norm(v)), SPEED_FLOOR)
        for place, told in self._told.items():
            v_w = np.array(told.v_w)
            p_w = told.p_w + (state.t - told.t) * v_w
            off = p_w - state.p_wb
            if state.t - told.t > OLD_S or off @ off > NEAR_M**2:
                self._passing.pop(place, None)
                continue
            rival = self._steady(place, locate(line, p_w, v_w, own.theta), state.t)
            lead = (rival.theta - own.theta) * speed + float((rival.off_w - own.off_w) @ v) / speed
            passing = self._pass(place, rival, rival.at(line, HORIZON), lead, own.theta, pace, line)
            if passing is not None:
                tubes.append(replace(passing, times=state.t + HORIZON))
            elif lead > LEVEL_M or (lead > -LEVEL_M and place < self._place):
                across = off @ v / speed**2 * v - off
                side = across / max(float(np.linalg.norm(across)), 1e-6)
                path_w = _flown_on(p_w, v_w, self._accelerations.get(place, np.zeros(3)))
                tubes.append(Tube(state.t + HORIZON, path_w, self._reach_m, self._reach_m, side))
                most = min(most, max(rival.pace + FALL_BACK_1_S * (lead - ROOM_M) / speed, LEAST))
        return Way(tubes, most)

    def _steady(self, place: int, rival: OnLine, t: float) -> OnLine:
        """The rival with its pace as it was over a while."""
        last_t, last = self._paces.get(place, (t, rival.pace))
        share = min((t - last_t) / PACE_S, 1.0)
        pace = last + share * (rival.pace - last)
        self._paces[place] = t, pace
        return OnLine(rival.theta, pace, rival.off_w, rival.drift_w)

    def _pass(
        self,
        place: int,
        rival: OnLine,
        path_w: Array,
        lead: float,
        theta: float,
        pace: float,
        line: Reference,
    ) -> Tube | None:
        """The tube round which a rival, `lead` m ahead and on its path_w (M, 3) over the horizon, is passed, if it is.

        Each side is tried on the prediction by what leads the line itself: openings cut the step aside, so that both go
        through one together only where it has room for two.
        """
        begun = self._passing.pop(place, None)
        if lead < -self._reach_m or (begun is None and (lead < self._reach_m or rival.pace > 1 - SLOWER)):
            return None
        rows = line.sample(theta + HORIZON - (1 - pace) * PACE_S * (1 - np.exp(-HORIZON / PACE_S)))
        speeds = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
        along = rows[:, V] / np.maximum(speeds, SPEED_FLOOR)
        leads = np.einsum("ij,ij->i", path_w - rows[:, P], along)
        beside = np.abs(leads) < self._row_m
        if lead > 0 and (leads[-1] > -self._reach_m or not beside.any()):
            return None
        length_m = self._reach_m + STEP_ASIDE_S * max(1 - rival.pace, 0.0) * float(speeds[0, 0])
        best, least_m = None, np.inf
        for side in [begun] if begun is not None else self._room.sides(along[beside].mean(axis=0)):
            tube = Tube(HORIZON, path_w, self._reach_m, length_m, side)
            steps = reachable(aside(rows, HORIZON, [tube]), begun is not None)
            led_w = rows[:, P] + steps
            most_m = float(np.linalg.norm(steps, axis=1).max())
            if lead > 0 and np.linalg.norm(led_w - path_w, axis=1).min() < self._row_m:
                continue
            if most_m < least_m and (begun is not None or self._room.free(led_w[beside])):
                best, least_m = tube, most_m
        if best is not None:
            self._passing[place] = best.side_w
        return best


def reachable(steps: Array, begun: bool) -> Array:
    """Steps aside (M, 3) m over the horizon, cut to what `ASIDE_M_S` reaches between those that an opening bounds.

    With `begun` the first of them has been taken already; else it begins on the line.
    """
    wanted = np.linalg.norm(steps, axis=1)
    from_there = wanted if begun else np.concatenate([[0.0], wanted[1:]])
    reached = (from_there + ASIDE_M_S * np.abs(HORIZON[:, None] - HORIZON)).min(axis=1)
    return np.asarray(steps * (reached / np.maximum(wanted, 1e-9))[:, None])


def _flown_on(p_w: Array, v_w: Array, a_w: Array) -> Array:
    """Places (M, 3) over the horizon by the motion now; nearer the truth than any plan while both set off."""
    short = np.minimum(HORIZON, BELIEVED_S)
    return p_w + np.outer(HORIZON, v_w) + np.outer((HORIZON - short / 2) * short, a_w)

"""Whether and on which side a slower rival is passed: by predicting one's own flight on a line led around it.

The plan's line takes, at a pace s, the thrust T(s) = s^2 b - g with b = T_plan + g (Hollerbach, 1984; drag goes with s^2, too). A
line that is led aside takes more where it is longer, outside of a bend, and where a step begins or ends:

    |s^2 (1 - k . step) b + step'' - g| <= |f^2 b - g|

where f is the pace attainable on the line itself. A pass is begun if by this one is clear ahead within the horizon, with room
for both all along: side by side where they are apart, in openings too, else in row. One begun is given up while one can still
brake and be behind in row at the next opening; who no longer can goes on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mpc.giving_way import ACROSS, BINDING, P, Tube, V, aside, binding, parallel_frames, smoothed, stretch
from mpc.problem.stage import REFERENCE
from mpc.reference import OPEN_M, Reference
from pilot.guidance.passing_room import PassingRoom
from pilot.guidance.rival_line import SPEED_FLOOR, OnLine
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array, rotate

# Set by duels on VQ1 and the Split-S, where nothing else is said.
CLEAR_M = 0.4  # between the bodies' balls: errors of estimate, control and prediction
IN_ROW_M = 0.25  # between the bodies' balls, one behind the other through an opening
SPARE_M = 0.15  # by which the room to go on with a pass may be less than to begin one
SLOWER = 0.04  # of the plan's pace: who flies less than that below it is not worth passing
AHEAD_S = 2.5  # a leg or two, in which a rival has to be passed
STEP_S = 0.05  # of predictions
LENGTHEN_S = 0.3  # of the way gained on a rival, by which half a tube is longer
PACE_S = 0.3  # time constants of one's own pace, and of the pace that a rival is seen to fly
FASTEST = 1.05  # of the plan's pace: more is not believed of a line inside of a bend
LEAST = 0.5  # of the plan's pace: no slower for anybody
BRAKING_M_S2 = 5.0  # by which a follower falls back: half of what was seen of it
REACTION_S = 0.15  # until a pace that is asked for is flown
GRAVITY_W = np.array([0.0, 0.0, GRAVITY])
Q, U_C = REFERENCE["q"].at, REFERENCE["u_c"].at.start

HORIZON: Array = np.arange(0.0, AHEAD_S + STEP_S / 2, STEP_S)


@dataclass(frozen=True, slots=True)
class Pursuit:
    """A rival ahead, and oneself, by one's own plan."""

    line: Reference
    own: OnLine
    pace: float  # one's own
    attainable: float  # pace, alone
    rival: OnLine
    path_w: Array  # (K, 3) m, of the rival over the horizon
    sigma_m: float  # standard deviation of that, across the line
    lead_m: float  # of the rival
    others_w: Sequence[Array] = ()  # (K, 3) m each, of rivals beyond it

    @property
    def setting_off(self) -> bool:
        """Before the first gate: all begin at rest and from places of their own, and a pace says little."""
        return self.own.theta < self.line.gate_time(0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """How a pass on one side would go."""

    side_w: Array  # (3,) unit vector
    tube: Tube  # at the times of `HORIZON`
    lead_m: float  # of the rival, in the end
    apart_m: float  # least distance of both centres, and of others' until one is clear ahead
    aside_m: float  # the farthest off the line
    open_w: Array  # (M, 3) m: where one is beside it, out of openings


class Overtaking:
    """Remembers who is being passed, and on which side."""

    def __init__(self, room: PassingRoom, radius_m: float):
        """`radius_m` of the body, the rivals' as well."""
        self._room, self._reach_m, self._row_m = room, 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._sides: dict[int, Array] = {}  # (3,) unit vectors, by the rivals' numbers

    def forget(self, number: int) -> None:
        """It is out of reach."""
        self._sides.pop(number, None)

    def rename(self, before: int, number: int) -> None:
        """It has been recognised as another."""
        if (side := self._sides.pop(before, None)) is not None:
            self._sides[number] = side

    def tube(self, number: int, at: Pursuit) -> Tube | None:
        """The tube, at the times of `HORIZON`, round which a rival is passed; None: it is not."""
        begun = self._sides.pop(number, None)
        worth = at.lead_m > 0 and not at.setting_off and at.rival.pace < at.attainable - SLOWER
        if at.lead_m < -self._reach_m or (begun is None and not worth):
            return None
        rows = driven(at.line, at.own.theta, at.pace, np.full(len(HORIZON), at.attainable))
        if begun is None and not (np.abs(leads_of(rows, at.path_w)) < self._row_m).any():
            return None
        along = rows[0, V] / max(float(np.linalg.norm(rows[0, V])), SPEED_FLOOR)
        frames = parallel_frames(rows)
        found = None if begun is None else self._go_on(begun - begun @ along * along, at, rows, frames)
        if found is None:
            found = self._begin(self._room.sides(along), at, rows, frames)
        if found is None:
            return None
        self._sides[number] = found.side_w
        return found.tube

    def _begin(self, sides: Iterable[Array], at: Pursuit, rows: Array, frames: Array) -> Prediction | None:
        """The side that gains most for the least way aside, of those on which a pass fits."""
        best, least_m = None, np.inf
        for side in sides:
            one = self._predict(side, at, rows, frames)
            cost_m = max(one.lead_m, -2 * self._reach_m) + one.aside_m
            if cost_m < least_m and self._fits(one, at, 0.0) and self._room.free(one.open_w):
                best, least_m = one, cost_m
        return best

    def _go_on(self, side: Array, at: Pursuit, rows: Array, frames: Array) -> Prediction | None:
        """The pass on a side, unless it no longer fits and to fall back keeps both farther apart, or far enough."""
        one = self._predict(side / max(float(np.linalg.norm(side)), 1e-6), at, rows, frames)
        if self._fits(one, at, SPARE_M):
            return one
        speed = float(np.linalg.norm(rows[0, V]))
        back_m = fallen_back_m(at.lead_m, (at.pace - at.rival.pace) * speed, opening_s(rows))
        return None if back_m > min(self._row_m + at.sigma_m, one.apart_m) else one

    def _fits(self, one: Prediction, at: Pursuit, spare_m: float) -> bool:
        return one.lead_m < -self._reach_m and one.apart_m > self._row_m + at.sigma_m - spare_m

    def _predict(self, side_w: Array, at: Pursuit, rows: Array, frames: Array) -> Prediction:
        """How a pass on a side (3,) would go, from one's own place, motion and pace; rows and frames are the line's own."""
        own, path_w = at.own, at.path_w
        gained_m = max(at.attainable - at.rival.pace, 0.0) * float(np.linalg.norm(rows[0, V])) * LENGTHEN_S
        reach_m = self._reach_m + at.sigma_m
        tube = Tube(HORIZON, path_w, reach_m, 2 * reach_m + gained_m, side_w, self._room.box_w)
        rows = driven(at.line, own.theta, at.pace, paces(rows, led(rows, frames, own, tube), at.attainable))
        steps = led(rows, frames, own, tube)
        led_w = rows[:, P] + steps
        leads = leads_of(rows, path_w)
        beside, passed = np.abs(leads) < self._row_m, np.logical_or.accumulate(leads < -self._reach_m)
        apart = [np.linalg.norm(led_w - path_w, axis=1)]
        apart += [np.where(passed, np.inf, np.linalg.norm(led_w - other_w, axis=1)) for other_w in at.others_w]
        return Prediction(
            side_w,
            tube,
            float(leads[-1]),
            float(np.min(apart)),
            float(np.linalg.norm(steps, axis=1).max()),
            led_w[beside & ~within(rows)],
        )


def driven(line: Reference, theta: float, pace: float, most: Array) -> Array:
    """Rows (K, NR) over the horizon from theta (s) on, at this pace now, and at `most` (K,) as soon as that can be."""
    flown = most - (most[0] - pace) * np.exp(-HORIZON / PACE_S)
    return line.sample(theta + np.concatenate([[0.0], np.cumsum((flown[1:] + flown[:-1]) / 2 * STEP_S)]))


def leads_of(rows: Array, path_w: Array) -> Array:
    """How far (K,) m one on path_w (K, 3) is ahead of the rows."""
    speeds = np.maximum(np.linalg.norm(rows[:, V], axis=1), SPEED_FLOOR)
    return np.asarray(np.einsum("ij,ij->i", path_w - rows[:, P], rows[:, V]) / speeds)


def within(rows: Array) -> np.ndarray:
    """Which of the rows (K,) are in an opening, which keeps them off its own frame."""
    return np.asarray(np.linalg.norm(rows[:, ACROSS], axis=1) > 2 / OPEN_M)


def led(rows: Array, frames: Array, own: OnLine, tube: Tube) -> Array:
    """Steps (K, 3) m of the rows out of a tube, that begin with one's own place and motion."""
    wanted, weights = aside(rows, HORIZON, [tube], frames), binding(rows)
    wanted[:2], weights[:2] = own.off_w + np.outer(HORIZON[:2], own.drift_w), BINDING
    return smoothed(wanted, weights, STEP_S)


def paces(rows: Array, steps: Array, attainable: float) -> Array:
    """The paces (K,) that the thrust leaves on the line led aside by steps (K, 3) m; see above."""
    up_w = np.stack(rotate(list(rows[:, Q].T), (0.0, 0.0, -1.0)), axis=1)
    b = up_w * rows[:, U_C, None] + GRAVITY_W
    most = np.linalg.norm(attainable**2 * b - GRAVITY_W, axis=1)
    b = b * stretch(rows, steps)[:, None]
    rest = np.gradient(np.gradient(steps, STEP_S, axis=0), STEP_S, axis=0) - GRAVITY_W
    bb = np.maximum(np.einsum("ij,ij->i", b, b), 1.0)
    br, rr = np.einsum("ij,ij->i", b, rest), np.einsum("ij,ij->i", rest, rest)
    square = (np.sqrt(np.maximum(br**2 - bb * (rr - most**2), 0.0)) - br) / bb
    return np.asarray(np.sqrt(np.minimum(np.maximum(square, LEAST**2), FASTEST**2)))


def opening_s(rows: Array) -> float:
    """Time to brake in before the next opening of rows over the horizon, or before its end."""
    inside = within(rows)
    return max(float(HORIZON[inside.argmax() if inside.any() else -1]) - REACTION_S, STEP_S)


def fallen_back_m(lead_m: float, closing_m_s: float, time_s: float) -> float:
    """How far ahead a rival, on which one closes in, is time_s later, if one brakes from now on."""
    return lead_m - closing_m_s * time_s + BRAKING_M_S2 * time_s**2 / 2


def most_closing_m_s(lead_m: float, row_m: float, time_s: float) -> float:
    """How fast to close in on a rival at most that is to be row_m ahead time_s later."""
    return (lead_m - row_m) / time_s + BRAKING_M_S2 * time_s / 2

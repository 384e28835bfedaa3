"""Overtaking of a slower rival: whether and on which side, by a prediction of the own flight on a line displaced around it.

The plan's line takes, at a pace s, the specific thrust T(s) = s^2 b - g with b = T_plan + g (Hollerbach, 1984; drag scales with
s^2, too). A displaced line takes more outside of a bend, where it is longer, and for the acceleration of the displacement d:

    |s^2 (1 - k . d) b + d'' - g| <= |f^2 b - g|

with the curvature vector k and the pace f attainable on the line itself. Overtaking begins if by this prediction one is clear
ahead within the horizon and apart all along: side by side where there is room, in openings too, else one behind the other. It is
aborted while braking suffices to be behind at the next opening; later it is completed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.mpc.giving_way import (
    ACROSS,
    BINDING,
    AvoidanceTube,
    P,
    V,
    aside,
    binding,
    length_ratios,
    parallel_frames,
    smoothed,
)
from gate_racer.mpc.problem.stage import REFERENCE
from gate_racer.mpc.reference import OPEN_M, Reference
from gate_racer.pilot.guidance.passing_room import PassingRoom
from gate_racer.pilot.guidance.rival_line import SPEED_FLOOR, PathState
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import Array, rotate

# Set by duels on VQ1 and the Split-S unless stated otherwise.
CLEAR_M = 0.4  # m between the bodies' spheres: errors of estimate, control and prediction
IN_ROW_M = 0.25  # m between the bodies' spheres, one behind the other through an opening
SPARE_M = 0.15  # m by which the clearance to continue may be less than to begin
SLOWER = 0.04  # least excess of the attainable pace over a rival's to overtake it
AHEAD_S = 2.5  # s, prediction horizon: a leg or two
STEP_S = 0.05  # s, step of predictions
LENGTHEN_S = 0.3  # s of the closing speed by which half a tube is longer
PACE_S = 0.3  # s, time constants of the own pace and of the measured pace of a rival
FASTEST = 1.05  # largest pace predicted inside of a bend
LEAST = 0.5  # least pace when giving way
BRAKING_M_S2 = 5.0  # m/s^2, deceleration of a follower against a rival: half of that measured
REACTION_S = 0.15  # s, delay of the pace behind its limit
Q, U_C = REFERENCE["q"].at, REFERENCE["u_c"].at.start

HORIZON: Array = np.arange(0.0, AHEAD_S + STEP_S / 2, STEP_S)


@dataclass(frozen=True, slots=True)
class Pursuit:
    """A rival ahead and the own vehicle, relative to the own plan."""

    line: Reference
    own: PathState
    pace: float  # the own
    attainable: float  # pace without rivals
    rival: PathState
    path_w: Array  # (K, 3) m, predicted positions of the rival over the horizon
    sigma_m: float  # standard deviation of the rival's position across the line
    lead_m: float  # of the rival along the line
    others_w: Sequence[Array] = ()  # (K, 3) m each, predicted positions of rivals ahead of it

    @property
    def setting_off(self) -> bool:
        """Whether the first gate is still ahead: all start at rest from different positions, and a pace is no measure yet."""
        return self.own.theta < self.line.gate_time(0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted overtaking on one side."""

    side_w: Array  # (3,) unit vector
    tube: AvoidanceTube  # with the times of `HORIZON`
    lead_m: float  # of the rival at the end of the horizon
    apart_m: float  # least distance to the rival's centre, and to others' until clear ahead
    aside_m: float  # greatest displacement
    open_w: Array  # (M, 3) m, own positions beside the rival outside of openings


class Overtaking:
    """Overtaking manoeuvres in progress."""

    def __init__(self, room: PassingRoom, radius_m: float):
        """Create it; `radius_m`: radius of the body, also of the rivals."""
        self._room, self._reach_m, self._row_m = room, 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._sides: dict[int, Array] = {}  # (3,) unit vectors, by the rivals' numbers

    def forget(self, number: int) -> None:
        """End the manoeuvre around a rival."""
        self._sides.pop(number, None)

    def rename(self, before: int, number: int) -> None:
        """Give a rival that was recognised its new number."""
        if (side := self._sides.pop(before, None)) is not None:
            self._sides[number] = side

    def tube(self, number: int, at: Pursuit) -> AvoidanceTube | None:
        """Return the tube, with the times of `HORIZON`, to overtake a rival; None to stay behind."""
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
        """Return the feasible side with the largest gain less displacement; None if no side is feasible."""
        best, least_m = None, np.inf
        for side in sides:
            one = self._predict(side, at, rows, frames)
            cost_m = max(one.lead_m, -2 * self._reach_m) + one.aside_m
            if cost_m < least_m and self._fits(one, at, 0.0) and self._room.free(one.open_w):
                best, least_m = one, cost_m
        return best

    def _go_on(self, side: Array, at: Pursuit, rows: Array, frames: Array) -> Prediction | None:
        """Continue on a side (3,), unless this is infeasible and falling back leaves enough distance, or more."""
        one = self._predict(side / max(float(np.linalg.norm(side)), 1e-6), at, rows, frames)
        if self._fits(one, at, SPARE_M):
            return one
        speed = float(np.linalg.norm(rows[0, V]))
        back_m = fallen_back_m(at.lead_m, (at.pace - at.rival.pace) * speed, opening_s(rows))
        return None if back_m > min(self._row_m + at.sigma_m, one.apart_m) else one

    def _fits(self, one: Prediction, at: Pursuit, spare_m: float) -> bool:
        return one.lead_m < -self._reach_m and one.apart_m > self._row_m + at.sigma_m - spare_m

    def _predict(self, side_w: Array, at: Pursuit, rows: Array, frames: Array) -> Prediction:
        """Predict overtaking on a side (3,) from the own state; rows (K, NR) and frames (K, 3, 3) on the line itself."""
        own, path_w = at.own, at.path_w
        gained_m = max(at.attainable - at.rival.pace, 0.0) * float(np.linalg.norm(rows[0, V])) * LENGTHEN_S
        reach_m = self._reach_m + at.sigma_m
        tube = AvoidanceTube(HORIZON, path_w, reach_m, 2 * reach_m + gained_m, side_w, self._room.box_w)
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
    """Return rows (K, NR) over the horizon from theta (s), with a first-order lag from the present pace to `most` (K,)."""
    flown = most - (most[0] - pace) * np.exp(-HORIZON / PACE_S)
    return line.sample(theta + np.concatenate([[0.0], np.cumsum((flown[1:] + flown[:-1]) / 2 * STEP_S)]))


def leads_of(rows: Array, path_w: Array) -> Array:
    """Return the leads (K,) m of positions path_w (K, 3) m over the rows, along their velocities."""
    speeds = np.maximum(np.linalg.norm(rows[:, V], axis=1), SPEED_FLOOR)
    return np.asarray(np.einsum("ij,ij->i", path_w - rows[:, P], rows[:, V]) / speeds)


def within(rows: Array) -> np.ndarray:
    """Return which rows (K,) are constrained to an opening, and so clear of its frame."""
    return np.asarray(np.linalg.norm(rows[:, ACROSS], axis=1) > 2 / OPEN_M)


def led(rows: Array, frames: Array, own: PathState, tube: AvoidanceTube) -> Array:
    """Return displacements (K, 3) m of the rows out of a tube that begin with the own position and velocity."""
    wanted, weights = aside(rows, HORIZON, [tube], frames), binding(rows)
    wanted[:2], weights[:2] = own.off_w + np.outer(HORIZON[:2], own.drift_w), BINDING
    return smoothed(wanted, weights, STEP_S)


def paces(rows: Array, steps: Array, attainable: float) -> Array:
    """Return the paces (K,) attainable on the line displaced by steps (K, 3) m: the equation above, solved for s."""
    up_w = np.stack(rotate(list(rows[:, Q].T), (0.0, 0.0, -1.0)), axis=1)
    b = up_w * rows[:, U_C, None] + G_W
    most = np.linalg.norm(attainable**2 * b - G_W, axis=1)
    b = b * length_ratios(rows, steps)[:, None]
    rest = np.gradient(np.gradient(steps, STEP_S, axis=0), STEP_S, axis=0) - G_W
    bb = np.maximum(np.einsum("ij,ij->i", b, b), 1.0)
    br, rr = np.einsum("ij,ij->i", b, rest), np.einsum("ij,ij->i", rest, rest)
    square = (np.sqrt(np.maximum(br**2 - bb * (rr - most**2), 0.0)) - br) / bb
    return np.asarray(np.sqrt(np.minimum(np.maximum(square, LEAST**2), FASTEST**2)))


def opening_s(rows: Array) -> float:
    """Return the braking time (s) before the next opening of rows over the horizon, or before its end."""
    inside = within(rows)
    return max(float(HORIZON[inside.argmax() if inside.any() else -1]) - REACTION_S, STEP_S)


def fallen_back_m(lead_m: float, closing_m_s: float, time_s: float) -> float:
    """Return the lead (m) of a rival after time_s of braking, from the lead and closing speed at present."""
    return lead_m - closing_m_s * time_s + BRAKING_M_S2 * time_s**2 / 2


def most_closing_m_s(lead_m: float, row_m: float, time_s: float) -> float:
    """Return the largest closing speed from which braking gives a rival a lead of row_m (m) within time_s."""
    return (lead_m - row_m) / time_s + BRAKING_M_S2 * time_s / 2

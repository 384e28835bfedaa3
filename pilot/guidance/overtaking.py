"""Whether and on which side a rival is passed, by predicting the line that is led around it and the pace that the thrust leaves there.

Of the thrust that flies the plan's line at a pace s, T(s) = s^2 b - g with b = T_plan + g (Hollerbach, 1984; drag goes with s^2, too),
a line led aside takes more where it is longer, outside of a bend, and what moves it aside:

    |s^2 (1 - k . step) b + step'' - g| <= |f^2 b - g|

where f is the pace that is attainable on the line itself. Who closes in by v has to be able to fall back in row before the
next opening, or to be through: as long as neither is sure, whichever keeps both farther apart is done.
"""

from dataclasses import dataclass

import numpy as np

from mpc.giving_way import ACROSS, BINDING, P, Tube, V, aside, binding, smoothed, stretch
from mpc.problem.stage import REFERENCE
from mpc.reference import OPEN_M, Reference
from pilot.guidance.passing_room import PassingRoom
from pilot.guidance.rival_line import SPEED_FLOOR, OnLine
from vehicle.rotation import Array, rotate

AHEAD_S = 2.5  # a leg or two, in which a rival has to be passed
STEP_S = 0.05  # of predictions
HORIZON: Array = np.arange(0.0, AHEAD_S + STEP_S / 2, STEP_S)
PACE_S = 0.3  # time constant of one's own pace
FASTEST = 1.05  # of the plan's pace, inside of a bend: contouring's `pace_max`
LEAST = 0.5  # of the plan's pace: no slower for anybody
BRAKING_M_S2 = 8.0  # by which a follower falls back: half of what was seen of it in duels
REACTION_S = 0.1  # until a pace that is asked for is flown
GRAVITY_W = np.array([0.0, 0.0, 9.81])
Q, U_C = REFERENCE["q"].at, REFERENCE["u_c"].at.start


@dataclass(frozen=True, slots=True)
class Passing:
    """How a pass on one side would go."""

    tube: Tube  # at the times of `HORIZON`
    leads_m: Array  # (K,) of the rival
    apart_m: float  # least distance of both centres
    aside_m: float  # the farthest off the line
    open_w: Array  # (M, 3) m: where one is beside it, out of openings


def predict(line: Reference, own: OnLine, pace: float, fastest: float, tube: Tube, row_m: float) -> Passing:
    """How a pass round a tube would go, from one's own place and pace, with `fastest` attainable on the line."""
    rows = driven(line, own.theta, pace, np.full(len(HORIZON), fastest))
    rows = driven(line, own.theta, pace, paces(rows, led(rows, own, tube), fastest))
    steps = led(rows, own, tube)
    leads, led_w = leads_of(rows, tube.p_w), rows[:, P] + steps
    within = np.linalg.norm(rows[:, ACROSS], axis=1) > 2 / OPEN_M  # an opening, which keeps off its own frame
    return Passing(
        tube,
        leads,
        float(np.linalg.norm(led_w - tube.p_w, axis=1).min()),
        float(np.linalg.norm(steps, axis=1).max()),
        led_w[(np.abs(leads) < row_m) & ~within],
    )


def driven(line: Reference, theta: float, pace: float, most: Array) -> Array:
    """Rows over the horizon from theta (s) on, at this pace now, and at `most` (K,) as soon as that can be."""
    flown = most - (most[0] - pace) * np.exp(-HORIZON / PACE_S)
    return line.sample(theta + np.concatenate([[0.0], np.cumsum((flown[1:] + flown[:-1]) / 2 * STEP_S)]))


def leads_of(rows: Array, path_w: Array) -> Array:
    """How far (K,) m one on path_w (K, 3) is ahead of the rows."""
    speeds = np.maximum(np.linalg.norm(rows[:, V], axis=1), SPEED_FLOOR)
    return np.asarray(np.einsum("ij,ij->i", path_w - rows[:, P], rows[:, V]) / speeds)


def led(rows: Array, own: OnLine, tube: Tube) -> Array:
    """Steps (K, 3) m of the rows out of a tube, that begin with one's own place and motion."""
    wanted, weights = aside(rows, HORIZON, [tube]), binding(rows)
    wanted[:2], weights[:2] = own.off_w + np.outer(HORIZON[:2], own.drift_w), BINDING
    return smoothed(wanted, weights, STEP_S)


def paces(rows: Array, steps: Array, fastest: float) -> Array:
    """The paces (K,) that the thrust leaves on the line led aside by steps (K, 3) m; see above."""
    b = np.stack(rotate(list(rows[:, Q].T), (0.0, 0.0, -1.0)), axis=1) * rows[:, U_C, None] + GRAVITY_W
    most = np.linalg.norm(fastest**2 * b - GRAVITY_W, axis=1)
    b = b * stretch(rows, steps)[:, None]
    rest = np.gradient(np.gradient(steps, STEP_S, axis=0), STEP_S, axis=0) - GRAVITY_W
    bb = np.maximum(np.einsum("ij,ij->i", b, b), 1.0)
    br, rr = np.einsum("ij,ij->i", b, rest), np.einsum("ij,ij->i", rest, rest)
    square = (np.sqrt(np.maximum(br**2 - bb * (rr - most**2), 0.0)) - br) / bb
    return np.asarray(np.sqrt(np.minimum(np.maximum(square, LEAST**2), FASTEST**2)))


def before_opening_s(rows: Array) -> float:
    """Time until the next opening of rows over the horizon in which one can still brake; at the end of the horizon for none."""
    within = np.linalg.norm(rows[:, ACROSS], axis=1) > 2 / OPEN_M
    return max(float(HORIZON[within.argmax() if within.any() else -1]) - REACTION_S, STEP_S)


def back_m(lead: float, closing_m_s: float, before_s: float) -> float:
    """How far ahead a rival, `lead` m ahead and closed in on, is after before_s if one falls back from now on."""
    return lead - closing_m_s * before_s + BRAKING_M_S2 * before_s**2 / 2


def most_closing_m_s(lead: float, row_m: float, before_s: float) -> float:
    """By how much to be faster than a rival, `lead` m ahead, at most, that is to be row_m ahead after before_s."""
    return (lead - row_m) / before_s + BRAKING_M_S2 * before_s / 2


def choose(
    room: PassingRoom, tubes: list[Tube], line: Reference, own: OnLine, pace: float, fastest: float, row_m: float,
    clear_m: float, apart_m: float,
) -> Passing | None:
    """The pass that gains most for the least way aside, of those that fit: clear ahead in the end, and apart_m from it all along."""
    best, least_m = None, np.inf
    for tube in tubes:
        one = predict(line, own, pace, fastest, tube, row_m)
        cost_m = float(one.leads_m[-1]) + one.aside_m
        fits = one.leads_m[-1] < -clear_m and one.apart_m > apart_m
        if fits and cost_m < least_m and room.free(one.open_w):
            best, least_m = one, cost_m
    return best

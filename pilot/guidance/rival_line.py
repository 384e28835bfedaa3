"""Where a rival is by one's own plan, and where it will be: it flies the same course, by a line and at a pace of its own."""

import math
from dataclasses import dataclass

import numpy as np

from mpc.giving_way import ACROSS, P, V, carried, through
from mpc.reference import OPEN_M, A, Reference
from vehicle.rotation import Array

SPEED_FLOOR = 3.0  # m/s, below which a ratio of speeds says too little
TIGHTEST = 0.5  # least ratio of a path's length within a bend to that of the line: nearer its centre there is no place
SEARCH_S = 1.0  # of plan time, on both sides of one's own place, in which a rival is looked for
DRIFT_S = 0.3  # for which a motion across the line is believed
RETURN_S = 1.0  # time constant with which a rival comes to the line
SET_OFF_S = 0.6  # of plan time, up to which a pace says little: all begin at rest
RETURN_M_S = 4.0  # mean speed with which it comes to an opening
RIVAL_PACE_S = 0.5  # time constant with which a pace comes to its mean: in bends it is another than along straights
OWN_PACE_S = 1.0  # time constant with which one comes to the pace that is attainable: beside the line it takes long
FALL_BACK_S = 0.4  # in which what is missing of that room is made
BRAKE_S = 1.0  # before which room for a slower place need not be made
AHEAD_S = 2.5  # a leg or two, in which a rival has to be passed
STEP_S = 0.05  # of predictions

HORIZON: Array = np.arange(0.0, AHEAD_S + STEP_S / 2, STEP_S)


@dataclass(frozen=True, slots=True)
class OnLine:
    """A rival's place and motion by one's own plan."""

    theta: float  # s of plan time
    pace: float  # plan time over time
    off_w: Array  # (3,) m, from the line
    drift_w: Array  # (3,) m/s, across it
    mean_pace: float = 1.0  # to which its pace returns

    def after(self, dt: float) -> "OnLine":
        """The same dt (s) later, when nothing was seen of it."""
        off_w = (self.off_w + min(dt, DRIFT_S) * self.drift_w) * math.exp(-dt / RETURN_S)
        drift_w = np.zeros(3) if dt > DRIFT_S else self.drift_w
        pace = self.mean_pace + (self.pace - self.mean_pace) * math.exp(-dt / RIVAL_PACE_S)
        return OnLine(float(self.thetas(np.array([dt]))[0]), pace, off_w, drift_w, self.mean_pace)

    def thetas(self, since: Array) -> Array:
        """s of plan time, since (M,) s from now: its pace comes to its mean."""
        surplus_s = (self.pace - self.mean_pace) * RIVAL_PACE_S * (1 - np.exp(-since / RIVAL_PACE_S))
        return np.asarray(self.theta + self.mean_pace * since + surplus_s)

    def at(self, line: Reference, since: Array) -> Array:
        """Where it will be (M, 3), since (M,) s from now: it comes to its mean pace and to the line, and through openings."""
        rows: Array = line.sample(self.thetas(since))
        off = carried(rows, self.off_w) + np.minimum(since, DRIFT_S)[:, None] * self.drift_w
        off = through(rows, off * np.exp(-since / RETURN_S)[:, None])
        return rows[:, P] + reachable(off, since, RETURN_M_S, float(np.linalg.norm(self.off_w)))


def reachable(steps: Array, times: Array, speed: float, now_m: float) -> Array:
    """Steps aside (M, 3) m at times (M,) s, cut to what a speed, m/s, reaches from now_m aside, and from openings."""
    wanted = np.linalg.norm(steps, axis=1)
    first = np.concatenate([[min(max(now_m, 0.0), wanted[0])], wanted[1:]])
    reached = (first + speed * np.abs(times[:, None] - times)).min(axis=1)
    return np.asarray(steps * (reached / np.maximum(wanted, 1e-9))[:, None])


def locate(line: Reference, p_w: Array, v_w: Array, theta: float) -> OnLine:
    """Who is at p_w (3,) with v_w (3,), by the plan about theta, s: at its nearest place, which goes along the plan at the pace

        d(theta)/dt = v_w . v / (v . v - (p_w - p) . a)

    that keeps (p_w - p) . v = 0, with the plan's p, v and a there. Within a bend a slower one keeps up.
    """
    thetas = np.maximum(theta + np.linspace(-SEARCH_S, SEARCH_S, 81), 0.0)
    rows = line.sample(thetas)
    off = p_w - rows[:, P]
    against = np.maximum(-(rows[:, V] @ v_w), 0.0)  # the course may cross itself
    k = int(np.argmin(np.einsum("ij,ij->i", off, off) + against))
    v = rows[k, V]
    square = float(v @ v) + SPEED_FLOOR**2
    step = float(off[k] @ v) / square
    bend = min(max(1 - float(off[k] @ rows[k, A]) / square, TIGHTEST), 1 / TIGHTEST)
    pace = (float(v_w @ v) + SPEED_FLOOR**2) / (square * bend)
    return OnLine(float(thetas[k]) + step, pace, off[k] - step * v, v_w - pace * v, pace)


def setting_off(line: Reference, start_w: Array, p_w: Array, rival: OnLine) -> OnLine:
    """The rival that was located, at p_w (3,), while it sets off: at the plan's pace, as far along it as it flew from start_w.

    By its place alone one that stands in front would be far along the plan and slow, and so be run into or passed.
    """
    if rival.theta > SET_OFF_S:
        return rival
    flown_m = float(np.linalg.norm(p_w - start_w))
    thetas = np.linspace(0.0, SET_OFF_S, 61)
    rows = line.sample(thetas)
    k = int(np.abs(np.linalg.norm(rows[:, P] - rows[0, P], axis=1) - flown_m).argmin())
    return OnLine(float(thetas[k]), 1.0, p_w - rows[k, P], np.zeros(3))


@dataclass(frozen=True, slots=True)
class OwnFlight:
    """Oneself over the horizon, on one's line."""

    at: OnLine  # now
    fastest: float  # the pace that can be attained
    thetas: Array  # (M,) s of plan time, at the pace that comes to that
    rows: Array  # (M, NR) of the plan there
    along: Array  # (M, 3) directions of flight
    within: np.ndarray  # (M,) bool, whether an opening binds, which keeps off its own frame
    v_w: Array  # (3,) m/s, of the plan here
    speed: float  # m/s, its magnitude, `SPEED_FLOOR` at least
    speeds: Array  # (M,) m/s, likewise

    @classmethod
    def ahead(cls, line: Reference, at: OnLine, pace: float, fastest: float) -> "OwnFlight":
        """From a place and a pace on the line."""
        thetas = at.theta + fastest * HORIZON - (fastest - pace) * OWN_PACE_S * (1 - np.exp(-HORIZON / OWN_PACE_S))
        rows = line.sample(thetas)
        speeds = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
        along = rows[:, V] / np.maximum(speeds, SPEED_FLOOR)
        within, floored = np.linalg.norm(rows[:, ACROSS], axis=1) > 2 / OPEN_M, np.maximum(speeds[:, 0], SPEED_FLOOR)
        moving = int((floored > SPEED_FLOOR).argmax())  # at rest it is the direction in which it sets off that counts
        return cls(at, fastest, thetas, rows, along, within, rows[moving, V], float(floored[moving]), floored)

    def falls_back(self, lead: float, room_m: float, brake_m: float) -> float:
        """By how much the pace of a rival, `lead` m ahead, may be exceeded at the most; negative: is to be fallen short of.

        There is room_m in time, and brake_m wherever the line is slower: who follows at a time's distance is nearest there.
        """
        soon = HORIZON < BRAKE_S
        rooms = np.where(HORIZON[soon] > 0, brake_m, room_m)
        gaps_s = lead / self.speed - rooms / self.speeds[soon]
        return float((gaps_s / np.maximum(HORIZON[soon], FALL_BACK_S)).min())


@dataclass(frozen=True, slots=True)
class Prospect:
    """A rival over the horizon, as one flies oneself."""

    rival: OnLine  # now
    path_w: Array  # (M, 3) m, where it will be
    leads: Array  # (M,) m, how far it is ahead along the line; negative: behind
    apart_w: Array  # (3,) m, from oneself to it across the line, now
    along_m: float  # standard deviation of its place, along the line
    across_m: float  # ... and across it

    @classmethod
    def of(cls, rival: OnLine, line: Reference, own: OwnFlight, along_m: float, across_m: float) -> "Prospect":
        """By what is known of it; what it is ahead of its place on the line is lost as it comes to that."""
        apart_w = rival.off_w - own.at.off_w
        ahead_m = float(apart_w @ own.v_w) / own.speed
        leads = (rival.thetas(HORIZON) - own.thetas) * own.speeds
        lead = (rival.theta - own.at.theta) * own.speed + ahead_m
        leads += (lead - leads[0]) * np.exp(-HORIZON / RETURN_S)
        return cls(rival, rival.at(line, HORIZON), leads, apart_w - ahead_m * own.v_w / own.speed, along_m, across_m)

"""Racing against others: keep clear of the leader, and overtake where both have room.

Rivals are reported, and predicted along the own plan at their last pace and offset. The leader
flies as if alone, and keeps its line until the other is clear ahead; side by side at the start, the one farther right yields.

Whether and on which of four sides to overtake is the best response to that prediction (the prediction-only baseline of Spica et
al., T-RO 2020, and Wang et al., RSS 2019), by a flight on a line displaced around the rival. The plan's line takes, at a pace s,
the specific thrust T(s) = s^2 b - g with b = T_plan + g (Hollerbach, 1984). A displaced line takes more outside of a bend, where
it is longer, and for the acceleration of the displacement d:

    |s^2 (1 - k . d) b + d'' - g| <= |f^2 b - g|

with the curvature vector k and the pace f attainable on the line itself. Overtaking begins if by this prediction one is clear
ahead within the horizon and apart all along: side by side where there is room, in openings too, else one behind the other. It is
aborted while braking suffices to be behind at the next opening; later it is completed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.estimator import State
from gate_racer.link.clock import APART_S
from gate_racer.link.messages import RivalState
from gate_racer.mpc import avoidance
from gate_racer.mpc.avoidance import AvoidanceTube, P, V, transported
from gate_racer.mpc.reference import OPEN_M, Reference
from gate_racer.mpc.terms import REFERENCE
from gate_racer.tracks.track import MOST, Track, gate_solids, of_obstacle
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import DOWN_W, Array, Vector, rotate

SPEED_FLOOR = 3.0  # m/s, speed below which a ratio of speeds is not meaningful
SEARCH_S = 1.0  # s of plan time before and behind the own position, in which a rival is located
DRIFT_S = 0.3  # s for which a motion across the line is extrapolated
RETURN_S = 1.0  # s, time constant with which a rival returns to the line

ACCELERATION_S = 0.05  # s, time constant of the acceleration differentiated from received velocities (chosen)
RESTART_S = 2 * APART_S  # s by which stamps fall back in a new race only: a late one is admitted up to APART_S from now


@dataclass(frozen=True, slots=True)
class RivalEstimate:
    """Estimated state of a rival at t; world NED."""

    number: int  # its place on the start grid, from 1
    t: float  # s
    p_w: Array  # (3,) m
    v_w: Array  # (3,) m/s
    a_w: Array  # (3,) m/s^2


class ReceivedRivals:
    """Rivals' states as received, taken as exact."""

    def __init__(self, place: int):
        """Ignore the states of `place`, the own one on the start grid, from 1."""
        self._place = place
        self.known: dict[int, RivalEstimate] = {}  # newest state of each, by its place

    def receive(self, rival: RivalState) -> None:
        """Store a received state; ignore copies, states older than the known one, and places outside the start grid."""
        if rival.place == self._place or not 1 <= rival.place <= MOST:
            return
        v_w, a_w, last = np.array(rival.v_w), np.zeros(3), self.known.get(rival.place)
        if last is not None and (dt := rival.t - last.t) >= -RESTART_S:
            if dt <= 0:
                return
            a_w = last.a_w + ((v_w - last.v_w) / dt - last.a_w) * dt / (dt + ACCELERATION_S)
        self.known[rival.place] = RivalEstimate(rival.place, rival.t, np.array(rival.p_w), v_w, a_w)


@dataclass(frozen=True, slots=True)
class PathState:
    """A rival's position and motion relative to the own plan."""

    theta: float  # s of plan time
    pace: float  # plan time over time
    off_w: Array  # (3,) m, from the line
    drift_w: Array  # (3,) m/s, across it

    def after(self, dt: float) -> "PathState":
        """Return the prediction dt (s) later, without a measurement."""
        off_w = (self.off_w + min(dt, DRIFT_S) * self.drift_w) * math.exp(-dt / RETURN_S)
        return PathState(self.theta + self.pace * dt, self.pace, off_w, np.zeros(3) if dt > DRIFT_S else self.drift_w)

    def at(self, line: Reference, since: Array) -> Array:
        """Return the predicted positions (M, 3) m, since (M,) s from now: constant pace, decaying offset from the line."""
        rows: Array = line.sample(self.theta + self.pace * since)
        off = transported(rows, self.off_w) + np.minimum(since, DRIFT_S)[:, None] * self.drift_w
        return rows[:, P] + off * np.exp(-since / RETURN_S)[:, None]


def locate(line: Reference, p_w: Array, v_w: Array, theta: float) -> PathState:
    """Return the position and motion of a rival at p_w (3,) m with v_w (3,) m/s along the plan near theta (s)."""
    thetas = np.maximum(theta + np.linspace(-SEARCH_S, SEARCH_S, 81), 0.0)
    rows = line.sample(thetas)
    off = p_w - rows[:, P]
    against = np.maximum(-(rows[:, V] @ v_w), 0.0)  # the course may cross itself
    k = int(np.argmin(np.einsum("ij,ij->i", off, off) + against))
    v = rows[k, V]
    square = float(v @ v) + SPEED_FLOOR**2
    step = float(off[k] @ v) / square
    pace = (float(v_w @ v) + SPEED_FLOOR**2) / square
    return PathState(float(thetas[k]) + step, pace, off[k] - step * v, v_w - pace * v)


LEVEL = 0.05  # least horizontal share of a direction's length; with less, east counts as right
PASSING_SPARE_M = 0.3  # m between the body's sphere and any solid


class PassingRoom:
    """Free space of a course: bounds, obstacles, and the frames of the gates."""

    def __init__(self, track: Track, radius_m: float):
        self._solids = [solid for k in range(len(track.gates)) for solid in gate_solids(track, k)]
        self._solids += map(of_obstacle, track.obstacles)
        self._radius_m = radius_m + PASSING_SPARE_M
        low_w, high_w = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        self.box_w: Array = np.array([low_w + self._radius_m, high_w - self._radius_m])  # (2, 3) m

    @staticmethod
    def sides(along: Array) -> tuple[Array, Array, Array, Array]:
        """Return right, left, below and above a direction of flight (3,), as unit vectors (3,), world NED."""
        right = np.cross(DOWN_W, along)
        steep = float(np.linalg.norm(right))
        right = right / steep if steep > LEVEL else np.array([0.0, 1.0, 0.0])
        down = np.cross(along, right)
        return right, -right, down, -down

    def free(self, p_w: Array) -> bool:
        """Return whether the body is free of collision at all positions (M, 3) m."""
        if (p_w < self.box_w[0]).any() or (p_w > self.box_w[1]).any():
            return False
        return all((solid.distance(p_w) > self._radius_m).all() for solid in self._solids)


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
    lead_m: float  # of the rival along the line
    others_w: Sequence[Array] = ()  # (K, 3) m each, predicted positions of rivals ahead of it

    @property
    def setting_off(self) -> bool:
        """Whether the first gate is still ahead: all start at rest from different positions, and a pace is no measure yet."""
        return bool(self.own.theta < self.line.gate_times_s[0])


@dataclass(frozen=True, slots=True)
class Prediction:
    tube: AvoidanceTube  # with the times of `HORIZON`
    lead_m: float  # of the rival at the end of the horizon
    apart_m: float  # least distance to the rival's centre, and to others' until clear ahead
    aside_m: float  # greatest displacement
    open_w: Array  # (M, 3) m, own positions beside the rival outside of openings


class Overtaking:
    def __init__(self, room: PassingRoom, radius_m: float):
        self._room, self._reach_m, self._row_m = room, 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self.sides: dict[int, Array] = {}  # (3,) unit vectors, by the numbers of the rivals that are being overtaken

    def tube(self, number: int, at: Pursuit) -> AvoidanceTube | None:
        """Return the tube, with the times of `HORIZON`, to overtake a rival; None to stay behind."""
        begun = self.sides.pop(number, None)
        worth = at.lead_m > 0 and not at.setting_off and at.rival.pace < at.attainable - SLOWER
        if at.lead_m < -self._reach_m or (begun is None and not worth):
            return None
        rows = driven(at.line, at.own.theta, at.pace, np.full(len(HORIZON), at.attainable))
        if begun is None and not (np.abs(leads_of(rows, at.path_w)) < self._row_m).any():
            return None
        along = rows[0, V] / max(float(np.linalg.norm(rows[0, V])), SPEED_FLOOR)
        frames = avoidance.parallel_frames(rows)
        found = self._go_on(begun - begun @ along * along, at, rows, frames) if begun is not None else None
        found = found or self._begin(self._room.sides(along), at, rows, frames)
        if found is None:
            return None
        self.sides[number] = found.tube.side_w
        return found.tube

    def _begin(self, sides: Iterable[Array], at: Pursuit, rows: Array, frames: Array) -> Prediction | None:
        """Return the feasible side with the largest gain less displacement; None if no side is feasible."""
        best, least_m = None, np.inf
        for side in sides:
            one = self._predict(side, at, rows, frames)
            cost_m = max(one.lead_m, -2 * self._reach_m) + one.aside_m
            if cost_m < least_m and self._fits(one, 0.0) and self._room.free(one.open_w):
                best, least_m = one, cost_m
        return best

    def _go_on(self, side: Array, at: Pursuit, rows: Array, frames: Array) -> Prediction | None:
        """Continue on a side (3,), unless this is infeasible and falling back leaves enough distance, or more."""
        one = self._predict(side / max(float(np.linalg.norm(side)), 1e-6), at, rows, frames)
        if self._fits(one, SPARE_M):
            return one
        speed = float(np.linalg.norm(rows[0, V]))
        back_m = fallen_back_m(at.lead_m, (at.pace - at.rival.pace) * speed, opening_s(rows))
        return None if back_m > min(self._row_m, one.apart_m) else one

    def _fits(self, one: Prediction, spare_m: float) -> bool:
        return one.lead_m < -self._reach_m and one.apart_m > self._row_m - spare_m

    def _predict(self, side_w: Array, at: Pursuit, rows: Array, frames: Array) -> Prediction:
        """Predict overtaking on a side (3,) from the own state; rows (K, NR) and frames (K, 3, 3) on the line itself."""
        own, path_w = at.own, at.path_w
        gained_m = max(at.attainable - at.rival.pace, 0.0) * float(np.linalg.norm(rows[0, V])) * LENGTHEN_S
        tube = AvoidanceTube(HORIZON, path_w, self._reach_m, 2 * self._reach_m + gained_m, side_w, self._room.box_w)
        rows = driven(at.line, own.theta, at.pace, paces(rows, led(rows, frames, own, tube), at.attainable))
        steps = led(rows, frames, own, tube)
        led_w = rows[:, P] + steps
        leads = leads_of(rows, path_w)
        beside, passed = np.abs(leads) < self._row_m, np.logical_or.accumulate(leads < -self._reach_m)
        apart = [np.linalg.norm(led_w - path_w, axis=1)]
        apart += [np.where(passed, np.inf, np.linalg.norm(led_w - other_w, axis=1)) for other_w in at.others_w]
        aside_m, open_w = float(np.linalg.norm(steps, axis=1).max()), led_w[beside & ~within(rows)]
        return Prediction(tube, float(leads[-1]), float(np.min(apart)), aside_m, open_w)


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
    return np.asarray(np.linalg.norm(rows[:, avoidance.ACROSS], axis=1) > 2 / OPEN_M)


def led(rows: Array, frames: Array, own: PathState, tube: AvoidanceTube) -> Array:
    """Return displacements (K, 3) m of the rows out of a tube that begin with the own position and velocity."""
    wanted, weights = avoidance.aside(rows, HORIZON, [tube], frames), avoidance.binding(rows)
    wanted[:2], weights[:2] = own.off_w + np.outer(HORIZON[:2], own.drift_w), avoidance.BINDING
    return avoidance.smoothed(wanted, weights, STEP_S)


def paces(rows: Array, steps: Array, attainable: float) -> Array:
    """Return the paces (K,) attainable on the line displaced by steps (K, 3) m: the equation above, solved for s."""
    up_w = np.stack(rotate(list(rows[:, Q].T), (0.0, 0.0, -1.0)), axis=1)
    b = up_w * rows[:, U_C, None] + G_W
    most = np.linalg.norm(attainable**2 * b - G_W, axis=1)
    b = b * avoidance.length_ratios(rows, steps)[:, None]
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
BELIEVED_S = 0.5  # s for which a measured acceleration is extrapolated; then the velocity is constant


@dataclass(frozen=True)
class StartGrid:
    place: int  # its own, from 1
    others_w: Mapping[int, Vector]  # m, world, of the rivals, by their places


@dataclass(frozen=True, slots=True)
class RivalConstraints:
    tubes: Sequence[AvoidanceTube]
    pace: float  # the most


@dataclass(frozen=True, slots=True)
class RivalTrack:
    t: float  # s
    rival: PathState
    estimate: RivalEstimate | None = None  # None: not met yet, and expected to set off as oneself does


class RivalWatch:
    """Record of each rival's position, as received, and of overtaking in progress."""

    def __init__(self, grid: StartGrid, radius_m: float, room: PassingRoom):
        self._grid, self._room, self.received = grid, room, ReceivedRivals(grid.place)
        self._reach_m, self._row_m = 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._known: dict[int, RivalTrack] = {}
        self._set_off = False
        self._brake_m = 2 * radius_m + BRAKING_M
        self._overtaking = Overtaking(room, radius_m)
        self._ahead: dict[int, bool] = {}  # whether it has the line

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
                self._overtaking.sides.pop(number, None)
                continue
            lead = (rival.theta - own.theta) * speed + float((rival.off_w - own.off_w) @ v) / speed
            near[number] = rival, path_w, lead
        place = 0  # number of rivals with right of way
        for number, (rival, path_w, lead) in sorted(near.items(), key=lambda one: one[1][2]):
            known = self._known[number]
            others = [other_w for _, other_w, beyond in near.values() if beyond > lead]
            pursuit = Pursuit(line, own, pace, attainable, rival, path_w, lead, others)
            passing = self._overtaking.tube(number, pursuit)
            if passing is not None:
                tubes.append(replace(passing, times=state.t + HORIZON))
            elif self._yields(number, lead):
                place += 1
                tube, pace_most = self._give_way(known, state, pursuit, v / speed, speed, place)
                tubes.append(tube)
                most = min(most, pace_most)
        return RivalConstraints(tubes, most)

    def _give_way(
        self, known: RivalTrack, state: State, at: Pursuit, along: Array, speed: float, place: int
    ) -> tuple[AvoidanceTube, float]:
        """Return the tube that leaves a rival its line, and the greatest pace beside or behind it.

        `along` (3,), speed (m/s): direction and speed of the line; `place`: rank of the rival, by its lead, among those with
        right of way: so many positions behind each other are needed at the next opening.
        """
        age, off = max(state.t - known.t, 0.0), at.path_w[0] - state.p_wb
        across = off @ along * along - off
        apart_m = float(np.linalg.norm(across))
        path_w = at.path_w if known.estimate is None or age >= FRESH_S else _flown_on(known.estimate, age)
        beside = not at.setting_off and apart_m > self._row_m and at.lead_m < self._reach_m
        length_m = (LANE if beside else ROW) * self._reach_m
        side_w = across / max(apart_m, 1e-6)
        tube = AvoidanceTube(state.t + HORIZON, path_w, self._reach_m, length_m, side_w, self._room.box_w)
        lurks = not at.setting_off and at.rival.pace < at.attainable - SLOWER
        room_m = self._row_m + LURK_M if lurks else ROOM_M
        paces = [LEAST, at.rival.pace + self._surplus(at.line, at.own.theta, at.rival.pace, at.lead_m, room_m)]
        if known.estimate is not None and beside:
            rows = driven(at.line, at.own.theta, at.pace, np.full(len(HORIZON), at.attainable))
            closing_m_s = most_closing_m_s(at.lead_m, place * self._row_m, opening_s(rows))
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
        for one in self.received.known.values():
            last = self._known.get(one.number)
            if last is None or last.estimate is None or one.t > last.t:
                rival = locate(line, one.p_w, one.v_w, theta)
                self._known[one.number] = RivalTrack(one.t, _steady(rival, last, one), one)
        self._known = {number: known for number, known in self._known.items() if state.t - known.t < OLD_S}
        self._ahead = {number: ahead for number, ahead in self._ahead.items() if number in self._known}


def _steady(rival: PathState, last: RivalTrack | None, one: RivalEstimate) -> PathState:
    """Return the rival with a low-pass filtered pace."""
    before, share = 1.0, 1.0
    if last is not None and last.estimate is not None:
        before, share = last.rival.pace, min((one.t - last.t) / PACE_S, 1.0)
    return replace(rival, pace=before + share * (rival.pace - before))


def _flown_on(one: RivalEstimate, age: float) -> Array:
    """Return positions (M, 3) m over the horizon by its motion `age` s ago; more accurate than any plan during the start."""
    since = age + HORIZON
    short = np.minimum(since, BELIEVED_S)
    return one.p_w + np.outer(since, one.v_w) + np.outer((since - short / 2) * short, one.a_w)

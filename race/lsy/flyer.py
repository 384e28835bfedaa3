"""The controller of the leaderboard's levels: at every step, one iteration of the time-optimal flight over all gates left.

Openings, frames, stands and poles enter as half-spaces about the last iterate, with the reach of the body's box in that
direction at that attitude; a place that has not been seen gets room for where it may stand, and a gate a speed at which it
can still be met. So a gate that shows itself elsewhere is only a parameter of the next step, 20 ms later.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gate_racer.race.lsy.level import OPENING_M, Observation, Places, boxes_of, rotation, rules, support
from gate_racer.race.lsy.model import (
    DT,
    DT_NEXT,
    FC,
    GRAVITY,
    LONGEST_S,
    NU,
    NX,
    RATES,
    ROWS,
    SHORTEST_S,
    STEPS,
    F,
    P,
    Q,
    Solver,
    Spin,
    V,
    drone,
    tilt_for,
    tilted,
    turned,
)
from gate_racer.vehicle.rotation import Array

YAW_STEP = 0.06  # rad, by which yaw is commanded back at once
SPEED_ROW = 6  # of the half-spaces: those before are the window's, those behind the solids'
FARTHEST_M = 8.0  # m, of a sane iterate
# Another flight is sought where this one hangs between half-spaces: after SLOW_S at less than SLOW_M_S, or where it violates one
# by TOUCH_M; at most every SEEK_S.
SLOW_M_S, SLOW_S, SEEK_S, TOUCH_M = 0.5, 0.2, 0.1, 0.04
DETOUR_M = 0.3  # by which the first leg of the guesses for it is bent
RETREAT_M = 0.6  # before the first plane, on the gate's axis: by way of there one of them comes back for another try
TOUCH_S_M = 100.0  # s/m, price of violated half-spaces in their comparison
# How much room the flight keeps, by flights of seeds from 1000 on.
MARGIN_M = 0.015  # m, between body and edges of a seen opening
CLEAR_M = 0.025  # m, between body and frames, stands, poles
UNSEEN_HALF_M = 0.05  # m, half-width of the window at an unseen gate's centre
UNSEEN_CLEAR_M = 0.1  # m, more room about what has not been seen
UNSEEN_M_S = 3.7  # m/s, where an unseen gate may show itself
UNSEEN_SLANT = 3.0  # weight of the square of speed across the gate's axis in that, against 1 along
UNSEEN_PRICE_S = 0.02  # m of a violated half-space that 1 m/s beyond that costs as much as
# 1/s, by which that grows with the distance beyond there, and falls within: who brakes in the range of the sensor has more time
# for a gate that shows itself elsewhere, and may come faster; where it does not, the braking ends.
UNSEEN_SLOPE_1_S, UNSEEN_BRAKE_1_S = 5.0, 3.0
# A pole that may stand in an opening: full room about both leaves no way through, and the iterates wait before it for ever.
CROWDED_M = 0.4  # m, between such a pole and the gate's centre
CROWDED_M_S = 2.0  # m/s, instead of UNSEEN_M_S there
CROWDED_SHARE = 0.1  # of the price of that room
FLOOR_M = 0.05  # m
THROUGH_M = 0.05  # m before and behind a gate's plane, within which the body is in the opening
FINISH_M = 0.03  # m behind the last plane
SOLVES, SOLVES_NEW = 2, 6  # quadratic programs at a step, and at one with a new place
FIRST_SOLVES, SEEK_SOLVES = 60, 8  # of each guess before the start, and of each in flight


@dataclass(frozen=True)
class Leg:
    """A part of the course that ends on a plane of a gate, in its opening."""

    gate: int
    ahead: float  # m, of the plane behind the gate's
    steps: int


@dataclass
class Iterate:
    """A flight over the rest of the course."""

    x: Array  # (STEPS + 1, NX)
    u: Array  # (STEPS, NU)

    @property
    def times(self) -> Array:
        """Times of the nodes, s from the first."""
        return np.concatenate([[0.0], np.cumsum(self.x[:-1, DT])])


def legs_left(first: int, gates: int, done: int) -> list[Leg]:
    """Return the legs from gate `first` on, of which `done` of its own two are flown, with all intervals but the first."""
    ends = [(g, a) for g in range(first, gates) for a in (-THROUGH_M, THROUGH_M)]
    ends[-1] = (gates - 1, FINISH_M)
    ends = ends[done:]
    short = sum(a > 0 for _, a in ends)
    if short == len(ends):  # one, in the last opening
        return [Leg(*ends[0], STEPS - 1)]
    legs, given, free, long = list[Leg](), 0, STEPS - 1 - 2 * short, len(ends) - short
    for gate, ahead in ends:
        steps = 2 if ahead > 0 else (free * (given + 1)) // long - (free * given) // long
        given += ahead < 0
        legs.append(Leg(gate, ahead, steps))
    return legs


class Flyer:
    """One drone's controller: `command = flyer.step(observation)`."""

    def __init__(self, solver: Solver | None = None):
        self._solver = solver or Solver()
        self._flight: Iterate | None = None
        self._legs: list[Leg] = []
        self._gain, self._sureness = drone().thrust_gain, 1 / 0.08**2
        self._spin = Spin(np.zeros(4), np.zeros(3), np.zeros(3))
        self._last: tuple[Observation, Array, float] | None = None  # and the command: rotation (3, 3), N
        self._seen: tuple[bool, ...] = ()
        self._moved_t = self._sought_t = 0.0  # s, when it last was not slow, and last sought another flight

    @property
    def planned(self) -> Iterate:
        """The flight over the rest of the course, as of the last step, before which there is none."""
        assert self._flight is not None
        return self._flight

    def step(self, o: Observation) -> Array:
        """Return the command (4,): roll, pitch, yaw in rad and thrust in N."""
        self._estimate(o)
        x0 = self._state(o)
        gates = len(o.places.centres)
        if self._flight is None:
            self._legs = legs_left(0, gates, 0)
            self._flight, self._moved_t = self._guess(x0, o.places), o.t + SLOW_S
            self._seek(x0, o, FIRST_SOLVES)
        elif o.target >= 0:
            self._advance(o)
        if o.target >= 0:
            seen = (*o.gates_seen, *o.poles_seen)
            solves = SOLVES if seen == self._seen else SOLVES_NEW
            self._seen = seen
            for _ in range(solves):
                self._iterate(x0, o)
            if np.linalg.norm(o.velocity) > SLOW_M_S:
                self._moved_t = max(o.t, self._moved_t)
            slow = o.t - self._moved_t > SLOW_S
            if o.t > self._sought_t + SEEK_S and (slow or self._touch_m(self._flight, o) > TOUCH_M):
                self._seek(x0, o, SEEK_SOLVES)
                self._moved_t = self._sought_t = o.t
        return self._command(o)

    def _command(self, o: Observation) -> Array:
        """Return the command by which the on-board loop gets the rates that are planned for the next step.

        The loop gives yaw errors more of the rotors' range than all else, and commands of roll and pitch at once are such
        errors; the shortest turn is none.
        """
        thrust = float(self.planned.u[0, FC]) * drone().mass_kg
        tilt = tilt_for(self._spin, self.planned.x[1, RATES], thrust, rules().control_s)
        aimed = o.rotation @ tilted(tilt[None])[0]
        yaw = float(np.arctan2(aimed[1, 0], aimed[0, 0]))
        aimed = rotation().from_euler("z", -np.clip(yaw, -YAW_STEP, YAW_STEP)).as_matrix() @ aimed
        self._last = o, aimed, thrust
        return np.array([*rotation().from_matrix(aimed).as_euler("xyz"), thrust])

    def _seek(self, x0: Array, o: Observation, solves: int) -> None:
        """Take the best of the present flight and of those from other guesses."""
        present, first = self.planned, self._legs[0]
        goal = self._goal(first, o.places)
        ahead, up = goal - o.position, np.array([0.0, 0.0, 1.0])
        aside = np.array([-ahead[1], ahead[0], 0.0]) / max(float(np.linalg.norm(ahead[:2])), 1e-3)
        bent = [_bent(present, first.steps, DETOUR_M * n) for n in (aside, -aside, up, -up)]
        via, found = goal - RETREAT_M * o.places.rotations[first.gate][:, 0], [present]
        for guess in (*bent, self._guess(x0, o.places), self._guess(x0, o.places, via)):
            self._flight = guess
            for _ in range(solves):
                self._iterate(x0, o)
            found.append(self.planned)
        self._flight = min(found, key=lambda flight: flight.times[-1] + TOUCH_S_M * self._touch_m(flight, o))

    def _touch_m(self, flight: Iterate, o: Observation) -> float:
        """Return by how much a flight violates a half-space of place at most, m."""
        rows = np.delete(self._half_spaces(flight, o)[0], SPEED_ROW, axis=1)
        room = np.einsum("kri,ki->kr", rows[:, :, :6], flight.x[:, :6]) + rows[:, :, 6]
        return float(np.maximum(-room, 0.0).max())

    def _estimate(self, o: Observation) -> None:
        """Update rotors and thrust gain over the last step."""
        before = self._spin
        if self._last is not None:
            last, aimed, thrust = self._last
            dt, d = o.t - last.t, drone()
            after = turned(replace(before, rates=last.rates), (last.rotation.T @ aimed)[None], thrust, dt)
            self._spin = Spin(after.rotors[0], o.rates, after.slope[0])
            mean = (before.thrust + self._spin.thrust) / 2
            up = (last.rotation + o.rotation)[:, 2] / 2
            felt = (o.velocity - last.velocity) / dt + (0.0, 0.0, GRAVITY)
            felt += d.drag_1_s * (o.velocity + last.velocity) / 2
            if o.t > 0.15:
                weight = (mean / 0.6) ** 2
                self._sureness += weight
                self._gain += weight / self._sureness * (float(felt @ up) / mean - self._gain)

    def _state(self, o: Observation) -> Array:
        attitude = rotation().from_matrix(o.rotation).as_quat(scalar_first=True)
        torques = self._spin.slope[:2] / drone().torque_1_s2
        return np.array(
            [*o.position, *o.velocity, *attitude, *o.rates[:2], *torques, self._spin.thrust, rules().control_s]
        )

    def _guess(self, x0: Array, places: Places, via: Array | None = None) -> Iterate:
        """Return straight flight from plane to plane at a moderate speed, to the first one by way of a point (3,)."""
        points = [x0[P]] + [self._goal(leg, places) for leg in self._legs]
        x, u = np.zeros((STEPS + 1, NX)), np.zeros((STEPS, NU))
        x[:, F] = u[:, FC] = GRAVITY
        x[:, Q] = x0[Q]
        k = 1
        for leg, (a, b) in zip(self._legs, pairwise(points), strict=True):
            corners = np.array([a, b] if via is None or k > 1 else [a, via, b])
            along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
            dt = float(np.clip(max(along[-1], 0.02) / 1.6 / leg.steps, SHORTEST_S, LONGEST_S))
            at = np.linspace(0.0, along[-1], leg.steps + 1)
            path = np.stack([np.interp(at, along, corner) for corner in corners.T], axis=1)
            x[k : k + leg.steps + 1, P] = path
            x[k : k + leg.steps + 1, V] = np.diff(path, axis=0, append=2 * path[-1:] - path[-2:-1]) / dt
            x[k : k + leg.steps, DT] = u[k - 1 : k + leg.steps, DT_NEXT] = dt
            k += leg.steps
        x[-1, DT] = x[-2, DT]
        x[0] = x0
        return Iterate(x, u)

    def _goal(self, leg: Leg, places: Places) -> Array:
        return places.centres[leg.gate] + leg.ahead * places.rotations[leg.gate][:, 0]

    def _advance(self, o: Observation) -> None:
        """Move the last iterate on by one control step, onto the mesh of the legs that are left."""
        flight, step_s = self.planned, rules().control_s
        counts = np.cumsum([1] + [leg.steps for leg in self._legs])
        ends = flight.times[counts[1:]] - step_s
        left = [(leg, end) for leg, end in zip(self._legs, ends, strict=True) if end > 1.5 * step_s]
        legs = [(leg, end) for leg, end in left if not self._behind(leg, o)]
        legs = legs or [(self._legs[-1], max(ends[-1], 2 * step_s))]
        first = legs[0][0]
        self._legs = legs_left(first.gate, len(o.places.centres), int(first.ahead > 0))
        times, before = [0.0, step_s], step_s
        for leg, (_, end) in zip(self._legs, legs, strict=True):
            end = max(end, before + SHORTEST_S * leg.steps)
            times += list(np.linspace(before, end, leg.steps + 1)[1:])
            before = end
        new = np.array(times)
        self._flight = _resampled(flight, new + step_s, np.diff(new))

    def _behind(self, leg: Leg, o: Observation) -> bool:
        """Whether the plane that a leg ends on lies behind a gate that has been passed, and behind the drone."""
        along = (o.position - o.places.centres[leg.gate]) @ o.places.rotations[leg.gate][:, 0]
        return leg.gate < o.target and (leg.ahead < 0 or bool(along > leg.ahead))

    def _iterate(self, x0: Array, o: Observation) -> None:
        flight = self.planned
        x, u = self._solver(flight.x, flight.u, x0, self._gain, *self._half_spaces(flight, o))
        if np.isfinite(x).all() and np.isfinite(u).all() and np.abs(x[:, P]).max() < FARTHEST_M:
            x[:, DT] = np.clip(x[:, DT], SHORTEST_S, 2 * LONGEST_S)
            self._flight = Iterate(x, u)
        else:
            self._flight = self._guess(x0, o.places)

    def _half_spaces(self, flight: Iterate, o: Observation) -> tuple[Array, list[int]]:
        """Return the half-spaces (STEPS + 1, ROWS, 7) of the program about an iterate, and the nodes before the legs' ends."""
        x, rows = flight.x, np.zeros((STEPS + 1, ROWS, 7))
        rows[:, :, 6] = 1.0
        R = rotation().from_quat(x[:, Q], scalar_first=True).as_matrix()
        self._fill_obstacles(rows, x, R, o)
        k, ends = 1, [0]
        for leg in self._legs:
            self._fill_speed(rows[k : k + leg.steps + 1], x[k : k + leg.steps + 1], leg, o)
            k += leg.steps
            ends.append(k - 1)
            self._fill_window(rows[k], R[k], leg, o)
        return rows, ends

    def _fill_speed(self, rows: Array, x: Array, leg: Leg, o: Observation) -> None:
        """Limit the speed where an unseen gate will show itself; more so across its axis, whence it is seen later.

        That speed is sqrt(v' W v) for a weight W about the gate's axis, linearised about the iterate; the limit grows
        with the distance.
        """
        if o.gates_seen[leg.gate]:
            return
        away, v, slant = x[:, :2] - o.places.centres[leg.gate, :2], x[:, V], UNSEEN_SLANT
        axis, off = o.places.rotations[leg.gate][:, 0], np.linalg.norm(away, axis=1)
        limit, brake = (CROWDED_M_S, 0.0) if _crowded(o)[leg.gate].any() else (UNSEEN_M_S, UNSEEN_BRAKE_1_S)
        weighted = slant * v + (1 - slant) * np.outer(v @ axis, axis)
        speed = np.sqrt(np.maximum(np.einsum("ki,ki->k", weighted, v), 0.01))
        slope = np.where(off > rules().sensor_m, UNSEEN_SLOPE_1_S, brake)
        growth = (slope / np.maximum(off, 0.1))[:, None] * away
        rows[:, SPEED_ROW, :2], rows[:, SPEED_ROW, 3:6] = growth, -weighted / speed[:, None]
        rows[:, SPEED_ROW, 6] = limit + slope * (off - rules().sensor_m) - np.einsum("ki,ki->k", growth, x[:, :2])
        rows[:, SPEED_ROW] *= UNSEEN_PRICE_S

    def _fill_window(self, rows: Array, R: Array, leg: Leg, o: Observation) -> None:
        """Set the first six half-spaces at the end of a leg: its plane, and the opening."""
        seen = o.gates_seen[leg.gate]
        for i, axis in enumerate(o.places.rotations[leg.gate].T):
            at = o.places.centres[leg.gate] @ axis + (leg.ahead if i == 0 else 0.0)
            room = max(OPENING_M / 2 - float(support(R, axis)) - MARGIN_M, 0.01) if seen else UNSEEN_HALF_M
            half = 0.005 if i == 0 else room
            rows[2 * i, :3], rows[2 * i, 6] = axis, half - at
            rows[2 * i + 1, :3], rows[2 * i + 1, 6] = -axis, half + at
        if not seen and _crowded(o)[leg.gate].any():
            rows[2:6] *= CROWDED_SHARE

    def _astray(self, x: Array, o: Observation) -> Array:
        """Return how far (STEPS + 1, G) each node is out of the opening's tube: 0 within, 1 from `OPENING_M` / 4 outside."""
        local = np.einsum("kgi,gij->kgj", x[:, None, P] - o.places.centres, o.places.rotations)
        return np.clip(np.abs(local[..., 1:]).max(axis=-1) / (OPENING_M / 4) - 2.0, 0.0, 1.0)

    def _fill_obstacles(self, rows: Array, x: Array, R: Array, o: Observation) -> None:
        """Set the other half-spaces: the nearest solids to each node and to the middle of its interval.

        Before an unseen gate's opening the frame gets no more room: its window has it, and both have no solution.
        """
        solids = boxes_of(o.places)
        gate_seen, pole_seen = o.gates_seen, o.poles_seen
        seen = np.array([gate_seen[g] if g >= 0 else pole_seen[-1 - g] for g in solids.owner])
        doubt = np.where(seen, 0.0, np.where(solids.owner >= 0, self._astray(x, o)[:, solids.owner], 1.0))
        floor = np.array([0.0, 0.0, 1.0])
        room = solids.radius + CLEAR_M + doubt * UNSEEN_CLEAR_M
        dt = x[:, DT : DT + 1]
        middle = x[:, P] + dt / 2 * x[:, V]
        middle[:-1] = (x[:-1, P] + x[1:, P]) / 2 + dt[:-1] / 8 * (x[:-1, V] - x[1:, V])
        left = ROWS - 7
        gaps, normals, offsets = [], [], []
        for points in (x[:, P], middle):
            axis = solids.nearest(points)
            away = points[:, None] - axis
            distance = np.linalg.norm(away, axis=-1)
            n = away / np.maximum(distance, 1e-6)[..., None]
            reach = support(R[:, None], n) + room
            low = np.minimum(support(R, np.broadcast_to(floor, points.shape)) + FLOOR_M, o.position[2] - 0.05)
            gaps += [distance - reach, (points[:, 2] - low)[:, None]]
            normals += [n, np.broadcast_to(floor, (len(n), 1, 3))]
            offsets += [np.einsum("kni,kni->kn", n, axis) + reach, low[:, None]]
        gap, n, off = np.concatenate(gaps, 1), np.concatenate(normals, 1), np.concatenate(offsets, 1)
        count = len(solids.radius) + 1
        chosen = np.argsort(gap, axis=1)[:, :left]
        k = np.arange(STEPS + 1)[:, None]
        rows[:, 7:, :3] = n[k, chosen]
        # The middle is p + dt/2 v less a quarter of what the velocity changes, as in the iterate.
        late = chosen >= count
        rows[:, 7:, 3:6] = np.where(late[..., None], n[k, chosen] * dt[:, None] / 2, 0.0)
        bend = middle - x[:, P] - dt / 2 * x[:, V]
        rows[:, 7:, 6] = np.where(late, np.einsum("kci,ki->kc", n[k, chosen], bend), 0.0) - off[k, chosen]
        hidden = np.logical_or.reduce(_crowded(o))
        price = np.ones(count)
        price[-1 - len(hidden) : -1][hidden] = CROWDED_SHARE  # the poles, before the floor
        rows[:, 7:] *= np.tile(price, 2)[chosen][..., None]
        rows[0] = 0.0
        rows[0, :, 6] = 1.0


def _crowded(o: Observation) -> npt.NDArray[np.bool_]:
    """Return (G, K) where an unseen pole may stand in the opening of a gate."""
    apart = np.linalg.norm(o.places.centres[:, None, :2] - o.places.poles[:, :2], axis=-1)
    return (apart < CROWDED_M) & np.logical_not(o.poles_seen)


def _bent(flight: Iterate, steps: int, bend: Array) -> Iterate:
    """Return a flight whose first leg of so many steps is bent aside by `bend` (3,), m."""
    x = flight.x.copy()
    x[1 : steps + 2, P] += np.sin(np.linspace(0.0, np.pi, steps + 1))[:, None] * bend
    return Iterate(x, flight.u.copy())


def _resampled(flight: Iterate, times: Array, durations: Array) -> Iterate:
    """Return a flight at other times, s from its first node; beyond its end it goes on as it ends."""
    from scipy.interpolate import CubicHermiteSpline

    t, x = flight.times, flight.x
    keep = np.concatenate([[True], np.diff(t) > 1e-9])
    t, x = t[keep], x[keep]
    late = np.clip(times, t[0], t[-1])
    new = np.stack([np.interp(late, t, x[:, i]) for i in range(NX)], axis=1)
    new[:, P] = CubicHermiteSpline(t, x[:, P], x[:, V])(late) + (times - late)[:, None] * x[-1, V]
    new[:, Q] /= np.linalg.norm(new[:, Q], axis=1, keepdims=True)
    u = flight.u[np.clip(np.searchsorted(flight.times, late[:-1] + 1e-6, side="right") - 1, 0, STEPS - 1)].copy()
    new[:-1, DT], new[-1, DT] = durations, durations[-1]
    u[:-1, DT_NEXT], u[-1, DT_NEXT] = durations[1:], durations[-1]
    return Iterate(new, u)

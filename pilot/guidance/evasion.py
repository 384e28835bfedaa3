"""Evasion of the frame of a gate that was found too late for the predictive controller, by its zero-effort miss.

In the gate's axes, with the time T to its plane and the crossing p0 of the straight line that the vehicle flies without thrust
across, the acceleration to cross at p* instead is

    a = 2 (p* - p0) / T^2

p* is a place clear of the frame: in the opening while that can be reached, else the one of least acceleration in the time left
once the thrust has turned: in the opening, beside the frame or above it. If it is not in the opening, the gate is flown again.
No thrust is spent along the axis: drag brakes. The law is in closed form, since the controller's cost trades a contact for
progress, and one iteration per command does not solve a problem that has just changed by metres.
"""

import math

import numpy as np

from gate_racer.mpc.control import Control, unplanned
from gate_racer.mpc.controller import PlanController
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X, drag
from gate_racer.vehicle.rotation import Array, Vector, matrix
from gate_racer.vehicle.vehicle import Vehicle

P, Q, V = (RATES_X[name].at for name in "pqv")
BEGIN_S = 0.45  # s before the plane; earlier the controller's solution may still turn to the opening (set by hand)
CLEAR_M = 0.15  # m between the vehicle and the frame or the floor, for errors of position and tracking (set by hand)
LEAST_ROOM_M = 0.05  # m, half width of the opening left to the vehicle's centre, if it hardly fits
SHARE = 0.4  # of the thrust, within which the opening counts as reachable (set by hand)
BRAKE_M_S2 = 15.0  # deceleration assumed behind the gate, each axis: gravity and drag, upwards (chosen)
ATTITUDE_GAIN = 14.0  # 1/s, error of the thrust's direction to body rates (set by hand)
LEAST_S, LEAST_M_S = 0.05, 1.0  # s to the plane and m/s towards it, against division by zero
UP = np.array([0.0, 0.0, -1.0])


def crossing(gate: Gate, x: Array, air: tuple[Vector, float]) -> tuple[float, Array, Array] | None:
    """Return the time (s) to a gate's plane without thrust, the place (2,) m right and down of its centre, and the slope (2,).

    x (14,): state; air: linear (1/s) and quadratic (1/m) drag, per mass.
    """
    p_g, v_g = gate.local(x[P]), gate.R_wg.T @ x[V]
    if p_g[0] >= 0 or v_g[0] < LEAST_M_S:
        return None
    straight_s, speed = -p_g[0] / v_g[0], float(np.linalg.norm(v_g))
    brake = float(np.linalg.norm(drag(x[Q], x[V], *air)))
    return straight_s * (1 + brake * straight_s / (2 * speed)), p_g[1:] + straight_s * v_g[1:], v_g[1:] / v_g[0]


def clear_places(gate: Gate, p0: Array, slope: Array, radius_m: float, floor_m: float) -> list[Array]:
    """Return the places (2,) m nearest to p0 (2,) m in a gate's plane that are clear of its frame: in the opening, beside, above.

    `slope` (2,) is the lateral over the forward speed, `floor_m` the lowest place below the centre of the gate.
    """
    slant = np.abs(slope) * gate.depth_m / 2
    room = np.maximum(gate.half - radius_m - slant - CLEAR_M / 2, LEAST_ROOM_M)
    places = [np.clip(p0, -room, room)]
    if gate.has_frame:
        y, z = p0[0], min(p0[1], floor_m - CLEAR_M)
        aside, above = gate.outer_m / 2 + radius_m + CLEAR_M + slant
        places += [np.array([max(y, aside), z]), np.array([min(y, -aside), z]), np.array([y, min(z, -above)])]
    return places


def pierced(gate: Gate, way_w: Array) -> Array | None:
    """Return the place (2,) m in a gate's plane where a way (M, 3) m, world NED, crosses it forwards; None if it does not."""
    way_g = gate.local(way_w)
    before = np.flatnonzero((way_g[:-1, 0] < 0) & (way_g[1:, 0] >= 0))
    if not len(before):
        return None
    a_g, b_g = way_g[before[0]], way_g[before[0] + 1]
    return np.asarray((a_g + a_g[0] / (a_g[0] - b_g[0]) * (b_g - a_g))[1:])


class FrameEvasion:
    """Control from where a displaced gate would be hit until its plane is crossed."""

    def __init__(self, controller: PlanController, vehicle: Vehicle, radius_m: float, bounds: Bounds):
        self._controller, self._vehicle, self._radius_m = controller, vehicle, radius_m
        self._low_w, self._high_w = np.array(bounds.low_m) + radius_m, np.array(bounds.high_m) - radius_m
        self._air = vehicle.rates_parameters.drag_linear, vehicle.rates_parameters.drag_quadratic
        self._most = SHARE * vehicle.thrust_max
        self._least = float(controller.allocated(np.zeros(4), np.zeros(RATES_X.size))[3])  # m/s^2, least thrust
        self.active = False

    def step(self, gate: Gate, x: Array, t: float, age: float) -> Control | None:
        """Return the command at t (s), from the state x (14,) at t - age, for the gate at its displaced position.

        None: the controller flies, since it reaches the opening or may still do.
        """
        if gate.local(x[P])[0] > 0:
            self.active = False
        ahead = self._controller.ahead(t, x, age)
        found = crossing(gate, ahead, self._air)
        if not self.active and found is not None and found[0] < BEGIN_S:
            place = pierced(gate, self._controller.way(BEGIN_S))  # by the controller's last solution
            self.active = place is None or bool(np.abs(place).max() > gate.half - self._radius_m)
        if not self.active:
            return None
        force_w = GRAVITY * UP
        if found is not None:
            force_w = force_w + self._acceleration(gate, ahead, *found)
        u = self._controller.allocated(self._towards(force_w, ahead), ahead)
        self._controller.predictor.sent(t, u)
        return unplanned(ahead, u, self._vehicle.attitude_gain_1_s)

    def _acceleration(self, gate: Gate, x: Array, seconds: float, p0: Array, slope: Array) -> Array:
        """Return the acceleration (3,) m/s^2 towards the best place; arguments as returned by `crossing`."""
        places = clear_places(gate, p0, slope, self._radius_m, self._high_w[2] - gate.p_wg[2])
        steps = [gate.R_wg[:, 1:] @ (place - p0) for place in places]
        up_w = matrix(x[Q]) @ UP
        needed = [self._needed(step_w, up_w, seconds) for step_w in steps]
        for k in range(1, len(places)):  # it has to stop within the bounds behind the gate
            v_w = x[V] + _constant(steps[k], seconds) * seconds
            rest_w = gate.p_wg + gate.R_wg[:, 1:] @ places[k] + v_w * np.abs(v_w) / (2 * BRAKE_M_S2)
            if not ((rest_w > self._low_w) & (rest_w < self._high_w)).all():
                needed[k] = math.inf
        best = 0 if needed[0] < self._most else int(np.argmin(needed))
        return _constant(steps[best], seconds)

    def _needed(self, step_w: Array, up_w: Array, seconds: float) -> float:
        """Return the acceleration (m/s^2) for a step (3,) m in that time, less the time for turning the thrust from up_w (3,)."""
        force_w = _constant(step_w, seconds) + GRAVITY * UP
        if force_w @ up_w < self._least:  # it has to be turned over
            force_w = step_w
        angle = math.acos(np.clip(force_w @ up_w / max(float(np.linalg.norm(force_w)), 1e-9), -1.0, 1.0))
        left_s = max(seconds - angle / max(self._vehicle.rate_max_rad_s[:2]) - self._vehicle.rate_lag_s[0], LEAST_S)
        return 2 * float(np.linalg.norm(step_w)) / left_s**2

    def _towards(self, force_w: Array, x: Array) -> Array:
        """Return the input (4,) that turns the thrust towards a specific force (3,) m/s^2, with its part along the thrust."""
        size = float(np.linalg.norm(force_w))
        force_b = matrix(x[Q]).T @ force_w / max(size, GRAVITY / 10)
        axis = np.cross(UP, force_b)
        angle = math.atan2(float(np.linalg.norm(axis)), float(-force_b[2]))
        rates = ATTITUDE_GAIN * angle * axis / max(float(np.linalg.norm(axis)), 1e-9)
        most = np.array(self._vehicle.rate_max_rad_s)
        return np.array([*np.clip(rates, -most, most), min(max(-force_b[2], 0.0) * size, self._vehicle.thrust_max)])


def _constant(step_w: Array, seconds: float) -> Array:
    """Return the constant acceleration (3,) m/s^2 that displaces by a step (3,) m in that time."""
    return 2 * step_w / max(seconds, LEAST_S) ** 2

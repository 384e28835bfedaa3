"""Evasion of the frame of a gate that was found too late for the predictive controller, by its zero-effort miss.

In the gate's axes, with the time T to its plane and the crossing p0 of the straight line that the vehicle flies without thrust
across, the acceleration to cross at p* instead is

    a = 2 (p* - p0) / T^2

p* is a place clear of the frame: in the opening, beside the frame or above it. Towards each of them the law is flown in a model
of the thrust's direction, rates and lags. The opening is taken if it is reached, else the place that clears the frame by most; if
that is not in the opening, the gate is flown again. No thrust is spent along the axis: drag brakes.

The controller's cost trades a contact for progress, and one iteration per command does not solve a problem that has just changed
by metres; hence a law in closed form.
"""

import math

import numpy as np

from mpc.control import Control
from mpc.controller import Controller
from pilot.guidance.velocity_controller import Aim, control
from tracks.gate import Gate
from tracks.track import Bounds
from vehicle.dynamics import GRAVITY, RATES_X, drag
from vehicle.rotation import Array, Vector, exp, matrix, product
from vehicle.vehicle import Vehicle

P, Q, V = (RATES_X[name].at for name in "pqv")
C = RATES_X["c"].at.start
BEGIN_S = 0.45  # s before the plane; earlier the controller's solution may still turn to the opening (set by hand)
CLEAR_M = 0.15  # m between the vehicle and the frame or the floor, for errors of position and tracking (set by hand)
LEAST_ROOM_M = 0.05  # m, half width of the opening left to the vehicle's centre, if it hardly fits
INSIDE = 2  # places in the opening that are tried: its centre and the nearest
STEP_S = 0.015  # s, of the model: with 0.03 a few more frames were hit
# m/s^2, deceleration assumed behind the gate (chosen): level by thrust and drag, up and down by gravity or thrust and drag
BRAKE_M_S2 = np.array([30.0, 30.0, 15.0])
ATTITUDE_GAIN = 14.0  # 1/s, error of the thrust's direction to body rates (set by hand)
LEAST_S, LEAST_M_S = 0.05, 1.0  # s to the plane and m/s towards it, against division by zero
UP = np.array([0.0, 0.0, -1.0])
STILL = Aim.towards(np.zeros(3), 0.0)


def crossing(gate: Gate, x: Array, air: tuple[Vector, float]) -> tuple[float, Array, Array] | None:
    """Return the time (s) to a gate's plane without thrust, the place (2,) m right and down of its centre, and the slope (2,).

    Args:
        x: state (14,), as `RATES_X`.
        air: linear (1/s) and quadratic (1/m) drag, per mass.
    """
    p_g, v_g = gate.local(x[P]), gate.R_wg.T @ x[V]
    if p_g[0] >= 0 or v_g[0] < LEAST_M_S:
        return None
    straight_s, speed = -p_g[0] / v_g[0], float(np.linalg.norm(v_g))
    brake = float(np.linalg.norm(drag(x[Q], x[V], *air)))
    return straight_s * (1 + brake * straight_s / (2 * speed)), p_g[1:] + straight_s * v_g[1:], v_g[1:] / v_g[0]


def clear_places(gate: Gate, p0: Array, slope: Array, radius_m: float, floor_m: float) -> list[Array]:
    """Return the places (2,) m nearest to p0 (2,) m in a gate's plane that are clear of its frame: in the opening, beside, above.

    Args:
        slope: (2,), lateral over forward speed: the frame's depth narrows the opening.
        radius_m: contact radius of the vehicle.
        floor_m: lowest place, below the centre of the gate, m.
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

    def __init__(self, controller: Controller, vehicle: Vehicle, radius_m: float, bounds: Bounds):
        """`radius_m`: contact radius of the vehicle."""
        self._controller, self._vehicle, self._radius_m = controller, vehicle, radius_m
        self._low_w, self._high_w = np.array(bounds.low_m) + radius_m, np.array(bounds.high_m) - radius_m
        self._air = vehicle.rates_parameters.drag_linear, vehicle.rates_parameters.drag_quadratic
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
        self.active = self.active or (found is not None and found[0] < BEGIN_S and self._misses(gate))
        if not self.active:
            return None
        force_w = GRAVITY * UP
        if found is not None:
            force_w = force_w + self._acceleration(gate, ahead, *found)
        u = self._controller.allocated(self._towards(force_w, ahead), ahead)
        self._controller.sent(t, u)
        return control(ahead, u, np.array(product(ahead[Q], exp(u[:3] / self._vehicle.attitude_gain_1_s))), STILL)

    def _acceleration(self, gate: Gate, x: Array, seconds: float, p0: Array, slope: Array) -> Array:
        """Return the acceleration (3,) m/s^2 towards the best place; arguments as returned by `crossing`."""
        floor_m = self._high_w[2] - gate.p_wg[2]
        places = np.array([np.zeros(2), *clear_places(gate, p0, slope, self._radius_m, floor_m)])
        reached, v_w = self._flown(gate, x, places)
        off, slant = np.abs(reached), np.abs(slope) * gate.depth_m / 2 + self._radius_m
        clear = (gate.half - slant - off).min(1)
        clear[INSIDE:] = np.minimum((off[INSIDE:] - gate.outer_m / 2 - slant).max(1), CLEAR_M)
        stops = self._stops_inside(gate.p_wg + places @ gate.R_wg[:, 1:].T, v_w)
        clear[INSIDE:][~stops[INSIDE:]] = -math.inf
        through = int(np.argmax(clear[:INSIDE]))
        best = through if clear[through] > CLEAR_M / 4 else int(np.argmax(clear))
        return gate.R_wg[:, 1:] @ _constant(places[best] - p0, seconds)

    def _flown(self, gate: Gate, x: Array, places: Array) -> tuple[Array, Array]:
        """Fly the law towards places (K, 2) m from x (14,); return where (K, 2) m the plane is crossed, and v (K, 3) m/s there.

        The attitude is reduced to the thrust's direction, which turns with a lag; drag is that of x, with the speed squared.
        """
        vehicle, count = self._vehicle, len(places)
        p_g, v_g = np.tile(gate.local(x[P]), (count, 1)), np.tile(x[V] @ gate.R_wg, (count, 1))
        up, rates = np.tile(matrix(x[Q]) @ UP @ gate.R_wg, (count, 1)), np.zeros((count, 3))
        thrust, up_g = np.full((count, 1), x[C]), UP @ gate.R_wg
        brake = float(np.linalg.norm(drag(x[Q], x[V], *self._air))) / max(float(x[V] @ x[V]), LEAST_M_S**2)
        turn = 1 - math.exp(-STEP_S / vehicle.rate_lag_s[0])
        rise = 1 - math.exp(-STEP_S / vehicle.thrust_lag_s)
        for _ in range(math.ceil(2 * BEGIN_S / STEP_S)):
            seconds = np.maximum(-p_g[:, :1], 0.0) / np.maximum(v_g[:, :1], LEAST_M_S)
            if not seconds.any():
                break
            step_s = np.minimum(seconds, STEP_S)
            force = GRAVITY * up_g + np.zeros((count, 3))
            force[:, 1:] += 2 * (places - p_g[:, 1:] - seconds * v_g[:, 1:]) / np.maximum(seconds, LEAST_S) ** 2
            size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), GRAVITY / 10)
            along = (force * up).sum(1, keepdims=True)
            axis = np.cross(up, force / size)
            sine = np.maximum(np.linalg.norm(axis, axis=1, keepdims=True), 1e-9)
            rate = np.minimum(ATTITUDE_GAIN * np.arctan2(sine, along / size), vehicle.rate_max_rad_s[0])
            rates += turn * (rate * axis / sine - rates)
            thrust += rise * (np.clip(along, self._least, vehicle.thrust_max) - thrust)
            up = up + step_s * np.cross(rates, up)
            up /= np.linalg.norm(up, axis=1, keepdims=True)
            speed = np.linalg.norm(v_g, axis=1, keepdims=True)
            a_g = thrust * up - GRAVITY * up_g - brake * speed * v_g
            p_g = p_g + step_s * (v_g + step_s / 2 * a_g)
            v_g = v_g + step_s * a_g
        return p_g[:, 1:], v_g @ gate.R_wg.T

    def _stops_inside(self, p_w: Array, v_w: Array) -> np.ndarray:
        """Return (K,) whether the vehicle can stop within the bounds from p_w (K, 3) m and v_w (K, 3) m/s."""
        rest_w = p_w + v_w * np.abs(v_w) / (2 * BRAKE_M_S2)
        return np.asarray(((rest_w > self._low_w) & (rest_w < self._high_w)).all(1))

    def _misses(self, gate: Gate) -> bool:
        """Return whether the controller's last solution crosses the plane outside of the opening."""
        place = pierced(gate, self._controller.way(BEGIN_S))
        return place is None or bool(np.abs(place).max() > gate.half - self._radius_m)

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

"""Guidance by the manoeuvres that `identify-vehicle` needs, within the bounds of the track.

Throttle steps go up while the vehicle sinks and down while it climbs, so that it stays near its height; rates are doublets,
which end where they began; speed is flown to and fro. The vehicle's file need only be roughly right.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.localisation import Localised
from gate_racer.mpc.control import Control
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage, End, EndReason, Passages
from gate_racer.pilot.guidance.protocol import FlightGuidance, GateObserver, state_vector
from gate_racer.pilot.guidance.velocity import VELOCITY_GAIN, Aim, VelocityController, control
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import DOWN_W, Array, to_euler
from gate_racer.vehicle.vehicle import Vehicle

THROTTLES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.265, 0.32, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # levels of the thrust curve
AXES = ("roll", "pitch", "yaw")
SPEED = "speed"


@dataclass(frozen=True)
class Manoeuvres:
    throttles: tuple[float, ...] = THROTTLES
    axes: tuple[int, ...] = (0, 1, 2)
    speed: bool = True

    def __str__(self) -> str:
        parts = [f"{u:g}" for u in self.throttles] + [AXES[axis] for axis in self.axes] + [SPEED] * self.speed
        return ",".join(parts)


def parse_manoeuvres(text: str) -> Manoeuvres:
    """Parse `excite.manoeuvres`: "all", or a list of throttles, axes and "speed", as "0.7,0.8,yaw,speed". Raises UserError."""
    if text == "all":
        return Manoeuvres()
    throttles, axes, speed = list[float](), list[int](), False
    for part in text.split(","):
        try:
            if part in AXES:
                axes.append(AXES.index(part))
            elif part == SPEED:
                speed = True
            elif 0 <= (u := float(part)) <= 1:
                throttles.append(u)
            else:
                raise ValueError
        except ValueError:
            known = f"all, a throttle from 0 to 1, {', '.join(AXES)} and {SPEED}"
            raise UserError(f"manoeuvres {text}: {part!r} is not a manoeuvre; known: {known}") from None
    return Manoeuvres(tuple(throttles), tuple(axes), speed)


P, Q, V = (RATES_X[name].at for name in "pqv")
ROUNDS = 2  # repetitions of all manoeuvres
DOUBLET_RAD_S, SIDE_S = (4.0, 4.0, 2.5), 0.16  # amplitude by axis; s, duration of each side of a doublet
LONGEST_STEP_S, SHORTEST_STEP_S = 0.4, 0.2  # s, duration of a throttle step
CLIMB_M, DASH_M = 6.0, 22.0  # m, where there is room
CLEAR_M = 3.0  # m from the bounds
DASH_M_S, DASH_M_S2 = 14.0, 9.0  # speed and acceleration of a dash
SINK_M_S, CLIMB_M_S = 4.0, 6.5  # greatest, before and after a throttle step
LEVELS_LIMIT_S = 25.0  # s for all levels, where the room is too small for some
RETURN_S = 2.0  # s, longest return home
BRAKE_M_S2 = 12.0  # twice the deceleration at the end of a climb
CALM_M_S2 = 4.0  # m/s^2, acceleration limit outside of dashes and braking (chosen)
PLACE_GAIN = 0.8  # 1/s, position error to velocity
TURN_LIMIT = 4.0  # rad/s, greatest body rate
Input = tuple[Array, float]  # body rates rad/s, thrust m/s^2
Inputs = Generator[Input, None, None]


class Excitation:
    """Manoeuvres within bounds: state in, command out, until `done`."""

    def __init__(
        self, vehicle: Vehicle, at: Start, room: Bounds, manoeuvres: Manoeuvres, seed: int, rounds: int = ROUNDS
    ):
        """Create them, beginning near `at`; the seed draws the order."""
        self._rounds, self.done = rounds, False
        self._vehicle, self._manoeuvres, self._rng = vehicle, manoeuvres, np.random.default_rng([seed, 11])
        self._velocity, self._heading = VelocityController(vehicle, TURN_LIMIT), to_euler(at.q_wb)[2]
        self._nose = np.array([math.cos(self._heading), math.sin(self._heading), 0.0])
        low, high = np.array(room.low_m) + CLEAR_M, np.array(room.high_m) - CLEAR_M
        start = at.p_wb
        self._home = start - [0.0, 0.0, max(0.0, min(CLIMB_M, 0.6 * (start[2] - low[2])))]
        height = min(self._home[2] - low[2], min(high[2], start[2]) - self._home[2])
        self._band = min(CLIMB_M / 2, max(1.0, height / 2))  # m above and below home
        self._top = min(CLIMB_M_S, math.sqrt(BRAKE_M_S2 * max(height, 1.0)))  # m/s of climb after a step
        self._low, self._far = low[:2], high[:2]
        self._t, self._x, self._dt = 0.0, np.zeros(RATES_X.size), 0.02
        self._script_left = self._script()

    def step(self, t: float, x: Array, dt: float) -> Control:
        """Return the command for the state x (14,) at t (s), valid for dt (s)."""
        self._t, self._x, self._dt = t, x, dt
        command = next(self._script_left, None)
        if command is None:
            self.done, command = True, self._towards(np.zeros(3))
        omega, thrust = command
        u = np.array([*omega, min(max(thrust, self._vehicle.thrust_min), self._vehicle.thrust_max)])
        return control(x, u, x[Q], Aim(np.zeros(3), self._heading))

    def _script(self) -> Inputs:
        yield from self._gather(2.0)
        for _ in range(self._rounds):
            yield from self._throttle_steps()
            yield from self._gather(1.0)
            for axis in self._manoeuvres.axes:
                for sign in (1.0, -1.0):
                    yield from self._doublet(axis, sign)
                    yield from self._gather(0.4)
            if self._manoeuvres.speed:
                for direction in (self._nose, np.cross(DOWN_W, self._nose)):
                    yield from self._dash(direction)
        yield from self._gather(1.0)

    def _gather(self, seconds: float) -> Inputs:
        end = self._t + seconds
        while self._t < end:
            home = self._homewards()
            settled = float(np.linalg.norm(home - self._x[V])) < CALM_M_S2 / VELOCITY_GAIN
            yield self._towards(home, learn=settled)

    def _throttle_steps(self) -> Inputs:
        """Fly all levels once, those above hover while sinking, those below while climbing or high."""
        levels = self._rng.permutation(np.array(self._manoeuvres.throttles)).tolist()
        hover = self._vehicle.throttle.throttle(GRAVITY)
        up = [u for u in levels if u > hover]
        down = [u for u in levels if u <= hover]
        thrust = self._vehicle.throttle.thrust
        gains = {u: SHORTEST_STEP_S * (thrust(u) - GRAVITY) for u in up}  # m/s of climb in the shortest step
        give_up = self._t + LEVELS_LIMIT_S
        while (up or down) and self._t < give_up:
            climb, height = -float(self._x[V][2]), float(self._home[2] - self._x[P][2])
            if self._away(1.0):
                end = self._t + RETURN_S
                while self._t < end and self._away(0.25):
                    yield self._towards(2 * self._homewards(), DASH_M_S2)
            elif up and height < self._band / 4 and climb < max(self._top - gains[up[-1]], -SINK_M_S / 2):
                yield from self._level_at(up.pop(), self._top - climb)
            elif down and climb > -0.5 and height + LONGEST_STEP_S * climb < self._band:
                yield from self._level_at(down.pop(), SINK_M_S + climb)
            else:  # the remaining levels need the other direction first
                rise = not up and height < self._band / 2
                yield from self._turn(0.1, -SINK_M_S if rise else SINK_M_S)

    def _away(self, share: float) -> bool:
        """Return whether the vehicle is farther from home than this share of the room for throttle steps."""
        x, y, z = self._x[P] - self._home
        return abs(z) > share * self._band or math.hypot(x, y) > share * CLEAR_M

    def _turn(self, seconds: float, sink: float) -> Inputs:
        end = self._t + seconds
        while self._t < end:
            yield self._towards(np.array([*self._homewards()[:2], sink]), DASH_M_S2)

    def _homewards(self) -> Array:
        return np.clip(PLACE_GAIN * (self._home - self._x[P]), -4.0, 4.0)

    def _level_at(self, throttle: float, change: float) -> Inputs:
        """Hold one level until the velocity has changed by `change` m/s, or for the longest step."""
        thrust = self._vehicle.throttle.thrust(throttle)
        end = self._t + min(change / max(abs(thrust - GRAVITY), 1.0), LONGEST_STEP_S)
        while self._t < end:
            omega, _ = self._towards(0.5 * self._homewards() * [1, 1, 0])
            yield omega, thrust
        # The next step depends on the climb that results from this one, which appears with a delay.
        yield from self._turn(self._vehicle.command_delay_s + 2 * self._vehicle.thrust_lag_s, 0.0)

    def _doublet(self, axis: int, sign: float) -> Inputs:
        for side in (sign, -sign):
            end = self._t + SIDE_S
            size = min(DOUBLET_RAD_S[axis], self._vehicle.rate_max_rad_s[axis])
            while self._t < end:
                omega, thrust = self._towards(np.zeros(3))
                omega[axis] = side * size
                yield omega, thrust

    def _dash(self, direction: Array) -> Inputs:
        """Fly fast to one side as far as there is room, and back; skip it where there is too little."""
        ends = [self._home[:2] + s * DASH_M * direction[:2] for s in (1.0, -1.0)]
        reach = [np.clip(end, self._low, self._far) - self._home[:2] for end in ends]
        path = np.array([*max(reach, key=lambda r: float(r @ r)), 0.0])
        length = float(np.linalg.norm(path))
        if length < 3.0:
            return
        for begin, heading in ((np.zeros(3), path / length), (path, -path / length)):
            end = self._t + 6.0
            while self._t < end:
                left = length - float((self._x[P] - self._home - begin) @ heading)
                if left < 0.5:
                    break
                speed = min(DASH_M_S, math.sqrt(max(left, 0.0) * DASH_M_S2))  # half the brake's: tilting takes time
                correction = self._home + begin + (length - left) * heading - self._x[P]
                yield self._towards(speed * heading + np.clip(correction, -2.0, 2.0), DASH_M_S2)

    def _towards(self, v_w: Array, limit: float = CALM_M_S2, learn: bool = False) -> Input:
        """Return rates and thrust towards a velocity (3,) m/s; by default the controller's integral does not learn."""
        u, _ = self._velocity.input(self._x, Aim(v_w, self._heading), self._dt, limit, learn)
        return u[:3], float(u[3])


class Exciter(FlightGuidance[MapEstimator]):
    course: tuple[Gate, ...] = ()

    def __init__(self, excitation: Excitation, observer: GateObserver):
        self.passages = Passages()
        self._excitation, self._observer = excitation, observer

    def window(self, state: State | None) -> SearchWindow:
        return self._observer.window(None, np.zeros(3))

    def see(self, image: DetectedImage, estimator: MapEstimator) -> Localised:
        return self._observer.see(image, estimator)

    def judge(self, state: State, t: float, go_t: float, estimator: MapEstimator) -> End | None:
        return End(EndReason.FINISHED) if self._excitation.done else None

    def step(self, state: State, t: float, dt: float, estimator: MapEstimator) -> Control:
        return self._excitation.step(t, state_vector(state), dt)

"""The probe flight: a short flight that makes signs, gains and delays of a simulator visible.

Pure, like the pilot: messages in, commands out, on one clock. The flight is the generator `_script`, one command per
step. No axis is levelled or braked before the camera has determined the sign of its gyro; until then angles are held,
which requires only the sign of the gyro relative to the command, measured by a first doublet.
"""

import math
from collections.abc import Generator
from typing import Any

import numpy as np

from gate_racer.estimation.odometry import InertialOdometry
from gate_racer.field.probe import motion
from gate_racer.field.probe.links import is_armed
from gate_racer.field.probe.motion import PITCH, ROLL, TILTED_RAD, YAW, Order, RestMean, Series
from gate_racer.link.messages import VideoFrame
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, as_vector, conjugate, from_euler, log, matrix, product

SPIN_RAD_S, SPIN_S = 7.0, 0.4  # body rate and duration that end the flight
OVERTURNED = 0.2  # -, cosine of the tilt below which the flight ends (chosen)
VIDEO_LATENCY_S = 0.0135  # s, nominal latency of images, until it is measured
SILENCE_S = 0.5  # s without telemetry that ends the flight
WINDOW_S, FELL_BEHIND_S = 1.0, 0.004  # window of the clock offset, and its increase that shows a slow simulator

LEGACY, RAD_S = 128, 144  # type masks: rates, rates with bit 16
COMMAND_HZ = 60.0  # Hz, rate of commands: half of the allowed 120 Hz (chosen)
FIRST, SWING_S = 0.4, 0.18  # amplitude on the wire of a first doublet, and s, duration of each side
FAST_RAD_S = (3.0, 3.0, 2.0)  # amplitude of the doublets that show the growth of the gains
FAST_S = 0.2  # s, duration of each side
LEAST_RESPONSE = 0.1  # -, measured over commanded rate, below which the axis does not respond (chosen)
LIFT_FROM, LIFT_TO, LIFT_RAMP = 0.1, 0.8, 0.35  # throttle, and its rate of increase, 1/s
HEIGHT_M = 1.5  # m, height of the hover (chosen)
SLOPE_NEAR_HOVER = 0.7  # relative change of throttle over that of thrust: thrust goes with throttle to the power of 1.4
BRAKE_M_S2 = 4.0  # m/s^2, largest deceleration, each axis (chosen)
Orders = Generator[Order, None, None]


class ProbeFlight:
    """The probe flight: pass messages to `receive`, images to `see`, and call `act` for commands until `over`."""

    def __init__(self, rest: RestMean, camera: Camera, mask: int, signs: tuple[float, float, float]):
        """Start it with a type mask of the rate commands, and signs of the gyro that are assumed until measured."""
        self.signs = np.array(signs, float)  # (3,) of the gyro on the wire relative to body FRD
        self.known = np.zeros(3, bool)  # (3,) whether the camera determined each
        self.lifted, self.end = False, ""  # reason for an early end
        self.hover: float | None = None  # throttle
        self.series = Series(rest)
        self.motion: InertialOdometry  # since lift-off
        self.over = False
        self.offset_s = rest.offset_s
        self._rest, self._camera = rest, camera
        self._image: tuple[float, np.ndarray] | None = None
        self._t = self._received_t = self._window_end = -math.inf
        self._fastest = math.inf  # least arrival minus stamp in the current window
        self._video_offset = 0.0  # s, offset of the image stamps, like `offset_s`
        self._news = self._was_armed = False
        self._spinning_since: float | None = None
        self._mask = mask
        self._ratio: dict[int, Array] = {LEGACY: np.full(3, np.nan), RAD_S: np.full(3, np.nan)}  # gyro over command
        self._lift_t = math.inf
        self._hover, self._specific_thrust = 0.0, GRAVITY
        self._due = -math.inf
        self._script_left = self._script()

    def receive(self, arrival: float, message: Any) -> None:
        kind = message.get_type()
        if kind == "HIGHRES_IMU":
            self._receive_imu(arrival, message)
        elif kind == "ATTITUDE":
            euler = np.array([message.roll, message.pitch, message.yaw])
            w = np.array([message.rollspeed, message.pitchspeed, message.yawspeed])
            if np.isfinite(euler).all() and np.isfinite(w).all():
                self.series.attitude.append((self._local(arrival, message.time_boot_ms * 1e-3), euler, w))
        elif kind == "ODOMETRY":
            q, w = np.array(message.q), np.array([message.rollspeed, message.pitchspeed, message.yawspeed])
            if np.isfinite(q).all() and np.isfinite(w).all() and q @ q > 0.5:
                self.series.odometry.append((self._local(arrival, message.time_usec * 1e-6), q, w))
        elif kind == "HEARTBEAT" and self.lifted and self._was_armed and not is_armed(message):
            self.stop("the simulator disarmed the vehicle")
        elif kind == "HEARTBEAT":
            self._was_armed = is_armed(message)

    def _local(self, arrival: float, stamp: float) -> float:
        """Return a stamp on the local clock; the arrival, if its clock is not the IMU's."""
        t = stamp + self.offset_s
        return t if abs(arrival - t) < SILENCE_S else arrival

    def _receive_imu(self, arrival: float, message: Any) -> None:
        values, stamp = np.array(motion.imu_values(message)), message.time_usec * 1e-6
        self._received_t = arrival
        self._follow_clock(arrival, arrival - stamp)
        t = stamp + self.offset_s
        if t <= self._t or not np.isfinite(values).all():
            return
        self._t, self._news = t, True
        row = (t, values[:3], values[3:])
        self.series.imu.append(row)
        if self.lifted:
            self.motion.imu(motion.signed(row, self.signs))
            self._watch(t, values[3:])

    def _follow_clock(self, arrival: float, late: float) -> None:
        """Update the clock offset: it increases if the simulator is too slow, and jumps if its clock was set."""
        self._fastest = min(self._fastest, late)
        if arrival > self._window_end:
            if math.isfinite(self._window_end) and self._fastest > self.offset_s + FELL_BEHIND_S:
                self.offset_s = self._fastest
            self._fastest, self._window_end = math.inf, arrival + WINDOW_S
        if abs(late - self.offset_s) > SILENCE_S:
            self.offset_s = late
        self.offset_s = min(self.offset_s, late)

    def _watch(self, t: float, gyro: Array) -> None:
        if float(np.abs(gyro).max()) < SPIN_RAD_S:
            self._spinning_since = None
        elif self._spinning_since is None:
            self._spinning_since = t
        elif t - self._spinning_since > SPIN_S:
            self.stop("the vehicle spins")
        if self._down < OVERTURNED:
            self.stop("the vehicle turned over")

    @property
    def _down(self) -> float:
        return float(matrix(self.motion.pose.q_wb)[2, 2])

    def see(self, arrival: float, frame: VideoFrame) -> None:
        late = arrival - frame.t - self._video_offset
        if late < 0 or late > SILENCE_S:  # the fastest so far, or the clock was set
            self._video_offset += late
        grey, t = motion.half_size(frame.jpeg, self._camera), frame.t + self._video_offset - VIDEO_LATENCY_S
        before, self._image = self._image, None if grey is None else (t, grey)
        if before is not None and grey is not None and t - before[0] < 0.1:
            turn = motion.turn_between(before[1], grey, self._camera)
            if turn is not None:
                self.series.turns.append((before[0], t, turn))

    def stop(self, why: str) -> None:
        if not self.over:
            self.over, self.end = True, why

    def act(self, now: float) -> Order | None:
        if self.over or not self._news or now < self._due:
            if now - self._received_t > SILENCE_S and math.isfinite(self._received_t):
                self.stop(f"no HIGHRES_IMU for {SILENCE_S:g} s")
            return None
        self._news, self._due = False, max(self._due + 1 / COMMAND_HZ, now)
        order = next(self._script_left, None)
        if order is None:
            self.over = True
            return None
        self.series.sent.append((now, order))
        return order

    # The script. `self._t` is the newest sample's time, which sets the pace.

    def _script(self) -> Orders:
        yield from self._lift()
        if not self.lifted:
            return
        yield from self._first(PITCH)
        tilted = max(abs(angle) for angle in self._rest.tilt) > TILTED_RAD
        if not self.known[PITCH] and tilted:
            self.stop("the camera does not give the sign of the pitch rate, so the vehicle cannot be levelled")
            return
        yield from self._hold(0.6)
        for axis in (ROLL, YAW):
            yield from self._first(axis)
            yield from self._hold(0.25)
        yield from self._hold(1.0)
        self.hover = self._hover
        for mask in (LEGACY, RAD_S):
            for axis in (ROLL, PITCH, YAW):
                yield from self._swing(mask, axis)
        for factor in (1.35, 0.7, 1.35, 0.7):
            begin = self._t
            while self._t - begin < 0.25:
                yield Order(self._mask, self._rates(), min(0.9, factor * self._hover))
            yield from self._hold(0.25)
        yield from self._hold(0.8)
        yield from self._land()

    def _lift(self) -> Orders:
        """Increase throttle until the accelerometer no longer shows the pad."""
        begin, throttle, moved = self._t, LIFT_FROM, 0
        limit = max(0.5, 5 * self._rest.spread)
        while throttle < LIFT_TO:
            throttle = LIFT_FROM + LIFT_RAMP * (self._t - begin)
            yield Order(self._mask, (0.0, 0.0, 0.0), throttle)
            force = np.mean([row[1] for row in self.series.imu[-3:]], axis=0)
            moved = moved + 1 if float(np.linalg.norm(force - self._rest.force_b)) > limit else 0
            if moved >= 2:
                self._lift_t, self.lifted = self._t, True
                self._hover = throttle - 0.07 * LIFT_RAMP  # the measured force was commanded that long before
                self.series.marks["flight"] = (self._t, math.inf)
                self.motion = motion.integrated_motion(self._rest, self._t, [], self.signs)
                self._specific_thrust = 1.2 * GRAVITY
                yield from self._fly(0.12, lambda: (0.0, 0.0, 0.0))
                return
        self.end = f"the vehicle does not lift off with throttle {LIFT_TO:g}"

    def _first(self, axis: int) -> Orders:
        """Fly a first doublet: determine whether the axis responds, and the sign of the gyro."""
        begin = self._t
        for mask in dict.fromkeys((self._mask, RAD_S, LEGACY)):
            if (yield from self._response(mask, axis)):
                self._mask = mask if axis == PITCH else self._mask
                break
        if sign := self.series.sign_by_camera(axis, begin, self._t):
            self.signs[axis], self.known[axis] = sign, True
            flown = [row for row in self.series.imu if row[0] > self._lift_t]
            self.motion = motion.integrated_motion(self._rest, self._lift_t, flown, self.signs)

    def _swing(self, mask: int, axis: int) -> Orders:
        if ratio := (yield from self._response(mask, axis)):
            yield from self._doublet(mask, axis, FAST_RAD_S[axis] / abs(ratio), FAST_S)
        yield from self._hold(0.35)

    def _response(self, mask: int, axis: int) -> Generator[Order, None, float]:
        """Fly a small doublet; keep and return gyro over command, 0 where the axis does not respond."""
        begin = self._t
        yield from self._doublet(mask, axis, FIRST, SWING_S)
        yield from self._fly(0.12, self._rates)
        ratio = self.series.ratio(mask, axis, begin, self._t)
        if abs(ratio) <= LEAST_RESPONSE:
            return 0.0
        self._ratio[mask][axis] = ratio
        return ratio

    def _doublet(self, mask: int, axis: int, size: float, side_s: float) -> Orders:
        """Command a rate one way and back: it ends where it began, for any sign and gain."""
        for sign in (1.0, -1.0):
            rates = np.zeros(3)
            rates[axis] = sign * size
            yield from self._fly(side_s, lambda rates=rates: tuple(rates.tolist()), mask)

    def _hold(self, seconds: float) -> Orders:
        yield from self._fly(seconds, self._rates, steer=True)

    def _land(self) -> Orders:
        """Descend slowly until contact, until the start height is reached, or until a time-out."""
        begin = self._t
        while self._t - begin < 5.0:
            self._steer(sink=0.8)
            yield Order(self._mask, self._rates(), self._throttle())
            force = np.mean([row[1] for row in self.series.imu[-3:]], axis=0)
            touched = float(np.linalg.norm(force)) > self._specific_thrust + 4.0
            if self._t - begin > 0.5 and (touched or self.motion.pose.p_w[2] > 0.2):
                break
        self.series.marks["flight"] = (self._lift_t, self._t)
        for _ in range(6):
            yield Order(self._mask, (0.0, 0.0, 0.0), 0.0)

    # Control: commands in wire units.

    def _fly(self, seconds: float, rates: Any, mask: int | None = None, steer: bool = False) -> Orders:
        begin = self._t
        while self._t - begin < seconds:
            if steer:
                self._steer()
            yield Order(mask or self._mask, rates(), self._throttle())

    def _steer(self, sink: float | None = None) -> None:
        height, v_z = -self.motion.pose.p_w[2], self.motion.pose.v_w[2]
        v_z_target = sink if sink is not None else float(np.clip(0.8 * (height - HEIGHT_M), -0.8, 0.8))
        thrust = (GRAVITY - 2.0 * (v_z_target - v_z)) / max(self._down, 0.6)
        force = np.mean([row[1][2] for row in self.series.imu[-4:]])
        self._hover *= 1 + 0.5 / COMMAND_HZ * float(np.clip((self._specific_thrust + force) / GRAVITY, -0.5, 0.5))
        self._specific_thrust = float(np.clip(thrust, 0.6 * GRAVITY, 1.5 * GRAVITY))

    def _throttle(self) -> float:
        return float(np.clip(self._hover * (1 + SLOPE_NEAR_HOVER * (self._specific_thrust / GRAVITY - 1)), 0.02, 0.9))

    def _rates(self) -> tuple[float, float, float]:
        """Return the rates on the wire that hold or reach the desired attitude, about the axes with a known response."""
        known = self.known
        brake = np.clip(-1.2 * self.motion.pose.v_w - 0.5 * self.motion.pose.p_w, -BRAKE_M_S2, BRAKE_M_S2)
        roll, pitch = self._rest.tilt
        if known[PITCH]:
            pitch = -brake[0] / GRAVITY
        if known[ROLL]:
            roll = brake[1] / GRAVITY
        error = log(product(conjugate(self.motion.pose.q_wb), from_euler(roll, pitch, 0.0)))
        omega = np.clip(5.0 * error, -1.2, 1.2) * self.signs
        on_wire = np.where(np.isfinite(self._ratio[self._mask]), omega / self._ratio[self._mask], 0.0)
        return as_vector(on_wire)

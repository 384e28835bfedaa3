"""Emergency descent without a pilot: brake, sink slowly, low throttle on the ground. Replies in, sticks out.

    v' = g + R f - v / FORGET_S                                          velocity, integrated from the pad
    h' = -v_z + L1 (h_baro - h),   v_z' = ... - L2 (h_baro - h)          if altitude is polled
    a = -v_xy / BRAKE_S, (V_SINK - v_z) / SINK_S                         commanded, each limited; no sinking while fast
    c = (g - a_z) / cos(tilt),   s = k c / g,   k' = GAIN (c - f) / g    throttle relative to hover

From the IMU alone v is accurate to some m/s, which suffices to brake but not to hold a position. On the ground the force f is
g whatever s is, so that k decreases, and s reaches its minimum.
"""

import math

import numpy as np

from gate_racer.link.msp.messages import Altitude, Channels, Message, RawAttitude, RawImu, StatusEx
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.msp.sticks import sticks_by_angles, sticks_by_rates
from gate_racer.link.msp.units import attitude, imu
from gate_racer.vehicle.dynamics import G_W, GRAVITY
from gate_racer.vehicle.rotation import Array, matrix

TURN_1_S, TURN_RAD_S = 3.5, 4.0  # attitude gain, and greatest body rate
STEEP = 0.5  # cosine of the tilt beyond which the throttle is at its minimum until the vehicle is upright
BRAKE_S, BRAKE_M_S2 = 1.0, 5.0  # time constant and greatest deceleration
FAST_M_S = 3.0  # horizontal speed above which height is held
V_SINK_M_S, SINK_S, DOWN_M_S2, UP_M_S2 = 1.5, 1.0, 3.0, 4.0  # sink rate, time constant, greatest accelerations
FORGET_S = 10.0  # time constant of the leaky integration
GAIN_1_S = 3.0  # adaptation gain of the throttle
L1, L2 = 1.4, 1.0  # 1/s, 1/s^2: observer at 1 rad/s, damping 0.7, for a barometer with 0.4 m of noise
LEAST, MOST = 0.4, 1.8  # relative to the hover throttle
LANDED_S = 1.0  # s at the least throttle, upright
LIMIT_S = 60.0  # s, after which the throttle is low whatever was measured
LONGEST_S = 0.5  # s, longest step, over which the force is assumed to change linearly


class Descent:
    """Descent controller. Pass all messages to `receive`; call `sticks` from `begin` on. Times in s of one monotonic clock."""

    def __init__(self, profile: BetaflightProfile, hover: float):
        """Create it; `hover`: hover throttle, 0..1, as far as known."""
        self._profile, self._hover = profile, hover
        self.over = False  # the motors are off, or the person has taken over
        self._R_wb, self._v_w = np.eye(3), np.zeros(3)
        self._h: float | None = None  # m, height above the barometer's zero
        self._trim, self._share = 1.0, 1.0
        self._angle = self._landed = self._armed = False
        self._begun: float | None = None
        self._felt_t: float | None = None
        self._a_w = np.zeros(3)
        self._carried_t = 0.0  # last time with more than the least throttle

    def receive(self, message: Message, t: float) -> None:
        """Process a message, sampled at t."""
        match message:
            case RawAttitude():
                self._R_wb = matrix(attitude(self._profile, message, t).q_wb)
            case RawImu():
                self._feel(np.array(imu(self._profile, message, t, spinning=self._armed).accel), t)
            case Altitude():
                self._receive_altitude(message.altitude_cm / 100)
            case StatusEx():
                self._armed = message.armed
                self.over |= not message.armed
            case Channels():
                self.over |= not self._profile.aux.override.on(message.us)
                self._angle = self._profile.aux.angle.on(message.us)

    def begin(self, t: float) -> None:
        """Start the descent at t."""
        self._begun = self._carried_t = t
        self.over, self._trim = False, 1.0

    def sticks(self, t: float) -> tuple[int, ...]:
        """Return channels in us at t, in the order of the receiver's map."""
        self._landed |= self._begun is not None and t - self._begun > LIMIT_S
        throttle = 0.0 if self._landed else self._share * self._hover
        if self._angle:
            return sticks_by_angles(self._profile, 0.0, 0.0, 0.0, throttle)
        return sticks_by_rates(self._profile, (0.0, 0.0, 0.0) if self._landed else self._turn(), throttle)

    def _turn(self) -> tuple[float, float, float]:
        """Return body rates that rotate the thrust to the commanded direction, the shortest way."""
        x, y, z = (self._R_wb.T @ (self._commanded() - G_W)).tolist()
        across = math.hypot(x, y)
        rate = min(TURN_1_S * math.atan2(across, -z), TURN_RAD_S) / max(across, 1e-9)
        return rate * y, -rate * x, 0.0

    def _commanded(self) -> Array:
        """Return the commanded acceleration (3,) m/s^2, world NED."""
        v = self._v_w
        speed, sink = math.hypot(v[0], v[1]), V_SINK_M_S
        share = min(1.0, BRAKE_M_S2 * BRAKE_S / max(speed, 1e-9)) / BRAKE_S
        if speed > FAST_M_S:
            sink = 0.0
        return np.array([-share * v[0], -share * v[1], min(max((sink - v[2]) / SINK_S, -UP_M_S2), DOWN_M_S2)])

    def _receive_altitude(self, h: float) -> None:
        dt, off = 1 / self._profile.stick_hz, h - (h if self._h is None else self._h)
        self._h = h - off + L1 * off * dt
        self._v_w[2] -= L2 * off * dt

    def _feel(self, f_b: Array, t: float) -> None:
        dt = min(t - self._felt_t, LONGEST_S) if self._felt_t is not None else 0.0
        self._felt_t = t
        if not self._armed:
            return
        before, self._a_w = self._a_w, G_W + self._R_wb @ f_b
        self._v_w += dt * ((before + self._a_w) / 2 - self._v_w / FORGET_S)
        if self._h is not None:
            self._h -= dt * self._v_w[2]
        if self._begun is not None:
            self._drive(float(f_b[2]), dt, t)

    def _drive(self, push: float, dt: float, t: float) -> None:
        """Update the throttle after dt (s) with a specific force `push` (m/s^2) along body z."""
        upright = float(self._R_wb[2, 2])
        if upright < STEEP:
            self._share, self._carried_t = LEAST, t
            return
        commanded = (GRAVITY - float(self._commanded()[2])) / upright
        self._trim = min(max(self._trim + dt * GAIN_1_S * (commanded + push) / GRAVITY, LEAST), MOST)
        self._share = min(max(self._trim * commanded / GRAVITY, LEAST), MOST)
        if self._share > LEAST:
            self._carried_t = t
        self._landed |= t - self._carried_t > LANDED_S

"""Betaflight without an aircraft: bytes in, bytes out, time as an argument.

Set-points of the rate loop come from channels by rate curve or angle mode, then Betaflight's set-point filter: PT3, three equal
first-order stages, y' = (x - y) / tau each, solved exactly for an input held between two calls. Measurements are in counts, with
the biases due to spinning propellers; the specific force is low-pass filtered, the attitude is updated by a task of its own.

The serial task runs at 100 Hz and executes one command per run; replies leave at the line's baud rate. Betaflight 4.4,
`src/main/msp/msp_serial.c`. Its command line, which a `#` outside of frames opens on the same port, is not simulated.
"""

import math
from dataclasses import replace

import numpy as np

from gate_racer.link.messages import AttitudeTarget, Imu
from gate_racer.link.msp.messages import (
    LETTERS,
    Altitude,
    ApiVersion,
    BoardInfo,
    Channels,
    Code,
    Direction,
    FcVariant,
    FcVersion,
    Frame,
    Message,
    ModeRange,
    ModeRanges,
    Parser,
    RawAttitude,
    RawImu,
    RcTuning,
    RxConfig,
    RxMap,
    StatusEx,
    join_multiple,
    pack,
)
from gate_racer.link.msp.preflight import ANGLE, ARM, OVERRIDE
from gate_racer.link.msp.profile import (
    LEAST_MAP,
    MID_US,
    OWN_ORDER,
    RATES_TYPE,
    STICKS,
    BetaflightProfile,
    pole_s,
)
from gate_racer.sim.betaflight.receiver import Arming, Receiver, Uart
from gate_racer.sim.physics.plant import P, Truth, V
from gate_racer.sim.simulator import Sensors, Simulator
from gate_racer.vehicle.rotation import Array, from_euler, to_euler

STAGES = 3
LEVEL = (1.0, 0.0, 0.0, 0.0)
VALUES = 6  # body rates (3), throttle, roll and pitch angle


class Setpoints:
    """Set-point filter of all channels; call `advance` with non-decreasing times, s."""

    def __init__(self, profile: BetaflightProfile):
        self._profile, self._tau_s = profile, pole_s(profile.smoothing_hz)
        self.reset()

    def reset(self) -> None:
        """Reset the filter to zero input."""
        self._stages, self._t = np.zeros((STAGES, VALUES)), 0.0
        self._channels: list[float] = []  # of which _asked are the set-points
        self._asked = np.zeros(VALUES)

    def advance(self, receiver: Receiver, q_wb: Array, t: float) -> AttitudeTarget:
        """Return the set-point at t, s, with the heading of the attitude q_wb (4,) in angle mode."""
        if receiver.channels != self._channels:
            self._channels = list(receiver.channels)
            rates, angles = self._profile.asked_rates(self._channels), self._profile.asked_angles(self._channels)
            self._asked = np.array([*rates.turn, rates.throttle, *angles.turn[:2]])
        self._filter(self._asked, t - self._t)
        self._t = t
        x, y, z, throttle, roll, pitch = self._stages[-1].tolist()
        if not receiver.active(self._profile.aux.angle):
            return AttitudeTarget(LEVEL, (x, y, z), throttle)
        a, b, c, d = from_euler(roll, pitch, to_euler(q_wb)[2]).tolist()
        return AttitudeTarget((a, b, c, d), (0.0, 0.0, z), throttle, by_rates=False)

    def _filter(self, asked: Array, dt: float) -> None:
        """Advance the cascade by dt (s) at constant input: exact response of three equal poles, polynomial x exp(-dt / tau)."""
        s = max(dt, 0.0) / self._tau_s
        decay = math.exp(-s)
        off = self._stages - asked  # of each stage from where all will come to rest
        first, second, third = off
        self._stages = asked + decay * np.array([first, second + s * first, third + s * second + s * s / 2 * first])


LONGEST = 0x7FFF


class SimulatedSensing:
    """Measurements of a simulator's vehicle; call `advance` at each of its ticks. Altitude is relative to the pad."""

    def __init__(self, profile: BetaflightProfile, simulator: Simulator, sensors: Sensors, rng: np.random.Generator):
        """Create it; `rng`: phase of the attitude task, and barometer noise."""
        self._profile, self._simulator, self._sensors, self._rng = profile, simulator, sensors, rng
        self._pad_z = float(simulator.truth.x[P][2])
        self._force = LowPass(profile.accel_lpf_hz, simulator.truth.accel_b)
        self._attitude, self._attitude_t = self._raw_attitude(), rng.uniform(0.0, 1 / profile.attitude_hz)

    def advance(self) -> None:
        """Filter the force, and update the attitude when it is due."""
        truth = self._simulator.truth
        self._force.advance(truth.accel_b, 1 / self._simulator.profile.physics_hz)
        self._sensors.follow(self._filtered)
        if truth.t >= self._attitude_t:
            self._attitude, self._attitude_t = self._raw_attitude(), self._attitude_t + 1 / self._profile.attitude_hz

    def imu(self) -> RawImu:
        sample: Imu = self._sensors.imu(self._filtered)
        x, y, z = sample.accel
        lost = self._profile.accel_loss_m_s2 if self._simulator.armed else 0.0
        return self._profile.raw_imu((x, y, z + lost), sample.gyro)

    def attitude(self) -> RawAttitude:
        return self._attitude

    def altitude(self) -> Altitude:
        x, barometer = self._simulator.truth.x, self._profile.barometer
        height = self._pad_z - float(x[P][2]) + self._rng.normal(0.0, barometer.noise_m)
        if self._simulator.armed:
            height -= barometer.fall_m
        climb = min(max(round(-100 * float(x[V][2])), -LONGEST), LONGEST)
        return Altitude(round(100 * height), climb)

    @property
    def _filtered(self) -> Truth:
        return replace(self._simulator.truth, accel_b=self._force.y)

    def _raw_attitude(self) -> RawAttitude:
        return self._profile.raw_attitude(np.array(self._sensors.attitude(self._simulator.truth).q_wb))


class LowPass:
    """Butterworth filter of second order for a vector: y'' = w^2 (x - y) - sqrt(2) w y'."""

    def __init__(self, cutoff_hz: float, at_rest: Array):
        self._w, self.y, self._dy = 2 * math.pi * cutoff_hz, at_rest.copy(), np.zeros_like(at_rest)

    def advance(self, x: Array, dt: float) -> None:
        """Advance by dt (s), short compared with the time constant, at input x."""
        self._dy = self._dy + dt * self._w * (self._w * (x - self.y) - math.sqrt(2) * self._dy)
        self.y = self.y + dt * self._dy


MAX_CHECK_US = 1900  # Betaflight's default
CRSF = 9  # of its serial receivers


def settings(profile: BetaflightProfile) -> dict[int, Message]:
    """Return the constant replies by MSP command."""
    low, high = profile.valid_us
    return {
        Code.API_VERSION: ApiVersion(0, 1, 45),
        Code.FC_VARIANT: FcVariant("BTFL"),
        Code.FC_VERSION: FcVersion(4, 4, 3),
        Code.BOARD_INFO: BoardInfo("SH74", target="STM32H743"),
        Code.RC_TUNING: _tuning(profile),
        Code.RX_CONFIG: RxConfig(CRSF, MAX_CHECK_US, MID_US, profile.throttle.min_check_us, 0, low, high),
        Code.RX_MAP: RxMap(profile.channel_map + LETTERS[len(LEAST_MAP) :]),
        Code.MODE_RANGES: _modes(profile),
    }


def _modes(profile: BetaflightProfile) -> ModeRanges:
    switches = (ARM, profile.aux.arm), (ANGLE, profile.aux.angle), (OVERRIDE, profile.aux.override)
    return ModeRanges(tuple(ModeRange(mode, aux.channel, aux.low_us, aux.high_us) for mode, aux in switches))


def _tuning(profile: BetaflightProfile) -> RcTuning:
    roll, pitch, yaw = profile.rates.axes
    return RcTuning(
        rc_rate_roll=roll.rc_rate,
        expo_roll=roll.expo,
        rate_roll=roll.rate,
        rate_pitch=pitch.rate,
        rate_yaw=yaw.rate,
        tpa_rate=65,
        throttle_mid=profile.throttle.mid,
        throttle_expo=profile.throttle.expo,
        tpa_breakpoint=1350,
        expo_yaw=yaw.expo,
        rc_rate_yaw=yaw.rc_rate,
        rc_rate_pitch=pitch.rc_rate,
        expo_pitch=pitch.expo,
        throttle_limit_type=0,
        throttle_limit=100,
        limit_roll_deg_s=roll.limit_deg_s,
        limit_pitch_deg_s=pitch.limit_deg_s,
        limit_yaw_deg_s=yaw.limit_deg_s,
        rates_type=RATES_TYPE[profile.rates.kind],
    )


RX_BUFFER_BYTES = 256
SENSORS = 0b100011  # accelerometer, barometer, gyro
PID_LOOP_US = 125


class FlightController(Uart):
    """Flight controller on one UART: `receive` and `transmitted` exchange bytes, `serve` advances it, `fly` gives set-points."""

    def __init__(self, profile: BetaflightProfile, sensing: SimulatedSensing):
        super().__init__(profile.baud, profile.serial_task_hz)
        self.profile, self._sensing, self._settings = profile, sensing, settings(profile)
        self.receiver, self.arming, self._setpoints = Receiver(profile), Arming(profile), Setpoints(profile)
        self.boot(0.0)

    def boot(self, t: float) -> None:
        """Power on at t, s."""
        self._parser, self._buffer = Parser((Direction.REQUEST,)), bytearray()
        self.receiver.boot(t)
        self.arming.boot(t)
        self._setpoints.reset()

    @property
    def armed(self) -> bool:
        return self.arming.armed

    def serve(self, t: float) -> None:
        """Run the serial task, receiver and arming as often as they are due up to t, s."""
        while self._task_t <= t + 1e-9:
            now = self._task_t
            self._tasks += 1
            self._read(now)
            self.receiver.update(now)
            self.arming.update(self.receiver, now)

    def fly(self, q_wb: Array, t: float) -> AttitudeTarget | None:
        """Measure, and return the set-point of the rate loop at t, s, at an attitude (4,); None while disarmed."""
        self._sensing.advance()
        target = self._setpoints.advance(self.receiver, q_wb, t)
        return target if self.armed else None

    def _read(self, t: float) -> None:
        """Read bytes up to the end of one command and answer it."""
        self._buffer += self._in.arrived(t)[: RX_BUFFER_BYTES - len(self._buffer)]
        while self._buffer:
            frames = self._parser.feed(bytes((self._buffer.pop(0),)))
            for frame in frames:
                self._out.send(pack(self._answer(frame, t)), t)
            if frames:
                return

    def _answer(self, frame: Frame, t: float) -> Frame:
        payload = self._payload(frame, t)
        direction = Direction.ERROR if payload is None else Direction.ANSWER
        return Frame(frame.command, payload or b"", direction)

    def _payload(self, frame: Frame, t: float) -> bytes | None:
        """Return the reply's payload; None for an error reply."""
        if frame.command == Code.SET_RAW_RC:
            channels = Channels.decode(frame.payload)
            if channels is None:
                return None
            self.receiver.take(channels.us, t)
            return b""
        if frame.command == Code.MULTIPLE_MSP:
            wanted = [self._message(command) for command in frame.payload]
            return join_multiple([m.encode() if m is not None else b"" for m in wanted]) if wanted else None
        message = self._message(frame.command)
        return message.encode() if message is not None else None

    def _message(self, command: int) -> Message | None:
        match command:
            case Code.RAW_IMU:
                return self._sensing.imu()
            case Code.ATTITUDE:
                return self._sensing.attitude()
            case Code.ALTITUDE:
                return self._sensing.altitude()
            case Code.RC:
                return Channels(tuple(round(us) for us in self._in_its_own_order()))
            case Code.STATUS_EX:
                return self._status()
        return self._settings.get(command)

    def _in_its_own_order(self) -> list[float]:
        """Return roll, pitch, yaw, throttle and the AUX channels, us."""
        channels = self.receiver.channels
        return [*(channels[self.profile.channel(letter)] for letter in OWN_ORDER), *channels[STICKS:]]

    def _status(self) -> StatusEx:
        aux = self.profile.aux
        on = self.armed, self.receiver.active(aux.angle), self.receiver.overridden
        modes = sum(1 << bit for bit, holds in enumerate(on) if holds)
        return StatusEx(PID_LOOP_US, 0, SENSORS, modes, 0, 0, 4, 0, self.arming.disabled)

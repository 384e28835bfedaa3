"""Betaflight without an aircraft: receiver, arming, serial line and set-points; bytes in, bytes out, time as an argument.

The receiver has the pilot's transmitter, the MSP override by the companion computer, and signal loss. Channels are in the order
of its map, AUX1 at index 4. MSP's buffer is initially zero, which means no pulse, and has no time-out: the last values stay. A
flight channel without a pulse is held briefly; then the signal counts as lost, sticks are centred, throttle is low, and the AUX
channels keep their values, the override's included. Betaflight 4.4, `src/main/rx/rx.c` and `src/main/fc/core.c`.

Set-points of the rate loop come from channels by rate curve or angle mode, then Betaflight's set-point filter: PT3, three equal
first-order stages, y' = (x - y) / tau each, solved exactly for an input held between two calls. Measurements are in counts, with
the biases due to spinning propellers; the specific force is low-pass filtered, the attitude is updated by a task of its own.

The serial task runs at 100 Hz and executes one command per run; replies leave at the line's baud rate. Betaflight 4.4,
`src/main/msp/msp_serial.c`. Its command line, which a `#` outside of frames opens on the same port, is not simulated.
"""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.msp import messages as msp
from gate_racer.link.msp.preflight import ANGLE, ARM, OVERRIDE
from gate_racer.link.msp.profile import (
    LEAST_MAP,
    LOW_US,
    MID_US,
    OWN_ORDER,
    RATES_TYPE,
    STICKS,
    BetaflightProfile,
    pole_s,
)
from gate_racer.sim.physics.plant import P, V
from gate_racer.sim.simulator import Sensors, Simulator
from gate_racer.vehicle.rotation import Array, from_euler, to_euler

CHANNELS = 16
NO_PULSE = 0


class Receiver:
    """Receiver; call `update` at every cycle. `channels` (us) are the resulting inputs."""

    def __init__(self, profile: BetaflightProfile):
        self._profile = profile
        self._centred = [float(MID_US)] * STICKS
        self._centred[profile.channel("T")] = float(LOW_US)
        self.pilot: Sequence[float] = ()  # of the transmitter, us; missing channels have no pulse
        self.boot(0.0)

    def boot(self, t: float) -> None:
        """Power on at t, s, with nothing received."""
        self._companion = [float(NO_PULSE)] * CHANNELS
        self.channels = [*self._centred, *[float(LOW_US)] * (CHANNELS - STICKS)]
        self.lost, self.lost_t = True, t  # s, of the last valid pulses: the start of the loss while `lost`
        self.companion_t: float | None = None  # of the first sticks of SET_RAW_RC
        self.companion_last_t = t  # of the newest

    def take(self, us: Sequence[int], t: float) -> None:
        """Accept SET_RAW_RC at t, s; missing channels have no pulse."""
        given = [float(u) for u in us[:CHANNELS]]
        self._companion = given + [float(NO_PULSE)] * (CHANNELS - len(given))
        self.companion_last_t = t
        if self.companion_t is None:
            self.companion_t = t

    @property
    def overridden(self) -> bool:
        """Whether the masked channels are those of the companion."""
        return self._profile.aux.override.on(self.channels)

    def update(self, t: float) -> None:
        """Sample the channels at t, s."""
        low, high = self._profile.valid_us
        mask = self._profile.override_mask if self.overridden else 0
        pilot = [*self.pilot, *[float(NO_PULSE)] * (CHANNELS - len(self.pilot))]
        samples = [self._companion[k] if mask >> k & 1 else pilot[k] for k in range(CHANNELS)]
        valid = [low <= sample <= high for sample in samples]
        if all(valid[:STICKS]):
            self.lost_t, self.lost = t, False
        elif t - self.lost_t > self._profile.failsafe.signal_loss_s:
            self.lost = True
        if self.lost:
            self.channels[:STICKS] = self._centred
        else:
            self.channels = [new if good else old for new, good, old in zip(samples, valid, self.channels, strict=True)]


class Arming:
    """Arming state; call `update` at every cycle. A switch that was on when arming failed has to be moved off first."""

    def __init__(self, profile: BetaflightProfile):
        self._profile = profile
        self.boot(0.0)

    def boot(self, t: float) -> None:
        self._booted, self.armed, self.disabled = t, False, msp.DisableFlag.BOOT_GRACE_TIME
        self._refused = False

    def disarm(self) -> None:
        """Disarm at once, regardless of the switch."""
        self._refused |= self.armed
        self.armed = False

    def update(self, receiver: Receiver, t: float) -> None:
        """Follow the switch at t, s."""
        if self.armed and receiver.lost and t - receiver.lost_t > self._profile.failsafe.motors_off_s:
            self.disarm()
        throttle = receiver.channels[self._profile.channel("T")]
        flags = {
            msp.DisableFlag.BOOT_GRACE_TIME: t - self._booted < self._profile.boot_s,
            msp.DisableFlag.RX_FAILSAFE: receiver.lost,
            msp.DisableFlag.THROTTLE: throttle >= self._profile.throttle.min_check_us,
        }
        against = msp.DisableFlag(sum(flag for flag, holds in flags.items() if holds))
        if not self._profile.aux.arm.on(receiver.channels):
            self.armed = self._refused = False
        elif not self.armed:
            self.armed = not (against or self._refused)
            self._refused = not self.armed
        self.disabled = against | (msp.DisableFlag.ARM_SWITCH if self._refused else msp.DisableFlag(0))


BITS = 10  # of a byte on the line: one start bit, eight of data, one stop bit


class SerialLine:
    """One direction of a serial line. Times in s, as arguments, non-decreasing."""

    def __init__(self, baud: float):
        self._byte_s = BITS / baud
        self._free = -math.inf  # when the last byte that was sent has arrived
        self._under_way: deque[tuple[float, bytes]] = deque()  # when its first bit left, and what

    def send(self, data: bytes, t: float) -> None:
        if data:
            begin = max(t, self._free)
            self._under_way.append((begin, data))
            self._free = begin + len(data) * self._byte_s

    def arrived(self, t: float) -> bytes:
        """Return the bytes that have arrived by t since the last call."""
        received = b""
        while self._under_way:
            begin, data = self._under_way[0]
            count = min(len(data), max(0, math.floor((t - begin) / self._byte_s + 1e-6)))
            received += data[:count]
            if count < len(data):
                self._under_way[0] = begin + count * self._byte_s, data[count:]
                break
            self._under_way.popleft()
        return received

    @property
    def next_t(self) -> float:
        """Time at which the oldest transmission has arrived completely; inf if there is none."""
        if not self._under_way:
            return math.inf
        begin, data = self._under_way[0]
        return begin + len(data) * self._byte_s


class Uart:
    """Port of a flight controller: both directions of its line, and the rate of its serial task."""

    def __init__(self, baud: float, task_hz: float):
        self._in, self._out, self._task_hz = SerialLine(baud), SerialLine(baud), task_hz
        self._tasks = 0  # done so far

    @property
    def next_t(self) -> float:
        return min(self._task_t, self._out.next_t)

    @property
    def _task_t(self) -> float:
        return (self._tasks + 1) / self._task_hz

    def receive(self, data: bytes, t: float) -> None:
        self._in.send(data, t)

    def transmitted(self, t: float) -> bytes:
        """Return the bytes that have arrived at the other end by t, s, since the last call."""
        return self._out.arrived(t)


STAGES = 3
LEVEL = (1.0, 0.0, 0.0, 0.0)
VALUES = 6  # body rates (3), throttle, roll and pitch angle


class Setpoints:
    """Set-point filter of all channels; call `advance` with non-decreasing times, s."""

    def __init__(self, profile: BetaflightProfile):
        self._profile, self._tau_s = profile, pole_s(profile.smoothing_hz)
        self.reset()

    def reset(self) -> None:
        self._stages, self._t = np.zeros((STAGES, VALUES)), 0.0
        self._channels: list[float] = []  # of which _asked are the set-points
        self._asked = np.zeros(VALUES)

    def advance(self, receiver: Receiver, q_wb: Array, t: float) -> AttitudeTarget:
        """Return the set-point at t, s, with the heading of the attitude q_wb (4,) in angle mode."""
        if receiver.channels != self._channels:
            self._channels = list(receiver.channels)
            profile, us = self._profile, self._channels
            self._asked = np.array([*profile.asked_rates(us), profile.asked_throttle(us), *profile.asked_angles(us)])
        # The exact response of three equal poles to a constant input: a polynomial x exp(-dt / tau).
        s = max(t - self._t, 0.0) / self._tau_s
        first, second, third = self._stages - self._asked  # of each stage from where all will come to rest
        moved = np.array([first, second + s * first, third + s * second + s * s / 2 * first])
        self._stages, self._t = self._asked + math.exp(-s) * moved, t
        x, y, z, throttle, roll, pitch = self._stages[-1].tolist()
        if not self._profile.aux.angle.on(receiver.channels):
            return AttitudeTarget(LEVEL, (x, y, z), throttle)
        a, b, c, d = from_euler(roll, pitch, to_euler(q_wb)[2]).tolist()
        return AttitudeTarget((a, b, c, d), (0.0, 0.0, z), throttle, by_rates=False)


LONGEST = 0x7FFF


class SimulatedSensing:
    """Measurements of a simulator's vehicle; call `advance` at each of its ticks. Altitude is relative to the pad."""

    def __init__(self, profile: BetaflightProfile, simulator: Simulator, sensors: Sensors, rng: np.random.Generator):
        """Create it; `rng`: phase of the attitude task, and barometer noise."""
        self._profile, self._simulator, self._sensors, self._rng = profile, simulator, sensors, rng
        self._pad_z = float(simulator.truth.x[P][2])
        self.attitude, self._attitude_t = self._raw_attitude(), rng.uniform(0.0, 1 / profile.attitude_hz)

    def advance(self) -> None:
        """Measure the force, and update the attitude when it is due."""
        truth = self._simulator.truth
        self._sensors.follow(truth)
        if truth.t >= self._attitude_t:
            self.attitude, self._attitude_t = self._raw_attitude(), self._attitude_t + 1 / self._profile.attitude_hz

    def imu(self) -> msp.RawImu:
        sample = self._sensors.imu(self._simulator.truth)
        x, y, z = sample.accel
        lost = self._profile.accel_loss_m_s2 if self._simulator.armed else 0.0
        return self._profile.raw_imu((x, y, z + lost), sample.gyro)

    def altitude(self) -> msp.Altitude:
        x, barometer = self._simulator.truth.x, self._profile.barometer
        height = self._pad_z - float(x[P][2]) + self._rng.normal(0.0, barometer.noise_m)
        if self._simulator.armed:
            height -= barometer.fall_m
        return msp.Altitude(round(100 * height), min(max(round(-100 * float(x[V][2])), -LONGEST), LONGEST))

    def _raw_attitude(self) -> msp.RawAttitude:
        return self._profile.raw_attitude(np.array(self._sensors.attitude(self._simulator.truth).q_wb))


MAX_CHECK_US = 1900  # Betaflight's default
CRSF = 9  # of its serial receivers


def settings(profile: BetaflightProfile) -> dict[int, msp.Message]:
    """Return the constant replies by MSP command."""
    low, high = profile.valid_us
    switches = (ARM, profile.aux.arm), (ANGLE, profile.aux.angle), (OVERRIDE, profile.aux.override)
    modes = tuple(msp.ModeRange(mode, aux.channel, aux.low_us, aux.high_us) for mode, aux in switches)
    tuning = dict[str, int]()
    for axis, curve in zip(("roll", "pitch", "yaw"), profile.rates.axes, strict=True):
        tuning |= {f"rc_rate_{axis}": curve.rc_rate, f"expo_{axis}": curve.expo, f"rate_{axis}": curve.rate}
        tuning[f"limit_{axis}_deg_s"] = curve.limit_deg_s
    tuning |= {"throttle_mid": profile.throttle.mid, "throttle_expo": profile.throttle.expo, "throttle_limit_type": 0}
    tuning |= {"throttle_limit": 100, "tpa_rate": 65, "tpa_breakpoint": 1350}
    return {
        msp.Code.API_VERSION: msp.Version((0, 1, 45)),
        msp.Code.FC_VARIANT: msp.FcVariant("BTFL"),
        msp.Code.FC_VERSION: msp.Version((4, 4, 3)),
        msp.Code.BOARD_INFO: msp.BoardInfo("SH74", "STM32H743"),
        msp.Code.RC_TUNING: msp.RcTuning(**tuning, rates_type=RATES_TYPE[profile.rates.kind]),
        msp.Code.RX_CONFIG: msp.RxConfig(CRSF, MAX_CHECK_US, MID_US, profile.throttle.min_check_us, 0, low, high),
        msp.Code.RX_MAP: msp.RxMap(profile.channel_map + msp.LETTERS[len(LEAST_MAP) :]),
        msp.Code.MODE_RANGES: msp.ModeRanges(modes),
    }


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
        self._parser, self._buffer = msp.Parser((msp.Direction.REQUEST,)), bytearray()
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
            for frame in self._parser.feed(bytes((self._buffer.pop(0),))):  # one at most
                payload = self._payload(frame, t)
                direction = msp.Direction.ERROR if payload is None else msp.Direction.ANSWER
                self._out.send(msp.pack(msp.Frame(frame.command, payload or b"", direction)), t)
                return

    def _payload(self, frame: msp.Frame, t: float) -> bytes | None:
        """Return the reply's payload; None for an error reply."""
        if frame.command == msp.Code.SET_RAW_RC:
            channels = msp.Channels.decode(frame.payload)
            if channels is None:
                return None
            self.receiver.take(channels.us, t)
            return b""
        if frame.command == msp.Code.MULTIPLE_MSP:
            wanted = [self._message(command) for command in frame.payload]
            return msp.join_multiple([m.encode() if m is not None else b"" for m in wanted]) if wanted else None
        message = self._message(frame.command)
        return message.encode() if message is not None else None

    def _message(self, command: int) -> msp.Message | None:
        match command:
            case msp.Code.RAW_IMU:
                return self._sensing.imu()
            case msp.Code.ATTITUDE:
                return self._sensing.attitude
            case msp.Code.ALTITUDE:
                return self._sensing.altitude()
            case msp.Code.RC:
                us = self.receiver.channels
                sticks = [us[self.profile.channel(letter)] for letter in OWN_ORDER]
                return msp.Channels(tuple(map(round, [*sticks, *us[STICKS:]])))
            case msp.Code.STATUS_EX:
                on = self.armed, self.profile.aux.angle.on(self.receiver.channels), self.receiver.overridden
                modes = sum(1 << bit for bit, holds in enumerate(on) if holds)
                disabled = self.arming.disabled
                return msp.StatusEx(modes, disabled, cycle_us=PID_LOOP_US, sensors=SENSORS, profiles=4)
        return self._settings.get(command)

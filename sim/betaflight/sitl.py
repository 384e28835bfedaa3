"""Betaflight's own firmware as a program (SITL): start, configuration, and its place behind the companion's line.

It receives the vehicle's motion on UDP 9003, answers each packet with motor outputs on UDP 9002, and has its UARTs on TCP 5761
and up. `sitl_clock.c` replaces its clock by the simulation's, so that both stay in step under any load. All packets carry the
same time, since the firmware scales its clock by the rate at which it advances. Layout and signs: Betaflight 4.4.3,
`src/main/target/SITL/target.c`; settings: `src/main/cli/settings.c`.

SITL has no receiver but MSP, so transmitter and override are simulated in front of it: the output of `Receiver` is sent to a
second UART as SET_RAW_RC, with each of the companion's and in between. The companion's own SET_RAW_RC is acknowledged here;
all other frames are forwarded. A receiver without a signal sends nothing, which triggers the firmware's failsafe.
"""

import contextlib
import hashlib
import math
import os
import platform
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gate_racer.common.cache import entry
from gate_racer.common.errors import UserError
from gate_racer.link.messages import Attitude, AttitudeTarget, Imu
from gate_racer.link.msp.messages import Channels, Code, Direction, DisableFlag, Frame, Parser, StatusEx, pack
from gate_racer.link.msp.ports import SITL_PORT
from gate_racer.link.msp.preflight import ANGLE, ARM, OVERRIDE
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.sockets import LOOPBACK, LinkError, bind_udp
from gate_racer.sim.betaflight.flight_controller import Receiver, Uart
from gate_racer.sim.physics.plant import Truth
from gate_racer.sim.simulator import Sensors
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Rotors, Vehicle

CLOCK = "sitl_clock.so"
UARTS = 2  # that speak MSP: the companion's, and the transmitter's
# The aircraft's are not published. With the thrust's lag of `archer`, a step of 3 rad/s of the stick is followed to 63 % within
# 0.05 to 0.07 s in roll and pitch and 0.09 to 0.11 s in yaw, and overshot by 7 to 19 %. Betaflight's own swing up on it: 45, 80
# and 40 in roll and pitch; 45, 90 and 0 in yaw, where with 45 for 90 a yaw of 1 rad/s still swings up to twice of that.
TILT = ("p", 25), ("i", 30), ("d", 30), ("d_min", 30)
YAW = ("p", 80), ("i", 5), ("d", 96), ("d_min", 96)
GAINS = {"roll": TILT, "pitch": TILT, "yaw": YAW}


def set_up(profile: BetaflightProfile) -> list[str]:
    """Return the lines that configure the firmware for a profile and for a simulated vehicle."""
    modes = (ARM, profile.aux.arm), (ANGLE, profile.aux.angle), (OVERRIDE, profile.aux.override)
    names = ("roll", profile.rates.roll), ("pitch", profile.rates.pitch), ("yaw", profile.rates.yaw)
    return [
        "feature -GPS",
        "feature -TELEMETRY",
        f"map {profile.channel_map}1234",
        *(f"serial {port} 1 115200 57600 0 115200" for port in range(UARTS)),
        *(f"aux {k} {mode} {aux.channel - 1} {aux.low_us} {aux.high_us} 0 0" for k, (mode, aux) in enumerate(modes)),
        f"set min_check = {profile.throttle.min_check_us}",
        f"set thr_mid = {profile.throttle.mid}",
        f"set thr_expo = {profile.throttle.expo}",
        f"set rx_min_usec = {profile.valid_us[0]}",
        f"set rx_max_usec = {profile.valid_us[1]}",
        f"set rates_type = {profile.rates.kind.upper()}",
        *(f"set {axis}_{name} = {value}" for axis, rates in names for name, value in (
            ("rc_rate", rates.rc_rate), ("srate", rates.rate), ("expo", rates.expo), ("rate_limit", rates.limit_deg_s),
        )),
        f"set level_limit = {profile.angle_limit_deg:.0f}",
        f"set msp_override_channels_mask = {profile.override_mask}",
        *(f"set rc_smoothing_{k}_cutoff = {profile.smoothing_hz:.0f}" for k in ("setpoint", "feedforward", "throttle")),
        f"set pwr_on_arm_grace = {profile.boot_s:.0f}",
        "set motor_pwm_protocol = MULTISHOT",  # others slow the rate loop down to what they can send
        "set min_throttle = 1000",  # the vehicle's curve is thrust over the stick
        "set acc_calibration = 0,0,0,1",
        f"set acc_lpf_hz = {profile.accel_lpf_hz:.0f}",
        "set small_angle = 180",
        "set runaway_takeoff_prevention = OFF",  # on, by default, it disarms what leaves the pad at full torque
        *(f"set f_{axis} = 0" for axis, _ in names),  # feedforward of sticks that come in steps saturates the motors
        "set simplified_pids_mode = OFF",
        *(f"set {gain}_{axis} = {value}" for axis, gains in GAINS.items() for gain, value in gains),
        "set iterm_relax = RPY",  # yaw saturates the motors longest, and its integral with it
    ]  # fmt: skip


MOTION_PORT, MOTORS_PORT = 9003, 9002
MOTION = struct.Struct("<17d")  # time, rates, force, attitude (4), velocity, position
MOTORS = struct.Struct("<4f")  # speeds
TIME_S = 1.0  # of every packet
TIME = struct.Struct("=Q")  # ns, as `sitl_clock.c` has it
BOOT_STEP_NS = 50_000_000
CORNERS = ((1, 1), (-1, -1), (1, -1), (-1, 1))  # ahead, right: where the motors of a packet sit
FORCE_PER_COUNT = GRAVITY / 256  # m/s^2, what the firmware takes a count for
START_S, ANSWER_S, PAUSE_S = 5.0, 2.0, 0.05
BOOT_S, CLI_GUARD_S, LINE_S, TRIES = 1.0, 0.5, 0.02, 3  # the second: silence that opens the command line
END = "# that was all"  # a comment, which it repeats
LARGEST = 1 << 16
LOG = "sitl.log"


def motion(profile: BetaflightProfile, sample: Imu, attitude: Attitude) -> bytes:
    """Return the packet of measured motion. Axes of the firmware: x forward, y left, z up; world north-west-up.

    The firmware converts a packet's rates to x, -y, -z, and its force to counts with the opposite sign on every axis.
    """
    force = [-FORCE_PER_COUNT * count for count in profile.raw_imu(sample.accel, sample.gyro).accel]
    w, x, y, z = attitude.q_wb
    return MOTION.pack(TIME_S, *sample.gyro, *force, w, x, -y, -z, *(0.0,) * 6)


def order(rotors: Rotors) -> list[int]:
    """Return the packet's motor index for each of the vehicle's rotors. Raises UserError unless the rotors form an X of four."""
    places = [(int(math.copysign(1, x)), int(math.copysign(1, y))) for x, y in zip(rotors.x_m, rotors.y_m, strict=True)]
    if sorted(places) != sorted(CORNERS):
        raise UserError("link.sitl: flies a quadrotor with one rotor in each corner, which this vehicle is not")
    return [CORNERS.index(place) for place in places]


def require_program(binary: Path) -> None:
    """Check that Betaflight's program exists. Raises UserError if not."""
    if not binary.is_file():
        raise UserError(f"link.sitl {binary}: no such file; build Betaflight 4.4.3 by `make TARGET=SITL`")


class Sitl:
    """Running firmware. `outputs` sends the motion and returns the motor outputs; its UARTs are sockets."""

    def __init__(self, binary: Path, folder: Path, profile: BetaflightProfile, rotors: Rotors):
        """Start the firmware twice, to configure it and to fly, with its settings in `folder`.

        Raises UserError: no such program, it ends or does not answer, ports are in use, or the rotors do not form an X.
        """
        self._binary, self._folder, self._profile, self._order = binary, folder, profile, order(rotors)
        require_program(binary)
        self._motors = bind_udp(LOOPBACK, MOTORS_PORT)
        self._motors.setblocking(False)
        self._speeds = np.zeros(4)
        self._clock, self._its_clock = socket.socketpair()
        self._clock.settimeout(ANSWER_S)
        self._granted_ns = self._boot_ns = self._wakes_ns = 0
        self._runs = True
        try:
            self._configure(set_up(profile))
            self._start(clocked=True)
            self._asleep_until()
            self.uarts = [self._connect(SITL_PORT + k, BOOT_STEP_NS) for k in range(UARTS)]
            self._boot_ns = self._granted_ns
        except BaseException:
            self.close()
            raise

    def outputs(self, sample: Imu, attitude: Attitude) -> Array:
        """Return the newest motor outputs (4,), 0..1, in the order of the vehicle's rotors."""
        self._motors.sendto(motion(self._profile, sample, attitude), (LOOPBACK, MOTION_PORT))
        self._run_to(self._boot_ns + round(1e9 * sample.t))
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                packet = self._motors.recv(MOTORS.size + 1)
                if len(packet) == MOTORS.size:
                    self._speeds = np.array(MOTORS.unpack(packet))
        return np.clip(np.nan_to_num(self._speeds[self._order]), 0.0, 1.0)

    @property
    def spins(self) -> bool:
        return bool(self._speeds.any())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        for uart in getattr(self, "uarts", []):
            uart.close()
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()
        for own in (self._motors, self._clock, self._its_clock):
            own.close()

    def _run_to(self, t_ns: int) -> None:
        """Let the firmware run to a time of its own clock, ns; once it has died or hangs, it is no longer waited for."""
        if t_ns <= self._granted_ns or not self._runs:
            return
        self._granted_ns = t_ns
        if t_ns >= self._wakes_ns:
            with contextlib.suppress(OSError):
                self._clock.sendall(TIME.pack(t_ns))
                self._asleep_until()

    def _asleep_until(self) -> None:
        """Wait until the firmware sleeps, and store its wake-up time."""
        try:
            (self._wakes_ns,) = TIME.unpack(self._clock.recv(TIME.size))
        except (OSError, struct.error):
            self._runs = False

    def _start(self, clocked: bool = False) -> None:
        clock = self._its_clock.fileno()
        env = {}
        if clocked:
            shutil.copy(clock_library(), self._folder)  # in LD_PRELOAD, a blank in the cache's path would end a name
            env = {"LD_PRELOAD": f"./{CLOCK}", "SITL_CLOCK_FD": str(clock)}
        with (self._folder / LOG).open("ab") as log:
            try:  # in a session of its own, since Ctrl-C is for the pilot, who lands
                self._process = subprocess.Popen(
                    [self._binary], cwd=self._folder, stdout=log, stderr=log, pass_fds=(clock,), env=os.environ | env,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise UserError(f"link.sitl {self._binary}: cannot be run ({error.strerror})") from None

    def _connect(self, port: int, step_ns: int = 0) -> socket.socket:
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.alive:
            with contextlib.suppress(OSError):
                uart = socket.create_connection((LOOPBACK, port), timeout=ANSWER_S)
                uart.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return uart
            self._run_to(self._granted_ns + step_ns)
            time.sleep(PAUSE_S)
        ended = "ended" if not self.alive else f"does not listen on TCP {port}"
        raise LinkError(f"link.sitl {self._binary}: {ended}{self._last_words()}")

    def _last_words(self) -> str:
        """Return the last line that the firmware printed, as a clause for an error message."""
        said = (self._folder / LOG).read_text(errors="replace").split("\n")
        return next((f'; it said last "{line.strip()}"' for line in reversed(said) if line.strip()), "")

    def _configure(self, lines: list[str]) -> None:
        """Configure by the command line of the first UART; `save` restarts the firmware, which ends the program."""
        said = next(filter(lambda said: END in said, (self._typed(lines) for _ in range(TRIES))), None)
        if said is None:
            raise LinkError(f"link.sitl {self._binary}: its command line does not answer{self._last_words()}")
        if (wrong := re.search(r"###ERROR.*?###", said)) is not None:
            raise UserError(f"link.sitl {self._binary}: {wrong[0].strip('#')}; Betaflight 4.4.3 is needed")

    def _typed(self, lines: list[str]) -> str:
        """Type lines into the command line, save, and return its output. Input while the firmware boots may be lost."""
        self._start()
        with contextlib.closing(self._connect(SITL_PORT)) as uart:
            time.sleep(BOOT_S)
            uart.sendall(b"#")
            time.sleep(CLI_GUARD_S)
            for line in ("", *lines, END):
                uart.sendall(line.encode() + b"\n")
                time.sleep(LINE_S)
            said = self._received(uart)
            if END in said:
                uart.sendall(b"save\n")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(ANSWER_S)
        self._process.kill()
        self._process.wait()
        return said

    def _received(self, uart: socket.socket) -> str:
        """Return the command line's output. The firmware flushes output when a byte arrives, so further bytes are sent."""
        said, until = "", time.monotonic() + ANSWER_S
        uart.settimeout(PAUSE_S)
        while END not in said and time.monotonic() < until:
            uart.sendall(b"\n")
            with contextlib.suppress(TimeoutError):
                said += uart.recv(LARGEST).decode(errors="replace")
        return said


@contextlib.contextmanager
def firmware(binary: Path, profile: BetaflightProfile, vehicle: Vehicle) -> Iterator[Sitl]:
    """Run Betaflight's own program, with temporary settings. Raises UserError as `Sitl`, or for a vehicle without `rotors`."""
    _ = vehicle.rotors_parameters
    assert vehicle.rotors is not None
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Sitl(binary.resolve(), Path(folder), profile, vehicle.rotors)) as sitl,
    ):
        yield sitl


def clock_library() -> Path:
    """Return the path of `sitl_clock.c` compiled as a library, from the cache if present. Raises UserError without a compiler."""
    source = Path(__file__).with_name("sitl_clock.c")
    key = hashlib.sha256(source.read_bytes() + platform.machine().encode()).hexdigest()[:16]

    def build(draft: Path) -> None:
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(draft / CLOCK), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or error
            raise UserError(f"link.sitl: {source.name} cannot be compiled by `cc`: {why}") from None

    return entry(f"sitl-clock-{key}", build) / CLOCK


class SitlMotors:
    """`MotorSource` of the firmware, which receives the vehicle's measurements."""

    def __init__(self, sitl: Sitl, sensors: Sensors, loss_m_s2: float):
        """`loss_m_s2`: reduction of the measured gravity by spinning propellers."""
        self._sitl, self._sensors, self._loss_m_s2 = sitl, sensors, loss_m_s2

    def __call__(self, truth: Truth) -> Array:
        sample = self._sensors.imu(truth)
        if self._sitl.spins:
            x, y, z = sample.accel
            sample = Imu(sample.t, (x, y, z + self._loss_m_s2), sample.gyro)
        return self._sitl.outputs(sample, self._sensors.attitude(truth))


# In runs of the serial task, which carries out one command each and is late at times: more would queue up.
STICKS_EVERY, STATUS_EVERY = 3, 10
# Of the wall clock, which the firmware's own threads keep: to take in what was sent before its time goes on.
WAKE_S = 2e-4
NUDGE = b"\0"  # no frame: what the firmware has to say leaves when a byte comes, on whichever of its sockets, or after 0.5 s


class ReportedArming:
    def __init__(self) -> None:
        self.armed, self.disabled = False, DisableFlag.BOOT_GRACE_TIME
        self.disarmed_by = DisableFlag(0)  # what stood against arming when it last disarmed

    def disarm(self) -> None:
        """Do nothing: the firmware follows the transmitter's switch."""

    def receive(self, status: StatusEx) -> None:
        if self.armed and not status.armed:
            self.disarmed_by = status.disabled
        self.armed, self.disabled = status.armed, status.disabled


class SitlController(Uart):
    """Substitute for `FlightController`. Never raises in flight: firmware that has died counts as disarmed."""

    def __init__(self, profile: BetaflightProfile, sitl: Sitl):
        super().__init__(profile.baud, profile.serial_task_hz)
        self.profile, self._sitl = profile, sitl
        self.receiver, self.arming = Receiver(profile), ReportedArming()
        self._requests, self._status = Parser((Direction.REQUEST,)), Parser((Direction.ANSWER,))
        self._companion, self._transmitter = sitl.uarts
        for uart in sitl.uarts:
            uart.setblocking(False)
        self._sent, self._waits = 0, False
        self._taken_t = -math.inf  # of the companion's sticks that the firmware has

    def boot(self, t: float) -> None:
        """Reset the receiver for another run; the firmware continues, with the transmitter's switches off."""
        self.receiver.boot(t)

    @property
    def armed(self) -> bool:
        return self.arming.armed and self._sitl.alive

    def serve(self, t: float) -> None:
        """Forward the companion's frames up to t, s, and send the receiver's channels as often as they are due."""
        for frame in self._requests.feed(self._in.arrived(t)):
            self._pass_on(frame, t)
        answered = _received(self._companion)
        self._out.send(answered, t)
        self._waits = self._waits and not answered
        if self._waits:
            _send(self._transmitter, NUDGE)
            select.select([self._companion], [], [], WAKE_S)
        while self._task_t <= t + 1e-9:
            self._tasks += 1
            self._beat(t)
        for frame in self._status.feed(_received(self._transmitter)):
            status = StatusEx.decode(frame.payload) if frame.command == Code.STATUS_EX else None
            if status is not None:
                self.arming.receive(status)

    def fly(self, q_wb: Array, t: float) -> AttitudeTarget | None:
        """Return None: the firmware drives the motors."""
        return None

    def _pass_on(self, frame: Frame, t: float) -> None:
        if frame.command != Code.SET_RAW_RC:
            _send(self._companion, pack(frame))
            self._waits = True
            return
        channels = Channels.decode(frame.payload)
        if channels is not None:
            self.receiver.take(channels.us, t)
        direction = Direction.ANSWER if channels is not None else Direction.ERROR
        self._out.send(pack(Frame(frame.command, b"", direction)), t)

    def _beat(self, t: float) -> None:
        self.receiver.update(t)
        new = self.receiver.companion_last_t > self._taken_t
        if not self.receiver.lost and (new or self._tasks - self._sent >= STICKS_EVERY):
            self._sent, self._taken_t = self._tasks, self.receiver.companion_last_t
            us = Channels(tuple(round(channel) for channel in self.receiver.channels))
            _send(self._transmitter, pack(Frame(Code.SET_RAW_RC, us.encode())))
        if self._tasks % STATUS_EVERY == 0:
            _send(self._transmitter, pack(Frame(Code.STATUS_EX)))


def _received(uart: socket.socket) -> bytes:
    with contextlib.suppress(OSError):  # nothing yet, or the firmware has ended
        return uart.recv(LARGEST)
    return b""


def _send(uart: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        uart.sendall(data)

"""Betaflight's own firmware as a program (SITL): how it is started, set up by its command line, and kept supplied with motion.

It hears the vehicle's motion on UDP 9003, answers each packet with its motors on UDP 9002, and has its UARTs on TCP 5761 and up.
Its clock is made the simulation's by `sitl_clock.c`, so that both go in step on a machine of any load. Packets carry the same
time always, since it would run as fast as their times rise. Layout and signs: Betaflight 4.4.3, `src/main/target/SITL/target.c`.
"""

import contextlib
import hashlib
import math
import os
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from link.messages import Attitude, Imu
from link.msp.ports import SITL_PORT
from link.msp.profile import BetaflightProfile
from link.msp.units import raw_imu
from link.sockets import LOOPBACK, LinkError, bind_udp
from sim.betaflight.sitl_settings import UARTS, set_up
from sim.physics.plant import Truth
from sim.sensors import Sensors
from vehicle.cache import cache_folder
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Rotors, Vehicle

MOTION_PORT, MOTORS_PORT = 9003, 9002
MOTION, MOTORS = (
    struct.Struct("<17d"),
    struct.Struct("<4f"),
)  # time, rates, force, attitude (4), velocity, position; speeds
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
    """The packet of what is measured. Axes of the firmware: x forward, y left, z up, in a world of north, west, up.

    It turns a packet's rates into x, -y, -z, and its force into counts of the other sign on every axis.
    """
    force = [-FORCE_PER_COUNT * count for count in raw_imu(profile, sample.accel, sample.gyro).accel]
    w, x, y, z = attitude.q_wb
    return MOTION.pack(TIME_S, *sample.gyro, *force, w, x, -y, -z, *(0.0,) * 6)


def order(rotors: Rotors) -> list[int]:
    """Which motor of a packet turns each of the vehicle's rotors. Raises UserError for what is no X of four."""
    places = [(int(math.copysign(1, x)), int(math.copysign(1, y))) for x, y in zip(rotors.x_m, rotors.y_m, strict=True)]
    if sorted(places) != sorted(CORNERS):
        raise UserError("--sitl: flies a quadrotor with one rotor in each corner; this vehicle's `rotors` are others")
    return [CORNERS.index(place) for place in places]


class Sitl:
    """A firmware that runs. `outputs` hands it the motion and returns the motors; its UARTs are sockets."""

    def __init__(self, binary: Path, folder: Path, profile: BetaflightProfile, rotors: Rotors):
        """Starts it twice: to be set up, and to fly.

        Args:
            folder: where it keeps its settings.

        Raises:
            UserError: no such program, one that ends or does not answer, ports in use, or rotors that are no X.
        """
        self._binary, self._folder, self._profile, self._order = binary, folder, profile, order(rotors)
        if not binary.is_file():
            raise UserError(f"--sitl {binary}: no such file; build Betaflight 4.4.3 by `make TARGET=SITL`")
        self._told = bind_udp(LOOPBACK, MOTORS_PORT)
        self._told.setblocking(False)
        self._speeds = np.zeros(4)
        self._clock, self._its_clock = socket.socketpair()
        self._clock.settimeout(ANSWER_S)
        self._granted_ns = self._boot_ns = self._wakes_ns = 0
        self._runs = True
        self.answers = self.asked = 0
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
        """(4,) 0..1 in the order of the vehicle's rotors: the newest that it has asked for."""
        self._told.sendto(motion(self._profile, sample, attitude), (LOOPBACK, MOTION_PORT))
        self.asked += 1
        self._run_to(self._boot_ns + round(1e9 * sample.t))
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                packet = self._told.recv(MOTORS.size + 1)
                if len(packet) == MOTORS.size:
                    self._speeds = np.array(MOTORS.unpack(packet))
                    self.answers += 1
        return np.clip(np.nan_to_num(self._speeds[self._order]), 0.0, 1.0)

    @property
    def spins(self) -> bool:
        """Whether a motor turned when it was last told of."""
        return bool(self._speeds.any())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it."""
        for uart in getattr(self, "uarts", []):
            uart.close()
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()
        for own in (self._told, self._clock, self._its_clock):
            own.close()

    def _run_to(self, t_ns: int) -> None:
        """Lets it run to a time of its own clock. One that has died, or hangs, is no longer waited for."""
        if t_ns <= self._granted_ns or not self._runs:
            return
        self._granted_ns = t_ns
        if t_ns >= self._wakes_ns:
            with contextlib.suppress(OSError):
                self._clock.sendall(TIME.pack(t_ns))
                self._asleep_until()

    def _asleep_until(self) -> None:
        """Waits until it sleeps."""
        try:
            (self._wakes_ns,) = TIME.unpack(self._clock.recv(TIME.size))
        except (OSError, struct.error):
            self._runs = False

    def _start(self, clocked: bool = False) -> None:
        clock = self._its_clock.fileno()
        env = {"LD_PRELOAD": str(clock_library()), "SITL_CLOCK_FD": str(clock)} if clocked else {}
        with (self._folder / LOG).open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [self._binary],
                    cwd=self._folder,
                    stdout=log,
                    stderr=log,
                    pass_fds=(clock,),
                    env=os.environ | env,
                    start_new_session=True,  # Ctrl-C is for the pilot, who lands
                )
            except OSError as error:
                raise UserError(f"--sitl {self._binary}: cannot be run ({error.strerror})") from None

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
        raise LinkError(f"--sitl {self._binary}: {ended}{self._last_words()}")

    def _last_words(self) -> str:
        """What it printed last, as a clause."""
        said = (self._folder / LOG).read_text(errors="replace").split("\n")
        return next((f'; it said last "{line.strip()}"' for line in reversed(said) if line.strip()), "")

    def _configure(self, lines: list[str]) -> None:
        """By the command line of its first UART, as its owner would; `save` restarts, which ends the program."""
        said = next(filter(lambda said: END in said, (self._typed(lines) for _ in range(TRIES))), None)
        if said is None:
            raise LinkError(f"--sitl {self._binary}: its command line does not answer{self._last_words()}")
        if (wrong := re.search(r"###ERROR.*?###", said)) is not None:
            raise UserError(f"--sitl {self._binary}: {wrong[0].strip('#')}; Betaflight 4.4.3 is needed")

    def _typed(self, lines: list[str]) -> str:
        """What the command line says to some lines, which it then saves. What comes while it boots may be lost, silence too."""
        self._start()
        with contextlib.closing(self._connect(SITL_PORT)) as uart:
            time.sleep(BOOT_S)
            uart.sendall(b"#")
            time.sleep(CLI_GUARD_S)
            for line in ("", *lines, END):
                uart.sendall(line.encode() + b"\n")
                time.sleep(LINE_S)
            said = self._heard(uart)
            if END in said:
                uart.sendall(b"save\n")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(ANSWER_S)
        self._process.kill()
        self._process.wait()
        return said

    def _heard(self, uart: socket.socket) -> str:
        """What it has said. Each piece leaves with the next byte that comes, so some more are sent."""
        said, until = "", time.monotonic() + ANSWER_S
        uart.settimeout(PAUSE_S)
        while END not in said and time.monotonic() < until:
            uart.sendall(b"\n")
            with contextlib.suppress(TimeoutError):
                said += uart.recv(LARGEST).decode(errors="replace")
        return said


@contextlib.contextmanager
def firmware(binary: Path, profile: BetaflightProfile, vehicle: Vehicle) -> Iterator[Sitl]:
    """Betaflight's own program, with settings of its own, as long as one is inside.

    Raises:
        UserError: as `Sitl`, or a vehicle without `rotors`.
    """
    _ = vehicle.rotors_parameters
    assert vehicle.rotors is not None
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Sitl(binary.resolve(), Path(folder), profile, vehicle.rotors)) as sitl,
    ):
        yield sitl


def clock_library() -> Path:
    """`sitl_clock.c`, compiled once. Raises UserError without a compiler."""
    source = Path(__file__).with_name("sitl_clock.c")
    library = cache_folder() / f"sitl-clock-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        try:
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", made, source], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UserError(f"--sitl: {source.name} cannot be compiled by `cc`: {error}") from None
        made.replace(library)
    return library


class SitlMotors:
    """A `MotorSource`: the firmware flies by what the vehicle's sensors measure."""

    def __init__(self, sitl: Sitl, sensors: Sensors, loss_m_s2: float):
        """`loss_m_s2`: by which gravity reads low with spinning propellers."""
        self._sitl, self._sensors, self._loss_m_s2 = sitl, sensors, loss_m_s2

    def outputs(self, truth: Truth) -> Array:
        sample = self._sensors.imu(truth)
        if self._sitl.spins:
            x, y, z = sample.accel
            sample = Imu(sample.t, (x, y, z + self._loss_m_s2), sample.gyro)
        return self._sitl.outputs(sample, self._sensors.attitude(truth))

"""Profile of a Betaflight over MSP: line, counts, signs, rates and channels, from `link/msp/profiles/*.yaml`.

It is a separate kind of file, since MAVLink's parameters (UDP ports, pushed streams, type masks) do not apply. Both ends read
it: the simulated flight controller applies the conventions, the client their inverse.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from gate_racer.link.msp.messages import Code
from gate_racer.link.msp.rates import RateCurves
from gate_racer.link.profile import Profile, load_profile
from gate_racer.vehicle.config import load_named, names
from gate_racer.vehicle.files import FileError, read_text
from gate_racer.vehicle.rotation import Vector

FOLDER = Path(__file__).parent / "profiles"
LOW_US, MID_US, HIGH_US = 1000, 1500, 2000  # a stick's travel: Betaflight's PWM_RANGE and `mid_rc`
STICKS = 4  # flight channels, before AUX1
LEAST_MAP = "AETR"
OWN_ORDER = "AERT"  # order in which the flight controller reports the sticks: MSP_RC
AXES = "AER"  # channel letters of roll, pitch, yaw
THROTTLE_POINTS = 11  # Betaflight's table, at intervals of a tenth of the stick
PEEK_BYTES = 256 << 10
LIKE = "spec"  # the profile of VADR-TS-002, for the video format and the limits that MSP does not define
LEAST_PHYSICS_HZ = 240.0  # least rate for the set-point filter and the plant


@dataclass(frozen=True)
class MspSigns:
    """Signs of the wire relative to the project's axes (world NED, body FRD), by component."""

    accel: Vector
    gyro: Vector
    euler: Vector
    sticks: Vector  # roll, pitch, yaw: deflection over body rate

    def __post_init__(self) -> None:
        if any(abs(s) != 1 for s in (*self.accel, *self.gyro, *self.euler, *self.sticks)):
            raise ValueError("every sign must be 1 or -1")


@dataclass(frozen=True)
class ThrottleStick:
    """Map from the throttle channel to 0..1: Betaflight's `thr_mid` and `thr_expo` in per cent, linear between eleven points."""

    min_check_us: int
    mid: int
    expo: int

    def __post_init__(self) -> None:
        if not (LOW_US <= self.min_check_us < MID_US and 1 <= self.mid <= 99 and 0 <= self.expo <= 99):
            raise ValueError("min_check_us must lie in 1000..1499, mid in 1..99, expo in 0..99")

    def throttle(self, us: float) -> float:
        """Return the throttle, 0..1, of a channel in us, clipped."""
        return float(np.interp((us - self.min_check_us) / (HIGH_US - self.min_check_us), *self._curve()))

    def us(self, throttle: float) -> float:
        """Return the inverse of `throttle`; 0 maps to the lowest stick position, which alone permits arming."""
        if throttle <= 0:
            return float(LOW_US)
        stick, out = self._curve()
        return self.min_check_us + float(np.interp(throttle, out, stick)) * (HIGH_US - self.min_check_us)

    def _curve(self) -> tuple[list[float], list[float]]:
        """Return stick and throttle, 0..1, of the table."""
        sticks, e = [k / (THROTTLE_POINTS - 1) for k in range(THROTTLE_POINTS)], self.expo / 100
        mid = self.mid / 100
        spans = [(1 - mid) if stick > mid else mid for stick in sticks]
        out = [mid + (s - mid) * (1 - e + e * ((s - mid) / span) ** 2) for s, span in zip(sticks, spans, strict=True)]
        return sticks, out


@dataclass(frozen=True)
class AuxRange:
    """An AUX channel, numbered from 1, and the range in us in which its mode is on."""

    channel: int
    low_us: int
    high_us: int

    def __post_init__(self) -> None:
        if not (1 <= self.channel <= 14 and self.low_us < self.high_us):
            raise ValueError("channel must lie in 1..14 and low_us below high_us")

    def on(self, channels: Sequence[float]) -> bool:
        """Return whether channels (us; four sticks, then AUX1) switch it on."""
        at = STICKS + self.channel - 1
        return at < len(channels) and self.low_us <= channels[at] < self.high_us


@dataclass(frozen=True)
class AuxModes:
    """Switches of the safety pilot's transmitter."""

    arm: AuxRange
    angle: AuxRange
    override: AuxRange  # MSP OVERRIDE: the companion computer sets the masked channels


@dataclass(frozen=True)
class ReceiverFailsafe:
    """Fail-safe of the receiver. SET_RAW_RC has no time-out, so missing sticks do not trigger it."""

    signal_loss_s: float  # s for which the last pulses stay in effect
    motors_off_s: float


@dataclass(frozen=True)
class Barometer:
    """Effect of spinning propellers on the barometer."""

    fall_m: float
    noise_m: float


@dataclass(frozen=True)
class BetaflightProfile:
    """One flight controller on one line. Rates in Hz, times in s, pulses in us."""

    name: str
    protocol: Literal["msp"]
    source: str
    baud: int
    serial_task_hz: float
    stick_hz: float
    video_hz: float  # rate of the camera in parallel
    poll: tuple[str, ...]
    poll_timeout_s: float
    accel_counts_per_g: float
    gyro_counts_per_deg_s: float
    signs: MspSigns
    rates: RateCurves
    throttle: ThrottleStick
    angle_limit_deg: float
    channel_map: str
    override_mask: int
    aux: AuxModes
    valid_us: tuple[int, int]
    smoothing_hz: float
    boot_s: float  # s from power-on, before which it cannot arm
    failsafe: ReceiverFailsafe
    barometer: Barometer
    accel_loss_m_s2: float
    accel_lpf_hz: float  # cut-off of the accelerometer's filter, second order
    attitude_hz: float  # rate at which the attitude estimate is updated

    def __post_init__(self) -> None:
        positive = self.baud, self.serial_task_hz, self.stick_hz, self.video_hz, self.poll_timeout_s, self.smoothing_hz
        filtered = self.accel_lpf_hz, self.attitude_hz
        if min(*positive, *filtered, self.accel_counts_per_g, self.gyro_counts_per_deg_s) <= 0:
            raise ValueError("baud, rates, time-out and counts must be positive")
        if self.stick_hz >= self.serial_task_hz:
            raise ValueError(f"stick_hz {self.stick_hz:g} must be below serial_task_hz {self.serial_task_hz:g}")
        known = [code.name.lower() for code in Code]
        if not self.poll or any(name not in known for name in self.poll):
            raise ValueError(f"poll must be a list of {', '.join(known)}")
        if sorted(self.channel_map) != sorted(LEAST_MAP):
            raise ValueError(f"channel_map must have the letters of {LEAST_MAP}")
        if not 0 < self.angle_limit_deg < 90 or any(b <= a for a, b in pairwise(self.valid_us)):
            raise ValueError("angle_limit_deg must lie between 0 and 90, and valid_us must increase")

    @property
    def polled(self) -> tuple[Code, ...]:
        """Messages of one poll request."""
        return tuple(Code[name.upper()] for name in self.poll)

    @property
    def smoothing_delay_s(self) -> float:
        """Delay of the set-point filter, s: three equal poles with -3 dB in total at `smoothing_hz`."""
        return 3 * pole_s(self.smoothing_hz)

    @property
    def accel_delay_s(self) -> float:
        """Delay of the accelerometer's filter (s), a Butterworth filter of second order, for slow changes."""
        return math.sqrt(2) / (2 * math.pi * self.accel_lpf_hz)

    @property
    def wire(self) -> Profile:
        """Equivalent wire profile for pilot and simulator: sticks set the pace, no race status, no common clock."""
        like, whole = load_profile(LIKE), math.ceil(LEAST_PHYSICS_HZ / self.stick_hz)
        return replace(
            like,
            name=self.name,
            source=self.source,
            physics_hz=whole * self.stick_hz,
            command_hz=self.stick_hz,
            command_limit_hz=self.serial_task_hz,
            video_hz=self.video_hz,
            failsafe=None,
            ground_station=False,
            one_clock=False,
        )

    def channel(self, letter: str) -> int:
        """Return the index of a stick (A, E, T or R) in SET_RAW_RC, from 0."""
        return self.channel_map.index(letter)


def pole_s(cutoff_hz: float) -> float:
    """Return the time constant (s) of each pole of Betaflight's PT3 filter, which has -3 dB in total at the cut-off."""
    return math.sqrt(2 ** (1 / 3) - 1) / (2 * math.pi * cutoff_hz)


def load_betaflight(name: str) -> BetaflightProfile:
    """Load the profile of a name (`betaflight`) or of a YAML file's path.

    Raises:
        UserError: unknown profile, or a malformed file.
    """
    return load_named(name, FOLDER, BetaflightProfile, "MSP profile")


def speaks_msp(name: str) -> bool:
    """Return whether a profile, by name or path, is an MSP profile; False for an unreadable file."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return name in names(FOLDER)
    try:
        return re.search(r"^protocol: *msp\b", read_text(path, PEEK_BYTES), re.M) is not None
    except FileError:
        return False


def load_wire(name: str) -> Profile | BetaflightProfile:
    """Load a profile of either kind. Raises UserError as their readers."""
    return load_betaflight(name) if speaks_msp(name) else load_profile(name)

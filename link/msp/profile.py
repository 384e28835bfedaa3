"""Profile of a Betaflight over MSP, from `link/msp/profiles/*.yaml`: line, counts, signs, channels, and rate curves.

It is a separate kind of file, since MAVLink's parameters (UDP ports, pushed streams, type masks) do not apply. Both ends read
it: the simulated flight controller applies the conventions, the client their inverse.

The curves (Betaflight 4.4, `src/main/fc/rc.c`) lead from a stick's deflection to a body rate.
With deflection x in -1..1, e = expo / 100 and parameters as configured (per cent, or 10 deg/s):

    betaflight   200 r x' / max(1 - |x| s, 0.01),   x' = x (e |x|^3 + 1 - e),  s = rate / 100,
                 r = rc_rate / 100, and 14.54 (r - 2) more above 2
    actual       10 rc_rate x + max(10 rate - 10 rc_rate, 0) |x| (e x^5 + (1 - e) x)
    quick        2 rc_rate x / max(1 - y f, 0.01),  y = e |x|^3 + (1 - e) |x|,  f = 1 - 2 rc_rate / max(10 rate, 2 rc_rate)

Each is odd and strictly increasing up to the limit, so that it has a unique inverse, computed to machine precision.

Commands become stick positions in us, counts SI units, and back, by a profile's signs and gains; body FRD, world NED. In rate
mode sticks command body rates, in angle mode roll and pitch angles and a yaw rate. Throttle 0..1.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from gate_racer.common.config import load_named, named_path, names
from gate_racer.common.files import FileError, read_text
from gate_racer.common.settings import Limited, limited
from gate_racer.link.mavlink import scaled
from gate_racer.link.messages import Attitude, Imu
from gate_racer.link.msp.messages import Code, RawAttitude, RawImu
from gate_racer.link.profile import FOLDER as WIRE_FOLDER
from gate_racer.link.profile import SIGNS, Profile, load_profile
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Vector, from_euler, to_euler

LARGEST_DEG_S = 1998.0  # largest rate in Betaflight
STEEPEST = 0.01  # least denominator of a curve
FINENESS = 1e-15  # resolution of the deflection: a few roundings of 1

RatesKind = Literal["betaflight", "actual", "quick"]
RATES_TYPE: dict[RatesKind, int] = {"betaflight": 0, "actual": 3, "quick": 4}  # codes in RC_TUNING


@dataclass(frozen=True)
class AxisRates(Limited):
    """Parameters of one axis as configured in Betaflight."""

    rc_rate: int = limited(least=1, most=255)
    rate: int = limited(least=0, most=255)
    expo: int = limited(least=0, most=100)
    limit_deg_s: int = limited(int(LARGEST_DEG_S), least=200, most=LARGEST_DEG_S)


@dataclass(frozen=True)
class RateCurves:
    kind: RatesKind
    roll: AxisRates
    pitch: AxisRates
    yaw: AxisRates

    @property
    def axes(self) -> tuple[AxisRates, AxisRates, AxisRates]:
        return self.roll, self.pitch, self.yaw

    def rate(self, axis: int, deflection: float) -> float:
        """Return the body rate (rad/s, sign of the stick) of a deflection, which is clipped to -1..1."""
        x, settings = min(abs(deflection), 1.0), self.axes[axis]
        degrees = min(self._curve(settings)(x), float(settings.limit_deg_s))
        return math.copysign(math.radians(degrees), deflection)

    def deflection(self, axis: int, rate: float) -> float:
        """Return the inverse of `rate`, clipped to -1..1 for rates (rad/s) beyond the curve."""
        settings, curve = self.axes[axis], self._curve(self.axes[axis])
        wanted = min(math.degrees(abs(rate)), float(settings.limit_deg_s))
        if wanted >= curve(1.0):
            return math.copysign(1.0, rate)
        # Bisection: every curve is increasing. SciPy's root finder would be loaded at the first stick, in flight.
        low, high = 0.0, 1.0
        while high - low > FINENESS:
            x = (low + high) / 2
            low, high = (x, high) if curve(x) < wanted else (low, x)
        return math.copysign((low + high) / 2, rate)

    def _curve(self, axis: AxisRates) -> Callable[[float], float]:
        """Return the body rate (deg/s) over the deflection, 0..1, without its limit."""
        e, rate = axis.expo / 100, axis.rate
        if self.kind == "betaflight":
            r = axis.rc_rate / 100
            r += 14.54 * max(r - 2.0, 0.0)
            return lambda x: 200 * r * (x**4 * e + x * (1 - e)) / max(1 - x * rate / 100, STEEPEST)
        if self.kind == "actual":
            centre, more = 10.0 * axis.rc_rate, max(10.0 * rate - 10.0 * axis.rc_rate, 0.0)
            return lambda x: centre * x + more * x * (e * x**5 + (1 - e) * x)
        slope = 2.0 * axis.rc_rate
        factor = 1 - slope / max(10.0 * rate, slope)
        return lambda x: slope * x / max(1 - (e * x**3 + (1 - e) * x) * factor, STEEPEST)


FOLDER = Path(__file__).parent / "profiles"
LOW_US, MID_US, HIGH_US = 1000, 1500, 2000  # a stick's travel: Betaflight's PWM_RANGE and `mid_rc`
TRAVEL_US = HIGH_US - MID_US
STICKS = 4  # flight channels, before AUX1
LEAST_MAP = "AETR"
OWN_ORDER = "AERT"  # order in which the flight controller reports the sticks: MSP_RC
AXES = "AER"  # channel letters of roll, pitch, yaw
THROTTLE_POINTS = 11  # Betaflight's table, at intervals of a tenth of the stick
PEEK_BYTES = 256 << 10
LIKE = "spec"  # the profile of VADR-TS-002, for the video format and the limits that MSP does not define
LARGEST = 0x7FFF  # of a count, 16 bit
DDEG = math.radians(0.1)
LEAST_PHYSICS_HZ = 240.0  # least rate for the set-point filter and the plant


@dataclass(frozen=True)
class MspSigns(Limited):
    """Signs of the wire relative to the project's axes (world NED, body FRD), by component."""

    accel: Vector = limited(choices=SIGNS)
    gyro: Vector = limited(choices=SIGNS)
    euler: Vector = limited(choices=SIGNS)
    sticks: Vector = limited(choices=SIGNS)  # roll, pitch, yaw: deflection over body rate


@dataclass(frozen=True)
class ThrottleStick(Limited):
    """Map from the throttle channel to 0..1: Betaflight's `thr_mid` and `thr_expo` in per cent, linear between eleven points."""

    min_check_us: int = limited(least=LOW_US, most=MID_US - 1)
    mid: int = limited(least=1, most=99)
    expo: int = limited(least=0, most=99)

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
        return self.channel_map.index(letter)

    def imu(self, raw: RawImu, t: float, spinning: bool = False) -> Imu:
        """Return the sample at t (s) of the counts; with `spinning` propellers the reduced reading of gravity is corrected."""
        x, y, z = scaled(self.signs.accel, [count / self.accel_counts_per_g * GRAVITY for count in raw.accel])
        gyro = scaled(self.signs.gyro, [math.radians(count / self.gyro_counts_per_deg_s) for count in raw.gyro])
        return Imu(t, (x, y, z - spinning * self.accel_loss_m_s2), gyro)

    def raw_imu(self, accel: Vector, gyro: Vector) -> RawImu:
        """Return the counts of a specific force (m/s^2) and body rates (rad/s), clipped to 16 bit."""
        force = scaled(self.signs.accel, [a / GRAVITY * self.accel_counts_per_g for a in accel])
        turn = scaled(self.signs.gyro, [math.degrees(w) * self.gyro_counts_per_deg_s for w in gyro])
        return RawImu.of(min(max(round(count), -LARGEST - 1), LARGEST) for count in (*force, *turn, 0, 0, 0))

    def attitude(self, raw: RawAttitude, t: float) -> Attitude:
        """Return the sample read at t (s), on average half an update old; its heading is quantised to a degree."""
        euler = raw.roll_ddeg * DDEG, raw.pitch_ddeg * DDEG, math.radians(raw.heading_deg)
        w, x, y, z = from_euler(*scaled(self.signs.euler, euler)).tolist()
        return Attitude(t - 0.5 / self.attitude_hz, (w, x, y, z))

    def raw_attitude(self, q_wb: Array) -> RawAttitude:
        roll, pitch, yaw = scaled(self.signs.euler, to_euler(q_wb))
        return RawAttitude(round(roll / DDEG), round(pitch / DDEG), round(math.degrees(yaw)) % 360)

    def sticks_by_rates(self, omega: Vector, throttle: float) -> tuple[int, ...]:
        """Return channels in us, in the order of the receiver's map, for body rates; rates beyond a full stick are clipped."""
        roll, pitch, yaw = (self.rates.deflection(axis, rate) for axis, rate in enumerate(omega))
        return self._channels((roll, pitch, yaw), throttle)

    def sticks_by_angles(self, roll: float, pitch: float, yaw_rate: float, throttle: float) -> tuple[int, ...]:
        limit = math.radians(self.angle_limit_deg)
        return self._channels((roll / limit, pitch / limit, self.rates.deflection(2, yaw_rate)), throttle)

    def asked_rates(self, us: Sequence[float]) -> Vector:
        """Return the body rates (rad/s) of channels: the inverse of `sticks_by_rates`, as the flight controller reads them."""
        roll, pitch, yaw = (self.rates.rate(axis, x) for axis, x in enumerate(self._deflections(us)))
        return roll, pitch, yaw

    def asked_angles(self, us: Sequence[float]) -> tuple[float, float]:
        limit, (roll, pitch, _) = math.radians(self.angle_limit_deg), self._deflections(us)
        return roll * limit, pitch * limit

    def asked_throttle(self, us: Sequence[float]) -> float:
        return self.throttle.throttle(us[self.channel("T")])

    def _channels(self, deflections: Vector, throttle: float) -> tuple[int, ...]:
        us = dict.fromkeys(self.channel_map, 0.0)
        for letter, sign, x in zip(AXES, self.signs.sticks, deflections, strict=True):
            us[letter] = MID_US + TRAVEL_US * sign * min(max(x, -1.0), 1.0)
        us["T"] = self.throttle.us(min(max(throttle, 0.0), 1.0))
        return tuple(min(max(round(us[letter]), LOW_US), HIGH_US) for letter in self.channel_map)

    def _deflections(self, us: Sequence[float]) -> Vector:
        offsets = [(us[self.channel(letter)] - MID_US) / TRAVEL_US for letter in AXES]
        return scaled(self.signs.sticks, [min(max(x, -1.0), 1.0) for x in offsets])


def pole_s(cutoff_hz: float) -> float:
    """Return the time constant (s) of each pole of Betaflight's PT3 filter, which has -3 dB in total at the cut-off."""
    return math.sqrt(2 ** (1 / 3) - 1) / (2 * math.pi * cutoff_hz)


def load_betaflight(name: str) -> BetaflightProfile:
    """Load the profile of a name (`betaflight`) or of a YAML file's path. Raises UserError for none, or a malformed file."""
    return load_named(name, FOLDER, BetaflightProfile, "MSP profile")


def speaks_msp(name: str) -> bool:
    """Return whether a profile, by name or path, is an MSP profile; False for an unreadable file."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return name.casefold() in names(FOLDER)
    try:
        return re.search(r"^protocol: *msp\b", read_text(path, PEEK_BYTES), re.M) is not None
    except FileError:
        return False


def load_wire(name: str) -> Profile | BetaflightProfile:
    """Load a profile of either kind. Raises UserError as their readers."""
    path = str(named_path(name, WIRE_FOLDER, "wire profile", FOLDER))
    return load_betaflight(path) if speaks_msp(path) else load_profile(path)

"""Wire profile: rates, ports and conventions of one simulator, from `link/profiles/*.yaml`.

Differences between simulators are data here, read by both ends: the simulator applies a convention to what it sends, the
client its inverse to what it receives.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from gate_racer.common.config import load_named
from gate_racer.common.errors import UserError
from gate_racer.common.settings import Limited, limited
from gate_racer.vehicle.rotation import Vector

FOLDER = Path(__file__).parent / "profiles"
COMMANDS = ("attitude", "rates")
SIGNS = 1, -1  # of the wire
SIMULATOR_SYSTEM = 1  # system id of the simulator's vehicle
PORTS_PER_COPTER, LAST_COPTER = 2, 250  # one port in and one out; MAVLink reserves the higher system ids
LONGEST_PERIOD = 1000  # largest denominator of a `RateDivider`: resolution of rates


def ticks(slow_hz: float, fast_hz: float) -> int:
    """Return the number of fast ticks in a slow one. Raises ValueError if the rates do not divide."""
    n = fast_hz / slow_hz
    if abs(n - round(n)) > 1e-9 or n < 1:
        raise ValueError(f"{slow_hz:g} Hz does not divide {fast_hz:g} Hz")
    return round(n)


class RateDivider:
    """A rate on a faster integer clock, as even as the clock allows: 107 of 144 Hz has steps of one and two ticks."""

    def __init__(self, hz: float, clock_hz: float):
        self._beats, self._steps = Fraction(hz / clock_hz).limit_denominator(LONGEST_PERIOD).as_integer_ratio()

    def __call__(self, n: int, ticks: int = 1) -> bool:
        """Check whether a beat falls on tick n, or on one of the ticks before it that were left out, `ticks` in all."""
        return n * self._beats // self._steps > (n - ticks) * self._beats // self._steps


@dataclass(frozen=True)
class RateGain(Limited):
    """The flight controller's response to commanded body rates: omega = sign * gain * u * (1 + growth * |u|), per axis."""

    sign: Vector
    gain: Vector = limited(positive=True)
    growth_s: float = limited(least=0)  # s/rad; the "super-rate" of racing flight controllers

    def to_body(self, u: Vector) -> Vector:
        """Return the body rates, rad/s, FRD, for a command u on the wire."""
        x, y, z = (s * g * w * (1 + self.growth_s * abs(w)) for s, g, w in zip(self.sign, self.gain, u, strict=True))
        return x, y, z

    def to_wire(self, omega: Vector) -> Vector:
        """Return the command for body rates: u of r = u (1 + k |u|), in the form without cancellation for small k."""
        wanted = (s * w / g for s, g, w in zip(self.sign, self.gain, omega, strict=True))
        x, y, z = (2 * r / (1 + math.sqrt(1 + 4 * self.growth_s * abs(r))) for r in wanted)
        return x, y, z


@dataclass(frozen=True)
class Signs(Limited):
    """Signs of the wire relative to the project's axes (world NED, body FRD), by component."""

    gyro: Vector = limited(choices=SIGNS)  # HIGHRES_IMU
    euler: Vector = limited(choices=SIGNS)  # ATTITUDE: roll, pitch, yaw
    euler_rates: Vector = limited(choices=SIGNS)  # ATTITUDE: rollspeed, pitchspeed, yawspeed over the body rates
    odometry_q: tuple[float, float, float, float] = limited(choices=SIGNS)  # w, x, y, z
    odometry_rates: Vector = limited(choices=SIGNS)


@dataclass(frozen=True)
class RaceSchedule:
    """A race with a countdown. Without this section arming starts the run, and no race status is sent."""

    status_hz: float  # ENCAPSULATED_DATA type 1
    lobby_s: float  # s from a client's first message to the countdown
    countdown_s: float  # s before GO at which the start is published
    map_lead_s: float  # s before GO at which the gate map is sent once; 0: never
    map_at_foot: bool  # the map's positions are the feet of the gates instead of the centres of their openings
    disarm_at_go: bool
    false_start: bool  # thrust commanded in the countdown disqualifies, without any message
    reset_command: int  # COMMAND_LONG: param1 0 respawns, 1 restarts the race; 0: not supported
    settle_s: float  # s from a reset to the countdown


@dataclass(frozen=True)
class Failsafe(Limited):
    """Response to a silent client. Without this section its last set-point acts for ever."""

    after_s: float = limited(positive=True)  # s without HEARTBEAT and set-point
    sink_m_s: float = limited(least=0)  # rate of descent after the vehicle has stopped


@dataclass(frozen=True)
class OffboardRules(Limited):
    """Rules of PX4's OFFBOARD mode. With this section a set-point stream, the mode and arming must be requested in this order."""

    stream_s: float = limited(positive=True)  # s of set-points before the mode is granted
    loss_s: float = limited(positive=True)  # s without a set-point, after which the mode is left


@dataclass(frozen=True)
class Profile:
    """Rates in Hz, UDP ports, times in s. A rate of 0 means that the message is not sent."""

    name: str
    source: str
    mavlink_port: int  # bound by the client
    simulator_port: int
    video_port: int  # bound by the client
    component: int  # component id of the simulator
    physics_hz: float
    stamp_hz: float  # the clock whose steps schedule and stamp telemetry and images
    imu_hz: float
    imu_fresh_hz: float  # rate of new samples; those in between repeat the last values under a new stamp
    attitude_hz: float
    motors_hz: float  # ACTUATOR_OUTPUT_STATUS
    local_position_hz: float  # the true pose: only where the operator permits it
    odometry_hz: float  # the true pose, likewise
    heartbeat_hz: float
    video_hz: float
    video_copies: int  # number of times every image is sent
    video_epoch_s: float  # reading of the image clock when the simulator's clock is at 0
    video_stamp_ns: int  # resolution of those stamps
    collision_copies: int  # COLLISION messages for every tick of a contact
    command_hz: float  # rate of the client's set-points
    command_limit_hz: float  # strict upper bound on the wire
    client_heartbeat_hz: float
    rates_rad_s_bit: bool  # the client sets bit 16 of SET_ATTITUDE_TARGET's mask (128 + 16 = 144)
    position_yaw: bool  # SET_POSITION_TARGET_LOCAL_NED controls yaw
    ground_station: bool  # modes, parameters, version and status are provided for MAVSDK and ground stations
    timesync: bool  # requests are answered
    signs: Signs
    rates: RateGain  # SET_ATTITUDE_TARGET, mask 128
    rates_rad_s: RateGain  # rate gain with bit 16, mask 144
    video_latency_s: float  # exposure to complete frame at the client
    video_chunk_bytes: int  # payload of one datagram
    run_limit_s: float
    race: RaceSchedule | None = None
    failsafe: Failsafe | None = None
    heartbeat_limit_hz: float = 2.0  # least rate of the client: VADR-TS-002, 4.4
    timesync_hz: float = 0.0  # rate of the simulator's own requests
    odometry_child: int = 12  # ODOMETRY's child_frame_id: 12 MAV_FRAME_BODY_FRD, 8 MAV_FRAME_BODY_NED; the axes are FRD
    timesync_in_tc1: bool = False  # every other request of the client has its stamp in tc1, as the organisers' sample
    offboard: OffboardRules | None = None  # rules of PX4's OFFBOARD; None: no such mode
    system: int = SIMULATOR_SYSTEM
    one_clock: bool = True  # stamps of video and telemetry that nearly agree are of one clock
    command: str = "rates"  # preferred use of SET_ATTITUDE_TARGET: rates or attitude

    def __post_init__(self) -> None:
        if self.command not in COMMANDS:
            raise ValueError(f"command must be one of {', '.join(COMMANDS)}")
        if self.command_hz >= self.command_limit_hz:
            raise ValueError(f"command_hz {self.command_hz:g} must be below {self.command_limit_hz:g}")
        ticks(self.command_hz, self.physics_hz)
        streams = ("imu_hz", "imu_fresh_hz", "attitude_hz", "motors_hz", "local_position_hz", "odometry_hz")
        for name in (*streams, "heartbeat_hz", "video_hz", "timesync_hz"):
            if not 0 <= getattr(self, name) <= self.stamp_hz:
                raise ValueError(f"{name} {getattr(self, name):g} must lie between 0 and stamp_hz {self.stamp_hz:g}")
        if min(self.imu_hz, self.imu_fresh_hz, self.heartbeat_hz, self.video_hz) <= 0:
            raise ValueError("imu_hz, imu_fresh_hz, heartbeat_hz and video_hz must be positive")
        if self.video_copies < 1 or self.video_stamp_ns < 1:
            raise ValueError("video_copies and video_stamp_ns must be at least 1")

    def of_copter(self, number: int) -> "Profile":
        """Return the profile of one of several copters, with its own system id and ports. Raises UserError unless 1 to 250."""
        if not 1 <= number <= LAST_COPTER:
            raise UserError(f"copter {number}: must lie between 1 and {LAST_COPTER}")
        further = PORTS_PER_COPTER * (number - 1)
        received, spoken_to = self.mavlink_port + further, self.simulator_port + further
        return replace(self, system=number, mavlink_port=received, simulator_port=spoken_to)

    def gain(self, rad_s_bit: bool) -> RateGain:
        return self.rates_rad_s if rad_s_bit else self.rates

    def video_stamp(self, t: float) -> int:
        """Return `sim_time_ns` of an image exposed at t (s) of the simulator's clock."""
        stamp_ns = round(self.video_epoch_s * 1e9) + round(t * 1e9)
        return stamp_ns // self.video_stamp_ns * self.video_stamp_ns


def load_profile(name: str) -> Profile:
    """Load the profile of a name (`spec`) or of a YAML file's path.

    Raises:
        UserError: no such profile, or a malformed file.

    Examples:
        >>> from gate_racer import load_profile
        >>> profile = load_profile("dcl")
        >>> profile.physics_hz, profile.command_hz
        (120.0, 60.0)
    """
    return load_named(name, FOLDER, Profile, "wire profile")

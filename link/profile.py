"""A wire profile: the rates, ports and conventions of one simulator, from `link/profiles/*.yaml`."""

from dataclasses import dataclass
from pathlib import Path

from vehicle.config import load_named

FOLDER = Path(__file__).parent / "profiles"


def ticks(slow_hz: float, fast_hz: float) -> int:
    """How many fast ticks make a slow one.

    Raises:
        ValueError: the rates do not divide.
    """
    n = fast_hz / slow_hz
    if abs(n - round(n)) > 1e-9 or n < 1:
        raise ValueError(f"{slow_hz:g} Hz does not divide {fast_hz:g} Hz")
    return round(n)


@dataclass(frozen=True)
class Profile:
    """Rates in Hz, ports of UDP, times in s."""

    name: str
    source: str
    mavlink_port: int  # the client binds it
    simulator_port: int
    video_port: int  # the client binds it
    physics_hz: float
    imu_hz: float
    attitude_hz: float
    heartbeat_hz: float
    video_hz: float
    command_hz: float  # of the client
    command_limit_hz: float  # strictly below this on the wire
    client_heartbeat_hz: float
    video_latency_s: float  # exposure to complete frame at the client
    video_chunk_bytes: int  # payload of one datagram
    run_limit_s: float

    def __post_init__(self) -> None:
        if self.command_hz >= self.command_limit_hz:
            raise ValueError(f"command_hz {self.command_hz:g} must stay under {self.command_limit_hz:g}")
        for slow in (self.imu_hz, self.attitude_hz, self.heartbeat_hz, self.video_hz, self.command_hz):
            ticks(slow, self.physics_hz)


def load_profile(name: str) -> Profile:
    """The profile of a name (`spec`) or of a YAML file's path.

    Raises:
        UserError: no such profile, or a malformed file.
    """
    return load_named(name, FOLDER, Profile, "wire profile")

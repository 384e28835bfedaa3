"""Preflight file: an aircraft's configuration under one hash, and the checks of a flight against it.

Before a flight the configuration is read again, over the line of the flight, and any change since prevents the start.
"""

import hashlib
import json
import time
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

from gate_racer.link.msp.constants import AircraftConstants, changes, read_constants, require_safe
from gate_racer.link.msp.line import MspLine
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.vehicle.config import load, write
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.vehicle import Vehicle

LISTEN_S = 0.5  # s to listen for unsolicited bytes
SHOWN = 3  # changes listed in a refusal


@dataclass(frozen=True)
class Named:
    """A profile or vehicle: its name, and a hash of its contents except `source`."""

    name: str
    hash: str


@dataclass(frozen=True)
class AtRest:
    """Means measured on the ground with the motors off. Body FRD; rad."""

    accel_m_s2: tuple[float, float, float]  # specific force
    gyro_rad_s: tuple[float, float, float]
    accel_noise_m_s2: float  # standard deviation on the noisiest axis
    gyro_noise_rad_s: float
    roll_rad: float
    pitch_rad: float


@dataclass(frozen=True)
class LineFigures:
    """Intervals between replies, with sticks as in flight."""

    interval_mean_s: float
    interval_p95_s: float
    timeouts: int


@dataclass(frozen=True)
class PreflightFile:
    """Contents of the file; `sha256` covers all other fields."""

    constants: AircraftConstants
    profile: Named
    vehicle: Named
    at_rest: AtRest
    line: LineFigures
    sha256: str = ""

    @property
    def digest(self) -> str:
        """Expected value of `sha256`."""
        return hashlib.sha256(json.dumps(asdict(replace(self, sha256="")), sort_keys=True).encode()).hexdigest()


def profile_named(profile: BetaflightProfile) -> Named:
    """Return a profile as named in the file."""
    content = repr(astuple(replace(profile, source="")))
    return Named(profile.name, hashlib.sha256(content.encode()).hexdigest()[:16])


def vehicle_named(vehicle: Vehicle) -> Named:
    """Return a vehicle as named in the file."""
    return Named(vehicle.name, vehicle.hash)


def write_preflight(path: Path, file: PreflightFile) -> str:
    """Write the file with its hash, and return the hash."""
    write(path, asdict(replace(file, sha256=file.digest)))
    return file.digest


def load_preflight(path: Path) -> PreflightFile:
    """Read the file. Raises UserError if it is malformed, or its hash does not match."""
    file = load(path, PreflightFile)
    if file.sha256 != file.digest:
        raise UserError(f"{path}: sha256: does not match the file, which was edited: run preflight again")
    return file


def require_meant(path: Path, file: PreflightFile, profile: BetaflightProfile, vehicle: Vehicle) -> None:
    """Check that the file was made for this profile and vehicle. Raises UserError if not."""
    for what, was, given in (
        ("profile", file.profile, profile_named(profile)),
        ("vehicle", file.vehicle, vehicle_named(vehicle)),
    ):
        if was != given:
            difference = "has changed since" if was.name == given.name else f"is not {given.name}"
            raise UserError(f"{path}: {what}: made for {was.name}, which {difference}: run preflight again")


def require_alone(port: Port, listen_s: float = LISTEN_S) -> None:
    """Check that the line is idle; bytes left by an earlier program are dropped. Raises UserError for unsolicited bytes."""
    while port.read(0.0):
        pass
    until = time.monotonic() + listen_s
    while (left := until - time.monotonic()) > 0:
        if port.read(left):
            raise UserError("received unrequested bytes: end the other client on this line, and try again")


def read_steady(line: MspLine, profile: BetaflightProfile) -> AircraftConstants:
    """Return the configuration, read twice from an aircraft that is safe.

    Raises:
        UserError: armed, handed over, not available, or different in the second reading.
        LinkError: no reply.
    """
    require_safe(line, profile)
    first = read_constants(line)
    if differing := changes(first, read_constants(line)):
        raise UserError(
            f"two readings differ: {_listed(differing)}: end the program that configures the flight controller"
        )
    require_safe(line, profile, first)
    return first


def require_unchanged(port: Port, path: Path, file: PreflightFile, profile: BetaflightProfile) -> None:
    """Check the aircraft against the file. Raises UserError where it differs, and as `require_alone`, `read_steady`."""
    require_alone(port)
    found = read_steady(MspLine(port, profile, stick_hz=0.0), profile)
    if differing := changes(file.constants, found):
        raise UserError(f"{path}: {_listed(differing)}: run preflight again")


def _listed(differing: list[str]) -> str:
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return ", ".join(differing[:SHOWN]) + more

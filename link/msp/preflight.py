"""The file of a preflight: what an aircraft's constants were, under one hash, and whether a start may rely on it.

A flight reads the constants again, over the line that it will fly by, and refuses where anything has changed since.
"""

import hashlib
import json
import time
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

from link.msp.constants import AircraftConstants, changes, read_constants, require_safe
from link.msp.line import MspLine
from link.msp.ports import Port
from link.msp.profile import BetaflightProfile
from vehicle.config import load, write
from vehicle.errors import UserError
from vehicle.vehicle import Vehicle

LISTEN_S = 0.5  # for bytes that nobody asked for
SHOWN = 3  # changes that a refusal names


@dataclass(frozen=True)
class Named:
    """A profile or a vehicle: its name, and a hash of all that it says but its `source`."""

    name: str
    hash: str


@dataclass(frozen=True)
class AtRest:
    """Means of what was measured on the ground, motors off. Body FRD; rad."""

    accel_m_s2: tuple[float, float, float]  # specific force
    gyro_rad_s: tuple[float, float, float]
    accel_noise_m_s2: float  # standard deviation, of the axis that has most
    gyro_noise_rad_s: float
    roll_rad: float
    pitch_rad: float


@dataclass(frozen=True)
class LineFigures:
    """Between two answers, beside sticks as in flight."""

    interval_mean_s: float
    interval_p95_s: float
    timeouts: int


@dataclass(frozen=True)
class PreflightFile:
    """All of it; `sha256` is of everything else."""

    constants: AircraftConstants
    profile: Named
    vehicle: Named
    at_rest: AtRest
    line: LineFigures
    sha256: str = ""

    @property
    def digest(self) -> str:
        """What `sha256` has to be."""
        return hashlib.sha256(json.dumps(asdict(replace(self, sha256="")), sort_keys=True).encode()).hexdigest()


def profile_named(profile: BetaflightProfile) -> Named:
    """A profile as the file names it."""
    told = repr(astuple(replace(profile, source="")))
    return Named(profile.name, hashlib.sha256(told.encode()).hexdigest()[:16])


def vehicle_named(vehicle: Vehicle) -> Named:
    """A vehicle as the file names it."""
    return Named(vehicle.name, vehicle.hash)


def write_preflight(path: Path, file: PreflightFile) -> str:
    """Writes it under its hash, which is returned."""
    write(path, asdict(replace(file, sha256=file.digest)))
    return file.digest


def load_preflight(path: Path) -> PreflightFile:
    """Raises UserError: malformed, or its hash is not that of what it says."""
    file = load(path, PreflightFile)
    if file.sha256 != file.digest:
        raise UserError(f"{path}: sha256: is not the hash of this file, which was changed by hand: run preflight again")
    return file


def require_meant(path: Path, file: PreflightFile, profile: BetaflightProfile, vehicle: Vehicle) -> None:
    """Raises UserError where a flight by another profile or vehicle is to rely on the file."""
    for what, was, given in (
        ("profile", file.profile, profile_named(profile)),
        ("vehicle", file.vehicle, vehicle_named(vehicle)),
    ):
        if was != given:
            same = "has changed since" if was.name == given.name else f"is to fly as {given.name}"
            raise UserError(f"{path}: {what}: made for {was.name}, which {same}: run preflight again")


def require_alone(port: Port, listen_s: float = LISTEN_S) -> None:
    """Raises UserError where bytes come that nobody has asked for. What an earlier program has left on the line is dropped."""
    while port.read(0.0):
        pass
    until = time.monotonic() + listen_s
    while (left := until - time.monotonic()) > 0:
        if port.read(left):
            raise UserError(
                "bytes come that nobody asked for: another client speaks on this line; end it, and try again"
            )


def read_steady(line: MspLine, profile: BetaflightProfile) -> AircraftConstants:
    """The constants, read twice from an aircraft that is safe.

    Raises:
        UserError: armed, handed over, not told, or different the second time.
        LinkError: nothing answers.
    """
    require_safe(line, profile)
    first = read_constants(line)
    if differing := changes(first, read_constants(line)):
        raise UserError(f"read twice, and not the same: {_listed(differing)}: somebody sets the flight controller up")
    require_safe(line, profile, first)
    return first


def require_unchanged(port: Port, path: Path, file: PreflightFile, profile: BetaflightProfile) -> None:
    """Reads the aircraft again. Raises UserError where it is not as the file says, and as `require_alone`, `read_steady`."""
    require_alone(port)
    found = read_steady(MspLine(port, profile, stick_hz=0.0), profile)
    if differing := changes(file.constants, found):
        raise UserError(f"{path}: {_listed(differing)} since: run preflight again")


def _listed(differing: list[str]) -> str:
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return ", ".join(differing[:SHOWN]) + more

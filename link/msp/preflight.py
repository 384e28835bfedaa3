"""Preflight file: an aircraft's configuration, read over the line, under one hash, and the checks of a flight against it.

Before a flight the configuration is read again, over the line of the flight, and any change since prevents the start.
"""

import hashlib
import json
import time
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TypeVar

from gate_racer.common.config import load, write
from gate_racer.common.errors import UserError
from gate_racer.link.msp import messages as msp
from gate_racer.link.msp.client import LinkFigures, MspLine
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.profile import RATES_TYPE, AuxRange, AxisRates, BetaflightProfile, RateCurves
from gate_racer.link.sockets import LinkError
from gate_racer.vehicle.vehicle import Vehicle

ASK_S, TRIES = 0.5, 3  # s to wait for a reply, and number of attempts
ARM, ANGLE, OVERRIDE = 0, 1, 50  # permanent mode numbers: `src/main/msp/msp_box.c`

M = TypeVar("M", bound=msp.Message)


@dataclass(frozen=True)
class AircraftConstants:
    firmware: str
    api: str
    board: str
    pid_profile: int
    rate_profile: int
    channel_map: str
    tuning: msp.RcTuning
    receiver: msp.RxConfig
    modes: tuple[msp.ModeRange, ...]

    @property
    def rates(self) -> RateCurves | None:
        t, kinds = self.tuning, {code: kind for kind, code in RATES_TYPE.items()}
        try:
            roll = AxisRates(t.rc_rate_roll, t.rate_roll, t.expo_roll, t.limit_roll_deg_s)
            pitch = AxisRates(t.rc_rate_pitch, t.rate_pitch, t.expo_pitch, t.limit_pitch_deg_s)
            yaw = AxisRates(t.rc_rate_yaw, t.rate_yaw, t.expo_yaw, t.limit_yaw_deg_s)
            return RateCurves(kinds[t.rates_type], roll, pitch, yaw)
        except (KeyError, ValueError):
            return None

    def switched(self, mode: int, us: tuple[int, ...]) -> bool:
        """Return whether channels (us; four sticks, then AUX1) switch a mode on."""
        return any(AuxRange(m.channel, m.low_us, m.high_us).on(us) for m in self.modes if m.mode == mode)


def request(line: MspLine, code: msp.Code) -> msp.Message | None:
    """Request one message with repeats; None if it is refused or does not come."""
    answers = (line.ask(code, ASK_S) for _ in range(TRIES))
    return next((answer for answer in answers if answer is not None), None)


def read_constants(line: MspLine) -> AircraftConstants:
    """Read the configuration. Raises UserError for messages that are not available, LinkError without a reply."""
    variant = request(line, msp.Code.FC_VARIANT)
    if not isinstance(variant, msp.FcVariant):
        raise LinkError("no answer to MSP_FC_VARIANT: is this a UART with MSP, at the baud rate of the profile?")
    version = _required(line, msp.Code.FC_VERSION, msp.Version)
    api = _required(line, msp.Code.API_VERSION, msp.Version)
    board = _required(line, msp.Code.BOARD_INFO, msp.BoardInfo)
    status = _required(line, msp.Code.STATUS_EX, msp.StatusEx)
    return AircraftConstants(
        firmware=f"{variant.name} {'.'.join(map(str, version.numbers))}",
        api=".".join(map(str, api.numbers[1:])),
        board=board.target or board.board,
        pid_profile=status.profile,
        rate_profile=status.rate_profile,
        channel_map=_required(line, msp.Code.RX_MAP, msp.RxMap).letters,
        tuning=_required(line, msp.Code.RC_TUNING, msp.RcTuning),
        receiver=_required(line, msp.Code.RX_CONFIG, msp.RxConfig),
        modes=_required(line, msp.Code.MODE_RANGES, msp.ModeRanges).ranges,
    )


def _required(line: MspLine, code: msp.Code, kind: type[M]) -> M:
    message = request(line, code)
    if not isinstance(message, kind):
        raise UserError(f"the flight controller does not answer MSP_{code.name}: its configuration cannot be compared")
    return message


def require_safe(line: MspLine, profile: BetaflightProfile, constants: AircraftConstants | None = None) -> None:
    """Check that the aircraft is disarmed and not handed over, by the profile's and its own switch. Raises UserError if not."""
    status, channels = request(line, msp.Code.STATUS_EX), request(line, msp.Code.RC)
    if not isinstance(status, msp.StatusEx) or not isinstance(channels, msp.Channels):
        raise UserError("the flight controller does not report whether it is armed: nothing more is sent")
    if status.armed:
        raise UserError("the flight controller is armed: disarm it, and take the propellers off")
    own = constants is not None and constants.switched(OVERRIDE, channels.us)
    if own or profile.aux.override.on(channels.us):
        raise UserError("the override is on: switch it off, so that the sticks of this program have no effect")


def changes(before: AircraftConstants, now: AircraftConstants) -> list[str]:
    """Return the differences by name: `tuning.rate_roll was 75, is 80`."""
    old, new = _leaves(asdict(before)), _leaves(asdict(now))
    names = [*old, *(name for name in new if name not in old)]
    return [f"{n} was {old.get(n, 'missing')}, is {new.get(n, 'missing')}" for n in names if old.get(n) != new.get(n)]


def _leaves(value: object, name: str = "") -> dict[str, object]:
    if not isinstance(value, dict | tuple | list):
        return {name: value}
    leaves = dict[str, object]()
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        leaves |= _leaves(one, f"{name}.{key}" if name else str(key))
    return leaves


LISTEN_S = 0.5  # s to listen for unsolicited bytes
SHOWN = 3  # most changes listed in a refusal


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
class PreflightFile:
    constants: AircraftConstants
    profile: Named
    vehicle: Named
    at_rest: AtRest
    line: LinkFigures  # with sticks as in flight
    sha256: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(replace(self, sha256="")), sort_keys=True).encode()).hexdigest()


def profile_named(profile: BetaflightProfile) -> Named:
    content = repr(astuple(replace(profile, source="")))
    return Named(profile.name, hashlib.sha256(content.encode()).hexdigest()[:16])


def vehicle_named(vehicle: Vehicle) -> Named:
    return Named(vehicle.name, vehicle.hash)


def write_preflight(path: Path, file: PreflightFile) -> str:
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
    """Return the configuration, read twice from a safe aircraft. Raises UserError if it is unsafe or unsteady, LinkError."""
    require_safe(line, profile)
    first = read_constants(line)
    if differing := changes(first, read_constants(line)):
        cure = "end the program that configures the flight controller"
        raise UserError(f"two readings differ: {', '.join(differing[:SHOWN])}: {cure}")
    require_safe(line, profile, first)
    return first


def require_unchanged(port: Port, path: Path, file: PreflightFile, profile: BetaflightProfile) -> None:
    """Check the aircraft against the file. Raises UserError where it differs, and as `require_alone`, `read_steady`."""
    require_alone(port)
    found = read_steady(MspLine(port, profile, stick_hz=0.0), profile)
    if differing := changes(file.constants, found):
        raise UserError(f"{path}: {', '.join(differing[:SHOWN])}: run preflight again")

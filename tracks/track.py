"""`Track`: a course from its YAML file, checked. World NED, metres, with the file's origin.

Its solids are oriented boxes: gate frames, bar by bar, the posts that carry them, and obstacles. Several vehicles start
from a row normal to the start's heading, centred on the track's start. `remarks`: values of valid files that look like a mistake.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from gate_racer.common.config import load, named_path, names
from gate_racer.common.errors import UserError
from gate_racer.common.files import file_name
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.rotation import Array, Vector, from_euler, matrix
from gate_racer.vehicle.vehicle import Vehicle

FRAME_MOST_M = 100.0  # m, largest length of a gate's frame (chosen)
FOLDER = Path(__file__).parent
MOST_LAPS = 1000  # of a race; each gate of each lap takes memory (chosen)


@dataclass(frozen=True)
class Start:
    """Pose at rest before the race; negative pitch is nose down, positive roll right side down."""

    position_m: Vector  # m, world NED
    yaw_deg: float  # deg
    pitch_deg: float = 0.0  # deg
    roll_deg: float = 0.0  # deg

    @cached_property
    def p_wb(self) -> Array:
        """Position (3,) m, world."""
        return np.array(self.position_m)

    @cached_property
    def q_wb(self) -> Array:
        """Attitude (4,), body to world, wxyz."""
        return from_euler(math.radians(self.roll_deg), math.radians(self.pitch_deg), math.radians(self.yaw_deg))


@dataclass(frozen=True)
class Bounds:
    """Box that must not be left, world NED; `high_m[2]` is the floor."""

    low_m: Vector  # m
    high_m: Vector  # m

    def require(self, p_w: Vector, what: str) -> None:
        """Check that a point (m) lies within. Raises UserError: it does not; the message begins with `what`."""
        if not (np.less_equal(self.low_m, p_w) & np.less_equal(p_w, self.high_m)).all():
            raise UserError(f"{what} {_rounded(p_w)} lies outside the bounds {self.low_m} to {self.high_m}")


@dataclass(frozen=True)
class Obstacle:
    """Solid box that must not be touched, aligned with the world's axes."""

    low_m: Vector  # m
    high_m: Vector  # m


@dataclass(frozen=True)
class GateFrame:
    opening_m: float  # m, side of the opening
    outer_m: float  # m, outer side of the frame
    depth_m: float  # m
    stand_m: float = 0.0  # m, width of a post from the floor to the frame, as deep as the frame; 0 without a post

    def __post_init__(self) -> None:
        if not 0 < self.opening_m < self.outer_m or min(self.depth_m, self.stand_m) < 0:
            raise ValueError("0 < opening_m < outer_m, depth_m >= 0 and stand_m >= 0 must hold")
        if max(astuple(self)) > FRAME_MOST_M:
            raise ValueError(f"no length of a gate may exceed {FRAME_MOST_M:g} m")


VADR_FRAME = GateFrame(1.5, 2.72, 0.26)  # m, VADR-TS-002; the outer side is that sent by the simulator


@dataclass(frozen=True)
class Entry:
    """Entry of the file's gate list: a square gate by its centre or its base, a polygon, or a ball; fields as in `Gate`."""

    centre_m: Vector | None = None
    base_m: Vector | None = None  # m, foot of the gate
    yaw_deg: float | None = None
    pitch_deg: float = 0.0
    radius_m: float | None = None
    polygon_m: tuple[tuple[float, float], ...] | None = None
    tunnel_m: float = 0.0
    visible: bool = True
    cov_m2: tuple[Vector, Vector, Vector] | None = None  # m^2, covariance of a mapped gate's centre; for information
    sigma_yaw_deg: float | None = None  # deg, standard deviation of a mapped gate's yaw; for information


RaceClock = Literal["go", "first_gate"]  # what starts the time of a race


@dataclass(frozen=True)
class TrackFile:
    name: str
    source: str
    start: Start
    bounds: Bounds
    gates: tuple[Entry, ...]
    frame: GateFrame | None = None
    centre_above_base_m: float | None = None  # m, height of the centre above `base_m`; calibrated
    closed: bool = False
    end_m: Vector | None = None
    obstacles: tuple[Obstacle, ...] = ()
    clock: RaceClock = "go"


@dataclass(frozen=True)
class Track:
    """Course. A `closed` one may be flown for several laps; `end_m`, if given, is the final position at rest, m, world NED."""

    name: str
    start: Start
    bounds: Bounds
    gates: tuple[Gate, ...]
    closed: bool
    end_m: Vector | None
    file: str = ""  # path of its file
    obstacles: tuple[Obstacle, ...] = ()
    clock: RaceClock = "go"  # the last field: no part of the course, so that `hash` leaves it out

    @cached_property
    def landmarks(self) -> tuple[int, ...]:
        """Per gate of the list, the index of the first that is the same physical gate, which a course may pass several times."""
        firsts: list[int] = []
        for i, gate in enumerate(self.gates):
            firsts.append(next((k for k in sorted(set(firsts)) if gate.same_frame(self.gates[k])), i))
        return tuple(firsts)

    @cached_property
    def hash(self) -> str:
        """Hash of the course, 16 hex digits, without the file's path and the clock."""
        return hashlib.sha256(repr(astuple(replace(self, file=""))[:-1]).encode()).hexdigest()[:16]

    def elapsed(self, gate_times_s: Sequence[float]) -> float:
        """Return the time of the race, s, up to the last gate passed, from the times of the gates passed since GO, s."""
        return gate_times_s[-1] - (gate_times_s[0] if self.clock == "first_gate" else 0.0)

    def course(self, laps: int) -> tuple[Gate, ...]:
        """Return the gates of a number of laps, in order. Raises UserError: none, too many, or several of an open course."""
        if not 1 <= laps <= MOST_LAPS:
            raise UserError(f"{self.name}: {laps} laps requested: must lie between 1 and {MOST_LAPS}")
        if laps > 1 and not self.closed:
            raise UserError(f"{self.name}: the course is not closed, so it has one lap, not {laps}")
        return self.gates * laps


def load_track(name: str | Path) -> Track:
    """Load and check the track of a name (`vq1`) or of a YAML file's path.

    Raises:
        UserError: no such track, a malformed file, or a course that contradicts itself.

    Examples:
        >>> from gate_racer import load_track
        >>> track = load_track("vq1")
        >>> len(track.gates), track.closed
        (6, False)
    """
    path = named_path(name, FOLDER, "track")
    file = load(path, TrackFile)
    file_name(file.name, f"{path}: name")
    if not file.gates:
        raise UserError(f"{path}: gates: must have at least one gate")
    boxes: dict[str, Bounds | Obstacle] = {f"obstacles[{i}]": one for i, one in enumerate(file.obstacles)}
    for what, box in (boxes | {"bounds": file.bounds}).items():
        if not np.less(box.low_m, box.high_m).all():
            raise UserError(f"{path}: {what}: low_m must be below high_m on every axis")
    gates = tuple(_gate(entry, file, f"{path}: gates[{i}]") for i, entry in enumerate(file.gates))
    points = [("start.position_m", file.start.position_m), *((f"gates[{i}]", g.centre_m) for i, g in enumerate(gates))]
    for what, point in points + ([("end_m", file.end_m)] if file.end_m else []):
        file.bounds.require(point, f"{path}: {what}:")
        for i, obstacle in enumerate(file.obstacles):
            if of_obstacle(obstacle).distance(np.array(point)) == 0:
                raise UserError(f"{path}: {what}: {_rounded(point)} lies inside obstacles[{i}]")
    _require_apart(gates, path)
    course = file.name, file.start, file.bounds, gates, file.closed, file.end_m
    return Track(*course, str(path.resolve()), file.obstacles, file.clock)


def _rounded(point: Vector) -> Vector:
    """Return a point rounded to 1 mm, for messages."""
    return round(point[0], 3), round(point[1], 3), round(point[2], 3)


def load_track_of(name: str, instead: str | Path | None = None) -> Track:
    """Load the track named in a log, from this folder, its folder `tracks`, or shipped; or `instead`. Raises UserError."""
    for own in (Path("tracks", f"{name}.yaml"), Path(f"{name}.yaml")):
        instead = instead or (own if own.exists() else None)
    if instead is None and name not in names(FOLDER):
        raise UserError(f"the log's track {name} has no {name}.yaml here or in tracks/; name it by --set track=FILE")
    return load_track(instead or name)


def _require_apart(gates: tuple[Gate, ...], path: str | Path) -> None:
    """Check that no gate stands inside another's opening; the same gate may be used several times, in either direction."""
    for i, gate in enumerate(gates):
        for k, other in enumerate(gates[:i]):
            distance = float(np.linalg.norm(gate.p_wg - other.p_wg))
            apart = gate.is_ball or other.is_ball or gate.same_frame(other) or distance >= min(gate.half, other.half)
            if not apart:
                raise UserError(f"{path}: gates[{i}]: lies inside gates[{k}], {distance:.2f} m from its centre")


def _gate(entry: Entry, file: TrackFile, where: str) -> Gate:
    def require(met: object, what: str) -> None:
        if not met:
            raise UserError(f"{where}{what}")

    at, polygon, above, frame = entry.centre_m, entry.polygon_m, file.centre_above_base_m, file.frame
    require((at is None) != (entry.base_m is None), ": needs either centre_m or base_m")
    if entry.base_m is not None:
        require(above is not None, ".base_m: needs the course's centre_above_base_m")
        x, y, z = entry.base_m
        at = x, y, z - (above or 0.0)
    assert at is not None
    if entry.radius_m is not None:
        lone = entry.base_m is None and entry.yaw_deg is None
        require(lone and entry.radius_m > 0, ": a ball needs centre_m and a positive radius_m, and has no yaw_deg")
        return Gate(at, radius_m=entry.radius_m, visible=False)
    require(entry.yaw_deg is not None, ".yaw_deg: missing, the direction of flight through the gate in degrees")
    prism = entry.tunnel_m > 0 and polygon is not None
    require(prism or not entry.tunnel_m, ".tunnel_m: must be positive, and needs polygon_m: the prism's cross-section")
    ways = entry.yaw_deg or 0.0, entry.pitch_deg
    if polygon is not None:
        convex = entry.base_m is None and _convex_around_origin(polygon)
        require(convex, ".polygon_m: needs centre_m, and three or more corners, y right, z down, convex around it")
        return Gate(at, *ways, visible=False, polygon_m=polygon, tunnel_m=entry.tunnel_m)
    require(frame, ": a square gate needs the course's `frame` (opening_m, outer_m, depth_m)")
    assert frame is not None
    sizes = frame.opening_m, frame.outer_m, frame.depth_m
    return Gate(at, *ways, *sizes, None, entry.visible, stand_m=frame.stand_m)


def _convex_around_origin(corners: tuple[tuple[float, float], ...]) -> bool:
    """Check whether a polygon is convex and the origin lies strictly inside."""
    p = np.array(corners)
    along = np.roll(p, -1, axis=0) - p
    after = np.roll(along, -1, axis=0)
    turns = along[:, 0] * after[:, 1] - along[:, 1] * after[:, 0]
    sides = p[:, 0] * along[:, 1] - p[:, 1] * along[:, 0]
    return len(p) >= 3 and any((sign * turns > 0).all() and (sign * sides > 0).all() for sign in (1, -1))


SAME_LEVEL = 0.25  # -, height difference over the frame's side above which a gate may stand on the lower one (chosen)


class SolidBox(NamedTuple):
    """Oriented box: world points centre + axes @ p with |p| <= half."""

    centre: Array  # (3,) m, world NED
    axes: Array  # (3, 3) rotation, box to world
    half: Array  # (3,) m, half sides

    def distance(self, p_w: Array) -> Array:
        """Return distances (...), m, from world points (..., 3) to its surface; 0 inside."""
        beyond = np.abs((p_w - self.centre) @ self.axes) - self.half
        return np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)

    def meets(self, a_w: Array, b_w: Array) -> np.ndarray:
        """Return (...) whether segments between world points a_w and b_w (..., 3) meet its interior, by the slab method."""
        a, b = (a_w - self.centre) @ self.axes, (b_w - self.centre) @ self.axes
        d = np.where(np.abs(b - a) < 1e-12, 1e-12, b - a)
        first, second = (-self.half - a) / d, (self.half - a) / d
        enters, leaves = np.minimum(first, second).max(axis=-1), np.maximum(first, second).min(axis=-1)
        return np.asarray(np.maximum(enters, 0.0) < np.minimum(leaves, 1.0))


def of_obstacle(obstacle: Obstacle) -> SolidBox:
    low, high = np.array(obstacle.low_m), np.array(obstacle.high_m)
    return SolidBox((low + high) / 2, np.eye(3), (high - low) / 2)


def bars(gate: Gate) -> list[SolidBox]:
    """Return the four bars between opening and outer square, as deep as the frame."""
    inner, outer, depth = gate.opening_m / 2, gate.outer_m / 2, gate.depth_m / 2
    middle, width = (outer + inner) / 2, (outer - inner) / 2
    parts = []
    for side in (-middle, middle):
        parts += [((0.0, 0.0, side), (depth, outer, width)), ((0.0, side, 0.0), (depth, width, inner))]
    return [SolidBox(gate.p_wg + gate.R_wg @ np.array(at), gate.R_wg, np.array(half)) for at, half in parts]


def stand(track: Track, index: int) -> SolidBox | None:
    """Return the vertical post below a gate's frame; None if the frame stands on another one or on the floor, or has no post."""
    gate, floor = track.gates[index], track.bounds.high_m[2]
    foot = gate.p_wg[2] + gate.outer_m / 2 * abs(gate.R_wg[2, 2])
    if not gate.has_frame or gate.stand_m <= 0 or foot >= floor:
        return None
    for other in track.gates:
        below = other.has_frame and other.p_wg[2] > gate.p_wg[2] + SAME_LEVEL * gate.outer_m
        if below and np.linalg.norm((other.p_wg - gate.p_wg)[:2]) < gate.outer_m / 2:
            return None
    centre = np.array([gate.p_wg[0], gate.p_wg[1], (foot + floor) / 2])
    upright = matrix(from_euler(0.0, 0.0, np.radians(gate.yaw_deg)))
    return SolidBox(centre, upright, np.array([gate.depth_m / 2, gate.stand_m / 2, (floor - foot) / 2]))


def gate_solids(track: Track, index: int) -> list[SolidBox]:
    """Return the bars of a gate's frame and its post; nothing for a gate without a frame."""
    gate, post = track.gates[index], stand(track, index)
    return [*bars(gate), *([post] if post is not None else [])] if gate.has_frame else []


SPACING_M = 1.0  # m, default distance between neighbours (chosen)
MOST = 8  # largest number of vehicles in a race (chosen)


def parse_place(text: str) -> tuple[int, int, float]:
    """Parse a place, "2/4" or "2/4:1.5", into number, number of vehicles and spacing, m. Raises UserError."""
    found = re.fullmatch(r"(\d+)/(\d+)(?::(\d+(?:\.\d+)?))?", text)
    if found is None:
        raise UserError(f"place {text!r}: expected NUMBER/PILOTS or NUMBER/PILOTS:SPACING, such as 2/2:{SPACING_M:g}")
    return int(found[1]), int(found[2]), float(found[3] or SPACING_M)


def place(track: Track, number: int, of: int, spacing_m: float = SPACING_M, ahead_m: float = 0.0) -> Track:
    """Return the track with the start of vehicle `number` (1 to `of`, left to right), moved by ahead_m. Raises UserError."""
    if not 1 <= number <= of <= MOST or not 0 < spacing_m < math.inf or not math.isfinite(ahead_m):
        raise UserError(
            f"place {number} of {of}, {spacing_m:g} m apart, {ahead_m:g} m ahead: must be one of 1 to N places,"
            f" N at most {MOST}, a positive spacing, a finite lead"
        )
    if of == 1:
        return track
    beside = (number - (of + 1) / 2) * spacing_m
    yaw = math.radians(track.start.yaw_deg)
    north, east, down = track.start.position_m
    sine, cosine = math.sin(yaw), math.cos(yaw)
    position_m = north - beside * sine + ahead_m * cosine, east + beside * cosine + ahead_m * sine, down
    low, high = track.bounds.low_m, track.bounds.high_m
    if any(not low[k] < position_m[k] < high[k] for k in range(2)):
        raise UserError(f"{track.name}: place {number} of {of}, {spacing_m:g} m apart, lies outside the bounds")
    start: Start = replace(track.start, position_m=position_m)
    return replace(track, start=start)


AGAINST = -0.5  # cosine between a gate's axis and a leg, below which the leg runs against the gate
TURNED = 0.1  # cosine by which the gate that fits its legs least must fit better in radians
TURN_RAD = 2 * math.pi  # no yaw in radians exceeds it
LEAST_LEG_M = 1.0  # horizontal length of a leg that has a direction
LEVEL_M = 1.0  # least horizontal leg, as a multiple of the climb
NOISE_RAD_S = 0.06  # rad/s, noise of a gyro's sample above that of any known unit: over 3 deg/s
TILT_DEG = 1.6  # deg, below which a tilt may be one in radians


def remarks(track: Track | None, vehicle: Vehicle | None = None) -> list[str]:
    """Return a line for each value that is more likely a mistake than meant."""
    return (_on_track(track) if track is not None else []) + (_on_vehicle(vehicle) if vehicle is not None else [])


def _on_track(track: Track) -> list[str]:
    gates = track.gates
    rounds = [*enumerate(gates), *([(0, gates[0])] if track.closed and len(gates) > 1 else [])]
    twice = [(k, j) for (j, a), (k, b) in itertools.pairwise(rounds) if a == b and not a.is_ball]
    lines = [f"{track.file}: gates[{k}] is gates[{j}] again: passed twice in a row" for k, j in twice]
    before, after = _legs(track)
    facing = [k for k, gate in enumerate(gates) if not gate.is_ball]
    yaws = np.array([math.radians(gates[k].yaw_deg) for k in facing])
    if not len(facing):
        return lines
    if np.abs(np.degrees(yaws)).max() < TURN_RAD:
        as_degrees, as_radians = (_fit(before, after, facing, turn) for turn in (yaws, np.degrees(yaws)))
        if as_radians.min() > as_degrees.min() + TURNED and as_radians.mean() > as_degrees.mean():
            line = "gates face along the course if yaw_deg is in radians; it is taken in degrees"
            return [*lines, f"{track.file}: {line}"]
    cosines = _fit(before, after, facing, yaws)
    against = [k for k, cosine in zip(facing, cosines, strict=True) if cosine < AGAINST]
    if len(against) > len(facing) / 2:
        return [*lines, f"{track.file}: most gates are passed against the course's direction: is their order reversed?"]
    turned = (
        f"{track.file}: gates[{k}].yaw_deg: {gates[k].yaw_deg:g} is against the course's direction" for k in against
    )
    return [*lines, *turned]


def _legs(track: Track) -> tuple[Array, Array]:
    """Return horizontal unit vectors (N, 2) of the legs to and from each gate; NaN where a leg is short or steep."""
    places = np.array([track.start.position_m, *(gate.centre_m for gate in track.gates)])
    legs = np.diff(places, axis=0)
    length = np.linalg.norm(legs[:, :2], axis=1)
    level = (length > LEAST_LEG_M) & (length > LEVEL_M * np.abs(legs[:, 2]))
    unit = np.where(level[:, None], legs[:, :2] / np.maximum(length, 1e-9)[:, None], np.nan)
    following = np.vstack([unit[1:], unit[:1] * np.nan])
    return unit, following


def _fit(before: Array, after: Array, facing: list[int], yaws: Array) -> Array:
    """Return the better cosine (M,) of each gate's axis with the legs to and from it; 1 where neither has a direction."""
    axes = np.column_stack([np.cos(yaws), np.sin(yaws)])
    both = np.array([np.sum(leg[facing] * axes, 1) for leg in (before, after)])
    best: Array = np.max(np.where(np.isnan(both), -np.inf, both), axis=0)
    lone = np.isnan(both).any(axis=0)  # one leg alone does not tell: a gate may be turned to, or from
    return np.where(np.isinf(best) | lone, 1.0, best)


def _on_vehicle(vehicle: Vehicle) -> list[str]:
    camera, imu, lines = vehicle.camera, vehicle.imu, []
    if camera.height_px > 1.2 * camera.width_px:
        size = f"{camera.width_px} x {camera.height_px} px"
        lines.append(f"camera: {size} is upright; are width_px and height_px swapped?")
    if 0 < abs(camera.tilt_deg) < TILT_DEG and camera.doubt is None:
        lines.append(f"camera.tilt_deg: {camera.tilt_deg:g} is taken in degrees, not radians")
    if imu.gyro_noise_rad_s > NOISE_RAD_S:
        noise = f"{imu.gyro_noise_rad_s:g} rad/s is {math.degrees(imu.gyro_noise_rad_s):.0f} deg/s"
        lines.append(f"imu.gyro_noise_rad_s: {noise}; was it meant in deg/s?")
    return [f"vehicle {vehicle.name}: {line}" for line in lines]

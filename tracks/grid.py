"""Starting grid of several vehicles: a row normal to the start's heading, centred on the track's start."""

import math
import re
from dataclasses import replace

from gate_racer.tracks.track import Start, Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Vector

SPACING_M = 1.0  # m, default distance between neighbours (chosen)
MOST = 8  # largest number of vehicles in a race (chosen)


def parse_place(text: str) -> tuple[int, int, float]:
    """Parse a place, "2/4" or "2/4:1.5", into number, number of vehicles and spacing, m.

    Raises:
        UserError: another format.
    """
    found = re.fullmatch(r"(\d+)/(\d+)(?::(\d+(?:\.\d+)?))?", text)
    if found is None:
        raise UserError(f"place {text!r}: expected NUMBER/PILOTS or NUMBER/PILOTS:SPACING, such as 2/2:{SPACING_M:g}")
    return int(found[1]), int(found[2]), float(found[3] or SPACING_M)


def place(track: Track, number: int, of: int, spacing_m: float = SPACING_M, ahead_m: float = 0.0) -> Track:
    """Return the track with the start of vehicle `number` (1 to `of`, from left to right), ahead_m in front of the row.

    Raises:
        UserError: there is no such place, or it lies outside the bounds.
    """
    if not 1 <= number <= of <= MOST:
        raise UserError(f"place {number} of {of}: must be one of 1 to N places, N at most {MOST}")
    if not 0 < spacing_m < math.inf:
        raise UserError(f"spacing {spacing_m:g} m: must be positive")
    if not math.isfinite(ahead_m):
        raise UserError(f"{ahead_m:g} m ahead: must be finite")
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


def others(track: Track, number: int, of: int, spacing_m: float = SPACING_M) -> dict[int, Vector]:
    """Return the start positions, m, world NED, of all vehicles but `number`, by number.

    Raises:
        UserError: as `place`.
    """
    starts = {k: place(track, k, of, spacing_m).start for k in range(1, of + 1) if k != number}
    return {k: start.position_m for k, start in starts.items()}

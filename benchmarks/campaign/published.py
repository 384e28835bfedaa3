"""Published results, marked as such, with their differences in conditions."""

from dataclasses import dataclass
from pathlib import Path

from gate_racer.vehicle.config import load


@dataclass(frozen=True)
class Published:
    """Row of a publication: figures by setting."""

    track: str
    name: str
    source: str
    differs: str
    lap_s: dict[str, float | None]  # fastest lap
    completed_percent: dict[str, float | None]


@dataclass(frozen=True)
class RealFlights:
    """Results of a pilot on the real track; medians of time trials."""

    track: str
    pilot: str
    source: str
    lap_s: float
    three_laps_s: float
    best_race_s: float


@dataclass(frozen=True)
class OdometryErrors:
    """Standard deviations of an odometry's errors on each axis."""

    name: str
    source: str
    position_m: float
    velocity_m_s: float
    attitude_rad: float


@dataclass(frozen=True)
class PublishedFile:
    """Schema of `published.yaml`."""

    rows: tuple[Published, ...]
    real: tuple[RealFlights, ...]
    odometry: tuple[OdometryErrors, ...]


def published(track: str) -> list[Published]:
    """Return the published rows of a track."""
    return [row for row in _file().rows if row.track == track]


def real_flights(track: str) -> list[RealFlights]:
    """Return the real flights on a track, by humans and by autonomous systems."""
    return [flights for flights in _file().real if flights.track == track]


def odometry_errors() -> dict[str, OdometryErrors]:
    """Return the odometry errors of all sources, by name."""
    return {errors.name: errors for errors in _file().odometry}


def _file() -> PublishedFile:
    return load(Path(__file__).with_name("published.yaml"), PublishedFile)

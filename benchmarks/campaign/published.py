"""Rows of papers, to stand beside ours, marked, with what differs."""

from dataclasses import dataclass
from pathlib import Path

from vehicle.config import load


@dataclass(frozen=True)
class Published:
    """One row: figures by setting."""

    track: str
    name: str
    source: str
    differs: str
    lap_s: dict[str, float | None]  # fastest
    completed_percent: dict[str, float | None]


@dataclass(frozen=True)
class PublishedFile:
    """The schema of `published.yaml`."""

    rows: tuple[Published, ...]


def published(track: str) -> list[Published]:
    """The rows of a track."""
    return [row for row in load(Path(__file__).with_name("published.yaml"), PublishedFile).rows if row.track == track]

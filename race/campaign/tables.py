"""Result tables in the papers' form, as Markdown and JSON: rows are controllers and estimators, columns are settings.

Published results stand beside them, marked as such, with their differences in conditions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.config import load
from gate_racer.race.campaign.choice import NO_ESTIMATOR, conditions_of, rank
from gate_racer.race.campaign.store import Row, Summary, flown_by, summary
from gate_racer.race.campaign.worlds import WorldCost
from gate_racer.sim.worlds.world import NOMINAL


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


ABOUT = ("track", "vehicle", "laps", "world")  # fields common to a table


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Mean, standard deviation and extremes of n values."""

    n: int
    mean: float
    sd: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "SampleStatistics | None":
        """Return the statistics of the values that are not None; None if there are none."""
        known = np.array([value for value in values if value is not None], float)
        if not len(known):
            return None
        sd = float(known.std(ddof=1)) if len(known) > 1 else 0.0
        return cls(len(known), float(known.mean()), sd, float(known.min()), float(known.max()))


@dataclass(frozen=True)
class Cell(Summary):
    """Figures of all flights of one configuration in one setting. Times in s, margins and errors in m."""

    completed: float  # mean fraction of the course
    failed: int  # number that could not be flown
    race: SampleStatistics | None  # of finished flights, as the next five
    first_lap: SampleStatistics | None
    flying_lap: SampleStatistics | None  # best of each flight
    fastest_lap: float | None
    to_plan: SampleStatistics | None
    to_bound: SampleStatistics | None
    margin: SampleStatistics | None  # over all gate passages of all flights, as in Swift
    tracking: SampleStatistics | None
    estimate: SampleStatistics | None
    solve_p50_ms: SampleStatistics | None
    solve_p99_ms: SampleStatistics | None
    sightings: SampleStatistics | None
    fallbacks: int
    flown_s: float
    cpu_s: float


def cells(rows: list[Row]) -> list[Cell]:
    """Return one cell per configuration and world, in the order of the settings; single factors are in `worlds` only."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        c = row.case
        if ":" not in c.world:
            by = (c.plan, c.residual, c.controller, c.estimator)
            groups[c.track, c.vehicle, c.laps, c.world, *by, c.setting].append(row)
    names = sorted(groups, key=lambda n: (*n[:7], n[7] != NO_ESTIMATOR, n[7], rank(n[8])))
    return [cell(groups[name]) for name in names]


def cell(rows: list[Row]) -> Cell:
    """Return the figures of flights that differ in their seed only."""
    all_flown = [row.outcome for row in rows]
    done = [o for o in all_flown if o.finished]
    laps = [lap for o in done for lap in o.lap_s]
    return Cell(
        **vars(summary(rows)),
        completed=float(np.mean([o.share for o in all_flown])),
        failed=sum(o.status == "failed" for o in all_flown),
        race=SampleStatistics.of(o.race_s for o in done),
        first_lap=SampleStatistics.of(o.lap_s[0] if o.lap_s else None for o in done),
        flying_lap=SampleStatistics.of(min(o.lap_s[1:], default=None) for o in done),
        fastest_lap=min(laps, default=None),
        to_plan=SampleStatistics.of(_ratio(o.race_s, o.planned_s) for o in done),
        to_bound=SampleStatistics.of(_ratio(o.race_s, o.bound_s) for o in done),
        margin=SampleStatistics.of(m for o in all_flown for m in o.margin_m),
        tracking=SampleStatistics.of(o.tracking_m for o in all_flown),
        estimate=SampleStatistics.of(o.estimate_m for o in all_flown),
        solve_p50_ms=SampleStatistics.of(o.solve_p50_ms for o in all_flown),
        solve_p99_ms=SampleStatistics.of(o.solve_p99_ms for o in all_flown),
        sightings=SampleStatistics.of(o.sightings for o in all_flown),
        fallbacks=sum(o.fallbacks for o in all_flown),
        flown_s=sum(o.flown_s for o in all_flown),
        cpu_s=sum(o.cpu_s for o in all_flown),
    )


def _ratio(flown: float | None, reference: float | None) -> float | None:
    return flown / reference if flown is not None and reference else None


def _spread(value: SampleStatistics | None, form: str = ".3f", scale: float = 1.0) -> str:
    if value is None:
        return "-"
    text = f"{scale * value.mean:{form}}"
    return text + (f" ± {scale * value.sd:{form}}" if value.n > 1 else "")


def _sure(c: Cell) -> str:
    """Return the confidence interval of the finish rate, where the seed has an effect."""
    low, high = 100 * c.finished_low, 100 * c.finished_high
    return f" [{low:.0f}, {high:.0f} %]" if conditions_of(c.setting).random else ", deterministic"


FIGURES: dict[str, Callable[[Cell], str]] = {
    "finished [95 %]": lambda c: f"{c.finished} of {c.flights}" + _sure(c),
    "track completed": lambda c: f"{100 * c.completed:.0f} %",
    "race time s": lambda c: _spread(c.race),
    "over plan, over point mass": lambda c: f"{_spread(c.to_plan)}, {_spread(c.to_bound)}" if c.race else "-",
    "first lap s": lambda c: _spread(c.first_lap) if c.laps > 1 else "-",
    "best flying lap s": lambda c: _spread(c.flying_lap),
    "fastest lap s": lambda c: "-" if c.fastest_lap is None else f"{c.fastest_lap:.3f}",
    "margin, mean (least) m": lambda c: f"{c.margin.mean:.3f} ({c.margin.least:.3f})" if c.margin else "-",
    "tracking error m": lambda c: _spread(c.tracking),
    "estimate error m": lambda c: _spread(c.estimate) if conditions_of(c.setting).random else "-",
    "solve ms, median (p99)": lambda c: f"{_spread(c.solve_p50_ms, '.2f')} ({_spread(c.solve_p99_ms, '.2f')})",
    "sightings": lambda c: _spread(c.sightings, ".0f") if not conditions_of(c.setting).given else "-",
}


def markdown(found: list[Cell]) -> str:
    """Return one table per track, vehicle, number of laps and world, with published rows and causes of unfinished flights."""
    blocks = []
    for about in dict.fromkeys(tuple(getattr(c, name) for name in ABOUT) for c in found):
        group = [c for c in found if tuple(getattr(c, name) for name in ABOUT) == about]
        laps = "1 lap" if about[2] == 1 else f"{about[2]} laps"
        blocks.append(
            "\n".join(
                [
                    f"### {about[0]}, `{about[1]}`, {laps}, world {about[3]}".replace(NOMINAL, "as believed"),
                    "",
                    *_table(group),
                    *_notes(group),
                    *_real(about[0]),
                ]
            )
        )
    flown, cpu = sum(c.flown_s for c in found), sum(c.cpu_s for c in found)
    if cpu:
        blocks.append(f"{sum(c.flights for c in found)} flights, {flown / cpu:.1f} simulated seconds per core-second.")
    return "\n\n".join(blocks) + "\n"


def _table(group: list[Cell]) -> list[str]:
    settings = sorted({c.setting for c in group}, key=rank)
    lines = ["| | | " + " | ".join(settings) + " |", "|---|---|" + "---|" * len(settings)]
    for label in dict.fromkeys(map(flown_by, group)):
        by_setting = {c.setting: c for c in group if flown_by(c) == label}
        for figure, text in FIGURES.items():
            entries = [text(by_setting[s]) if s in by_setting else "" for s in settings]
            if any(entry.strip("-, ") for entry in entries):
                lines.append(f"| {label} | {figure} | " + " | ".join(entries) + " |")
                label = ""
    for row in published(group[0].track):
        label = f"*published: {row.name}*"
        for figure, values in (("fastest lap s", row.lap_s), ("track completed %", row.completed_percent)):
            entries = ["-" if values.get(s) is None else f"{values[s]:g}" for s in settings]
            lines.append(f"| {label} | {figure} | " + " | ".join(entries) + " |")
            label = ""
    return lines


def _real(track: str) -> list[str]:
    """Return the rows of flights on the real track."""
    flights = real_flights(track)
    head = [
        "",
        "| *published*, real flights | lap s, median | three laps s, median | best race s |",
        "|---|---|---|---|",
    ]
    rows = [f"| {f.pilot} ({f.source}) | {f.lap_s:.2f} | {f.three_laps_s:.2f} | {f.best_race_s:.3f} |" for f in flights]
    return [*head, *rows] if rows else []


def _notes(group: list[Cell]) -> list[str]:
    notes = []
    for c in group:
        if c.causes:
            causes = "; ".join(f"{n} x {cause}" for cause, n in c.causes.items())
            notes.append(f"- not finished: {flown_by(c)}, {c.setting}: {causes}.")
    notes += [f"- *{row.name}*: {row.source}. Differs: {row.differs}." for row in published(group[0].track)]
    return ["", *notes] if notes else []


def as_json(about: dict[str, str], found: list[Cell], cost: list[WorldCost]) -> dict[str, Any]:
    """Return tables and metadata as JSON-compatible data."""
    return {"about": about, "cells": [asdict(c) for c in found], "worlds": [asdict(c) for c in cost]}

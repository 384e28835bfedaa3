"""Results of a campaign: tables in the papers' form, the cost of each world, and a report in one HTML file.

Rows are controllers and estimators, columns are settings. Published results stand beside them, marked as such, with their
differences in conditions. Plots use Plotly, whose script is embedded, so that the report needs no network.
"""

import html
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import markdown_table
from gate_racer.common.config import load
from gate_racer.common.files import write_file
from gate_racer.field.page import html_page, html_table
from gate_racer.race.campaign.campaign import log_of, worst
from gate_racer.race.campaign.case import Case, Row
from gate_racer.race.campaign.choice import NO_ESTIMATOR, UNKNOWN, conditions_of, rank
from gate_racer.race.campaign.compare import Entry, as_html
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


def published() -> PublishedFile:
    return load(Path(__file__).with_name("published.yaml"), PublishedFile)


CONFIDENCE = 0.95  # of the interval of the finish rate


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Mean, standard deviation, median and extremes of n values."""

    n: int
    mean: float
    sd: float
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "SampleStatistics | None":
        """Return the statistics of the values that are not None; None if there are none."""
        known = np.array([value for value in values if value is not None], float)
        if not len(known):
            return None
        sd = float(known.std(ddof=1)) if len(known) > 1 else 0.0
        return cls(len(known), float(known.mean()), sd, float(np.median(known)), float(known.min()), float(known.max()))


@dataclass(frozen=True)
class Cell:
    """Figures of all flights of one configuration. Times in s, margins and errors in m."""

    configuration: Case  # `Case.configuration`
    flights: int
    finished: int
    finished_low: float  # Wilson interval of the finish rate, 95 %
    finished_high: float
    failed: int  # number that could not be flown
    causes: dict[str, int]  # number of unfinished flights by cause, most frequent first
    completed: float  # mean fraction of the course
    race: SampleStatistics | None  # of finished flights, as the next five
    first_lap: SampleStatistics | None
    flying_lap: SampleStatistics | None  # best of each flight
    fastest_lap: float | None
    to_plan: SampleStatistics | None
    to_bound: SampleStatistics | None
    margin: SampleStatistics | None  # over all gate passages of all flights, as in Swift
    at_gates_p95: float | None  # 95th percentile of the position errors relative to gates, at their planes
    tracking: SampleStatistics | None
    estimate: SampleStatistics | None
    nees: SampleStatistics | None
    solve_p50_ms: SampleStatistics | None
    solve_p99_ms: SampleStatistics | None
    sightings: SampleStatistics | None


def cells(rows: list[Row]) -> list[Cell]:
    """Return one cell per configuration, in the order of the settings."""
    groups: dict[Case, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.case.configuration].append(row)

    def order(c: Case) -> tuple[object, ...]:
        course = c.track, c.vehicle, c.laps, c.world
        by = c.plan, c.residual, c.controller, c.estimator != NO_ESTIMATOR, c.estimator
        return *course, *by, rank(c.setting)

    return [cell(groups[configuration]) for configuration in sorted(groups, key=order)]


def cell(rows: list[Row]) -> Cell:
    """Return the figures of flights that differ in their seed only."""
    from scipy.stats import binomtest  # imported late: takes 0.5 s, and flights do not need it

    all_flown = [row.outcome for row in rows]
    done = [o for o in all_flown if o.finished]
    interval = binomtest(len(done), len(all_flown)).proportion_ci(CONFIDENCE, method="wilson")
    errors = [error for o in all_flown for error in o.at_gates_m]
    return Cell(
        configuration=rows[0].case.configuration,
        flights=len(all_flown),
        finished=len(done),
        finished_low=float(interval.low),
        finished_high=float(interval.high),
        failed=sum(o.status == "failed" for o in all_flown),
        causes=dict(Counter(f"{o.rule} ({o.cause})" for o in all_flown if o.rule).most_common()),
        completed=float(np.mean([o.share for o in all_flown])),
        race=SampleStatistics.of(o.race_s for o in done),
        first_lap=SampleStatistics.of(o.lap_s[0] if o.lap_s else None for o in done),
        flying_lap=SampleStatistics.of(min(o.lap_s[1:], default=None) for o in done),
        fastest_lap=min((lap for o in done for lap in o.lap_s), default=None),
        to_plan=SampleStatistics.of(o.race_s / o.planned_s for o in done if o.race_s and o.planned_s),
        to_bound=SampleStatistics.of(o.race_s / o.bound_s for o in done if o.race_s and o.bound_s),
        margin=SampleStatistics.of(m for o in all_flown for m in o.margin_m),
        at_gates_p95=float(np.percentile(errors, 95)) if errors else None,
        tracking=SampleStatistics.of(o.tracking_m for o in all_flown),
        estimate=SampleStatistics.of(o.estimate_m for o in all_flown),
        nees=SampleStatistics.of(o.nees for o in all_flown),
        solve_p50_ms=SampleStatistics.of(o.solve_p50_ms for o in all_flown),
        solve_p99_ms=SampleStatistics.of(o.solve_p99_ms for o in all_flown),
        sightings=SampleStatistics.of(o.sightings for o in all_flown),
    )


@dataclass(frozen=True)
class Block:
    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    @property
    def markdown(self) -> str:
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"### {self.title}\n\n{markdown_table(self.head, self.rows)}" + (f"\n{notes}" if notes else "")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _spread(value: SampleStatistics | None, form: str = ".3f") -> str:
    if value is None:
        return "-"
    return f"{value.mean:{form}}" + (f" ± {value.sd:{form}}" if value.n > 1 else "")


def _finished(c: Cell) -> str:
    """Return the finish rate with its confidence interval, where the seed has an effect."""
    low, high = 100 * c.finished_low, 100 * c.finished_high
    drawn = conditions_of(c.configuration.setting).random or c.configuration.world != NOMINAL
    return f"{c.finished} of {c.flights}" + (f" [{low:.0f}, {high:.0f} %]" if drawn else ", deterministic")


FIGURES: dict[str, Callable[[Cell], str]] = {
    "finished [95 %]": _finished,
    "track completed": lambda c: f"{100 * c.completed:.0f} %",
    "race time s": lambda c: _spread(c.race),
    "over plan, over point mass": lambda c: f"{_spread(c.to_plan)}, {_spread(c.to_bound)}" if c.race else "-",
    "first lap s": lambda c: _spread(c.first_lap) if c.configuration.laps > 1 else "-",
    "best flying lap s": lambda c: _spread(c.flying_lap),
    "fastest lap s": lambda c: _number(c.fastest_lap, ".3f"),
    "margin, mean (least) m": lambda c: f"{c.margin.mean:.3f} ({c.margin.least:.3f})" if c.margin else "-",
    "tracking error m": lambda c: _spread(c.tracking),
    "estimate error m": lambda c: _spread(c.estimate) if conditions_of(c.configuration.setting).random else "-",
    "solve ms, median (p99)": lambda c: f"{_spread(c.solve_p50_ms, '.2f')} ({_spread(c.solve_p99_ms, '.2f')})",
    "sightings": lambda c: _spread(c.sightings, ".0f") if not conditions_of(c.configuration.setting).given else "-",
}


def blocks(found: list[Cell]) -> list[Block]:
    """Return one table per track, vehicle, number of laps and world, with published rows and causes of unfinished flights.

    Single factors of a world are in `world_blocks` only.
    """
    groups: dict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for one in found:
        c = one.configuration
        if ":" not in c.world:
            groups[c.track, c.vehicle, c.laps, c.world].append(one)
    return [block for group in groups.values() for block in (_block(group), *_real(group[0].configuration.track))]


def _block(group: list[Cell]) -> Block:
    about = group[0].configuration
    settings = sorted({c.configuration.setting for c in group}, key=rank)
    rows, notes = list[list[str]](), list[str]()
    for label in dict.fromkeys(c.configuration.flown_by for c in group):
        by_setting = {c.configuration.setting: c for c in group if c.configuration.flown_by == label}
        for figure, text in FIGURES.items():
            entries = [text(by_setting[s]) if s in by_setting else "" for s in settings]
            if any(entry.strip("-, ") for entry in entries):
                rows.append([label, figure, *entries])
                label = ""
    for c in group:
        if c.causes:
            by = f"{c.configuration.flown_by}, {c.configuration.setting}"
            notes.append(f"not finished: {by}: {_causes(c)}.")
    for row in (row for row in published().rows if row.track == about.track):
        label = f"published: {row.name}"
        for figure, values in (("fastest lap s", row.lap_s), ("track completed %", row.completed_percent)):
            rows.append([label, figure, *("-" if values.get(s) is None else f"{values[s]:g}" for s in settings)])
            label = ""
        notes.append(f"{row.name}: {row.source}. Differs: {row.differs}.")
    title = f"{about.course}, world {about.world}".replace(NOMINAL, "as believed")
    return Block(title, ["", "", *settings], rows, notes)


def _causes(c: Cell) -> str:
    return "; ".join(f"{n} x {cause}" for cause, n in c.causes.items())


def _real(track: str) -> list[Block]:
    head = ["pilot", "lap s, median", "three laps s, median", "best race s"]
    rows = [
        [f"{f.pilot} ({f.source})", f"{f.lap_s:.2f}", f"{f.three_laps_s:.2f}", f"{f.best_race_s:.3f}"]
        for f in published().real
        if f.track == track
    ]
    return [Block(f"{track}, published real flights", head, rows)] if rows else []


def markdown(found: list[Cell]) -> str:
    return "\n".join(block.markdown for block in blocks(found))


def by_world(found: list[Cell]) -> list[list[Cell]]:
    """Return the cells of each configuration in its worlds, the one without deviations first."""
    groups: dict[Case, list[Cell]] = defaultdict(list)
    for c in sorted(found, key=lambda c: c.configuration.world != NOMINAL):
        groups[replace(c.configuration, world=NOMINAL)].append(c)
    return list(groups.values())


def world_blocks(found: list[Cell]) -> list[Block]:
    """Return one table per configuration with the cost of each world: of each deviation from the pilot's models."""
    head = ["world", "finished [95 %]", "median time s", "cost", "least margin m", "at gates p95 m", "NEES (9)", "ends"]
    tables = []
    for group in by_world(found):
        c, first = group[0].configuration, group[0]
        nominal_s = first.race.median if first.race and c.world == NOMINAL else None
        title = f"{c.course}, {c.setting}: {c.flown_by}"
        tables.append(Block(title, head, [_in_world(one, nominal_s) for one in group]))
    return tables


def _in_world(c: Cell, nominal_s: float | None) -> list[str]:
    race_s = c.race.median if c.race else None
    slower = f"{100 * (race_s / nominal_s - 1):+.1f} %" if race_s and nominal_s else "-"
    margin, nees = c.margin.least if c.margin else None, c.nees.mean if c.nees else None
    world = c.configuration.world.removeprefix(f"{UNKNOWN}:").replace(NOMINAL, "as believed")
    figures = _number(margin, ".2f"), _number(c.at_gates_p95, ".2f"), _number(nees, ".1f")
    return [world, _finished(c), _number(race_s, ".3f"), slower, *figures, _causes(c)]


PATHS = 6  # worst paths drawn per configuration
WORST = 20  # rows of the list of worst flights


def write_report(
    folder: Path, about: dict[str, str], rows: list[Row], found: list[Cell], standing: Sequence[Entry]
) -> None:
    figures = [
        figure for name in dict.fromkeys(row.case.course for row in rows) for figure in _figures(name, about, rows)
    ]
    flown_with = html.escape(f"commit {about.get('commit', '?')}, {about.get('machine', '?')}")
    tables = "".join(
        f"<h3>{html.escape(block.title)}</h3>\n{html_table(block.head, block.rows)}\n"
        + "".join(f"<p>{html.escape(note)}</p>\n" for note in block.notes)
        for block in blocks(found)
    )
    above = f"<h1>race-bench</h1>\n<p>{flown_with}</p>\n{as_html(standing)}\n{tables}"
    page = html_page("race-bench", above, figures, f"<h2>Worst flights</h2>\n{_worst(folder, rows)}")
    write_file(folder / "report.html", page)


def _figures(course: str, about: dict[str, str], rows: list[Row]) -> list[dict[str, Any]]:
    group = [row for row in rows if row.case.course == course]
    gates = json.loads(about.get(f"gates:{group[0].case.track}", "[]"))
    by_name: dict[str, list[Row]] = {}
    for row in group:
        c = row.case
        world = c.world if c.world != NOMINAL else "as believed"
        by_name.setdefault(f"{c.setting}: {c.flown_by}, {world}", []).append(row)
    lost, margins = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, some in by_name.items():
        passed = [(gate, m) for r in some for gate, m in enumerate(r.outcome.margin_m)]
        margins.append(_box(name, [f"gate {g}" for g, _ in passed], [m for _, m in passed]))
        legs = [(leg, s) for r in some for leg, s in enumerate(lost_s(r))]
        lost.append(_box(name, [f"leg {leg}" for leg, _ in legs], [s for _, s in legs]))
    axis, delay = {"title": {"text": "margin [m]"}, "rangemode": "tozero"}, {"title": {"text": "delay [s]"}}
    return [
        {"title": f"{course}: paths", "data": _paths(by_name, gates), "layout": SCENE},
        {"title": f"{course}: margin at each gate", "data": margins, "layout": GROUPED | {"yaxis": axis}},
        {"title": f"{course}: time lost on each leg", "data": lost, "layout": GROUPED | {"yaxis": delay}},
    ]


GROUPED = {"boxmode": "group", "legend": {"orientation": "h", "y": -0.15, "yanchor": "top"}}
COLOUR_BAR = {"title": {"text": "speed [m/s]"}, "orientation": "h", "y": 1, "yanchor": "bottom", "len": 0.7}
SCENE = {
    "height": 650,
    "margin": {"t": 20, "r": 0, "b": 0, "l": 0},
    "legend": {"orientation": "h", "y": 0, "yanchor": "top"},
    "scene": {
        "aspectmode": "data",
        "camera": {"eye": {"x": 1.7, "y": 1.7, "z": 1.4}},
        "xaxis": {"title": {"text": "north [m]"}},
        "yaxis": {"title": {"text": "east [m]"}, "autorange": "reversed"},
        "zaxis": {"title": {"text": "down [m]"}, "autorange": "reversed"},
    },
}


def lost_s(row: Row) -> list[float]:
    """Return the time lost against the plan on each leg, s."""
    flown = np.diff([0.0, *row.outcome.gate_s])
    return (flown - np.diff([0.0, *row.outcome.planned_gate_s])[: len(flown)]).round(4).tolist()


def _box(name: str, x: list[str], y: list[float]) -> dict[str, Any]:
    y = [round(value, 4) for value in y]
    return {"type": "box", "name": name, "x": x, "y": y, "boxpoints": "all", "jitter": 0.4, "marker": {"size": 3}}


def _paths(by_name: dict[str, list[Row]], gates: list[Any]) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = []
    shown = [(name, row) for name, some in by_name.items() for row in worst(some, PATHS) if len(row.path)]
    fastest = max((float(row.path[:, 4].max()) for _, row in shown), default=1.0)
    for k, (name, row) in enumerate(shown):
        x, y, z, speed = (column.astype(float).round(2).tolist() for column in row.path[:, 1:].T)
        colour = {"color": speed, "cmin": 0, "cmax": round(fastest, 1), "colorscale": "Viridis", "width": 4}
        if k == 0:
            colour |= {"showscale": True, "colorbar": COLOUR_BAR}
        label = f"{name}, seed {row.case.seed}: {row.outcome.status}"
        line = {"type": "scatter3d", "mode": "lines", "name": label, "x": x, "y": y, "z": z, "line": colour}
        data.append({**line, "customdata": speed, "hovertemplate": "%{customdata:.1f} m/s"})
    for corners in gates:
        x, y, z = (list(axis) for axis in zip(*[*corners, corners[0]], strict=True))
        frame = {"type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "showlegend": False, "hoverinfo": "skip"}
        data.append({**frame, "line": {"color": "crimson", "width": 6}})
    return data


def _worst(folder: Path, rows: list[Row]) -> str:
    failed = [row for row in rows if row.outcome.status == "failed"]
    lines = ["<tr><th>flight<th>status<th>cause<th>gates<th>least margin m<th>log, plot</tr>"]
    for row in [*failed, *worst(rows, WORST)][:WORST]:
        o, log = row.outcome, log_of(folder, row)
        least = f"{min(o.margin_m):.3f}" if o.margin_m else "-"
        files = [path for path in (log, log.with_suffix(".png")) if path.exists()]
        links = " ".join(f'<a href="{path.relative_to(folder).as_posix()}">{path.suffix[1:]}</a>' for path in files)
        why = "; ".join(text for text in (o.rule, o.cause) if text)
        texts = (row.case.id, o.status, why, f"{len(o.gate_s)}/{o.gates_total}", least)
        lines.append("<tr>" + "".join(f"<td>{html.escape(text)}" for text in texts) + f"<td>{links}</tr>")
    return "<table>" + "\n".join(lines) + "</table>"

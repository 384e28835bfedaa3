"""Standings: one row per configuration with its results by level, and paired tests between any two rows.

A level is a setting and a world. Rows are compared on the flights that both have: same level, course and seed.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gate_racer.common.command import markdown_table
from gate_racer.field.page import html_table
from gate_racer.race.campaign.case import Case, Outcome
from gate_racer.race.campaign.compare import Difference, differences, holm
from gate_racer.race.campaign.store import Row

ALL = "all levels"
FIGURES = ("finished", "of", "mean s", "least margin m")  # of each level


@dataclass(frozen=True)
class LevelFlight:
    """Result of one flight in a level. Time in s, margin in m."""

    level: str
    course: str
    seed: int
    status: str
    cause: str
    race_s: float | None
    margin_m: float | None  # least, of the gates passed

    @property
    def outcome(self) -> Outcome:
        """The figures by which rows are compared."""
        return Outcome(self.status, race_s=self.race_s, margin_m=[] if self.margin_m is None else [self.margin_m])


@dataclass(frozen=True)
class Entry:
    """Row of the standings."""

    name: str  # controller, estimator and plan
    commit: str
    content: str  # digest of what the name stands for
    flights: tuple[LevelFlight, ...]

    def of_level(self, level: str) -> list[LevelFlight]:
        """Return the flights of a level."""
        return [flight for flight in self.flights if level in (ALL, flight.level)]

    def figures(self, level: str) -> list[object]:
        """Return `FIGURES` of a level, empty where there is none; the mean is of finished flights."""
        flown = self.of_level(level)
        times = [f.race_s for f in flown if f.race_s is not None]
        margins = [f.margin_m for f in flown if f.margin_m is not None]
        mean = round(float(np.mean(times)), 3) if times else ""
        return [len(times), len(flown), mean, round(min(margins), 3) if margins else ""] if flown else [""] * 4


def entries_of(
    rows: Sequence[Row], commit: str, level_of: Callable[[Case], str], content_of: Callable[[Case], str]
) -> tuple[Entry, ...]:
    """Return the standings of a campaign's rows: a configuration is a controller, an estimator and a plan."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.case.flown_by, []).append(row)
    return tuple(
        Entry(name, commit, content_of(some[0].case), tuple(_flight(row, level_of(row.case)) for row in some))
        for name, some in found.items()
    )


def _flight(row: Row, level: str) -> LevelFlight:
    case, o = row.case, row.outcome
    course = f"{case.track}/{case.vehicle}/{case.laps}"
    return LevelFlight(
        level, course, case.seed, o.status, o.cause, o.race_s, float(min(o.margin_m)) if o.margin_m else None
    )


def levels_of(entries: Sequence[Entry]) -> list[str]:
    """Return all levels in the order of their first flights; with several, the sum of them first."""
    levels = list(dict.fromkeys(flight.level for entry in entries for flight in entry.flights))
    return [ALL, *levels] if len(levels) > 1 else levels


def table(entries: Sequence[Entry]) -> list[list[object]]:
    """Return head and rows of the standings."""
    levels = levels_of(entries)
    head: list[object] = ["configuration", *(f"{level}: {figure}" for level in levels for figure in FIGURES), "commit"]
    return [head, *([e.name, *(cell for level in levels for cell in e.figures(level)), e.commit] for e in entries)]


def as_csv(entries: Sequence[Entry]) -> str:
    """Return the standings as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table(entries))
    return text.getvalue()


def as_markdown(entries: Sequence[Entry]) -> str:
    """Return the standings with a row per configuration and a column per level: finished of all, mean time."""
    levels, rows = levels_of(entries), []
    for entry in entries:
        figures = (entry.figures(level) for level in levels)
        told = [f"{done} of {of}" + (f", {mean:.3f} s" if mean else "") if of else "-" for done, of, mean, _ in figures]
        rows.append([entry.name, *told])
    return markdown_table(["configuration", *levels], rows)


def paired(a: Entry, b: Entry) -> list[Difference]:
    """Return McNemar's and Wilcoxon's tests between two rows, by level and over all; Holm's correction is over these."""
    of_b = {(f.level, f.course, f.seed): f.outcome for f in b.flights if f.status != "failed"}
    found: list[Difference] = []
    for level in levels_of([a, b]):
        flown = [(f.outcome, (f.level, f.course, f.seed)) for f in a.of_level(level) if f.status != "failed"]
        if pairs := [(outcome, of_b[key]) for outcome, key in flown if key in of_b]:
            found += differences(level, pairs)
    return holm(found)


def as_html(entries: Sequence[Entry]) -> str:
    """Return the standings, and the tests between all pairs of rows, as sortable tables."""
    head, *rows = table(entries)
    parts = ["<h2>Standings</h2>", html_table(head, rows)]
    tests = [
        [a.name, b.name, d.cell, d.figure, d.pairs, f"{d.a:.4f}", f"{d.b:.4f}", f"{d.mean:+.4f}",
         "" if d.p is None else f"{d.p:.3g}", d.verdict]
        for a, b in combinations(entries, 2)
        for d in paired(a, b)
    ]  # fmt: skip
    if tests:
        figures = "pairs", "mean of A", "mean of B", "B - A", "p (Holm, of A and B)", "verdict"
        columns = "A", "B", "level", "figure", *figures
        parts += ["<h2>Paired tests between rows</h2>", html_table(columns, tests)]
    return "\n".join([*parts, "<p>A click on a column's head sorts by it.</p>"])

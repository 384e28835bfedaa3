"""Comparison of two campaigns, and standings: paired differences on common seeds and their significance.

Times and margins: mean of the paired differences with a bootstrap interval, Wilcoxon's signed-rank test. Finishing: McNemar's
exact test on the seeds on which only one of the two finished. All p-values of a comparison are corrected for multiple tests
by Holm's method.

Standings have one row per configuration, with its results by level, a setting and a world. Rows are compared on the flights that
both have: same level, course and seed.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from gate_racer.common.command import markdown_table
from gate_racer.common.errors import UserError
from gate_racer.field.page import html_table
from gate_racer.race.campaign.case import Case, Outcome, Row
from gate_racer.vehicle.rotation import Array

ALPHA = 0.05  # significance level, after correction
LEAST_PAIRS = 6  # pairs; with fewer a two-sided signed-rank test cannot reach ALPHA
# Fields of a case that may differ between the two campaigns.
TREATMENTS = "vehicle", "laps", "setting", "controller", "estimator", "world", "plan", "residual"


@dataclass(frozen=True)
class Difference:
    """Difference B minus A of one figure in one cell. `p` after Holm's correction; None with too few pairs."""

    cell: str
    figure: str
    pairs: int
    a: float
    b: float
    low: float
    high: float
    p: float | None
    better: int  # sign of an improvement of B over A

    @property
    def mean(self) -> float:
        """Mean of B minus A, in the unit of the figure."""
        return self.b - self.a

    @property
    def verdict(self) -> str:
        """Verdict as text: which campaign is better, if significant after correction."""
        if self.pairs and self.mean == self.low == self.high == 0.0:
            return "identical"
        if self.p is None:
            return f"too few pairs: {self.pairs}, at least {LEAST_PAIRS} are needed"
        if self.p >= ALPHA or self.low <= 0.0 <= self.high:
            return "no significant difference"
        return "B is better" if self.mean * self.better > 0 else "B is worse"


FINISHED = "share finished"
FIGURES: dict[str, tuple[Callable[[Outcome], float | None], int]] = {
    FINISHED: (lambda o: float(o.finished), 1),
    "race time s": (lambda o: o.race_s if o.finished else None, -1),
    "least margin m": (lambda o: min(o.margin_m) if o.finished and o.margin_m else None, 1),
    "tracking error m": (lambda o: o.tracking_m if o.finished else None, -1),
    "estimate error m": (lambda o: o.estimate_m if o.finished else None, -1),
}


def compare(a: list[Row], b: list[Row]) -> tuple[tuple[str, ...], list[Difference]]:
    """Return the fields that differ by intent, and the differences on common seeds. Raises UserError."""
    values = {name: [{getattr(row.case, name) for row in rows} for rows in (a, b)] for name in TREATMENTS}
    varied = tuple(name for name, (x, y) in values.items() if len(x) == len(y) == 1 and x != y)
    found = [d for name, pairs in _paired_up(a, b, varied) for d in differences(name, pairs)]
    if not found:
        raise UserError("the two campaigns have no common case: needs the same track, setting and seed in both")
    return varied, holm(found)


def _paired_up(a: list[Row], b: list[Row], varied: tuple[str, ...]) -> list[tuple[str, list[tuple[Outcome, Outcome]]]]:
    """Return pairs of outcomes of the same case in both campaigns, by cell; cases that could not be flown are left out."""

    def key(case: Case) -> tuple[Any, ...]:
        return tuple(getattr(case, name) for name in ("track", *TREATMENTS, "seed") if name not in varied)

    of_b = {key(row.case): row.outcome for row in b if row.outcome.status != "failed"}
    groups: dict[tuple[Any, ...], list[tuple[Outcome, Outcome]]] = defaultdict(list)
    for row in a:
        k = key(row.case)
        if k in of_b and row.outcome.status != "failed":
            groups[k[:-1]].append((row.outcome, of_b[k]))
    return [("/".join(map(str, filter(None, name))), pairs) for name, pairs in sorted(groups.items())]


def differences(name: str, pairs: list[tuple[Outcome, Outcome]]) -> list[Difference]:
    """Return the differences of a cell's pairs, with p-values before correction."""
    found = []
    for figure, (value, better) in FIGURES.items():
        known = [(x, y) for x, y in ((value(p), value(q)) for p, q in pairs) if x is not None and y is not None]
        if known:
            found.append(_difference(name, figure, np.array(known, float), better))
    return found


def _difference(name: str, figure: str, known: Array, better: int) -> Difference:
    """Return the difference of pairs (n, 2), with the 95 % bootstrap interval of the mean difference."""
    from scipy.stats import bootstrap  # slow to import, and needed for comparisons only

    gaps, (a, b) = known[:, 1] - known[:, 0], known.mean(axis=0)
    low = high = float(gaps[0])
    if np.ptp(gaps) > 0:
        rng = np.random.default_rng(0)
        sure = bootstrap((gaps,), np.mean, confidence_level=1 - ALPHA, method="percentile", rng=rng).confidence_interval
        low, high = float(sure.low), float(sure.high)
    p = _p_value(gaps, figure == FINISHED) if len(gaps) >= LEAST_PAIRS else None
    return Difference(name, figure, len(gaps), float(a), float(b), low, high, p, better)


def _p_value(gaps: Array, binary: bool) -> float:
    """Return the p-value of gaps (n,) by Wilcoxon's signed-rank test, or of `binary` ones by McNemar's exact test."""
    from scipy.stats import binomtest, wilcoxon  # slow to import

    if not np.any(gaps):
        return 1.0
    if binary:
        return float(binomtest(int((gaps > 0).sum()), int((gaps != 0).sum())).pvalue)
    return float(wilcoxon(gaps, zero_method="zsplit").pvalue)


def holm(found: list[Difference]) -> list[Difference]:
    """Apply Holm's step-down correction over all tests."""
    tested = sorted((d for d in found if d.p is not None), key=lambda d: d.p or 0.0)
    adjusted, worst = {}, 0.0
    for rank, d in enumerate(tested):
        assert d.p is not None
        worst = max(worst, min(1.0, d.p * (len(tested) - rank)))
        adjusted[id(d)] = worst
    return [replace(d, p=adjusted.get(id(d))) for d in found]


HEAD = ["cell", "figure", "pairs", "mean of A", "mean of B", "B - A", "95 %", "p (Holm)", "verdict"]


def cells(d: Difference) -> list[object]:
    """Return the cells of a row of HEAD."""
    means = (f"{d.a:.4f}", f"{d.b:.4f}", f"{d.mean:+.4f}", f"{d.low:+.4f} to {d.high:+.4f}")
    return [d.cell, d.figure, d.pairs, *means, "-" if d.p is None else f"{d.p:.3g}", d.verdict]


def table(varied: tuple[str, ...], found: list[Difference]) -> str:
    about = f"intended difference: {', '.join(varied) or 'only the program'}; B minus A on common seeds"
    return f"{about}\n\n{markdown_table(HEAD, map(cells, found))}"


ALL = "all levels"
RESULTS = ("finished", "of", "mean s", "least margin m")  # of each level


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
        return Outcome(self.status, race_s=self.race_s, margin_m=[] if self.margin_m is None else [self.margin_m])


@dataclass(frozen=True)
class Entry:
    """Row of the standings."""

    name: str  # controller, estimator and plan
    commit: str
    content: str  # of its first case: digest of what was flown
    flights: tuple[LevelFlight, ...]

    def of_level(self, level: str) -> list[LevelFlight]:
        return [flight for flight in self.flights if level in (ALL, flight.level)]

    def figures(self, level: str) -> list[object]:
        """Return `RESULTS` of a level, empty where there is none; the mean is of finished flights."""
        flown = self.of_level(level)
        times = [f.race_s for f in flown if f.race_s is not None]
        margins = [f.margin_m for f in flown if f.margin_m is not None]
        mean = round(float(np.mean(times)), 3) if times else ""
        return [len(times), len(flown), mean, round(min(margins), 3) if margins else ""] if flown else [""] * 4


def entries_of(rows: Sequence[Row], commit: str, level_of: Callable[[Case], str]) -> tuple[Entry, ...]:
    """Return the standings of a campaign's rows: a configuration is a controller, an estimator and a plan."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.case.flown_by, []).append(row)

    def flight(case: Case, o: Outcome) -> LevelFlight:
        course, margin_m = f"{case.track}/{case.vehicle}/{case.laps}", min(o.margin_m, default=None)
        return LevelFlight(level_of(case), course, case.seed, o.status, o.cause, o.race_s, margin_m)

    return tuple(
        Entry(name, commit, some[0].case.content, tuple(flight(row.case, row.outcome) for row in some))
        for name, some in found.items()
    )


def levels_of(entries: Sequence[Entry]) -> list[str]:
    """Return all levels in the order of their first flights; with several, the sum of them first."""
    levels = list(dict.fromkeys(flight.level for entry in entries for flight in entry.flights))
    return [ALL, *levels] if len(levels) > 1 else levels


def standing_rows(entries: Sequence[Entry]) -> list[list[object]]:
    levels = levels_of(entries)
    head: list[object] = ["configuration", *(f"{level}: {figure}" for level in levels for figure in RESULTS), "commit"]
    return [head, *([e.name, *(cell for level in levels for cell in e.figures(level)), e.commit] for e in entries)]


def as_csv(entries: Sequence[Entry]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(standing_rows(entries))
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
    head, *rows = standing_rows(entries)
    parts = ["<h2>Standings</h2>", html_table(head, rows)]
    if tests := [[a.name, b.name, *cells(d)] for a, b in combinations(entries, 2) for d in paired(a, b)]:
        parts += ["<h2>Paired tests between rows</h2>", html_table(["A", "B", *HEAD], tests)]
    return "\n".join([*parts, "<p>A click on a column's head sorts by it.</p>"])

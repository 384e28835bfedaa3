"""Comparison of two campaigns: paired differences on common seeds and their significance.

Times and margins: mean of the paired differences with a bootstrap interval, Wilcoxon's signed-rank test. Finishing: McNemar's
exact test on the seeds on which only one of the two finished. All p-values of a comparison are corrected for multiple tests
by Holm's method.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gate_racer.common.command import markdown_table
from gate_racer.common.errors import UserError
from gate_racer.race.campaign.case import Case, Outcome
from gate_racer.race.campaign.store import Row
from gate_racer.vehicle.rotation import Array

ALPHA = 0.05  # significance level, after correction
LEAST_PAIRS = 6  # pairs; with fewer a two-sided signed-rank test cannot reach ALPHA
TREATMENTS = (
    "vehicle",
    "laps",
    "setting",
    "controller",
    "estimator",
    "world",
    "plan",
    "residual",
)  # fields of a case that may differ between the two campaigns


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


FIGURES: dict[str, tuple[Callable[[Outcome], float | None], int]] = {
    "race time s": (lambda o: o.race_s if o.finished else None, -1),
    "least margin m": (lambda o: min(o.margin_m) if o.finished and o.margin_m else None, 1),
    "tracking error m": (lambda o: o.tracking_m if o.finished else None, -1),
    "estimate error m": (lambda o: o.estimate_m if o.finished else None, -1),
}


def treatment(a: list[Row], b: list[Row]) -> tuple[str, ...]:
    """Return the fields with one value in all of A and another in all of B."""
    found = []
    for name in TREATMENTS:
        values = [{getattr(row.case, name) for row in rows} for rows in (a, b)]
        if all(len(v) == 1 for v in values) and values[0] != values[1]:
            found.append(name)
    return tuple(found)


def compare(a: list[Row], b: list[Row]) -> tuple[tuple[str, ...], list[Difference]]:
    """Return the fields that differ by intent, and the differences on common seeds.

    Raises:
        UserError: no case has a counterpart.
    """
    varied = treatment(a, b)

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
    done = np.array([(x.finished, y.finished) for x, y in pairs], float)
    found = [_difference(name, "share finished", done, _mcnemar(done), 1)]
    for figure, (value, better) in FIGURES.items():
        known = [(x, y) for x, y in ((value(p), value(q)) for p, q in pairs) if x is not None and y is not None]
        if known:
            found.append(_difference(name, figure, np.array(known), _signed_rank(np.array(known)), better))
    return found


def _difference(name: str, figure: str, known: Array, p: float, better: int) -> Difference:
    """Return the difference of pairs (n, 2), with the 95 % bootstrap interval of the mean difference."""
    from scipy.stats import bootstrap  # slow to import, and needed for comparisons only

    gaps, (a, b) = known[:, 1] - known[:, 0], known.mean(axis=0)
    low = high = float(gaps[0])
    if np.ptp(gaps) > 0:
        rng = np.random.default_rng(0)
        sure = bootstrap((gaps,), np.mean, confidence_level=1 - ALPHA, method="percentile", rng=rng).confidence_interval
        low, high = float(sure.low), float(sure.high)
    enough = p if len(gaps) >= LEAST_PAIRS else None
    return Difference(name, figure, len(gaps), float(a), float(b), low, high, enough, better)


def _mcnemar(done: Array) -> float:
    """Return the p-value of McNemar's exact test on pairs (n, 2) of 0 and 1: discordant pairs are binomial with p = 1/2."""
    from scipy.stats import binomtest  # slow to import

    only_a, only_b = (int((done[:, i] > done[:, 1 - i]).sum()) for i in (0, 1))
    return float(binomtest(only_b, only_a + only_b).pvalue) if only_a + only_b else 1.0


def _signed_rank(known: Array) -> float:
    from scipy.stats import wilcoxon  # slow to import

    gaps = known[:, 1] - known[:, 0]
    return float(wilcoxon(gaps, zero_method="zsplit").pvalue) if np.any(gaps) and len(gaps) >= LEAST_PAIRS else 1.0


def holm(found: list[Difference]) -> list[Difference]:
    """Apply Holm's step-down correction over all tests."""
    tested = sorted((d for d in found if d.p is not None), key=lambda d: d.p or 0.0)
    adjusted, worst = {}, 0.0
    for rank, d in enumerate(tested):
        assert d.p is not None
        worst = max(worst, min(1.0, d.p * (len(tested) - rank)))
        adjusted[id(d)] = worst
    return [replace(d, p=adjusted.get(id(d))) for d in found]


def table(varied: tuple[str, ...], found: list[Difference]) -> str:
    """Return the comparison as a Markdown table."""
    rows = []
    for d in found:
        gap, p = f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]", "-" if d.p is None else f"{d.p:.3g}"
        rows.append([d.cell, d.figure, d.pairs, f"{d.a:.4f}", f"{d.b:.4f}", gap, p, d.verdict])
    head = ["cell", "figure", "pairs", "A", "B", "B - A [95 %]", "p (Holm)", "verdict"]
    about = f"intended difference: {', '.join(varied) or 'only the program'}; B minus A on common seeds"
    return f"{about}\n\n{markdown_table(head, rows)}"

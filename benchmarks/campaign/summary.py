"""Summary of flights that differ in their seed only, common to all tables."""

from collections import Counter
from dataclasses import dataclass

from gate_racer.benchmarks.campaign.case import Case
from gate_racer.benchmarks.campaign.store import Row

CONFIDENCE = 0.95  # of the interval of the finish rate


@dataclass(frozen=True)
class Summary:
    """Configuration, world, and number of finished flights."""

    track: str
    vehicle: str
    laps: int
    setting: str
    controller: str
    estimator: str
    world: str
    plan: str
    residual: str
    flights: int
    finished: int
    finished_low: float  # Wilson interval of the finish rate, 95 %
    finished_high: float
    causes: dict[str, int]  # number of unfinished flights by cause, most frequent first


def flown_by(one: Case | Summary) -> str:
    """Return controller, estimator and options as text, for the rows of a table."""
    more = f", plan {one.plan}" if one.plan else ""
    more += f", residual {one.residual}" if one.residual else ""
    return f"{one.controller}, state {one.estimator}{more}"


def summary(rows: list[Row]) -> Summary:
    """Summarise all flights of one configuration in one world."""
    from scipy.stats import binomtest  # imported late: takes 0.5 s, and flights do not need it

    case, flown = rows[0].case, [row.outcome for row in rows]
    finished = sum(o.finished for o in flown)
    interval = binomtest(finished, len(flown)).proportion_ci(CONFIDENCE, method="wilson")
    return Summary(
        track=case.track,
        vehicle=case.vehicle,
        laps=case.laps,
        setting=case.setting,
        controller=case.controller,
        estimator=case.estimator,
        world=case.world,
        plan=case.plan,
        residual=case.residual,
        flights=len(flown),
        finished=finished,
        finished_low=float(interval.low),
        finished_high=float(interval.high),
        causes=dict(Counter(f"{o.rule} ({o.cause})" for o in flown if o.rule).most_common()),
    )

"""What every table says of flights that differ in their seed only."""

from collections import Counter
from dataclasses import dataclass

from benchmarks.campaign.case import Case
from benchmarks.campaign.store import Row

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Which configuration, in which world, and how many of its flights finished."""

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
    finished_low: float  # Wilson's interval of the share that finishes
    finished_high: float
    causes: dict[str, int]  # of the ends without a finish, most frequent first


def flown_by(one: Case | Summary) -> str:
    """Who flies, in words: what does not stand in the heading of a table."""
    more = f", plan {one.plan}" if one.plan else ""
    more += f", residual {one.residual}" if one.residual else ""
    return f"{one.controller}, state {one.estimator}{more}"


def summary(rows: list[Row]) -> Summary:
    """Of all flights of one configuration in one world."""
    from scipy.stats import binomtest  # half a second to load, which no flight waits for

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

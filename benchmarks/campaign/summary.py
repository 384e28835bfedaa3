"""What every table says of flights that differ in their seed only."""

from collections import Counter
from dataclasses import dataclass

from scipy.stats import binomtest

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
    flights: int
    finished: int
    finished_low: float  # Wilson's interval of the share that finishes
    finished_high: float
    causes: dict[str, int]  # of the ends without a finish, most frequent first


def summary(rows: list[Row]) -> Summary:
    """Of all flights of one configuration in one world."""
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
        flights=len(flown),
        finished=finished,
        finished_low=float(interval.low),
        finished_high=float(interval.high),
        causes=dict(Counter(f"{o.rule} ({o.cause})" for o in flown if o.rule).most_common()),
    )

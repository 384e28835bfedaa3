"""Worlds as an axis of a campaign: the cost of each deviation from the pilot's models.

A cell's world is `as_believed`, the name of a file whose factors are drawn jointly with each flight's seed, or FILE:FACTOR+ for
one factor alone (`sim.worlds.distribution`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gate_racer.race.campaign.case import Case
from gate_racer.race.campaign.store import Row, Summary, flown_by, summary
from gate_racer.sim.worlds.distribution import load_worlds
from gate_racer.sim.worlds.world import NOMINAL

UNKNOWN, FACTORS = "unknown", "factors"
ABOUT = ("track", "vehicle", "laps", "setting", "controller", "estimator", "plan", "residual")  # common to a table


def cells_of(worlds: Iterable[str]) -> list[str]:
    """Return the worlds of the cells, with `factors` expanded."""
    found: list[str] = []
    for world in worlds:
        alone = [f"{UNKNOWN}:{one.of}{sign}" for one in load_worlds(UNKNOWN).factors for sign in one.signs]
        found += alone if world == FACTORS else [world]
    return list(dict.fromkeys(found))


def asked(world: str, seed: int) -> str:
    """Return the name of a cell's world with its seed, for `sim.worlds.distribution.resolve`."""
    name, *factor = world.split(":")
    return ":".join([name, str(seed), *factor])


@dataclass(frozen=True)
class WorldCost(Summary):
    """Figures of all flights of one configuration in one world. Times in s, lengths in m."""

    race_s: float | None  # median of finished flights
    slower: float | None  # relative to the world without deviations
    margin_m: float | None  # least over all gate passages of all flights
    at_gates_p95_m: float | None  # 95th percentile of the position errors relative to gates, at their planes
    nees: float | None  # mean


def costs(rows: list[Row]) -> list[WorldCost]:
    """Return the costs per configuration and world, grouped by configuration, the world without deviations first."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda r: r.case.world != NOMINAL):
        groups.setdefault((*_about(row.case), row.case.world), []).append(row)
    nominal = {key[:-1]: _median(some) for key, some in groups.items() if key[-1] == NOMINAL}
    return [_cost(some, nominal.get(key[:-1])) for key, some in sorted(groups.items(), key=lambda g: g[0][:-1])]


def _about(configured: Case | WorldCost) -> tuple[Any, ...]:
    return tuple(getattr(configured, name) for name in ABOUT)


def _median(rows: list[Row]) -> float | None:
    times = [row.outcome.race_s for row in rows if row.outcome.race_s is not None]
    return float(np.median(times)) if times else None


def _cost(rows: list[Row], nominal_s: float | None) -> WorldCost:
    flown, race_s = [row.outcome for row in rows], _median(rows)
    margins, errors = [m for o in flown for m in o.margin_m], [e for o in flown for e in o.at_gates_m]
    nees = [o.nees for o in flown if o.nees is not None]
    return WorldCost(
        **vars(summary(rows)),
        race_s=race_s,
        slower=race_s / nominal_s - 1 if race_s and nominal_s else None,
        margin_m=min(margins, default=None),
        at_gates_p95_m=float(np.percentile(errors, 95)) if errors else None,
        nees=float(np.mean(nees)) if nees else None,
    )


def markdown(found: list[WorldCost]) -> str:
    """Return one table per configuration, with a row per world."""
    blocks = []
    for about in dict.fromkeys(map(_about, found)):
        of_world = [c for c in found if _about(c) == about]
        track, vehicle, laps, setting, *_ = about
        head = f"### {track}, `{vehicle}`, {laps} lap{'s' if laps > 1 else ''}, {setting}: {flown_by(of_world[0])}"
        lines = [
            head,
            "",
            "| world | finished [95 %] | median time s | cost | least margin m | at gates p95 m | NEES (9) | ends |",
        ]
        lines.append("|---" * 8 + "|")
        lines += [_line(c) for c in of_world]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _line(c: WorldCost) -> str:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    sure = f"{c.finished} of {c.flights} [{100 * c.finished_low:.0f}, {100 * c.finished_high:.0f} %]"
    ends = "; ".join(f"{n} x {cause}" for cause, n in c.causes.items())
    slower = "-" if c.slower is None else f"{100 * c.slower:+.1f} %"
    figures = (number(c.margin_m, ".2f"), number(c.at_gates_p95_m, ".2f"), number(c.nees, ".1f"))
    world = c.world.removeprefix(f"{UNKNOWN}:").replace(NOMINAL, "as believed")
    return f"| {' | '.join((world, sure, number(c.race_s, '.3f'), slower, *figures, ends))} |"

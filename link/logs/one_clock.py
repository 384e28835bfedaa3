"""Selection of samples on one clock: logs hold invalid stamps, and clocks that were set during the log."""

from itertools import pairwise

import numpy as np

from gate_racer.link.logs.rows import SignalRows
from gate_racer.vehicle.rotation import Array

SHUFFLED_S, LEAP_S = 0.05, 20.0  # s, largest disorder of stamps; s, pause beyond which the clock was set
LATEST_S = 1e10  # s, largest valid stamp, in any epoch


def finite(rows: SignalRows) -> SignalRows:
    """Return the rows without invalid samples: stamps that are no time, values of another shape, values not finite."""
    for name, samples in rows.items():
        width = next((value.shape for _, value in samples), ())
        sound = [(t, value) for t, value in samples if abs(t) < LATEST_S and value.shape == width]
        rows[name] = [(t, value) for t, value in sound if name == "omega_cmd" or np.isfinite(value).all()]
    return rows


def one_clock(rows: SignalRows) -> tuple[SignalRows, str]:
    """Return the longest part of a log without a change of the clock, in order of time, and a line on the rest."""
    parts = {name: _stretches(samples) for name, samples in rows.items() if samples}
    if all(len(part) == 1 for part in parts.values()):
        return rows | {name: part[0] for name, part in parts.items()}, ""
    spans = [samples[-1][0] - samples[0][0] for samples in parts.get("v") or parts.get("force", [])] or [0.0]
    longest = int(np.argmax(spans))
    kept = {
        name: part[longest]
        if len(part) == len(spans)
        else max(part, key=lambda samples: samples[-1][0] - samples[0][0])
        for name, part in parts.items()
    }
    return kept, f"its clock was set {len(spans) - 1} times: {spans[longest]:.1f} s of {sum(spans):.1f} s are used"


def _stretches(samples: list[tuple[float, Array]]) -> list[list[tuple[float, Array]]]:
    """Split samples where time runs back or leaps."""
    cuts = [k for k, (a, b) in enumerate(pairwise(samples), 1) if not -SHUFFLED_S < b[0] - a[0] < LEAP_S]
    parts = [samples[a:b] for a, b in pairwise([0, *cuts, len(samples)])]
    return [sorted(part, key=lambda sample: sample[0]) for part in parts]

"""Flights that err as predicted are found calibrated, and such as err twice as much are not."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.risk_calibration import LEVELS, calibrate
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.uncertainty.prediction import predict
from gate_racer.race.campaign.case import Case, Outcome, Row
from gate_racer.vehicle.uncertainty import Doubt


@pytest.fixture(scope="module")
def crossings(plan, vq1, dcl):
    """The predicted ones in their likeliest case, without one-sided laws."""
    predicted = predict(plan, Task(vq1, dcl, PlanOptions()), Doubt()).crossings
    plain = [replace(one.cases[0], probability=1.0, free_m=1e3) for one in predicted]
    return tuple(
        replace(one, short_m=0.0 * one.short_m, cases=(case,)) for one, case in zip(predicted, plain, strict=True)
    )


def flights(crossings, count, wider):
    """Rows that cross the gates as predicted, so many times as wide."""
    rng, rows = np.random.default_rng(5), []
    for seed in range(count):
        off = [wider * rng.multivariate_normal([0, 0], one.cov_across) + one.drawn_m for one in crossings]
        places = [one.planned_m + part for one, part in zip(crossings, off, strict=True)]
        margins = [
            float((one.gate.edges[:, 2] - one.gate.edges[:, :2] @ at).min())
            for one, at in zip(crossings, places, strict=True)
        ]
        pairs = [(float(right), float(down)) for right, down in places]
        outcome = Outcome("finished", margin_m=margins, crossing_m=pairs, misjudged_m=[(0.0, 0.0)] * len(pairs))
        rows.append(Row(Case("vq1", "dcl", 1, "projected", "mpcc", "eskf", seed), outcome, np.empty((0, 5))))
    return rows


def test_margins_as_predicted_are_calibrated_and_such_of_wider_flights_are_not(crossings):
    right, _ = calibrate("right", flights(crossings, 200, 1.0), crossings)
    wrong, _ = calibrate("wrong", flights(crossings, 200, 2.0), crossings)
    for predicted in (100 * level for level in LEVELS):
        name = f"{predicted:g} %"
        assert right[f"{name} low"] - 2 <= predicted <= right[f"{name} high"] + 2
        assert right[f"{name} in band"] >= len(crossings) - 1
        if 1 <= predicted <= 16:
            assert wrong[f"{name} low"] > predicted and wrong[f"{name} in band"] < len(crossings)

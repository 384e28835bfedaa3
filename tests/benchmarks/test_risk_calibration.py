"""Flights that err as predicted are found calibrated, and such as err twice as much are not."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.campaign.case import Case, Outcome
from benchmarks.campaign.store import Row
from benchmarks.risk_calibration import calibrate
from planner.doubt.prediction import predict
from planner.options import PlanOptions
from planner.task import Task
from vehicle.doubt import Doubt


@pytest.fixture(scope="module")
def crossings(plan, vq1, dcl):
    """The predicted ones, to both sides alike."""
    predicted = predict(plan, Task(vq1, dcl, PlanOptions()), Doubt()).crossings
    return tuple(replace(one, short_w=0.0 * one.short_w) for one in predicted)


def flights(crossings, count, wider):
    """Rows that cross the gates as predicted, so many times as wide."""
    rng, rows = np.random.default_rng(5), []
    for seed in range(count):
        off = [one.planned_m + wider * rng.multivariate_normal([0, 0], one.across.cov) for one in crossings]
        places = [(float(right), float(down)) for right, down in off]
        outcome = Outcome("finished", crossing_m=places, misjudged_m=[(0.0, 0.0)] * len(places))
        rows.append(Row(Case("vq1", "dcl", 1, "projected", "mpcc", "eskf", seed), outcome, np.empty((0, 5))))
    return rows


def test_errors_as_predicted_are_calibrated_and_larger_ones_are_not(crossings):
    right = calibrate("right", flights(crossings, 80, 1.0), crossings)
    assert right.ratio == pytest.approx(1.0, abs=0.08)
    assert all(one.low - 0.02 <= one.predicted <= one.high + 0.02 for one in (*right.central, *right.towards_edges))
    wrong = calibrate("wrong", flights(crossings, 80, 2.0), crossings)
    assert wrong.ratio == pytest.approx(2.0, abs=0.16)
    assert all(one.high < one.predicted for one in wrong.central) and wrong.towards_edges[1].low > 0.05

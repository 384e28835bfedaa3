"""Findings on a flight agree with its log, in value and place."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gate_racer.field.report.charts import MOST_POINTS, thinned
from gate_racer.field.report.compare import compare
from gate_racer.field.report.findings import figures, findings
from gate_racer.field.report.flight import TimeSeries, read_logged_flight
from gate_racer.pilot.records.flight_log import FlightLog
from tests.field.flown import SLOW_LEG, SLOW_PACE, write_log

FAR = {"p": np.full(3, 1e3), "q": np.eye(4)[0], "v": np.zeros(3), "w": np.zeros(3), "sigma_p": np.ones(3), "drift": 0.0}


def said(flight):
    """The findings on a flight and their times, by their text."""
    return {finding.text: finding.t for finding in findings(flight)}


def test_a_slow_leg_is_named_with_its_loss_and_what_the_log_shows_there(slow_flight, plan):
    lost = (plan.gate_times_s[SLOW_LEG] - plan.gate_times_s[SLOW_LEG - 1]) * (1 / SLOW_PACE - 1)
    (sentence,) = [text for text in said(read_logged_flight(slow_flight)) if "lost between" in text]
    assert sentence.startswith(f"{lost:.2f} s lost between gates 3 and 4: pace down to 0.86, throttle at the flight's ")
    assert sentence.endswith("% of the leg, thrust 8 % short.")


def test_losses_are_explained_by_what_the_log_shows_or_not_at_all(late_flight, tmp_path, plan):
    assert "0.10 s lost before gate 0: pace down to 0.00." in said(read_logged_flight(late_flight))
    flight = read_logged_flight(write_log(tmp_path / "good.mcap", plan))
    (sentence,) = said(flight)
    assert sentence.startswith(f"Finished in {plan.gate_times_s[-1]:.3f} s, 0.00 s ")
    told = said(replace(flight, planned_s=flight.planned_s - 0.1))
    assert "0.10 s lost before gate 0: no cause found in pace, throttle, commands or estimate." in told


def test_events_are_told_with_their_time_and_place(tmp_path, plan):
    jump, wait = float(plan.gate_times_s[2]) + 0.3, "no iterate"
    counters = {"frames": 200, "frames_dropped": 7, "late": 3, "fallbacks": 1, "lost": 0}
    spare = {"source": "spare solver", "reason": wait}
    records = [("state", jump, FAR), ("fallback", jump, spare), ("counters", 9.0, counters)]
    flight = read_logged_flight(write_log(tmp_path / "events.mcap", plan, records=records))
    told, shown = said(flight), figures(flight)
    (correction,) = [text for text in told if text.startswith("The position estimate was corrected")]
    assert "between gates 2 and 3" in correction and told[correction] == pytest.approx(jump, abs=0.02)
    spare = f"Commands from the fall-back spare solver at {jump:.2f} s, between gates 2 and 3: {wait}."
    assert told[spare] == pytest.approx(jump)
    assert shown["late commands"] == "3" and shown["lost frames"] == "7, 200 used"


def test_an_estimate_off_the_truth_is_told_with_its_size_and_place(tmp_path, plan):
    flight, at = read_logged_flight(write_log(tmp_path / "off.mcap", plan)), float(plan.gate_times_s[2]) + 0.3
    off = 0.34 * (np.abs(flight.state.t - at) < 0.1)
    for size, told in ((1.0, "up to 0.34 m"), (0.1, "")):
        truth = TimeSeries(flight.state.t, {"p": flight.state["p"] + size * off[:, None] * [0, 1, 0]})
        sentences = [text for text in said(replace(flight, truth=truth)) if "differed from the truth" in text]
        assert [told in text and "between gates 2 and 3" in text for text in sentences] == [True] * bool(told)


def test_a_flight_that_ended_early_tells_where_and_why(tmp_path, plan):
    log = FlightLog(tmp_path / "crash.mcap")
    log.write("flight", 0.0, track="vq1", vehicle="dcl", planned_gate_times_s=plan.gate_times_s, seed=0)
    for t in (0.0, 1.0, 2.0, 3.0):
        log.write("state", t, **FAR | {"p": np.array([t, 0, 0]), "v": np.array([1.0, 0, 0])})
    times = plan.gate_times_s[:2]
    log.write("referee", 3.0, status="collision", cause="gate 2", gate_times_s=times, gate_margins_m=[0.4, 0.1])
    log.close()
    flight = read_logged_flight(tmp_path / "crash.mcap")
    end, shown = findings(flight)[0].text, figures(flight)
    assert end.startswith("Ended after gate 1, passed at ") and end.endswith("at gate 1: collision (gate 2).")
    assert shown["gates passed"] == "2 of 6" and shown["least margin"] == "0.100 m at gate 1" and shown["time"] == "-"
    assert shown["late commands"] == shown["lost frames"] == shown["vehicle learned"] == "not in the log"


def test_the_distance_from_the_path_is_that_of_its_own_time(late_flight):
    flight = read_logged_flight(late_flight)
    still, times = (
        TimeSeries(np.array([0.0, 1.0, 9.0, 10.0]), {"p": np.eye(3)[[0, 0, 1, 1]]}),
        np.array([-5.0, 5.0, 15.0]),
    )
    at = TimeSeries(times, {"p": np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1.0, 0]])})
    assert replace(flight, reference=still, state=at).off_path[1] == pytest.approx(0.0, abs=1e-12)


def test_a_flight_is_compared_as_far_as_it_came(late_flight):
    gates, first = 3, read_logged_flight(late_flight)
    other = replace(first, gate_times_s=first.gate_times_s[:gates], gate_margins_m=first.gate_margins_m[:gates])
    found = compare([first, other])
    later, known = found.later_s[1], found.grid <= found.gates[gates - 1]
    assert np.isfinite(later[known]).all() and np.isnan(later[~known]).all() and not known.all()


@given(arrays(float, st.integers(1, 3000), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=30)
def test_thinned_lines_keep_their_peaks(y):
    rows = thinned(y)
    assert len(rows) <= MOST_POINTS and np.all(np.diff(rows) > 0)
    assert y[rows].max() == y.max() and y[rows].min() == y.min()

"""Findings on a flight agree with its log, in value and place."""

import base64
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gate_racer.field.report.charts import MOST_POINTS, thinned
from gate_racer.field.report.compare import compare
from gate_racer.field.report.findings import figures, findings
from gate_racer.field.report.flight import read_logged_flight
from gate_racer.field.report.pages import BUDGET_BYTES, thumbnails
from gate_racer.pilot.records.flight_log import FlightLog
from tests.field.flown import SLOW_LEG, SLOW_PACE, write_log


def said(path):
    """The findings of a log."""
    return [finding.text for finding in findings(read_logged_flight(path))]


def test_a_slow_leg_is_named_with_its_loss_and_what_the_log_shows_there(slow_flight, plan):
    lost = (plan.gate_times_s[SLOW_LEG] - plan.gate_times_s[SLOW_LEG - 1]) * (1 / SLOW_PACE - 1)
    (sentence,) = [text for text in said(slow_flight) if "lost between" in text]
    assert sentence.startswith(
        f"{lost:.2f} s lost between gates 3 and 4: pace down to 0.86, throttle at the flight's maximum, 1.00, for "
    )
    assert sentence.endswith("% of the leg, thrust 8 % short.")
    assert any(
        text == "Estimated in flight, relative to the vehicle's file: thrust 8 % short." for text in said(slow_flight)
    )


def test_a_flight_as_planned_has_nothing_to_tell_but_its_end(tmp_path, plan):
    (sentence,) = said(write_log(tmp_path / "good.mcap", plan))
    assert sentence.startswith(f"Finished in {plan.gate_times_s[-1]:.3f} s, 0.00 s ")


def test_a_loss_that_nothing_explains_is_not_explained(tmp_path, plan):
    flight = read_logged_flight(write_log(tmp_path / "good.mcap", plan))
    told = findings(replace(flight, planned_s=flight.planned_s - 0.1))
    assert "0.10 s lost before gate 0: no cause found in pace, throttle, commands or estimate." in [
        f.text for f in told
    ]


def test_a_wait_on_the_pad_shows_in_the_pace(late_flight):
    assert "0.10 s lost before gate 0: pace down to 0.00." in said(late_flight)


def test_events_are_told_with_their_time_and_place(tmp_path, plan):
    jump, wait = float(plan.gate_times_s[2]) + 0.3, "no iterate"
    counters = {"frames": 200, "frames_dropped": 7, "late": 3, "fallbacks": 1, "lost": 0}
    far = {
        "p": np.full(3, 1e3),
        "q": np.eye(4)[0],
        "v": np.zeros(3),
        "w": np.zeros(3),
        "sigma_p": np.ones(3),
        "drift": 0.0,
    }
    records = [
        ("state", jump, far),
        ("fallback", jump, {"source": "spare solver", "reason": wait}),
        ("counters", 9.0, counters),
    ]
    path = write_log(tmp_path / "events.mcap", plan, records=records)
    told = {finding.text: finding.t for finding in findings(read_logged_flight(path))}
    (correction,) = [text for text in told if text.startswith("The position estimate was corrected")]
    assert "between gates 2 and 3" in correction and told[correction] == pytest.approx(jump, abs=0.02)
    assert told[
        f"Commands from the fall-back spare solver at {jump:.2f} s, between gates 2 and 3: {wait}."
    ] == pytest.approx(jump)
    assert "Frames lost: 7." in told and any(text.startswith("Late: 3 of ") for text in told)
    shown = figures(read_logged_flight(path))
    assert shown["late commands"] == "3" and shown["lost frames"] == "7, 200 used"


def test_a_flight_that_ended_early_tells_where_and_why(tmp_path, plan):
    log = FlightLog(tmp_path / "crash.mcap")
    log.write("flight", 0.0, track="vq1", vehicle="dcl", planned_gate_times_s=plan.gate_times_s, seed=0)
    for t in (0.0, 1.0, 2.0, 3.0):
        pose = {"p": np.array([t, 0, 0]), "q": np.eye(4)[0], "v": np.array([1.0, 0, 0]), "w": np.zeros(3)}
        log.write("state", t, **pose, sigma_p=np.ones(3), drift=0.0)
    times = plan.gate_times_s[:2]
    log.write("referee", 3.0, status="collision", cause="gate 2", gate_times_s=times, gate_margins_m=[0.4, 0.1])
    log.close()
    flight = read_logged_flight(tmp_path / "crash.mcap")
    assert findings(flight)[0].text.startswith("Ended after gate 1, passed at ")
    assert findings(flight)[0].text.endswith("at gate 1: collision (gate 2).")
    shown = figures(flight)
    assert shown["gates passed"] == "2 of 6" and shown["least margin"] == "0.100 m at gate 1" and shown["time"] == "-"
    assert shown["late commands"] == shown["lost frames"] == shown["vehicle learned"] == "not in the log"


def test_a_flight_is_compared_as_far_as_it_came(late_flight, plan, tmp_path):
    gates, first = 3, read_logged_flight(late_flight)
    other = replace(first, gate_times_s=first.gate_times_s[:gates], gate_margins_m=first.gate_margins_m[:gates])
    later = compare([first, other]).later_s[1]
    known = compare([first, other]).grid <= compare([first, other]).gates[gates - 1]
    assert np.isfinite(later[known]).all() and np.isnan(later[~known]).all() and not known.all()


@given(arrays(float, st.integers(1, 3000), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=30)
def test_thinned_lines_keep_their_peaks(y):
    rows = thinned(y)
    assert len(rows) <= MOST_POINTS and np.all(np.diff(rows) > 0)
    assert y[rows].max() == y.max() and y[rows].min() == y.min()


def test_pictures_stay_within_their_budget_and_every_gate_has_its_own(late_flight):
    flight, rng = read_logged_flight(late_flight), np.random.default_rng(0)
    noise = rng.integers(0, 255, (180, 320, 3), np.uint8)
    jpeg = cv2.imencode(".jpg", noise)[1].tobytes()
    stamps = np.linspace(0.0, flight.gate_times_s[-1], 190)
    images, of_gates = thumbnails(replace(flight, images=tuple((float(t), jpeg) for t in stamps)))
    size = sum(len(base64.b64decode(data)) for _, data in images)
    assert BUDGET_BYTES / 2 < size <= BUDGET_BYTES and len(images) < len(stamps)
    for gate_t, k in zip(flight.gate_times_s, of_gates, strict=True):
        assert 0.1 < gate_t - images[k][0] < 0.25

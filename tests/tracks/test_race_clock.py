"""The clock of a race starts at GO, or at the first gate where the track says so."""

from dataclasses import replace

import pytest

from gate_racer.tracks.track import load_track

PQ = load_track("pq")


@pytest.mark.parametrize(
    ("clock", "times", "elapsed"),
    [
        ("go", [1.5, 2.5, 4.0], 4.0),
        ("first_gate", [1.5, 2.5, 4.0], 2.5),
        ("first_gate", [1.5], 0.0),
    ],
)
def test_the_time_of_a_race_counts_from_its_clock(clock, times, elapsed):
    assert replace(PQ, clock=clock).elapsed(times) == elapsed


def test_the_qualifier_counts_from_the_first_gate_and_the_clock_changes_no_plan():
    assert PQ.clock == "first_gate" and load_track("vq1").clock == "go"
    assert replace(PQ, clock="go").hash == PQ.hash
    assert all(gate.depth_m == 0.08 for gate in PQ.gates)

"""The pilot's time goes on evenly, whatever stands in the stamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.link.clock import Timeline
from gate_racer.link.messages import Attitude, Heartbeat, Imu, RaceStatus

STEP_S = 1 / 120
HOUR_S = 3600.0
LEVEL = (1.0, 0.0, 0.0, 0.0)


def sample(t):
    return Imu(t, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))


def fly(stamp, seconds=3.0, timeline=None, received=lambda n: True):
    """The pilot's times of an IMU whose n-th sample is stamped stamp(n) and received at n steps, or else not at all."""
    timeline = timeline or Timeline()
    times = []
    for n in range(round(seconds / STEP_S)):
        if received(n):
            times += [message.t for message in timeline.admit(sample(stamp(n)), 500.0 + n * STEP_S)]
    return timeline, times


def steps(times):
    return [b - a for a, b in zip(times, times[1:], strict=False)]


def test_good_stamps_pass_unchanged():
    timeline, times = fly(lambda n: 7.0 + n * STEP_S)
    assert times == [7.0 + n * STEP_S for n in range(360)]
    assert timeline.refused == timeline.clock_set == 0


@pytest.mark.parametrize("off", [1.0, HOUR_S, 1e9, -0.5, -HOUR_S])
def test_one_stamp_that_cannot_be_true_is_left_out_and_changes_nothing(off):
    timeline, times = fly(lambda n: 7000.0 + n * STEP_S + off * (n == 100))
    assert len(times) == 359 and max(steps(times)) == pytest.approx(2 * STEP_S)
    assert timeline.refused == 1 and timeline.clock_set == 0


@pytest.mark.parametrize("by", [1.0, HOUR_S, -1.0, -HOUR_S])
def test_a_clock_that_was_set_is_followed_without_losing_a_sample(by):
    timeline, times = fly(lambda n: 7000.0 + n * STEP_S + by * (n >= 100))
    assert len(times) == 360 and timeline.clock_set == 1
    assert max(steps(times)) < 1.01 * STEP_S and min(steps(times)) > 0.99 * STEP_S
    assert timeline.to_wire(times[-1]) == pytest.approx(7000.0 + by + 359 * STEP_S)


@pytest.mark.parametrize("gap_s", [0.05, 0.5, 0.9])
def test_a_gap_of_the_telemetry_is_a_gap_of_the_time(gap_s):
    lost = round(gap_s / STEP_S)
    timeline, times = fly(lambda n: 7.0 + n * STEP_S, received=lambda n: not 100 <= n < 100 + lost)
    assert len(times) == 360 - lost and max(steps(times)) == pytest.approx((lost + 1) * STEP_S)
    assert timeline.clock_set == 0


def test_a_burst_that_comes_again_is_no_new_time():
    """The last 0.3 s are delivered a second time, at once."""
    timeline, times = fly(lambda n: 7.0 + n * STEP_S)
    for n in range(324, 360):
        assert timeline.admit(sample(7.0 + n * STEP_S), 503.001) == []
    _, more = fly(lambda n: 7.0 + (360 + n) * STEP_S, timeline=timeline)
    assert timeline.clock_set == 0 and more[0] > times[-1]


def test_a_first_stamp_that_cannot_be_true_does_not_lock_the_others_out():
    timeline, times = fly(lambda n: HOUR_S if n == 0 else 7.0 + n * STEP_S)
    assert len(times) == 360 and timeline.clock_set == 1


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60))
def test_time_never_goes_back_whatever_is_stamped(stamps):
    timeline, times = Timeline(), []
    for n, stamp in enumerate(stamps):
        times += [message.t for message in timeline.admit(sample(stamp), n * STEP_S)]
    assert all(step > 0 for step in steps(times))


def test_other_messages_of_the_clock_follow_it_and_contradictions_are_dropped():
    timeline, times = fly(lambda n: 7000.0 + n * STEP_S + HOUR_S * (n >= 100))
    now, wire = times[-1], timeline.to_wire(times[-1])
    told = timeline.admit(Attitude(wire, LEVEL), 503.0)
    assert [message.t for message in told] == pytest.approx([now])
    assert timeline.admit(Attitude(wire - HOUR_S, LEVEL), 503.0) == []
    (beat,) = timeline.admit(Heartbeat(0.0, True), 503.0)
    assert beat == Heartbeat(now, True)


@pytest.mark.parametrize("of_the_new_clock", [True, False])
def test_a_race_status_tells_the_same_start_on_either_clock(of_the_new_clock):
    timeline, times = fly(lambda n: 7000.0 + n * STEP_S + HOUR_S * (n >= 100))
    t = timeline.to_wire(times[-1]) - (0.0 if of_the_new_clock else HOUR_S)
    (status,) = timeline.admit(RaceStatus(t, t - 2.0, None, 1, None), 503.0)
    assert status.go and status.start == pytest.approx(times[-1] - 2.0) and status.gate == 1

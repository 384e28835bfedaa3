"""Video stamps are recovered on the IMU's clock; the pilot's time goes on evenly, whatever is stamped."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.link.clock import StreamClock, Timeline
from gate_racer.link.messages import Attitude, Heartbeat, Imu, RaceStatus

LATENCY_S = 0.0135
EPOCH_S = 1.78e9


def fly(
    clock, seconds, seed=0, video_offset=EPOCH_S, begin=100.0, local=5000.0, speed=1.0, way=0.0, answer=None,
    video_delay=lambda t: LATENCY_S, imu_delay=lambda t: 0.0, lost=0.0, skew=0.0,
):  # fmt: skip
    """Feed IMU at 120 Hz and video at 30 Hz with random delays from simulator time `begin`; return mapped - true stamps, s.

    Args:
        local: reading of the local clock at simulator time `begin`.
        way: least delay of every datagram of the telemetry, s.
        answer: stamp of the answer to a TIMESYNC at a true stamp; None sends none.
        video_delay, imu_delay: least delays at a time since `begin`, s.
        lost: s of simulated time lost for good since before `begin`.
        skew: s/s by which the video's clock runs faster.
    """
    rng, events = np.random.default_rng(seed), []
    for n, t in enumerate(np.arange(0, seconds, 1 / 120)):
        there, back = way + rng.exponential(0.002, 2)
        events.append((local + t / speed + lost + there + imu_delay(t), "imu", begin + t))
        if answer is not None and n % 60 == 0:
            events.append((local + t + back, "answer", (local + t - there, answer(begin + t))))
    for t in np.arange(0, seconds, 1 / 30) + 0.004:
        events.append((local + t / speed + lost + video_delay(t) + rng.exponential(0.003), "video", begin + t))
    errors = []
    for received, stream, t in sorted(events):
        if stream == "imu":
            clock.reference(t, received)
        elif stream == "answer":
            clock.timesync(*t, received)
        else:
            errors.append(clock.stream(t + video_offset + skew * (t - 100.0), received) - t)
    return np.array(errors)


@given(st.integers(0, 99), st.sampled_from([EPOCH_S, -60.0, 2.0]))
@settings(max_examples=10)
def test_another_clock_is_recovered_within_milliseconds_and_the_same_one_kept(seed, offset):
    assert StreamClock(LATENCY_S).stream(1.0, 10.0) is None, "without a reference"
    assert not fly(StreamClock(LATENCY_S), 3, seed, video_offset=0.0).any()
    errors = fly(StreamClock(LATENCY_S), 6, seed, offset)
    assert np.abs(errors[30:]).max() < 0.002
    assert np.abs(errors[5:]).max() < 0.008  # the first ones have few samples to take the least of


def late_s(t, stall_s):
    """How much longer a message of a time takes in a stall that begins after 1 s: all arrive at its end."""
    return max(1.0 + stall_s - t, 0.0) if t > 1.0 else 0.0


@dataclass(frozen=True)
class Befalls:
    """What comes after some quiet seconds, as arguments of `fly`, and how well the clock then does."""

    then: dict
    seconds: float
    settled_s: float = 0.0  # after which time errors are bounded
    error_s: float = 0.004
    jumps: int | None = 0  # None: as many as it takes
    slips: int = 0
    in_flight: bool = True
    before: dict = field(default_factory=dict)


IMAGES_LATE = dict(video_delay=lambda t: LATENCY_S + 0.03 * (t > 2))
SOME_LATE = dict(video_delay=lambda t: LATENCY_S + 0.7 * (round(30 * t) % 10 == 0))
CASES = {
    "quartz that is slow": Befalls(dict(skew=-1e-4), 120, before=dict(skew=-1e-4)),
    "quartz that is fast": Befalls(dict(skew=1e-4), 120, before=dict(skew=1e-4)),
    "the simulator loses 0.3 s": Befalls(dict(lost=0.3), 20, slips=1),
    "images late for good": Befalls(IMAGES_LATE, 30),
    "one in ten images takes 0.7 s": Befalls(SOME_LATE, 60),
    "the simulator restarts at 0 while the epoch runs on": Befalls(
        dict(begin=0.0, video_offset=EPOCH_S + 103), 2, 1.0, 0.002, jumps=1, in_flight=False
    ),
}
for set_s in (-3.0, 0.7, 60.0):
    CASES[f"the video's clock is set by {set_s} s"] = Befalls(dict(video_offset=EPOCH_S + set_s), 6, 2.0, 0.01, jumps=1)
for stall_s in (0.3, 0.75, 1.4, 8.0):
    held_up = partial(late_s, stall_s=stall_s)
    drawn = dict(video_delay=lambda t, held_up=held_up: LATENCY_S + held_up(t))
    lasts = 14 + stall_s, 3 + stall_s, 0.01, None if stall_s > 2 else 0
    CASES[f"the simulator draws for {stall_s} s"] = Befalls(drawn, *lasts)
    CASES[f"the pilot stands still for {stall_s} s"] = Befalls(drawn | dict(imu_delay=held_up), *lasts)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_whatever_befalls_it_stamps_stay_true_or_soon_are_again(case):
    clock = StreamClock(LATENCY_S)
    fly(clock, 3, **case.before)
    if case.in_flight:
        clock.hold()
    errors = fly(clock, case.seconds, **{"begin": 103.0, "local": 5003.0, **case.then})
    assert np.abs(errors[round(30 * case.settled_s) :]).max() < case.error_s
    assert clock.slips == case.slips and case.jumps in (None, clock.jumps)


@pytest.mark.parametrize("speed", [0.05, 0.7, 2.0])
@pytest.mark.parametrize("offset", [0.0, EPOCH_S])
def test_a_simulator_off_real_time_is_followed_within_the_latency(speed, offset):
    clock = StreamClock(LATENCY_S)
    errors = fly(clock, 10 * speed, 0, offset, speed=speed)
    settled = errors[round(1.5 * 30 * speed) + 1 :]
    assert np.abs(settled).max() < LATENCY_S * max(abs(speed - 1), 0.15) + 0.006 and clock.jumps == 0
    assert offset or not errors.any(), "stamps of one clock are kept"


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.5), (0.5, 1.0), (0.5, 0.25)])
def test_a_simulator_that_changes_its_pace_is_followed(before, after):
    clock = StreamClock(LATENCY_S)
    fly(clock, 4 * before, speed=before)
    errors = fly(clock, 8 * after, 1, begin=100.0 + 4 * before, local=5004.0, speed=after)
    assert np.abs(errors[round(4 * 30 * after) :]).max() < LATENCY_S


def test_answers_to_timesync_tell_the_delay_of_the_telemetry():
    """Telemetry takes 6 ms at least, which shifts every stamp unless TIMESYNC measures it."""
    silent, answered = (
        fly(StreamClock(LATENCY_S), 6, 2, way=0.006, answer=answer)[60:].mean() for answer in (None, lambda t: t)
    )
    assert silent == pytest.approx(-0.006, abs=0.001) and answered == pytest.approx(0.0, abs=0.001)


@pytest.mark.parametrize("answer", [lambda t: 0.0, lambda t: t + EPOCH_S, lambda t: t - 0.5, lambda t: float("nan")])
def test_nonsense_in_answers_to_timesync_changes_nothing(answer):
    clock = StreamClock(LATENCY_S)
    errors = fly(clock, 6, 3, answer=answer)
    assert clock.delay_s == 0.0
    assert np.abs(errors[30:]).max() < 0.002 and clock.jumps == 0


def test_answers_that_stop_or_that_a_jump_makes_old_count_no_longer():
    clock = StreamClock(LATENCY_S)
    fly(clock, 3, 4, way=0.006, answer=lambda t: t)
    assert clock.delay_s == pytest.approx(0.006, abs=0.001)
    fly(clock, 5, 5, begin=103.0, local=5003.0, way=0.006)
    assert clock.delay_s == 0.0
    fly(clock, 1, 6, begin=108.0, local=5008.0, way=0.006, answer=lambda t: t)
    fly(clock, 1, 7, begin=0.0, local=5009.0, way=0.006)
    assert clock.delay_s == 0.0 and clock.jumps == 2  # of the reference, and of the images


def test_in_flight_the_offset_never_steps():
    """Send only slow images before the flight, so that the first fast one in flight reveals an offset error of 20 ms."""
    clock = StreamClock(LATENCY_S)
    fly(clock, 3, video_delay=lambda t: LATENCY_S + 0.02)
    clock.hold()
    errors = fly(clock, 30, begin=103.0, local=5003.0)
    assert np.abs(np.diff(errors)).max() <= 2e-4 * 0.08
    assert errors[-1] < errors[0] - 0.004  # on its way


STEP_S = 1 / 120
HOUR_S = 3600.0
LEVEL = (1.0, 0.0, 0.0, 0.0)


def sample(t):
    return Imu(t, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))


def told(stamp, seconds=3.0, timeline=None, received=lambda n: True):
    """The pilot's times of an IMU whose n-th sample is stamped stamp(n) and received at n steps, or else not at all."""
    timeline = timeline or Timeline()
    times = []
    for n in range(round(seconds / STEP_S)):
        if received(n):
            times += [message.t for message in timeline.admit(sample(stamp(n)), 500.0 + n * STEP_S)]
    return timeline, times


@pytest.mark.parametrize("off", [0.0, 1.0, HOUR_S, 1e9, -0.5, -HOUR_S])
def test_one_stamp_that_cannot_be_true_is_left_out_and_changes_nothing(off):
    timeline, times = told(lambda n: 7000.0 + n * STEP_S + off * (n == 100))
    assert times == [7000.0 + n * STEP_S for n in range(360) if n != 100 or not off]
    assert timeline.refused == bool(off) and timeline.clock_set == 0


@pytest.mark.parametrize("first", [1, 100])
@pytest.mark.parametrize("by", [1.0, HOUR_S, -1.0, -HOUR_S])
def test_a_clock_that_was_set_is_followed_without_losing_a_sample(by, first):
    timeline, times = told(lambda n: 7000.0 + n * STEP_S + by * (n >= first))
    assert len(times) == 360 and timeline.clock_set == 1
    assert max(np.diff(times)) < 1.01 * STEP_S and min(np.diff(times)) > 0.99 * STEP_S
    assert timeline.to_wire(times[-1]) == pytest.approx(7000.0 + by + 359 * STEP_S)


@pytest.mark.parametrize("gap_s", [0.05, 0.5, 0.9])
def test_a_gap_of_the_telemetry_is_a_gap_of_the_time(gap_s):
    lost = round(gap_s / STEP_S)
    timeline, times = told(lambda n: 7.0 + n * STEP_S, received=lambda n: not 100 <= n < 100 + lost)
    assert len(times) == 360 - lost and max(np.diff(times)) == pytest.approx((lost + 1) * STEP_S)
    assert timeline.clock_set == 0


def test_a_burst_that_comes_again_is_no_new_time():
    """The last 0.3 s are delivered a second time, at once."""
    timeline, times = told(lambda n: 7.0 + n * STEP_S)
    for n in range(324, 360):
        assert timeline.admit(sample(7.0 + n * STEP_S), 503.001) == []
    _, more = told(lambda n: 7.0 + (360 + n) * STEP_S, timeline=timeline)
    assert timeline.clock_set == 0 and more[0] > times[-1]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60))
def test_time_never_goes_back_whatever_is_stamped(stamps):
    timeline, times = Timeline(), []
    for n, stamp in enumerate(stamps):
        times += [message.t for message in timeline.admit(sample(stamp), n * STEP_S)]
    assert (np.diff(times) > 0).all()


def test_other_messages_of_the_clock_follow_it_and_contradictions_are_dropped():
    timeline, times = told(lambda n: 7000.0 + n * STEP_S + HOUR_S * (n >= 100))
    now, wire = times[-1], timeline.to_wire(times[-1])
    passed = timeline.admit(Attitude(wire, LEVEL), 503.0)
    assert [message.t for message in passed] == pytest.approx([now])
    assert timeline.admit(Attitude(wire - HOUR_S, LEVEL), 503.0) == []
    (beat,) = timeline.admit(Heartbeat(0.0, True), 503.0)
    assert beat == Heartbeat(now, True)


@pytest.mark.parametrize("of_the_new_clock", [True, False])
def test_a_race_status_tells_the_same_start_on_either_clock(of_the_new_clock):
    timeline, times = told(lambda n: 7000.0 + n * STEP_S + HOUR_S * (n >= 100))
    t = timeline.to_wire(times[-1]) - (0.0 if of_the_new_clock else HOUR_S)
    (status,) = timeline.admit(RaceStatus(t, t - 2.0, None, 1, None), 503.0)
    assert status.go and status.start == pytest.approx(times[-1] - 2.0) and status.gate == 1

"""The race as the simulator reports it: each field means one thing, however late, sparse or repeated it comes."""

import random
import struct
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.race import STATUS_LAYOUT, RaceReader
from gate_racer.pilot.flight import FlightCounters, Phase
from gate_racer.pilot.records.recorder import Recorder, Scoreboard
from gate_racer.pilot.records.result import RACE_STATUS, LinkReport, Verdict, flight_result, live_verdict

START_S = 12.0
PASSED_S = (1.413, 2.502, 3.101, 3.702, 4.718, 5.552, 6.405)  # s since GO
OWN_S = [t + 0.004 for t in PASSED_S]


@dataclass(frozen=True)
class Sender:
    """A simulator that reports a race at 4 Hz, by the layout of the real builds."""

    count_lag_s: float = 0.0
    gate_time: bool = True
    counts_last: bool = True
    duration: bool = False  # the finish as time since GO instead of on the clock
    finish_lag_s: float = 0.0
    finish: bool = True
    none_ns: int = -1  # sent as the finish before it
    lost: tuple[float, float] = (0.0, 0.0)  # s since GO, statuses that are lost
    repeats: int = 1
    shuffled: bool = False

    def packets(self):
        """Yield the bytes of the statuses, a few of them from after the race."""
        sent = [self._packet(0.25 * k + 0.1) for k in range(34) if not self.lost[0] < 0.25 * k + 0.1 < self.lost[1]]
        sent = [packet for packet in sent for _ in range(self.repeats)]
        if self.shuffled:
            threes = [sent[k : k + 3] for k in range(0, len(sent), 3)]
            sent = [
                packet for k, three in enumerate(threes) for packet in random.Random(3 * k).sample(three, len(three))
            ]
        return sent

    def _packet(self, now_s):
        passed = [t for t in PASSED_S if t <= now_s]
        counted = sum(t <= now_s - self.count_lag_s for t in PASSED_S)
        counted = counted if self.counts_last else min(counted, len(PASSED_S) - 1)
        finished = self.finish and now_s - self.finish_lag_s >= PASSED_S[-1]
        finish_s = PASSED_S[-1] + (0.0 if self.duration else START_S)
        return STATUS_LAYOUT.pack(
            1, round(1e3 * (START_S + now_s)), round(1e3 * START_S), round(1e9 * finish_s) if finished else self.none_ns, counted,
            round(1e9 * passed[-1]) if passed and self.gate_time else -1,
        )  # fmt: skip


def verdict_of(sender, own=tuple(OWN_S), phase=Phase.FINISHED):
    reader, board = RaceReader(), Scoreboard()
    for packet in sender.packets():
        status = reader.read(dialect.MAVLink_encapsulated_data_message(0, packet.ljust(253, b"\0")), 0.0)
        board.receive(status)
    passages = SimpleNamespace(times_s=list(own), margins_m=[0.5] * len(own))
    guidance = SimpleNamespace(course=PASSED_S, passages=passages)
    return live_verdict(SimpleNamespace(go_t=START_S, phase=phase, cause="", guidance=guidance), board)


EACH_BUT_THE_LAST = [1, 2, 3, 4, 5, 6]
CASES = [  # what is sent or lost (s since GO), and the gates of which no time was told
    ("all fields together", Sender(), []),
    ("the count as late as the real builds'", Sender(count_lag_s=0.75), []),
    ("a finish that does not count the last gate", Sender(counts_last=False), []),
    ("the finish as time since GO", Sender(duration=True), []),
    ("the same without the last gate", Sender(duration=True, counts_last=False, count_lag_s=0.6), []),
    ("the finish two seconds after the count", Sender(finish_lag_s=1.5), []),
    ("zero for a finish that is still to come", Sender(none_ns=0), []),
    ("each status three times", Sender(repeats=3, count_lag_s=0.4), []),
    ("statuses overtake each other", Sender(shuffled=True), []),
    ("no gate's time is sent", Sender(gate_time=False, count_lag_s=0.3), EACH_BUT_THE_LAST),
    ("nor is the last gate counted", Sender(gate_time=False, counts_last=False), EACH_BUT_THE_LAST),
    ("all statuses but the last are lost", Sender(lost=(0.0, 8.0)), EACH_BUT_THE_LAST),
    ("all but an uncounted finish", Sender(lost=(0.0, 6.5), gate_time=False, counts_last=False), EACH_BUT_THE_LAST),
    ("those of three gates, without times", Sender(lost=(2.4, 3.8), gate_time=False), EACH_BUT_THE_LAST),
    ("those of one gate", Sender(lost=(2.4, 3.2)), [2]),
    ("those of two gates, counted before the next", Sender(lost=(2.4, 3.7)), [2, 3]),
    ("the last but one's, and the count is late", Sender(lost=(5.4, 6.4), count_lag_s=0.3, counts_last=False), [6]),
    ("those of the first two gates", Sender(lost=(0.0, 3.2)), [1, 2]),
]
OWN = [("own times", OWN_S), ("none", ()), ("those of another race", (9.0,) * 7), ("the next gates'", PASSED_S[1:])]


@pytest.mark.parametrize("own", [own for _, own in OWN], ids=[name for name, _ in OWN])
@pytest.mark.parametrize(("sender", "untold"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_told_times_are_exact_and_others_marked_between_their_neighbours(sender, untold, own):
    verdict = verdict_of(sender, own)
    times = verdict.gate_times_s
    assert (verdict.status, verdict.by, verdict.estimated) == ("finished", RACE_STATUS, untold)
    assert all(before < after for before, after in pairwise([0.0, *times]))
    for k, (mine, true) in enumerate(zip(times, PASSED_S, strict=True), 1):
        own_error_s = 0.005 if own == OWN_S else np.inf
        assert abs(mine - true) < (own_error_s if k in untold else 1e-6)


def test_where_nobody_knows_a_gates_time_it_is_that_of_its_count_at_most_one_period_late():
    times = verdict_of(Sender(gate_time=False), own=()).gate_times_s
    assert all(true - 1e-6 <= mine <= true + 0.26 for mine, true in zip(times, PASSED_S, strict=True))


def drawn(seed):
    """The statuses of a sender as they arrive: some lost, some twice, some up to a second late."""
    rng = random.Random(seed)
    sender = Sender(
        count_lag_s=rng.uniform(0.0, 0.75), counts_last=rng.random() < 0.5, finish_lag_s=rng.uniform(0.0, 1.5)
    )
    share, arrivals = rng.uniform(0.0, 0.7), []
    for k, packet in enumerate(sender.packets()):
        if rng.random() >= share:
            arrivals += [(k + rng.choice((0.0, 4.0 * rng.random())), packet) for _ in range(rng.choice((1, 2)))]
    return [packet for _, packet in sorted(arrivals)]


def test_whatever_is_lost_late_or_repeated_no_gate_has_the_time_of_another():
    wrong = []
    for seed in range(300):
        packets = drawn(seed)
        verdict = verdict_of(SimpleNamespace(packets=lambda packets=packets: packets), own=())
        told = set(range(1, len(verdict.gate_times_s) + 1)) - set(verdict.estimated)
        wrong += [(seed, k) for k in told if abs(verdict.gate_times_s[k - 1] - PASSED_S[k - 1]) > 1e-6]
    assert not wrong


def test_errors_end_at_the_finish(plan, vq1, dcl):
    after_s = np.arange(1, 100) / 50
    t = np.append(plan.t, plan.total_time + after_s)
    away = np.append(np.zeros(len(plan.t)), 10 * after_s)
    x = np.pad(np.vstack([plan.x[:, :13], np.repeat(plan.x[-1:, :13], 99, 0)]), ((0, 0), (0, 1)))
    x[:, :3] += away[:, None]
    recorder = Recorder(SimpleNamespace(path=""))
    recorder.flight.t, recorder.flight.theta = (START_S + t).tolist(), np.minimum(t, plan.total_time).tolist()
    recorder.flight.p = list(x[:, :3] + 0.03 + away[:, None])
    passed = [*plan.gate_times_s, plan.total_time]
    finished = Verdict("finished", "", passed, [0.5] * len(passed), START_S + t, x)
    nothing = SimpleNamespace(retries=[], replans=[])
    guidance = SimpleNamespace(replanned=lambda: None, learned=lambda: None, course=passed, passages=nothing)
    estimator = SimpleNamespace(health=SimpleNamespace(gates_refused=0, nis=1.0), calibration=lambda: None)
    pilot = SimpleNamespace(counters=FlightCounters(), estimator=estimator, guidance=guidance, go_t=START_S, cause="")
    about = {"track": "", "vehicle": "", "plan_hash": "", "seed": 0, "world": None, "settings": {}}
    flown = LinkReport(60.0, 61, 0, {}), vq1, dcl, plan, about
    by_truth = flight_result(pilot, recorder, finished, *flown)
    assert by_truth.tracking_rmse_m < 0.01 and by_truth.estimate_rmse_m == pytest.approx(0.03 * 3**0.5, abs=1e-6)
    by_status = flight_result(pilot, recorder, replace(finished, t=None, x=None), *flown)
    assert 0.01 < by_status.tracking_rmse_m < 0.06 and by_status.estimate_rmse_m is None


@pytest.mark.parametrize("finish_ns", [1, 5 * 10**9, 10**18])
def test_an_impossible_finish_is_a_finish_at_the_last_gates_time(finish_ns):
    sender = Sender()
    packets = [STATUS_LAYOUT.unpack(packet) for packet in sender.packets()]
    forged = [STATUS_LAYOUT.pack(*p[:3], finish_ns if p[3] > 0 else -1, *p[4:]) for p in packets]
    verdict = verdict_of(SimpleNamespace(packets=lambda: forged))
    assert verdict.status == "finished" and verdict.gate_times_s == pytest.approx(PASSED_S, abs=1e-6)


def test_counts_and_times_of_hostile_senders_stay_within_the_course():
    rng = random.Random(0)
    packets = [
        struct.pack("<BQqqIq", 1, rng.getrandbits(16), round(1e3 * START_S), *(rng.choice([-1, rng.getrandbits(33)]),),
                    rng.getrandbits(32), rng.choice([-1, rng.getrandbits(34)]))
        for _ in range(2000)
    ]  # fmt: skip
    verdict = verdict_of(SimpleNamespace(packets=lambda: packets))
    assert len(verdict.gate_times_s) <= len(PASSED_S) and verdict.gate_times_s == sorted(verdict.gate_times_s)

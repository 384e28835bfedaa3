"""The race as the simulator reports it: each field means one thing, however late, sparse or repeated it comes."""

import random
import struct
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.messages import Farewell
from gate_racer.link.race import STATUS_LAYOUT, RaceReader
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.records.recorder import Scoreboard
from gate_racer.pilot.records.result import RACE_STATUS, REFEREE, completed, live_verdict

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
    lost: tuple[float, float] = (0.0, 0.0)  # s since GO, statuses that are lost
    repeats: int = 1
    shuffled: bool = False

    def packets(self):
        """Yield the bytes of the statuses, a few of them from after the race."""
        sent = [self._packet(0.25 * k + 0.1) for k in range(34) if not self.lost[0] < 0.25 * k + 0.1 < self.lost[1]]
        sent = [packet for packet in sent for _ in range(self.repeats)]
        if self.shuffled:
            sent = [
                packet
                for k in range(0, len(sent), 3)
                for packet in random.Random(k).sample(sent[k : k + 3], len(sent[k : k + 3]))
            ]
        return sent

    def _packet(self, now_s):
        passed = [t for t in PASSED_S if t <= now_s]
        counted = sum(t <= now_s - self.count_lag_s for t in PASSED_S)
        counted = counted if self.counts_last else min(counted, len(PASSED_S) - 1)
        finished = self.finish and now_s - self.finish_lag_s >= PASSED_S[-1]
        finish_s = PASSED_S[-1] + (0.0 if self.duration else START_S)
        return STATUS_LAYOUT.pack(
            1, round(1e3 * (START_S + now_s)), round(1e3 * START_S), round(1e9 * finish_s) if finished else -1, counted,
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


EXACT = [
    ("all fields together", Sender()),
    ("the count a quarter of a second late", Sender(count_lag_s=0.25)),
    ("the count as late as the real builds'", Sender(count_lag_s=0.75)),
    ("a finish that does not count the last gate", Sender(counts_last=False)),
    ("a late count, and a finish that does not count the last gate", Sender(count_lag_s=0.5, counts_last=False)),
    ("the finish as time since GO", Sender(duration=True)),
    ("the finish as time since GO, without the last gate", Sender(duration=True, counts_last=False, count_lag_s=0.6)),
    ("the finish two seconds after the count", Sender(finish_lag_s=1.5)),
    ("each status three times", Sender(repeats=3, count_lag_s=0.4)),
]


@pytest.mark.parametrize("sender", [sender for _, sender in EXACT], ids=[name for name, _ in EXACT])
def test_gate_times_are_those_of_the_race_whatever_lags(sender):
    verdict = verdict_of(sender)
    assert (verdict.status, verdict.by, verdict.estimated) == ("finished", RACE_STATUS, [])
    assert verdict.gate_times_s == pytest.approx(PASSED_S, abs=1e-6)


FINISHED = [
    ("no gate's time is sent", Sender(gate_time=False, count_lag_s=0.3)),
    ("no gate's time, and the last gate is not counted", Sender(gate_time=False, counts_last=False)),
    ("the statuses of two gates are lost", Sender(lost=(2.4, 3.6))),
    ("all statuses but the last are lost", Sender(lost=(0.0, 8.0))),
    ("statuses overtake each other", Sender(shuffled=True)),
]


@pytest.mark.parametrize("sender", [sender for _, sender in FINISHED], ids=[name for name, _ in FINISHED])
def test_the_finish_is_its_own_field_and_unreported_gates_are_marked(sender):
    verdict = verdict_of(sender)
    assert verdict.status == "finished" and verdict.gate_times_s[-1] == pytest.approx(PASSED_S[-1], abs=1e-6)
    assert verdict.gate_times_s == pytest.approx(PASSED_S, abs=0.005), "an estimated gate has the pilot's own time"
    for k, (mine, true) in enumerate(zip(verdict.gate_times_s, PASSED_S, strict=True), 1):
        assert (k in verdict.estimated) == (abs(mine - true) > 1e-6)


def test_no_gate_has_the_time_of_another_where_nobody_knows_it():
    verdict = verdict_of(Sender(gate_time=False), own=())
    assert verdict.estimated == [1, 2, 3, 4, 5, 6]
    for mine, true in zip(verdict.gate_times_s, PASSED_S, strict=True):
        assert true - 1e-6 <= mine <= true + 0.26, "at most one period late"


def test_without_a_finish_the_gates_counted_are_no_finish():
    verdict = verdict_of(Sender(finish=False, counts_last=False, gate_time=False))
    assert verdict.status == "missed_gate" and len(verdict.gate_times_s) == 6


@pytest.mark.parametrize("finish_ns", [0, 1, 5 * 10**9, 10**18])
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


@pytest.mark.parametrize(
    ("reported", "own", "latest"),
    [
        ([1.0, None, 3.1], [], [1.1, 3.2, 3.2]),
        ([None, None, 3.0], [], [3.2, 3.2, 3.2]),
        ([1.0, None, None, 4.0], [1.0, 0.5, 9.0, 4.0], [1.1, 4.2, 4.2, 4.2]),
        ([1.0, None], [], [1.1, 2.2]),
    ],
)
def test_a_gate_between_two_lies_between_them(reported, own, latest):
    times, estimated = completed(reported, own, latest)
    assert all(a < b for a, b in pairwise(times)) and estimated == [k for k, t in enumerate(reported, 1) if t is None]


@pytest.mark.parametrize(
    ("reason", "status"), [("finished", "finished"), ("crashed: hit gate 5", "aborted"), ("no message", "aborted")]
)
def test_in_lockstep_the_referees_farewell_is_the_verdict(reason, status):
    """A datagram that was lost after the last gate leaves the pilot one gate short."""
    board = Scoreboard()
    board.farewell = Farewell(START_S + 6.41, reason)
    passages = SimpleNamespace(times_s=OWN_S[:-1], margins_m=[0.5] * 6)
    guidance = SimpleNamespace(course=PASSED_S, passages=passages)
    verdict = live_verdict(SimpleNamespace(go_t=START_S, phase=Phase.ABORTED, cause=reason, guidance=guidance), board)
    assert verdict.status == status
    if status == "finished":
        assert verdict.gate_times_s[-1] == pytest.approx(6.41) and verdict.estimated == [7] and verdict.by == REFEREE

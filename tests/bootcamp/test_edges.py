"""A worker answers each item that it is sent, up to the sentinel or as long as main lives; only known types are made."""

import pickle
from multiprocessing import Pipe
from pathlib import Path

import pytest

from gate_racer.bootcamp.api import Go
from gate_racer.bootcamp.cell import SENTINEL, STARTED, Counts, unpacked, work


def doubled(desk, program, offset):
    for go in desk:
        desk.counters["items"] += 1
        desk.answer(Go(2 * go.north, go.east + offset))


@pytest.mark.parametrize("last", [SENTINEL, b"no pickle", pickle.dumps(print), None])
def test_items_are_answered_up_to_the_sentinel_or_what_is_no_message(last):
    main, theirs = Pipe()
    main.send_bytes(pickle.dumps(Go(1.0, 2.0)))
    main.send_bytes(pickle.dumps(Go(3.0, 4.0)) if last is None else last)
    if last is None:
        main.close()
    work(theirs, Path("mine.py"), doubled, 0.5)
    if last is not None:
        answers = [main.recv_bytes() for _ in range(3)]
        assert answers[0] == STARTED and unpacked(answers[1]) == Go(2.0, 2.5)
        assert unpacked(answers[2]) == Counts({"items": 1}, {})

"""A worker asks main for an item and gets it once, or nothing in time; at the sentinel or without main there are no more."""

import pickle
from multiprocessing import Pipe

import pytest

from gate_racer.bootcamp.api import Go
from gate_racer.bootcamp.stages import ASK, ITEM, NOTHING, SENTINEL, Desk, unpacked


@pytest.fixture
def ends():
    """A worker's desk, and main's end of its pipe."""
    main, theirs = Pipe()
    with main, theirs:
        yield Desk(theirs), main


def test_an_item_is_asked_for_once_however_long_it_takes(ends):
    desk, main = ends
    assert desk.get(0.0) is NOTHING and desk.get(0.01) is NOTHING
    assert main.recv_bytes() == ASK and not main.poll()
    main.send_bytes(ITEM + pickle.dumps(Go(1.0, 2.0)))
    assert desk.get() == Go(1.0, 2.0) and desk.get(0.0) is NOTHING and main.recv_bytes() == ASK


def test_an_item_reaches_the_next_worker_as_it_was_put(ends):
    desk, main = ends
    desk.put(Go(3.0, 4.0))
    main.send_bytes(main.recv_bytes())
    assert desk.get(1.0) == Go(3.0, 4.0)


@pytest.mark.parametrize("last", [SENTINEL, ITEM + b"no pickle", ITEM + pickle.dumps(print)])
def test_nothing_follows_the_sentinel_or_what_is_no_message(ends, last):
    desk, main = ends
    main.send_bytes(last)
    assert desk.get() is None


def test_a_worker_without_main_ends_and_tells_nobody(ends):
    desk, main = ends
    main.close()
    desk.tell("anything")
    assert desk.get() is None
    with pytest.raises(OSError):
        desk.put("anything")


def test_a_message_of_another_type_is_not_made():
    with pytest.raises(pickle.UnpicklingError, match="is no type of a message"):
        unpacked(pickle.dumps(print))

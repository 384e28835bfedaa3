"""A queue of one loses nothing; a mailbox keeps nobody waiting and holds the newest; both end at the sentinel."""

import multiprocessing
import threading

import pytest

from bootcamp.edges import NOTHING, Mailbox, Queue

CONTEXT = multiprocessing.get_context("spawn")
LARGE = bytes(1 << 20)  # more than any pipe holds


@pytest.fixture(params=[Queue, Mailbox])
def edge(request):
    made = request.param(CONTEXT)
    yield made
    made.close()


def test_a_queue_has_room_for_one_and_keeps_order():
    queue = Queue(CONTEXT)
    assert queue.put(0) and not queue.put(1, timeout_s=0.01)
    got = [queue.get(1.0)]
    writer = threading.Thread(target=lambda: [queue.put((n, LARGE)) for n in range(1, 6)])
    writer.start()
    got += [queue.get(5.0)[0] for _ in range(5)]
    writer.join()
    assert got == list(range(6)) and queue.get(0.0) is NOTHING and queue.replaced == 0


def test_a_mailbox_holds_the_newest_and_counts_what_it_replaced():
    mailbox = Mailbox(CONTEXT)
    for n in range(10):  # nobody reads, and nothing waits
        assert mailbox.put((n, LARGE))
    assert mailbox.get(5.0)[0] == 9 and mailbox.replaced == 9
    assert mailbox.get(0.01) is NOTHING
    mailbox.put("late")
    assert mailbox.get(5.0) == "late" and mailbox.replaced == 9


def test_the_last_item_and_then_the_sentinel_arrive(edge):
    edge.put("last")
    got = []
    reader = threading.Thread(target=lambda: got.extend(edge.get(5.0) for _ in range(2)))
    reader.start()
    edge.flush(5.0)
    while not got:
        pass
    edge.end()
    reader.join()
    assert got == ["last", None]


def test_a_message_that_broke_off_ends_the_edge_as_well(edge):
    edge._writer._send((100).to_bytes(4, "big") + b"half")
    edge.end()
    assert edge.get(5.0) is None


def test_what_is_left_behind_is_counted():
    queue = Queue(CONTEXT)
    assert queue.empty() == 0
    queue.put("left behind")
    assert queue.empty() == 1 and queue.put("room again", timeout_s=0.01)

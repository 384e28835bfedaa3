"""A queue of one loses nothing; a mailbox keeps nobody waiting and holds the newest; both end at the sentinel."""

import contextlib
import multiprocessing
import os
import sys
import threading

import pytest

from gate_racer.bootcamp.edges import NOTHING, Mailbox, Queue

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


def test_items_left_in_a_queue_are_counted():
    queue = Queue(CONTEXT)
    assert queue.empty() == 0
    queue.put("left behind")
    assert queue.empty() == 1 and queue.put("room again", timeout_s=0.01)


def _read_some_and_die(edge):
    edge.keep_reader()
    edge._room.release()  # as a mailbox's reader asks
    os.read(edge._reader.fileno(), 1000)
    os._exit(9)


def _write_some_and_die(edge):
    edge.keep_writer()
    edge._writer._send((1 << 20).to_bytes(4, "big") + b"half")
    os._exit(9)


def _fill_and_die(edge):
    edge.keep_writer()
    fd = edge._writer.fileno()
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, (1 << 30).to_bytes(4, "big") * 1024)  # a page of the pipe, to the last byte
    os.set_blocking(fd, True)  # as it is for everybody who has this pipe
    os._exit(9)


def _put(edge, told):
    edge.keep_writer()
    told.send([edge.put((n, LARGE), 1.0) for n in range(3)])
    edge.flush(30.0)
    told.send("flushed")


def ended(work, edge):
    """A process that does this work with the edge has ended."""
    process = CONTEXT.Process(target=work, args=(edge,), daemon=True)
    process.start()
    process.join()


def test_a_reader_that_is_killed_within_an_item_keeps_nobody_waiting(edge):
    line, theirs = CONTEXT.Pipe(duplex=False)
    writer = CONTEXT.Process(target=_put, args=(edge, theirs), daemon=True)
    writer.start()
    ended(_read_some_and_die, edge)
    edge.abandon()
    assert line.poll(60.0) and line.recv() == [True] * 3
    assert line.poll(60.0) and line.recv() == "flushed"
    writer.join()
    edge.end()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are filled otherwise")
def test_a_writer_and_a_reader_that_are_killed_within_an_item_do_not_hold_main(edge):
    ended(_fill_and_die, edge)
    ending = threading.Thread(target=edge.end, daemon=True)
    ending.start()
    ending.join(30.0)
    assert not ending.is_alive()
    assert edge.get(5.0) is None


def test_a_writer_that_is_killed_within_an_item_ends_the_edge_for_its_reader(edge):
    ended(_write_some_and_die, edge)
    edge.end()
    assert edge.get(30.0) is None

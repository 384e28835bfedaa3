"""Whose business Ctrl-C is, wherever it strikes."""

import signal
import threading
import time

import pytest

from vehicle.process import never_swallowed, shielded


def test_an_interrupt_that_a_library_swallows_is_raised_after_it():
    done = []
    with pytest.raises(KeyboardInterrupt), never_swallowed():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            done.append("swallowed")
    assert done == ["swallowed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_another_thread_takes_waits_until_the_children_have_begun():
    """Where the main thread has blocked the signal, the system gives it to any other thread."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    done = []
    try:
        with pytest.raises(KeyboardInterrupt), shielded():
            signal.pthread_kill(thread.ident, signal.SIGINT)
            time.sleep(0.1)  # Python's handlers run in the main thread, between two of its instructions
            done.append("begun")
    finally:
        over.set()
        thread.join()
    assert done == ["begun"]


def test_without_an_interrupt_nothing_is_raised():
    before = signal.getsignal(signal.SIGINT)
    with never_swallowed(), shielded():
        pass
    assert signal.getsignal(signal.SIGINT) is before

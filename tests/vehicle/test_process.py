"""Whose business Ctrl-C is, wherever it strikes, and how much a flight comes before other work."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from gate_racer.common.process import BESIDE, PERIODIC, never_swallowed, real_time, shielded
from gate_racer.mpc.registry import make_controller
from gate_racer.planner.plan import read_plan
from gate_racer.tracks.track import load_track
from tests.processes import may_be_preferred, python


@pytest.fixture(autouse=True)
def received(monkeypatch):
    """A shell may have started us with the signal ignored; and all that other tests have loaded takes long to look through."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def swallowed(seconds):
    """Wait until an interrupt, at most `seconds`."""
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(seconds)


def test_an_interrupt_that_libraries_swallow_strikes_again_until_it_is_heard(monkeypatch):
    monkeypatch.setattr("gate_racer.common.process.AGAIN_S", 0.2)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), never_swallowed():
        threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        swallowed(60.0)
        swallowed(60.0)
        time.sleep(60.0)
    assert time.monotonic() - begin < 30.0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0 and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_interrupt_that_the_caller_ignores_is_none_and_the_caller_s_alarm_goes_on():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a process in the background
    signal.setitimer(signal.ITIMER_REAL, 100.0)
    with never_swallowed():
        signal.raise_signal(signal.SIGINT)
    assert 90.0 < signal.setitimer(signal.ITIMER_REAL, 0.0)[0] <= 100.0


def test_an_interrupt_while_a_controller_is_made_is_not_lost_within_casadi(sprint, dcl):
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    within = []

    def strike(frame, event, _):
        if not within and frame.f_code.co_name == "DM_from_array":  # called by CasADi, which drops what is raised there
            within.append(event)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(strike)
    try:
        with pytest.raises(KeyboardInterrupt):
            make_controller("mpcc", plan, dcl, track, "casadi")
    finally:
        sys.setprofile(None)
    assert within


def test_on_windows_the_timer_is_fine_in_real_time_and_as_before_after_it(monkeypatch):
    asked = []
    timer = SimpleNamespace(timeBeginPeriod=lambda ms: asked.append(ms), timeEndPeriod=lambda ms: asked.append(-ms))
    monkeypatch.setattr("ctypes.WinDLL", {"winmm": timer}.get, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ZeroDivisionError), real_time():
        assert asked == [1]
        1 / 0  # noqa: B018
    assert asked == [1, -1]


def test_an_interrupt_that_another_thread_takes_waits_until_the_children_have_begun():
    """If the main thread has blocked the signal, the system delivers it to any other thread."""
    go, taken = threading.Event(), threading.Event()

    def take():
        go.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # which is delivered before the call returns
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    with pytest.raises(KeyboardInterrupt), shielded():
        go.set()
        assert taken.wait(60.0)
        thread.join()
    assert not thread.is_alive()


BEGUN = """
import multiprocessing, signal
from gate_racer.common.process import shielded

def tell(line):
    line.send(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    line, theirs = context.Pipe(duplex=False)
    process = context.Process(target=tell, args=(theirs,))
    with shielded():
        process.start()
    print(line.recv(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    process.join()
"""


def test_the_first_child_of_a_process_inherits_that_the_interrupt_is_blocked(tmp_path):
    (tmp_path / "begun.py").write_text(BEGUN)
    done = python(tmp_path / "begun.py")
    assert done.stdout.split() == ["True", "False"], done.stderr


# Priority: raised for periodic work, within the usual scheduling class, and during the flight only.


@pytest.mark.skipif(not may_be_preferred(), reason="this user may not prefer a process")
def test_the_loop_goes_first_its_companions_next_and_all_is_as_before_afterwards():
    done, beside = threading.Event(), threading.Thread(target=lambda: done.wait(60))
    beside.start()
    before, policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    with real_time():
        assert os.getpriority(os.PRIO_PROCESS, 0) == PERIODIC
        assert os.getpriority(os.PRIO_PROCESS, beside.native_id) == BESIDE
        assert os.sched_getscheduler(0) == policy  # a real-time class may be stopped for most of a second
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    done.set()
    beside.join()


def test_a_flight_without_permission_to_raise_its_priority_runs(monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    with real_time():
        pass


def test_objects_that_others_keep_out_of_garbage_collection_stay_out_of_it():
    gc.unfreeze()
    with real_time():
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()
    gc.freeze()
    with real_time():
        pass
    assert gc.get_freeze_count()

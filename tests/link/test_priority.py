"""Process priority: raised for periodic work, within the usual scheduling class, and during the flight only."""

import os
import threading

import pytest

from link.priority import BESIDE, PERIODIC, real_time


def may_be_preferred() -> bool:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PERIODIC)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, before)
    return True


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

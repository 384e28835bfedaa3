"""Process priority: raised for periodic work, within the usual scheduling class, and during the flight only."""

import gc
import os
import threading

import pytest

from gate_racer.common.process import BESIDE, PERIODIC, real_time


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


def test_objects_that_others_keep_out_of_garbage_collection_stay_out_of_it():
    gc.unfreeze()
    with real_time():
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()
    gc.freeze()
    with real_time():
        pass
    assert gc.get_freeze_count()

"""Start and behaviour that all commands share: threads, Ctrl-C, priority, stdout and stderr, `--quiet` and `--json`."""

import contextlib
import gc
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.common.command import write_json
from gate_racer.common.launch import INTERRUPTED, ONE_THREAD
from gate_racer.common.process import BESIDE, PERIODIC, never_swallowed, real_time, shielded
from gate_racer.mpc.registry import make_controller
from gate_racer.planner.plan import read_plan
from gate_racer.tracks.track import load_track
from tests.conftest import ROOT
from tests.processes import may_be_preferred, python, run_here

PARSED = """
import argparse

from gate_racer.common.command import add_common

WORK = "probe"

def parser():
    line = argparse.ArgumentParser(prog="probe")
    line.add_argument("what", nargs="?")
    line.add_argument("--out")
    line.add_argument("--set", nargs="+")
    line.add_argument("--config")
    add_common(line, "the result")
    return line
"""
LAUNCH = """
import sys

from gate_racer.common.launch import launch

if __name__ == "__main__":
    sys.exit(launch("probe", "probe"))
"""


def launched(folder, text, *words, stderr=subprocess.PIPE, **environment):
    """A process in which a module of this text was launched as a command, as by an installed script."""
    (folder / "probe.py").write_text(PARSED + text)
    env = {name: value for name, value in os.environ.items() if name not in ONE_THREAD} | environment
    env["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    (folder / "script.py").write_text(LAUNCH)
    (elsewhere := folder / "elsewhere").mkdir()
    (elsewhere / "random.py").write_text("raise ImportError('of whoever runs the command')\n")
    command = [sys.executable, folder / "script.py", *words]
    return subprocess.run(
        command,
        cwd=elsewhere,
        env=env,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


TALK = """
import os, subprocess, sys
from gate_racer.common.command import complain, remark, write_json
from gate_racer.common.errors import UserError

def run(arguments):
    print("a result")
    os.write(1, b"a library\\n")
    subprocess.run(["echo", "a child"])
    remark("a remark")
    print("progress", file=sys.stderr)
    complain("a fault")
    write_json(arguments.json, {"gates": 3})
    if arguments.what == "wrong":
        raise UserError("what: is wrong")
    return 0
"""
FOUND, REMARKS, FAULT = {"a result", "a library", "a child"}, {"a remark", "progress"}, {"a fault"}
WRONG = {"error: what: is wrong"}
STREAMS = {  # arguments: exit code, and whether `--json -` has stdout for itself; what stderr has
    "quiet leaves results and errors": ("wrong --quiet", 2, FAULT | WRONG),
    "how it goes is on stderr": ("right --json result.json", 0, REMARKS | FAULT),
    "a result has stdout for itself": ("right --json -", 0, FOUND | REMARKS | FAULT),
    "even if the command fails after it": ("wrong --json - --quiet", 2, FAULT | WRONG),
}


@pytest.mark.parametrize(("words", "code", "told"), STREAMS.values(), ids=STREAMS)
def test_results_go_to_stdout_and_all_else_to_stderr(tmp_path, words, code, told):
    done, itself = launched(tmp_path, TALK, *words.split()), "--json -" in words
    said = set(done.stderr.splitlines()) - (FOUND if "--quiet" in words else set())
    assert done.returncode == code and said == told
    assert json.loads(done.stdout) == {"gates": 3} if itself else set(done.stdout.splitlines()) == FOUND
    if "result.json" in words:
        assert json.loads((tmp_path / "elsewhere/result.json").read_text()) == {"gates": 3}


@pytest.mark.parametrize(
    "named", [("a",), ("b", "--out", "a"), ("b", "--set", "x=1", "y=a"), ("b", "--config", "c.yaml")]
)
def test_a_result_takes_the_place_of_nothing_that_the_command_line_names(tmp_path, named, monkeypatch):
    (tmp_path / "probe.py").write_text(PARSED + TALK)
    (tmp_path / "c.yaml").write_text("detector: {network: ./a}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "probe", raising=False)
    done = run_here("probe", *named, "--json", "a", "--quiet", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "a").exists()
    assert done.stderr.startswith("error: a: would overwrite ")


@dataclass
class Passage:
    margins_m: tuple[float, ...]
    p_w: np.ndarray


def test_a_result_is_json_that_any_reader_takes(tmp_path):
    passage = Passage((0.5, float("inf")), np.array([1.0, np.nan]))
    write_json(tmp_path / "result.json", {"log": tmp_path, "passages": [passage], "seen": {np.int64(4)}})
    read = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
    expected = {"margins_m": [0.5, None], "p_w": [1.0, None]}
    assert read == {"log": str(tmp_path), "passages": [expected], "seen": [4]}


NAMED = """
from gate_racer.common.command import remark

def run(arguments):
    print("gate \\x1b[31mred\\x07 \\xe9 \\u2713")
    remark("of \\x1b]0;a title\\x9c")
"""


@pytest.mark.parametrize(("encoding", "letters"), [("utf-8", "\xe9 \u2713"), ("ascii", r"\xe9 \u2713")])
def test_names_from_files_steer_no_terminal_and_are_printed_in_any_encoding(tmp_path, encoding, letters):
    done = launched(tmp_path, NAMED, PYTHONIOENCODING=encoding, LANG="C")
    assert done.stdout == rf"gate \x1b[31mred\x07 {letters}" + "\n"
    assert done.stderr == r"of \x1b]0;a title\x9c" + "\n" and done.returncode == 0


# Start: NumPy with one thread unless configured otherwise; Ctrl-C is effective at any time.


PROBE = """
import numpy
from threadpoolctl import threadpool_info

def run(arguments):
    print(max(pool["num_threads"] for pool in threadpool_info()))
"""
DROPPING = """
import time

class Dropping:
    def __del__(self):
        raise {}

def run(arguments):
    Dropping()
    time.sleep({})
"""
HALF_MADE = """
import os, signal

class Handle:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10**6):
            pass
        self.pointer = 1
    def __del__(self):
        del self.pointer

def run(arguments):
    Handle()
"""
SILENT = """
import time
from gate_racer.common import launch

launch.SILENT_S, launch.LOOK_S = 0.2, 0.05

def run(arguments):
    time.sleep(0.6)
    print("done")
"""
BEGINNING = """
import multiprocessing

def run(arguments):
    process = multiprocessing.get_context("spawn").Process(target=print, args=("begun",))
    process.start()
    process.join()
"""


@pytest.mark.parametrize(("given", "threads"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)])
def test_linear_algebra_has_one_thread_unless_the_user_wants_more(tmp_path, given, threads):
    assert int(launched(tmp_path, PROBE, **given).stdout) == min(threads, os.cpu_count() or 1)


def test_processes_load_nothing_of_the_folder_where_a_command_runs(tmp_path):
    done = launched(tmp_path, BEGINNING)
    assert (done.returncode, done.stdout) == (0, "begun\n"), done.stderr


DROPPED = {  # exit code, what stderr has
    "an interrupt that Python drops": (DROPPING.format("KeyboardInterrupt", 50.0), INTERRUPTED, "interrupted\n"),
    "any other error that it drops": (DROPPING.format("ValueError", 0.0), 0, "ValueError"),
    # As while Numba compiles: the finalizer of what is half made fails, of which Python would tell at length.
    "an interrupt within a constructor": (HALF_MADE, INTERRUPTED, "interrupted\n"),
}


@pytest.mark.parametrize(("text", "code", "says"), DROPPED.values(), ids=DROPPED)
def test_an_interrupt_ends_in_one_word_and_an_error_is_told(tmp_path, text, code, says):
    done = launched(tmp_path, text)
    assert done.returncode == code and says in done.stderr
    assert code == 0 or "Traceback" not in done.stderr


@pytest.mark.parametrize("piped", [False, True])
def test_a_silent_command_shows_in_a_terminal_that_it_is_alive_and_nothing_in_a_pipe(tmp_path, piped):
    ours, theirs = os.pipe() if piped else pty.openpty()
    done = launched(tmp_path, SILENT, stderr=theirs)
    os.close(theirs)
    told = os.read(ours, 1000).decode()
    os.close(ours)
    assert done.stdout == "done\n"
    assert told == "" if piped else re.fullmatch(r"probe: running for \d+ s \.*\r?\n?", told)


# Whose business Ctrl-C is, wherever it strikes, and how much a flight comes before other work.


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

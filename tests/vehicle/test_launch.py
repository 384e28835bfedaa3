"""Start of a command: NumPy with one thread unless configured otherwise; Ctrl-C is effective at any time."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from gate_racer.common.launch import INTERRUPTED, ONE_THREAD
from tests.conftest import ROOT

PROBE = """
import numpy
from threadpoolctl import threadpool_info

def main():
    print(max(pool["num_threads"] for pool in threadpool_info()))
"""
DROPPING = """
import time

class Dropping:
    def __del__(self):
        raise {}

def main():
    Dropping()
    time.sleep({})
"""
LAUNCH = """
import sys

from gate_racer.common.launch import launch

if __name__ == "__main__":
    sys.exit(launch("probe", "probe"))
"""
BEGINNING = """
import multiprocessing

def main():
    process = multiprocessing.get_context("{}").Process(target=print, args=("begun",))
    process.start()
    process.join()
"""


def launched(folder, text, **environment):
    """A process in which a module of this text was launched as a command, as by an installed script."""
    (folder / "probe.py").write_text(text)
    env = {name: value for name, value in os.environ.items() if name not in ONE_THREAD} | environment
    env["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    (folder / "script.py").write_text(LAUNCH)
    (elsewhere := folder / "elsewhere").mkdir()
    (elsewhere / "random.py").write_text("raise ImportError('of whoever runs the command')\n")
    return subprocess.run(
        [sys.executable, folder / "script.py"],
        cwd=elsewhere,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("given", "threads"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)])
def test_linear_algebra_has_one_thread_unless_the_user_wants_more(tmp_path, given, threads):
    assert int(launched(tmp_path, PROBE, **given).stdout) == min(threads, os.cpu_count() or 1)


@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(multiprocessing.get_all_start_methods())))
def test_processes_load_nothing_of_the_folder_where_a_command_runs(tmp_path, method):
    done = launched(tmp_path, BEGINNING.format(method))
    assert (done.returncode, done.stdout) == (0, "begun\n"), done.stderr


def test_an_interrupt_that_python_drops_strikes_again_and_is_not_told(tmp_path):
    done = launched(tmp_path, DROPPING.format("KeyboardInterrupt", 50.0))
    assert done.returncode == INTERRUPTED and done.stderr.endswith("interrupted\n") and "Traceback" not in done.stderr


def test_any_other_error_that_python_drops_is_told(tmp_path):
    done = launched(tmp_path, DROPPING.format("ValueError", 0.0))
    assert done.returncode == 0 and "ValueError" in done.stderr

"""How a command begins: NumPy with one thread, unless the user wants more."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from vehicle.launch import ONE_THREAD

PROBE = """
import numpy
from threadpoolctl import threadpool_info

def main():
    print(max(pool["num_threads"] for pool in threadpool_info()))
"""


@pytest.mark.parametrize(("given", "threads"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)])
def test_linear_algebra_has_one_thread_unless_the_user_wants_more(tmp_path, given, threads):
    (tmp_path / "probe.py").write_text(PROBE)
    env = {name: value for name, value in os.environ.items() if name not in ONE_THREAD} | given
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    code = "from vehicle.launch import launch; launch('probe', 'probe')"
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(told.stdout) == min(threads, os.cpu_count() or 1)

"""Compiled functions work without a folder for their machine code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNWRITABLE = "/proc/none"  # also for root
SMALL = "def f(x):\n    return 2 * x\n"  # from no file, so that Numba has no folder for it

CASES = {
    "at its first call": "from gate_racer.common.compiled import compiled as c; c()",
    "for a signature": "from gate_racer.common.compiled import compiled as c; c('f8(f8)')",
    "of the simulator": "from gate_racer.sim.physics.jit import njit as c; c",
}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that nobody can write to")
@pytest.mark.parametrize("case", CASES)
def test_without_cache(case):
    found, compiler = CASES[case].split("; ")
    code = f"{found}\n{SMALL}print({compiler}(f)(1.5))"
    environment = os.environ | {"XDG_CACHE_HOME": UNWRITABLE, "HOME": UNWRITABLE}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.0\n", "")

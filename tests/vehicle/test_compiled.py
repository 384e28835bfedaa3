"""Functions are compiled when they are needed, before a race at the latest, and also without a folder for their machine code."""

from tests.processes import BELOW_A_FILE, python

SMALL = "def f(x):\n    return 2 * x\n"  # from no file, so that Numba has no folder for it

EACH_WAY = f"""
from gate_racer.common.compiled import compiled
from gate_racer.sim.physics.jit import njit
for compiler in compiled(), compiled("f8(f8)"), njit:
    exec({SMALL!r})
    print(compiler(f)(1.5))
"""


def test_without_cache_it_is_compiled_each_time_and_said():
    """At its first call, for a signature, and what the simulator compiles."""
    done = python("-c", EACH_WAY, XDG_CACHE_HOME=BELOW_A_FILE, HOME=BELOW_A_FILE)
    assert (done.returncode, done.stdout) == (0, 3 * "3.0\n"), done.stderr
    assert done.stderr == 3 * "compiling __main__ (no cache can be written)\n"


CALLED = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from doubled import double
print(double(1.5))
"""
DOUBLED = """
from gate_racer.common.compiled import compiled, inlined

@inlined
def two(x):
    return x + x

@compiled()
def twice(x):
    return two(x)

@compiled("f8(f8)")
def double(x):
    return twice(x)
"""


def test_with_a_cache_it_is_compiled_once_and_said(tmp_path):
    (tmp_path / "doubled.py").write_text(DOUBLED)
    told = [python("-c", CALLED.format(folder=str(tmp_path))) for _ in range(2)]
    assert [one.stdout for one in told] == ["3.0\n"] * 2
    assert [one.stderr for one in told] == ["compiling doubled (once)\n", ""]


STARTS = """
import sys

import gate_racer
from gate_racer.commands import COMMANDS
from gate_racer.common.command import main

SLOW = {"numba", "scipy", "matplotlib", "plotly"}
LARGE = {"acados_template", "casadi", "cv2", "email", "filelock", "jax", "lz4", "mcap", "moderngl", "onnx", "torch"}
LARGE |= {"multiprocessing", "platformdirs", "pymavlink", "pyulog", "rosbags", "ruamel", "zstandard"}

def started(module, *words, without=SLOW):
    sys.argv[:] = words
    try:
        main(module)
    except SystemExit as end:
        assert end.code in (0, 1, None), words
    if loaded := without & set(sys.modules):
        sys.exit(f"{words} loads {loaded}")

for name, module in {"gate-racer": "gate_racer.about", **COMMANDS}.items():
    started(module, name, "--help", without=SLOW | LARGE)
started("gate_racer.about", "gate-racer", "list")
started("gate_racer.about", "gate-racer", "doctor")
"""


def test_no_start_loads_what_compiles_or_draws():
    """In one process: what none of them loads is not there after the last. Help needs names only, not what they name."""
    done = python("-c", STARTS)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_compiled_after_go(hop_plans):
    """One flight after the other: what the second needs too has been needed by the first."""
    done = python("-m", "tests.race_compiled", hop_plans, "eskf,rendered", "drift-swift,projected")
    told = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [(status, grown) for status, _, grown in told] == [("finished", "{}")] * 2, done.stderr
    assert all(int(at_go) > 10 for _, at_go, _ in told)

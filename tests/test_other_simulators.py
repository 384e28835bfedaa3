"""The examples that fly `Racer` in other people's simulators; skipped where one is missing."""

import importlib.util
import subprocess
import sys

import pytest

from tests.conftest import ROOT

EXAMPLES = {"crazyflow": "crazyflow_race.py", "rotorpy": "rotorpy_race.py", "PyFlyt": "pyflyt_race.py"}


@pytest.mark.parametrize("package", EXAMPLES)
def test_the_example_finishes_its_race(package, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed, see docs/parts.md: no race in it is flown")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / EXAMPLES[package]],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    end, _, times = done.stdout.splitlines()[-1].partition(" ")
    assert end == "finished" and times.count(",") == 5

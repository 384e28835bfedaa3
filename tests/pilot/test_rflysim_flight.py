"""Errors in the --vision option give one clear line; `test_px4_flight.py` flies with RflySim's cameras."""

import pytest

from tests.processes import run_here

WRONG = [
    ("gate_racer.race.cli", ["--vision", "rflysim://h?config=examples/rflysim.json"], "needs --live"),
    ("gate_racer.race.cli", ["--live", "--vision", "rflysim://127.0.0.1"], "expected something like rflysim://"),
    (
        "gate_racer.race.cli",
        ["--live", "--vision", "rflysim://127.0.0.1?config=docs/none.json"],
        "docs/none.json: cannot be read",
    ),
    ("gate_racer.race.race_sim", ["--vision-protocol", "airsim"], "expected something like rflysim://"),
    ("gate_racer.race.race_sim", ["--vision-protocol", "rflysim", "--video", "127.0.0.1:5600"], "--video"),
]


@pytest.mark.parametrize(("module", "arguments", "words"), WRONG, ids=[f"{m} {' '.join(a)}" for m, a, _ in WRONG])
def test_bad_input_is_one_clear_line_and_exit_code_2(module, arguments, words):
    done = run_here(module, *arguments)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr

"""Vehicle parameters estimated in flight are in its result and log."""

import json
from pathlib import Path

import pytest

from link.record_reader import read_records
from tests.processes import run_here

WORLD = """name: late
source: a vehicle that answers later and more slowly than its file says
world:
  plant: {command_delay_s: 0.02, rate_lag_scale: 1.3, thrust_scale: 0.95}
factors: []
"""


def test_delay_lags_and_thrust_are_told_as_the_world_has_them(sprint, tmp_path):
    (tmp_path / "late.yaml").write_text(WORLD)
    done = run_here(
        "pilot.cli", sprint / "sprint.csv", "--lockstep", "--camera", "projected", "--world", tmp_path / "late.yaml",
        "--log", tmp_path, "--json", tmp_path / "result.json", "--profile", "dcl",
    )  # fmt: skip
    assert done.returncode == 0 and "vehicle in flight" in done.stdout, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    learned = result["learned"]
    assert learned["delay_s"] == pytest.approx(0.06, abs=0.006)
    assert learned["rate_lag_scale"] == pytest.approx(1.3, abs=0.15)
    assert learned["thrust_scale"] == pytest.approx(0.95, abs=0.03)
    (logged,) = (record for topic, record in read_records(Path(result["log"])) if topic == "/learned")
    assert {name: logged[name] for name in learned} == learned

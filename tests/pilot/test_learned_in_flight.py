"""Vehicle parameters estimated in flight are in its result and log."""

from pathlib import Path

import pytest

from gate_racer.link.record import read_records
from tests.processes import few_images, raced

WORLD = """name: {name}
source: a vehicle that answers later and more slowly than its file says, or as it says
world:
  plant: {{command_delay_s: {delay_s}, rate_lag_scale: {lag}, thrust_scale: {thrust}}}
factors: []
"""


def learned_in(sprint, folder, **world) -> dict:
    """Fly in a world, and return what was learned of the vehicle, after a comparison with the log."""
    (folder / "world.yaml").write_text(WORLD.format(**world))
    few = few_images("dcl", folder)
    result = raced(folder, sprint / "sprint.csv", "--world", folder / "world.yaml", "--profile", few)
    assert "vehicle in flight" in result["printed"]
    (logged,) = (record for topic, record in read_records(Path(result["log"])) if topic == "/learned")
    assert {name: logged[name] for name in result["learned"]} == result["learned"]
    return result["learned"]


def test_delay_lags_and_thrust_are_told_as_the_world_has_them(sprint, tmp_path, undrawn):
    """The simulator's ticks add 5 ms, so that delay and lag are compared with those of a flight as believed."""
    believed = learned_in(sprint, tmp_path, name="believed", delay_s=0.0, lag=1.0, thrust=1.0)
    late = learned_in(sprint, tmp_path, name="late", delay_s=0.02, lag=1.3, thrust=0.95)
    assert believed["delay_s"] == pytest.approx(0.04, abs=0.006)
    assert late["delay_s"] - believed["delay_s"] == pytest.approx(0.02, abs=0.002)
    assert late["rate_lag_scale"] / believed["rate_lag_scale"] == pytest.approx(1.3, abs=0.06)
    assert late["thrust_scale"] == pytest.approx(0.95, abs=0.03)

"""Command line of the bootcamp: user errors give one line; the display shows what was reported."""

import pytest

from gate_racer.bootcamp.cli import ArenaSettings, parser
from gate_racer.bootcamp.run import run
from gate_racer.bootcamp.scenario import FILE, load_world
from gate_racer.common.errors import UserError
from tests.conftest import ROOT

WAYPOINT = str(ROOT / "examples/waypoint.py")
WRONG = [
    ([], "give exactly one of a program, --replay and --set generate"),
    (["nowhere.py"], "nowhere.py: no such program; `gate-racer examples` writes some to examples/"),
    ([WAYPOINT, "--seed", "-1"], "seed -1: must not be negative"),
    ([WAYPOINT, "--set", "scenario=moon"], "no scenario 'moon'; known: detector, figure8, waypoint, pads, hear"),
    ([WAYPOINT, "--seed", "1", "--set", f"logs={WAYPOINT}/logs"], "cannot be created"),
    ([WAYPOINT, "--set", "world.camera=huge"], "camera huge: expected WIDTHxHEIGHT in px, such as 1200x900"),
    ([WAYPOINT, "--set", "world.step_s=0"], "world: step_s: 0.0 must lie between 0.00833333 and 1"),
    ([WAYPOINT, "--browser", "1:2:3"], "address '1:2:3': expected HOST:PORT such as 127.0.0.1:8766"),
    ([WAYPOINT, "--set", "world.map=nowhere"], "map nowhere: is not a folder"),
    ([WAYPOINT, "--set", f"world.map={ROOT / 'docs'}"], "docs/boundary.png: cannot be read"),
    ([WAYPOINT, "--grade", "2", "--set", f"world.map={ROOT / 'docs'}"], "docs/boundary.png: cannot be read"),
    ([WAYPOINT, "--set", "world.file=nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ([WAYPOINT, "--set", "race=true"], "race: the scenario waypoint has no gates"),
    (["grade"], "give a folder of programs"),
    (["grade", str(ROOT / "docs")], "holds no programs"),
    (["--replay", "nowhere.log"], "nowhere.log: cannot be read"),
    (["--set", "generate=7"], "generate=7: expected seed=N or seed=N,gates=N, e.g. seed=7"),
    (["--set", "generate=seed=7,gates=0"], "at least one gate"),
]


@pytest.mark.parametrize(("arguments", "line"), WRONG)
def test_one_line_says_what_is_wrong(arguments, line):
    with pytest.raises(UserError) as error:
        run(parser().parse_args(arguments))
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_course_is_generated_into_a_file(tmp_path, capsys):
    assert run(parser().parse_args(["--set", "generate=seed=7", f"logs={tmp_path}"])) == 0
    path = tmp_path / "generated-7.yaml"
    assert capsys.readouterr().out == f"seed 7: 6 gates, {path}\n" and path.exists()


def test_settings_change_the_world(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(FILE.read_text() + "conditions: {wind_m_s: 3.0}\n")
    world = ArenaSettings(mine, step_s=0.05, drone="kinematic", camera="1200x900", map=tmp_path).arena()
    assert (world.step_s, world.drone, world.map, world.conditions.wind_m_s) == (0.05, "kinematic", str(tmp_path), 3.0)
    assert world.camera.fx_px / world.height_m == 60  # px/m, as the document has it
    assert world.view_m == load_world().view_m and (world.camera.width_px, world.camera.height_px) == (1200, 900)
    for old, new in (("speed_m_s: 5.0", "speed_m_s: 6.0"), ("step_s: 0.1", "step_s: 1e-9")):
        mine.write_text(FILE.read_text().replace(old, new))
        with pytest.raises(UserError, match=rf"mine.yaml: {new.partition(':')[0]}: .* must lie between"):
            ArenaSettings(mine).arena()

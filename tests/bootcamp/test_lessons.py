"""Eight lessons: every skeleton is refused with the hint of its first blank, every solution does its scenario."""

import re
from dataclasses import fields, replace

import pytest

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import KINEMATIC, SIMULATED, load_world, make_scenario
from gate_racer.bootcamp.stages import Player, fly_alone
from gate_racer.common.errors import UserError
from tests.conftest import ROOT

DOCS = ROOT / "docs/bootcamp"
NAMES = sorted(path.stem for path in (ROOT / "examples/solutions").glob("*.py"))
OF_LOGIC = ("2_go", "6_lost", "7_route")  # flown without inertia, to save time
OF_NO_SIGHT = ("1_hear", "5_wind")  # flown low and near, for the same reason: a third of the way, in the same wind
LOW = {"height_m": 12.0, "boundary_m": 24.0}


def world_of(name, **changes):
    low = LOW if name in OF_NO_SIGHT else {}
    return replace(load_world(), drone=KINEMATIC if name in OF_LOGIC else SIMULATED, **low, **changes)


def test_there_are_eight():
    assert [name[0] for name in NAMES] == list("12345678")
    for folder in ("examples/lessons/*.py", "docs/bootcamp/[1-8]*.md", "docs/bootcamp/[1-8]*.png"):
        assert sorted(path.stem for path in ROOT.glob(folder)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_skeleton_is_refused_with_the_hint_of_its_blank_and_lacks_its_blanks_alone(name):
    path = ROOT / f"examples/lessons/{name}.py"
    with pytest.raises(UserError) as refused:
        load_program(path)
    line, hint = re.fullmatch(r".*.py:(\d+): a blank \(...\) is left to fill in: (.+)", str(refused.value)).groups()
    shown = path.read_text().splitlines()[int(line) - 1]
    assert "..." in shown and shown.endswith(f"# {hint}")
    skeleton, solution = ((ROOT / f"examples/{kind}/{name}.py").read_text() for kind in ("lessons", "solutions"))
    kept = {line for line in skeleton.splitlines()[1:] if "..." not in line}
    assert kept <= set(solution.splitlines())


@pytest.mark.parametrize("seeds", [[0], pytest.param(range(1, 8), marks=pytest.mark.soak)], ids=["one", "many"])
@pytest.mark.parametrize("name", NAMES)
def test_a_solution_does_its_scenario_whatever_the_seed(name, seeds):
    path, world = ROOT / f"examples/solutions/{name}.py", world_of(name)
    task = load_program(path).scenario
    scenarios = {seed: make_scenario(task, seed, world) for seed in seeds}
    flights = {seed: fly_alone(Player(path, scenario), scenario) for seed, scenario in scenarios.items()}
    assert {seed: str(flight.verdict) for seed, flight in flights.items() if not flight.verdict.done} == {}
    assert {seed: flight.warning for seed, flight in flights.items() if flight.verdict.score.warnings} == {}


def test_the_reference_names_every_field_of_a_report():
    text = (DOCS / "reference.md").read_text()
    assert [field.name for field in fields(Report) if f"`{field.name}`" not in text] == []

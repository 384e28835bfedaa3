"""The rooms of the house: nothing imports upward, wherever in a file an import stands."""

import ast

import pytest

from tests.conftest import ROOT

# From the ground up.
ROOMS = (
    "vehicle", "tracks", "planner", "mpc", "link", "perception", "estimation", "sim", "pilot", "field", "bootcamp",
    "benchmarks", "tools", "examples",
)  # fmt: skip


def imported(path):
    """The modules that a file names, inside of functions as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide their room"
            yield node.module


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_imports_upward(room):
    above = ROOMS[ROOMS.index(room) + 1 :]
    files = list((ROOT / room).rglob("*.py"))
    assert files
    found = [(path.name, module) for path in files for module in imported(path) if module.split(".")[0] in above]
    assert found == []


@pytest.mark.parametrize("room", ROOMS[: ROOMS.index("sim")])
def test_what_the_pilot_is_made_of_knows_no_simulator(room):
    files = (ROOT / room).rglob("*.py")
    assert not [path for path in files for module in imported(path) if module.split(".")[0] == "sim"]

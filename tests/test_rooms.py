"""The rooms of the house: nothing imports upward, wherever in a file an import stands."""

import ast
import tomllib

import pytest

from tests.conftest import ROOT

# From the ground up.
ROOMS = (
    "vehicle", "tracks", "planner", "mpc", "link", "perception", "estimation", "sim", "pilot", "field", "bootcamp",
    "benchmarks", "tools", "examples",
)  # fmt: skip


def imported(path):
    """The modules that a file names, inside of functions as well."""
    return modules(path, ast.walk(ast.parse(path.read_text())))


def modules(path, nodes):
    for node in nodes:
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


@pytest.mark.parametrize("room", [*ROOMS[: ROOMS.index("benchmarks")], "benchmarks/campaign"])
def test_no_command_waits_for_scipy_until_it_computes(room):
    """It is a third of all that `run-mpc` would load."""
    files = (ROOT / room).rglob("*.py")
    found = [(path.name, one) for path in files for one in modules(path, ast.parse(path.read_text()).body)]
    assert found and not [name for name, one in found if one.split(".")[0] == "scipy"]


READ = (".c", ".npz", ".onnx", ".yaml", ".html", ".js", ".css")  # by the code beside it


def test_every_room_and_what_it_reads_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    data = {package: set(patterns) for package, patterns in project["package-data"].items()}
    for room in {package.split(".")[0] for package in project["packages"]}:
        for init in (ROOT / room).rglob("__init__.py"):
            package = ".".join(init.parent.relative_to(ROOT).parts)
            assert package in project["packages"]
            beside = [path for path in init.parent.iterdir() if path.suffix in READ]
            left = [path for path in beside if not any(path.match(pattern) for pattern in data.get(package, ()))]
            assert not left

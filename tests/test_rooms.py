"""The rooms of the house: nothing imports upward, wherever in a file an import stands."""

import ast
import re
import tomllib
from functools import cache

import pytest

from gate_racer import HOMES
from gate_racer.commands import ABOUT, COMMANDS
from gate_racer.vehicle.rooms import module_name
from tests.conftest import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
INSTALLED = sorted({package.split(".")[0] for package in SETUPTOOLS["packages"]})

# From the ground up.
ROOMS = (
    "vehicle", "tracks", "planner", "mpc", "link", "perception", "estimation", "sim", "pilot", "field", "bootcamp",
    "benchmarks", "tools", "examples",
)  # fmt: skip


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path):
    return list(ast.walk(parsed(path)))


def imported(path):
    """The modules that a file names, inside of functions as well."""
    return modules(path, nodes_of(path))


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


def test_no_room_imports_what_is_made_of_rooms():
    files = [path for room in ROOMS[: ROOMS.index("tools")] for path in (ROOT / room).rglob("*.py")]
    assert not [path for path in files if any(name.startswith("gate_racer") for name in imported(path))]


@pytest.mark.parametrize("room", ROOMS[: ROOMS.index("sim")])
def test_the_pilots_rooms_do_not_import_the_simulator(room):
    files = (ROOT / room).rglob("*.py")
    assert not [path for path in files for module in imported(path) if module.split(".")[0] == "sim"]


@pytest.mark.parametrize("room", [*ROOMS[: ROOMS.index("benchmarks")], "benchmarks/campaign"])
def test_no_command_waits_for_scipy_until_it_computes(room):
    """It is a third of all that `run-mpc` would load."""
    files = (ROOT / room).rglob("*.py")
    found = [(path.name, one) for path in files for one in modules(path, parsed(path).body)]
    assert found and not [name for name, one in found if one.split(".")[0] == "scipy"]


@pytest.mark.parametrize("room", INSTALLED)
def test_no_import_binds_the_name_of_a_room(room):
    """`import planner.plan` binds `planner`, a name that does not exist once the room is `gate_racer.planner`."""
    for path in (ROOT / room).rglob("*.py"):
        imports = [node for node in nodes_of(path) if isinstance(node, ast.Import)]
        bound = {alias.name.split(".")[0] for node in imports for alias in node.names if alias.asname is None}
        assert not bound & {*ROOMS}, path


def test_modules_loaded_by_name_exist_in_every_layout():
    """Names of modules are strings only as arguments of `vehicle.rooms`, and in the tables of `gate_racer`."""
    named = {*map(module_name, HOMES.values()), *COMMANDS.values(), ABOUT}
    for path in (path for room in INSTALLED for path in (ROOT / room).rglob("*.py")):
        nodes = nodes_of(path)
        calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        taken = [node.args[0] for node in calls if node.func.id in ("module_name", "command_line")]
        left = {text(node) for node in nodes if node not in taken and is_module(text(node))}
        assert path.is_relative_to(ROOT / "gate_racer") or not left, path
        named |= {text(node) for node in taken}
    assert [name for name in named if name and not is_module(name)] == []


def text(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_module(name):
    """Return whether it is the whole name of a module."""
    return re.fullmatch(r"\w+(\.\w+)+", name) and ROOT.joinpath(*name.split(".")).with_suffix(".py").is_file()


READ = (".c", ".npz", ".onnx", ".yaml", ".html", ".js", ".css")  # by the code beside it


def test_every_room_and_what_it_reads_is_installed():
    data = {package: set(patterns) for package, patterns in SETUPTOOLS["package-data"].items()}
    for room in INSTALLED:
        for init in (ROOT / room).rglob("__init__.py"):
            package = ".".join(init.parent.relative_to(ROOT).parts)
            assert package in SETUPTOOLS["packages"]
            beside = [path for path in init.parent.iterdir() if path.suffix in READ]
            left = [path for path in beside if not any(path.match(pattern) for pattern in data.get(package, ()))]
            assert not left

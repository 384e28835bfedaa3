"""The rooms of the house: one import name, and nothing imports upward, wherever in a file an import stands."""

import re
import tomllib
from functools import cache

import pytest

from gate_racer import HOMES
from gate_racer.commands import ABOUT, COMMANDS
from tests.conftest import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = SETUPTOOLS["package-dir"]  # by package, such as gate_racer.planner

# From the ground up; `tools` is not installed.
ROOMS = (
    "common", "vehicle", "tracks", "link", "model", "planner", "mpc", "perception", "estimation", "sim", "pilot", "field",
    "race", "bootcamp", "benchmarks", "tools", "examples",
)  # fmt: skip


IMPORT = re.compile(r"^( *)(?:from (\S+) import |import ([\w.]+))", re.M)
NAMED = re.compile(r"""(["'])(gate_racer(?:\.\w+)+)\1""")


@cache
def text_of(path):
    return path.read_text(encoding="utf-8")


@cache
def imported(path, within=True):
    """The modules that a file names, inside of functions as well."""
    found = [(indent, module or name) for indent, module, name in IMPORT.findall(text_of(path))]
    assert not [module for _, module in found if module.startswith(".")], f"{path}: relative imports hide their room"
    return tuple(module for indent, module in found if within or not indent)


def room_of(module):
    """Return the room of a module by its name, `planner` of `gate_racer.planner.plan`; else the module's first name."""
    top, _, rest = module.partition(".")
    return rest.split(".")[0] if top == "gate_racer" else top


def files(*rooms):
    return [path for room in rooms for path in (ROOT / room).rglob("*.py")]


@pytest.mark.parametrize("room", [*ROOMS, "tests", "gate_racer"])
def test_rooms_are_imported_by_one_name(room):
    bare = {*ROOMS} - {"tools"}
    assert not [path for path in files(room) for module in imported(path) if module.split(".")[0] in bare]


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_imports_upward(room):
    """Nor what is made of rooms, such as `gate_racer.about`, by a room that is installed."""
    above = {*ROOMS[ROOMS.index(room) + 1 :]}
    found = [(path.name, name) for path in files(room) for name in imported(path)]
    made_of_rooms = {name for _, name in found if "gate_racer" in name and room_of(name) not in ROOMS}
    assert found and not [one for one in found if room_of(one[1]) in above]
    assert room in ("tools", "examples") or not made_of_rooms


APART = {  # rooms that know nothing of each other, though one stands above
    "sim": {"common", "vehicle", "tracks", "link", "sim"},
    "pilot": {*ROOMS} - {"sim"},
}


@pytest.mark.parametrize("room", APART)
def test_simulator_and_pilot_import_nothing_of_each_other(room):
    assert {room_of(name) for path in files(room) for name in imported(path)} & {*ROOMS} <= APART[room]


@pytest.mark.parametrize("room", ROOMS[: ROOMS.index("benchmarks")])
def test_no_command_waits_for_scipy_until_it_computes(room):
    """It is a third of all that `run-mpc` would load."""
    found = [(path.name, one) for path in files(room) for one in imported(path, within=False)]
    assert found and not [name for name, one in found if room_of(one) == "scipy"]


def test_modules_loaded_by_name_exist():
    named = {*HOMES.values(), *COMMANDS.values(), ABOUT}
    for path in files(*FOLDERS.values()):
        named |= {name for _, name in NAMED.findall(text_of(path))}
    assert [name for name in named if not is_module(name)] == []


def is_module(name):
    """Return whether it is the whole name of a module of the project."""
    within = name.removeprefix("gate_racer.").split(".")
    return any(ROOT.joinpath(*way).with_suffix(".py").is_file() for way in (within, ["gate_racer", *within]))


READ = (".c", ".npz", ".onnx", ".yaml", ".html", ".js", ".css")  # by the code beside it


def test_every_room_and_what_it_reads_is_installed():
    (patterns,) = SETUPTOOLS["package-data"].values()
    for package, folder in FOLDERS.items():
        assert package == f"gate_racer.{folder}"
        for init in (ROOT / folder).rglob("__init__.py"):
            assert ".".join(["gate_racer", *init.parent.relative_to(ROOT).parts]) in SETUPTOOLS["packages"]
            beside = [path for path in init.parent.iterdir() if path.suffix in READ]
            assert not [path for path in beside if not any(path.match(pattern) for pattern in patterns)]

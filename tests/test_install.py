"""The wheel: one top-level package, and commands that work beside foreign modules with the names of rooms."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from gate_racer import HOMES
from gate_racer.commands import COMMANDS
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = set(PROJECT["tool"]["setuptools"]["package-dir"].values())
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
LONGEST_S = 300.0  # a hang


def build(what: str, sources: Path, out: Path) -> Path:
    """Build a distribution by the hook `what`, `build_sdist` or `build_wheel`, and return its path."""
    command = [sys.executable, "-c", BUILD, what, str(out)]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> tuple[Path, Path]:
    """Return the wheel of the tree, with a file left by an older build, and the wheel of its source distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    tree, unpacked = folder / "tree", folder / "unpacked"
    for room in (*ROOMS, "gate_racer"):
        shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / file, tree)
    (tree / "build/lib/gate_racer").mkdir(parents=True)
    (tree / "build/lib/gate_racer/left.py").touch()
    wheel = build("build_wheel", tree, folder)
    sources = build("build_sdist", tree, folder)
    subprocess.run([sys.executable, "-m", "tarfile", "-e", str(sources), str(unpacked)], check=True)
    (folder / "again").mkdir()
    return wheel, build("build_wheel", next(unpacked.iterdir()), folder / "again")


@pytest.fixture(scope="module")
def site(wheels, tmp_path_factory) -> Path:
    """Return the folder of an installed wheel, with a space in its path."""
    folder = tmp_path_factory.mktemp("of a user") / "site"
    how = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *how, str(wheels[0])], timeout=LONGEST_S, check=True)
    return folder


@pytest.fixture
def run(site, tmp_path):
    """Return a function that runs a command with foreign modules of all rooms' names first on the path, and with a foreign
    `gate_racer` in the working directory."""
    for room in ROOMS:
        (tmp_path / "foreign" / room).mkdir(parents=True)
        (tmp_path / "foreign" / room / "__init__.py").write_text(f"raise ImportError('foreign {room}')\n")
    (tmp_path / "gate_racer.py").write_text("raise ImportError('foreign gate_racer')\n")
    path, notebook = os.pathsep.join([str(tmp_path / "foreign"), str(site)]), "module://a_notebook.elsewhere"
    env = os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1", "MPLBACKEND": notebook}

    def run(*words: object) -> str:
        done = subprocess.run(
            list(map(str, words)), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_one_name_lies_at_the_top(wheels):
    files = content(wheels[0])
    about = wheels[0].name.removesuffix("-py3-none-any.whl") + ".dist-info"
    assert {name.split("/")[0] for name in files} == {"gate_racer", about}
    (told,) = (text for name, text in files.items() if name.endswith("/top_level.txt"))
    assert told.split() == [b"gate_racer"]
    assert {name.split("/")[1] for name in files if name.count("/") > 1 and "dist-info" not in name} == ROOMS


def test_a_wheel_of_the_sources_is_the_wheel_of_the_tree(wheels):
    assert content(wheels[0]) == content(wheels[1])


def test_the_version_is_the_newest_of_the_changelog():
    titles = [line.split()[1] for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert next(title for title in titles if title != "Unreleased") == PROJECT["project"]["version"]


def test_the_page_of_machines_tells_the_cost_of_every_extra():
    page = (ROOT / "docs/machines.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| .* \| ([\d.]+) \|$", page, re.M))
    assert told.keys() == PROJECT["project"]["optional-dependencies"].keys()


def test_modules_are_the_sources(wheels):
    for name, built in content(wheels[0]).items():
        if name.endswith(".py"):
            source = ROOT / name if (ROOT / name).exists() else ROOT / name.removeprefix("gate_racer/")
            assert built == source.read_bytes(), name


LOAD = """
from importlib import import_module
from importlib.metadata import entry_points
from gate_racer.commands import COMMANDS

scripts = [entry for entry in entry_points(group="console_scripts") if entry.module.startswith("gate_racer")]
print(*sorted(entry.name for entry in scripts if callable(entry.load())))
for name, module in COMMANDS.items():
    assert import_module(module).parser().prog == name and callable(import_module(import_module(module).WORK).run)
"""


def test_every_command_is_installed_and_loads(site, run):
    scripts = {path.name for path in (site / "bin").iterdir()}
    assert scripts == {"gate-racer", *COMMANDS} == set(run(sys.executable, "-P", "-c", LOAD).split())
    assert run(site / "bin/gate-racer", "--version") == f"gate-racer {PROJECT['project']['version']}\n"


def test_public_names_and_rooms_are_found_within(site, run):
    code = (
        "import gate_racer.sim; from gate_racer import Plan, load_track; print(load_track('vq1').file, Plan.__module__)"
    )
    track, module = run(sys.executable, "-P", "-c", code).rsplit(maxsplit=1)
    assert Path(track) == site / "gate_racer/tracks/vq1.yaml" and module == HOMES["Plan"]


def test_a_new_user_flies_reports_and_learns_in_an_empty_folder(site, run, hop, tmp_path):
    """Fly with CasADi and without Numba, whose compiled code would serve this folder only."""
    shutil.copy(hop, tmp_path)
    course, own = hop.name, ("--set", "controller.solver=casadi", "--log", "logs/flight.mcap")
    run(site / "bin/plan-track", course, "--set", "guesses=1")
    assert "1 of 1" in run(site / "bin/run-mpc", course, "--lockstep", "--camera", "projected", *own)
    run(site / "bin/fly-report", "logs/flight.mcap", "--out", "flight.html")
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {"flight.mcap", "flight.png"}
    assert run(site / "bin/gate-racer", "examples").endswith("files written to examples/ and docs/\n")
    pages = {path.name for path in (tmp_path / "docs").rglob("*.*")}
    assert {"reference.md", "1_hear.png", "settings.md", "rflysim.md"} <= pages
    assert "done: landed" in run(
        site / "bin/bootcamp", "examples/waypoint.py", "--seed", "7", "--set", "world.drone=kinematic"
    )
    assert "--gates" in run(sys.executable, "-P", "examples/unknown_simulator.py", "--help")


START = """
import subprocess
from gate_racer.common.process import command_line

subprocess.run(command_line("from gate_racer.commands import plan_track; plan_track()", "--help"), check=True)
"""


def test_a_process_finds_what_the_one_that_starts_it_has_found(run):
    assert "plan-track" in run(sys.executable, "-P", "-c", START)

"""What the README says is so: commands parse, paths exist, snippets run."""

import re
import shlex
import subprocess
import sys

import pytest

import benchmarks.campaign.cli
import bootcamp.cli
import field.fly_report
import field.identify.cli
import field.mapping.cli
import field.probe.cli
import field.run_mpc
import pilot.detect_gates
import pilot.replay
import planner.cli
import sim.cli
from link.profile import load_profile
from link.rflysim.config import load_sensors
from link.rflysim.vision import parse_vision
from sim.view.look import load_look
from tests.conftest import ROOT
from tracks.track import load_track
from vehicle.vehicle import load_vehicle

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
MADE = re.findall(r"--out (\S+)", README)  # by an earlier command
MADE_NAMES = [re.sub(r".*/|\.yaml$", "", made) for made in MADE]
PARSERS = {
    "plan-track": planner.cli.parser,
    "run-mpc": field.run_mpc.parser,
    "race-sim": sim.cli.parser,
    "replay-flight": pilot.replay.parser,
    "race-bench": benchmarks.campaign.cli.parser,
    "bootcamp": bootcamp.cli.parser,
    "fly-report": field.fly_report.parser,
    "detect-gates": pilot.detect_gates.parser,
    "probe-link": field.probe.cli.parser,
    "identify-vehicle": field.identify.cli.parser,
    "map-track": field.mapping.cli.parser,
}


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line):
    program, *arguments = shlex.split(line)
    if program == "python":
        assert (ROOT / arguments[0]).exists()
        shown = subprocess.run(
            [sys.executable, arguments[0], "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert all(flag in shown.stdout for flag in arguments if flag.startswith("--"))
    else:
        PARSERS[program]().parse_args(arguments)
    assert all((ROOT / a).exists() or a in MADE for a in arguments if a.endswith(".yaml"))


READERS = {  # of what an option or argument names
    "profile": load_profile,
    "vehicle": load_vehicle,
    "track": load_track,
    "what": load_track,
    "look": load_look,
    "vision": parse_vision,
    "config": load_sensors,
}


def named(line):
    """What a command names: pairs of reader and name, of the options above, but for what an earlier command made."""
    program, *arguments = shlex.split(line)
    if program in PARSERS:
        given = vars(PARSERS[program]().parse_args(arguments))
    else:
        given = {"config": next((a for a in arguments if a.endswith(".json") and a.startswith("docs/")), "")}
    listed = [(kind, name) for kind, names in given.items() for name in (names if isinstance(names, list) else [names])]
    singular = [(kind.removesuffix("s"), name) for kind, name in listed]
    return [
        (kind, name)
        for kind, name in singular
        if kind in READERS and name not in (None, "", "auto", *MADE, *MADE_NAMES)
    ]


@pytest.mark.parametrize("line", [line for line in COMMANDS if named(line)])
def test_what_commands_name_can_be_loaded(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    for kind, name in named(line):
        if not (kind in ("what", "track") and not str(name).endswith(".yaml")):
            READERS[kind](name)


@pytest.mark.parametrize("snippet", re.findall(r"```python\n(.*?)```", README, re.S))
def test_snippets_run(snippet):
    subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, check=True)


def test_rooms_and_files_exist():
    for room, begin in re.findall(r"^\| `(\w+)/` \|.*\| (.+) \|$", README, re.M):
        for name in re.findall(r"`([\w./]+)`", begin):
            assert (ROOT / room / name).exists()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)$", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)


def test_no_room_imports_one_below_it():
    rooms = re.findall(r"^\| `(\w+)/` \|", README, re.M)
    for place, room in enumerate(rooms):
        allowed = {"vehicle", "tracks", "link"} if room == "sim" else set(rooms[:place])
        for file in (ROOT / room).rglob("*.py"):
            imported = set(re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.M)) & set(rooms) - {room}
            assert imported <= allowed, f"{file}: {imported - allowed}"


def test_only_the_drivers_with_a_simulator_and_who_starts_them_know_it():
    for file in (ROOT / "pilot").glob("*.py"):
        if re.search(r"^from sim", file.read_text(), re.M):
            assert file.stem in ("lockstep", "embedded", "session", "cli")

"""README and docs are correct: commands parse, paths and links exist, snippets run."""

import re
import shlex
import subprocess
import sys

import pytest

import benchmarks.campaign.cli
import bootcamp.cli
import field.identify.cli
import field.mapping.cli
import field.preflight.cli
import field.probe.cli
import field.report.cli
import field.run_mpc
import gate_racer.about
import pilot.detect_gates
import pilot.replay
import planner.cli
import sim.cli
from link.msp.profile import load_wire
from link.rflysim.config import load_sensors
from link.rflysim.vision import parse_vision
from sim.view.look import load_look
from tests.conftest import ROOT
from tracks.track import load_track
from vehicle.vehicle import load_vehicle

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
COMMANDS = sorted({line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()})
MADE = re.findall(r"--out (\S+)", TEXT)  # by an earlier command
MADE_NAMES = [re.sub(r".*/|\.yaml$", "", made) for made in MADE]
PARSERS = {
    "plan-track": planner.cli.parser,
    "run-mpc": field.run_mpc.parser,
    "race-sim": sim.cli.parser,
    "replay-flight": pilot.replay.parser,
    "race-bench": benchmarks.campaign.cli.parser,
    "bootcamp": bootcamp.cli.parser,
    "fly-report": field.report.cli.parser,
    "detect-gates": pilot.detect_gates.parser,
    "probe-link": field.probe.cli.parser,
    "preflight": field.preflight.cli.parser,
    "identify-vehicle": field.identify.cli.parser,
    "map-track": field.mapping.cli.parser,
    "gate-racer": gate_racer.about.parser,
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
    "profile": load_wire,
    "vehicle": load_vehicle,
    "track": load_track,
    "what": load_track,
    "look": load_look,
    "vision": parse_vision,
    "config": load_sensors,
}


def named(line):
    """Return the names in a command as pairs of reader and name, by the options above, except files made by earlier commands."""
    program, *arguments = shlex.split(line)
    if program in PARSERS:
        given = vars(PARSERS[program]().parse_args(arguments))
    else:
        given = {"config": next((a for a in arguments if a.endswith(".json") and a.startswith("docs/")), "")}
    if program != "run-mpc":
        given.pop("what", None)
    listed = [(kind, name) for kind, names in given.items() for name in (names if isinstance(names, list) else [names])]
    singular = [(kind.removesuffix("s"), name) for kind, name in listed]
    return [
        (kind, name)
        for kind, name in singular
        if kind in READERS and name not in (None, "", "auto", *MADE, *MADE_NAMES)
    ]


@pytest.mark.parametrize("line", [line for line in COMMANDS if named(line)])
def test_names_in_commands_can_be_loaded(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    for kind, name in named(line):
        if not str(name).endswith((".mcap", ".csv")):
            READERS[kind](name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "bootcamp" not in page.parts or page.name == "reference.md"]
)
def test_a_page_is_named_by_the_readme_or_a_page_that_it_names(page):
    assert page.name in TEXT.replace(page.read_text(encoding="utf-8"), "") or page.name == "README.md"


def snippets():
    """Whole programs; a lesson's are in pieces, and run as its files."""
    whole = (page for page in PAGES if not re.match(r"\d", page.name))
    return [
        code for page in whole for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    ]


@pytest.mark.parametrize("snippet", snippets())
def test_snippets_run(snippet, monkeypatch):
    monkeypatch.chdir(ROOT)
    exec(compile(snippet, "snippet", "exec"), {"__name__": "__main__"})


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
    knowing = {
        file.stem
        for file in (ROOT / "pilot").rglob("*.py")
        if re.search(r"^\s*(from|import) sim\b", file.read_text(), re.M)
    }
    assert knowing == {"cli", "session", "lockstep", "lockstep_perception", "embedded", "betaflight", "heat"}

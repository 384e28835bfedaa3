"""README and docs are correct: commands parse, paths and links exist, snippets run."""

import configparser
import re
import runpy
import shlex
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from gate_racer import commands
from gate_racer.about import NOTHING
from gate_racer.common.settings import settings_of
from gate_racer.link.msp.profile import load_wire
from gate_racer.link.rflysim.client import parse_vision
from gate_racer.link.rflysim.request import load_sensors
from gate_racer.race.settings import RunSettings
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT
from tests.test_rooms import ROOMS
from tools.pages import described

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def blocks_of(page):
    """Return the lines of all commands of a page, in order."""
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        for line in block.splitlines()
    ]


COMMANDS = sorted({line for page in PAGES for line in blocks_of(page)})
MADE = re.findall(r"(?:--out |own_profile=)(\S+)", TEXT)  # by an earlier command
MADE_NAMES = [re.sub(r".*/|\.yaml$", "", made) for made in MADE]
MODULES = {**commands.COMMANDS, "gate-racer": commands.ABOUT, "gate-racer board": commands.COMMANDS["race-bench"]}
PARSERS = {name: import_module(module).parser for name, module in MODULES.items()}


def words_of(line):
    """Return the program and the words behind its name, among them that of its sub-command."""
    program, *words = shlex.split(line)
    whole = f"{program} {words[0]}" if words else program
    return (whole if whole in PARSERS else program), *words


SETTINGS = {name: type(defaults) for name, (defaults, _) in described().items()}


def test_the_unit_of_systemd_is_understood():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(re.search(r"```ini\n(.*?)```", (ROOT / "docs/machines.md").read_text(encoding="utf-8"), re.S)[1])
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    given = settings_of(PARSERS[program.rpartition("/")[2]]().parse_args(words), RunSettings)
    given.link.require_kind(load_wire(given.link.profile))


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line, monkeypatch, capsys):
    program, *arguments = words_of(line)
    if program == "python":
        assert (ROOT / arguments[0]).exists()
        monkeypatch.setattr(sys, "argv", [arguments[0], "--help"])
        with pytest.raises(SystemExit, match="0"):
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        shown = capsys.readouterr().out
        assert all(flag in shown for flag in arguments if flag.startswith("--"))
    else:
        given = PARSERS[program]().parse_args(arguments)
        if program in SETTINGS:
            settings_of(given, SETTINGS[program])


FILE = re.compile(r"(?:\S*=)?((?:[\w*]+/)*[\w*.-]+\.(?:yaml|csv|mcap|json|npz|py|ulg|txt|log|elf)|(?:logs|data)/\S+)")
OUTPUTS = ("--out", "--log", "--json", "--report")
OWN = {  # files of the reader, which the page calls so
    "racing.md": {"passphrase.txt"},
    "logs.md": {"logs/flight.ulg", "logs/other.ulg", "data/autonomous/flight-01a-ellipse"},
    "betaflight.md": {"betaflight_SITL.elf"},
    "real_data.md": {"camchain-front.yaml", "mine.yaml", "gates.onnx"},
}


def inputs_and_outputs(line):
    """Return the files that a command names, read and written."""
    words = shlex.split(line)
    found = [(FILE.fullmatch(word), before) for before, word in zip(words, words[1:], strict=False)]
    named = [
        (match[1], before in OUTPUTS or match[0].startswith(("record", "own_profile")))
        for match, before in found
        if match
    ]
    return {file for file, out in named if not out}, {file for file, out in named if out}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_their_order_need_no_file_that_an_empty_folder_lacks(page):
    """Whoever has a wheel only reads a page from top to bottom: files are made by commands above, or are the reader's own."""
    text, there = page.read_text(encoding="utf-8"), set(OWN.get(page.name, ()))
    examples = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.*")}
    if re.match(r"\d_", page.name):
        there |= examples  # a lesson follows the page that copies them
    for line in blocks_of(page):
        if re.match(r"python (tools|benchmarks)/|python -m", line):
            assert "checkout" in text, line
            continue
        needed, made = inputs_and_outputs(line)
        assert needed <= there, f"{line}: {needed - there}"
        there |= made | (examples if line == "gate-racer examples" else set())
        if line.startswith("plan-track "):
            there.add(f"plans/{line.split()[1]}.csv")
        if line.startswith("bootcamp examples/pads.py"):
            there.add("logs/pads-*-seed2.log")


READERS = {  # of what an option or argument names
    "profile": load_wire,
    "vehicle": load_vehicle,
    "track": load_track,
    "what": load_track,
    "style": load_style,
    "vision": parse_vision,
    "config": load_sensors,
}


def named(line):
    """Return the names in a command as pairs of reader and name, by the options above, except files made by earlier commands."""
    program, *arguments = words_of(line)
    if program in SETTINGS:
        typed = PARSERS[program]().parse_args(arguments)
        chosen = [(name, value) for _, name, value in typed.given] + [text.split("=", 1) for text in typed.set]
        given = {name.rpartition(".")[2]: value.split() if name == "vehicles" else value for name, value in chosen}
    elif program in PARSERS:
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
        if not str(name).endswith((".mcap", ".csv", NOTHING)):
            READERS[kind](name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`((?:examples|bootcamp|docs)/[\w./]+)`", text) if "bootcamp" in page.parts else ():
        assert (ROOT / path).exists(), path


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
def test_snippets_run(snippet, plan, monkeypatch):
    """A racer that plans gets the plan that other tests have made."""
    monkeypatch.setattr("gate_racer.pilot.racer.make_plan", lambda *_, **__: (plan, SimpleNamespace(ok=True)))
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


def test_the_rooms_are_listed_from_the_ground_up():
    assert re.findall(r"^\| `(\w+)/` \|", README, re.M) == [*ROOMS]

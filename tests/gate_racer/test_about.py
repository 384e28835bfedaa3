"""`gate-racer`: names what there is, runs every command, and says what a machine lacks and what mends it."""

import contextlib
import os
import socket
import subprocess
from importlib import import_module
from types import SimpleNamespace

import pytest

import gate_racer.doctor
from gate_racer import about, answers
from gate_racer.about import SHELLS
from gate_racer.answers import completion
from gate_racer.commands import ABOUT, COMMANDS
from gate_racer.common.config import names
from gate_racer.common.errors import UserError
from gate_racer.doctor import examine
from gate_racer.link.profile import load_profile
from gate_racer.mpc.problem import load_settings
from gate_racer.mpc.registry import controller_content
from gate_racer.mpc.solvers.acados import AcadosMissingError
from gate_racer.sim.view.style import load_style
from gate_racer.sim.worlds.distribution import load_worlds
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import FOLDER, load_vehicle
from tests.conftest import ROOT
from tests.processes import BELOW_A_FILE, run_here


def test_it_lists_what_can_be_named():
    told = run_here(ABOUT, "list")
    assert told.returncode == 0
    for name in ("vq1", "dcl", "spec", "unknown", "race", "mpcc"):
        assert name in told.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_page_is_plain_text(name):
    """argparse formats a help text with `%`: a bare percent sign in one prints the option's internals."""
    page = import_module(COMMANDS[name]).parser().format_help()
    assert f"usage: {name}" in page and "option_strings" not in page and page.isascii()
    assert "--quiet" in page and "--json FILE" in page, "which all have"


MISSPELT = [
    (load_track, "vq11", "vq1"),
    (load_vehicle, "Dlc", "dcl"),
    (load_profile, "speck", "spec"),
    (load_worlds, "unknow", "unknown"),
    (load_style, "raec", "race"),
    (controller_content, "mppc", "mpcc"),
    (controller_content, "split_swift", "splits_swift"),
    (load_settings, "track", "tracking"),
]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--lockstp"], "error: unrecognized arguments: --lockstp; did you mean --lockstep? (run-mpc --help)\n"),
        (["vq1", "vq2"], "error: unrecognized arguments: vq2 (run-mpc --help)\n"),
        (["--seed", "one"], "error: --seed one: world.seed: expected a whole number, found 'one'\n"),
    ],
)
def test_an_option_that_is_wrong_is_one_clear_line(words, line):
    told = run_here(COMMANDS["run-mpc"], *words)
    assert told.returncode == 2 and told.stderr == line


@pytest.mark.parametrize(("load", "name", "near"), MISSPELT)
def test_names_have_no_case_and_an_unknown_one_is_answered_by_the_nearest(load, name, near):
    assert load(near.upper()) == load(near)
    with pytest.raises(UserError, match=rf"^no [\w ]+ '{name}'; did you mean {near}\? known: .*{near}.*, or [\w ]+$"):
        load(name)


OPTIONS = {"run-mpc": "--lockstep", "plan-track": "--reserve", "race-bench": "--settings", "fly-report": "--out"}
ASK_BASH = r"""
eval "$(cat)"
COMP_WORDS=(run-mpc --vehicle ""); COMP_CWORD=2; COMP_LINE="run-mpc --vehicle "; COMP_POINT=${#COMP_LINE}
$(complete -p run-mpc | sed 's/.*-F \([^ ]*\).*/\1/') run-mpc "" --vehicle
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_options_and_names(shell):
    script = completion(shell, {name: COMMANDS[name] for name in OPTIONS})
    assert all(name in script for name in OPTIONS) and "splits_swift" in script
    for option in OPTIONS.values():
        assert option in script or f"-l {option[2:]}" in script
    if shell == "bash":
        told = subprocess.run(["bash", "-c", ASK_BASH], input=script, capture_output=True, text=True, check=True)
        assert set(told.stdout.split()) == set(names(FOLDER)), "of vehicles"


def test_examples_are_copied_once_and_kept_as_edited(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for told in ("written to examples/ and docs/\n", "0 files written to examples/ and docs/, "):
        assert answers.run(about.parser().parse_args(["examples"])) == 0 and told in capsys.readouterr().out
        (tmp_path / "examples/waypoint.py").write_text("mine")
    here, source = tmp_path / "examples", ROOT / "examples"
    files = [
        path.relative_to(source)
        for kind in ("*.py", "*.json", "ros/*/*.*", "ros/*/msg/*")
        for path in source.rglob(kind)
    ]
    assert sorted(path.relative_to(here) for path in here.rglob("*.*")) == sorted(files)
    assert (here / "waypoint.py").read_text() == "mine"
    assert (here / "lessons/1_hear.py").read_text() == (source / "lessons/1_hear.py").read_text()


def test_a_missing_part_is_reported_with_its_remedy(tmp_path, monkeypatch):
    def missing(*_):
        raise AcadosMissingError("acados is missing")

    monkeypatch.setattr(gate_racer.doctor, "AcadosSolver", missing)
    monkeypatch.setattr(gate_racer.doctor, "find_compiler", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr("time.get_clock_info", lambda _: SimpleNamespace(resolution=0.015625))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        port = load_profile("dcl").mavlink_port
        with contextlib.suppress(OSError):  # another program has it: as good
            other.bind(("127.0.0.1", port))
        monkeypatch.setattr(os, "access", lambda *_: False)
        found = {finding.what: finding for finding in examine(tmp_path)}
    words = {
        "acados": "--set controller.solver=casadi",
        "C compiler": "install gcc",
        "processor cores": "--lockstep",
        "clock": "Python 3.13",
        f"UDP {port} (MAVLink)": "link.listen",
    }
    for what, mends in words.items():
        assert not found[what].good and mends in found[what].detail and not found[what].needed
    folder = found["this folder"]
    assert found["Python"].good and folder.needed and not folder.good


def test_a_machine_where_nothing_can_be_kept_is_examined_to_the_end(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, BELOW_A_FILE)
    told = run_here(ABOUT, "doctor")
    assert "without cache of compiled code: " in told.stdout and "without acados: " in told.stdout
    assert told.returncode == 0 and "set XDG_CACHE_HOME to another folder" in told.stdout

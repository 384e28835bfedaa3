"""`gate-racer` names what there is and what a machine lacks; options of all commands are few, their settings checked."""

import argparse
import contextlib
import json
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
from gate_racer.common.command import plain
from gate_racer.common.config import names
from gate_racer.common.errors import UserError
from gate_racer.common.settings import add_settings, settings_of
from gate_racer.doctor import examine
from gate_racer.link.profile import load_profile
from gate_racer.mpc.problem import load_settings
from gate_racer.mpc.registry import controller_content
from gate_racer.mpc.solvers.acados import AcadosMissingError
from gate_racer.planner.task import PlanOptions
from gate_racer.race import run_mpc
from gate_racer.race.campaign.choice import BenchSettings
from gate_racer.race.settings import RACE, RunSettings
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
        (["vq1", "seed=3"], "error: unrecognized arguments: seed=3; did you mean --seed? (run-mpc --help)\n"),
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


# Options of all commands, which are few, and the settings behind them, which are checked and documented.


MOST, MOST_OF_ALL = {"run-mpc": 16, "train-policy": 6}, 110


def all_options(parser):
    """Return the options of a parser and its sub-commands, except --help and former ones."""
    found = set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= set().union(*map(all_options, action.choices.values()))
        elif action.option_strings and action.dest != "help" and action.help != argparse.SUPPRESS:
            found.add(action.dest)
    return found


def test_options_do_not_grow_in_number():
    modules = {**COMMANDS, "gate-racer": ABOUT}
    counts = {name: len(all_options(import_module(module).parser())) for name, module in modules.items()}
    assert all(counts[name] <= most for name, most in MOST.items()) and sum(counts.values()) <= MOST_OF_ALL, counts


def settings_by(*typed, cls=RunSettings, options=RACE):
    parser = argparse.ArgumentParser()
    add_settings(parser, cls(), options)
    return settings_of(parser.parse_args(typed), cls)


def test_options_take_precedence_over_set_and_set_over_the_file(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("guidance: {retry: false}\nlink: {check: false, timeout_s: 5}\n")
    found = settings_by("--config", str(file), "--set", "guidance.retry=true", "link.timeout_s=7")
    assert found.guidance.retry and not found.link.check and found.link.timeout_s == 7.0
    assert settings_by("--seed", "7", "--set", "world.seed=8").world.seed == 7
    assert settings_by() == RunSettings()


@pytest.mark.parametrize("text", ["archer cpc", "[archer, cpc]"])
def test_a_list_is_typed_as_words_or_as_in_a_file(text):
    assert settings_by("--set", f"vehicles={text}", cls=BenchSettings, options={}).vehicles == ("archer", "cpc")


def test_numbers_of_a_list_of_names_are_names():
    assert settings_by("--set", "settings=[1, 2]", cls=BenchSettings, options={}).settings == ("1", "2")


def test_keys_that_need_each_other_are_typed_in_any_order():
    found = settings_by(
        "--set", "start.velocity_m_s=[9, 0, 0]", "start.position_m=[5, 0, -2]", cls=PlanOptions, options={}
    )
    assert found.start.position_m == (5.0, 0.0, -2.0) and found.start.velocity_m_s == (9.0, 0.0, 0.0)
    with pytest.raises(UserError, match=r"^--set start.velocity_m_s=\[9, 0, 0\]: start.position_m: missing$"):
        settings_by("--set", "start.velocity_m_s=[9, 0, 0]", cls=PlanOptions, options={})


@pytest.mark.parametrize(
    "text, said",
    [
        ("guidance.retri=false", "--set guidance.retri=false: guidance: unknown field 'retri'; did you mean retry?"),
        ("guidance.retry=1", "guidance.retry: expected true or false"),
        ("controller.solver=ipopt", "--set controller.solver=ipopt: must be one of auto, acados, casadi"),
        ("record.limit_mb=0", "--set record.limit_mb=0: must be positive"),
        ("guidance.retry", "expected KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(text, said):
    with pytest.raises(UserError) as refused:
        settings_by("--set", text)
    assert said in str(refused.value)


def test_a_misspelt_key_of_a_file_is_refused_with_its_place(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("link: {chek: false}\n")
    with pytest.raises(UserError, match=r"run\.yaml: link: unknown field 'chek'; did you mean check"):
        settings_by("--config", str(file))


def test_consent_is_typed_and_never_in_a_file(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("link: {i_have_read: docs/safety.md}\n")
    with pytest.raises(UserError, match=r"run\.yaml: link\.i_have_read: must be typed, by --set"):
        settings_by("--config", str(file))
    assert settings_by("--set", "link.i_have_read=docs/safety.md").link.i_have_read == "docs/safety.md"


def test_settings_are_recorded_in_the_form_of_a_file(tmp_path):
    given = settings_by("--vehicle", "swift", "--log", str(tmp_path), "--set", "link.timeout_s=5")
    (tmp_path / "run.yaml").write_text(json.dumps(plain(given)))
    assert settings_by("--config", str(tmp_path / "run.yaml")) == given


UNLISTED = {
    "run-mpc --timeout 5": "--timeout: is no option; use --set link.timeout_s=VALUE",
    "detect-gates --track vq1 a.jpg": "--track: is no option; use --set track=VALUE",
    "race-bench board --beside x": "--beside: is no option; use --set beside=VALUE",
    "race-bench vq1 --seeds none": "--seeds none: seeds: expected a whole number, found 'none'",
    "plan-track vq1 --ris .1": "unrecognized arguments: --ris .1; did you mean --set risk=VALUE? (plan-track --help)",
    "run-mpc --pose": "--pose: is no option; use --set perception.pose=VALUE",
    "race-sim --file unknown": "--file: is no option; use --set shot.file=VALUE or --set world.file=VALUE",
}


@pytest.mark.parametrize("line", UNLISTED)
def test_a_key_spelled_as_an_option_is_answered_by_what_sets_it(line):
    name, *words = line.split()
    done = run_here(COMMANDS[name], *words)
    assert done.returncode == 2 and done.stderr == f"error: {UNLISTED[line]}\n"


def test_a_course_by_place_is_not_dropped_for_one_by_option():
    done = run_here(COMMANDS["race-bench"], "vq2", "--tracks", "vq1")
    assert (
        done.returncode == 2 and "invalid choice: 'vq2'" in done.stderr and "if it is a course: --tracks" in done.stderr
    )


@pytest.mark.parametrize(
    "line", ["plan-track --track", "plan-track --tracks", "run-mpc --tracks", "race-sim", "race-bench"]
)
def test_a_course_is_understood_as_any_command_spells_it(line):
    name, *words = line.split()
    done = run_here(COMMANDS[name], *words, "vq9")
    assert done.returncode == 2 and done.stderr.startswith("error: no track 'vq9'; did you mean vq")


def test_a_campaign_of_nothing_is_not_flown_but_explained(tmp_path):
    done = run_here(COMMANDS["race-bench"], folder=tmp_path)
    assert done.returncode == 2 and "usage: race-bench" in done.stdout and not list(tmp_path.iterdir())


def test_help_fits_two_screens():
    assert run_mpc.parser().format_help().count("\n") <= 70

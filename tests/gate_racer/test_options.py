"""Options of all commands, which are few, and the settings behind them, which are checked and documented."""

import argparse
import json
from importlib import import_module

import pytest

from gate_racer.commands import ABOUT, COMMANDS
from gate_racer.common.command import plain
from gate_racer.common.errors import UserError
from gate_racer.common.settings import add_settings, settings_of
from gate_racer.planner.task import PlanOptions
from gate_racer.race import run_mpc
from gate_racer.race.campaign.choice import BenchSettings
from gate_racer.race.settings import RACE, RunSettings
from tests.processes import run_here

MOST, MOST_OF_ALL = {"run-mpc": 16, "train-policy": 6}, 110


def options_of(parser):
    """Return the options of a parser and its sub-commands, except --help and former ones."""
    found = set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= set().union(*map(options_of, action.choices.values()))
        elif action.option_strings and action.dest != "help" and action.help != argparse.SUPPRESS:
            found.add(action.dest)
    return found


def test_options_do_not_grow_in_number():
    modules = {**COMMANDS, "gate-racer": ABOUT}
    counts = {name: len(options_of(import_module(module).parser())) for name, module in modules.items()}
    assert all(counts[name] <= most for name, most in MOST.items()) and sum(counts.values()) <= MOST_OF_ALL, counts


def settings(*typed, cls=RunSettings, options=RACE):
    parser = argparse.ArgumentParser()
    add_settings(parser, cls(), options)
    return settings_of(parser.parse_args(typed), cls)


def test_options_take_precedence_over_set_and_set_over_the_file(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("guidance: {retry: false}\nlink: {check: false, timeout_s: 5}\n")
    found = settings("--config", str(file), "--set", "guidance.retry=true", "link.timeout_s=7")
    assert found.guidance.retry and not found.link.check and found.link.timeout_s == 7.0
    assert settings("--seed", "7", "--set", "world.seed=8").world.seed == 7
    assert settings() == RunSettings()


@pytest.mark.parametrize("text", ["archer cpc", "[archer, cpc]"])
def test_a_list_is_typed_as_words_or_as_in_a_file(text):
    assert settings("--set", f"vehicles={text}", cls=BenchSettings, options={}).vehicles == ("archer", "cpc")


def test_numbers_of_a_list_of_names_are_names():
    assert settings("--set", "settings=[1, 2]", cls=BenchSettings, options={}).settings == ("1", "2")


def test_keys_that_need_each_other_are_typed_in_any_order():
    found = settings(
        "--set", "start.velocity_m_s=[9, 0, 0]", "start.position_m=[5, 0, -2]", cls=PlanOptions, options={}
    )
    assert found.start.position_m == (5.0, 0.0, -2.0) and found.start.velocity_m_s == (9.0, 0.0, 0.0)
    with pytest.raises(UserError, match=r"^--set start.velocity_m_s=\[9, 0, 0\]: start.position_m: missing$"):
        settings("--set", "start.velocity_m_s=[9, 0, 0]", cls=PlanOptions, options={})


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
        settings("--set", text)
    assert said in str(refused.value)


def test_a_misspelt_key_of_a_file_is_refused_with_its_place(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("link: {chek: false}\n")
    with pytest.raises(UserError, match=r"run\.yaml: link: unknown field 'chek'; did you mean check"):
        settings("--config", str(file))


def test_consent_is_typed_and_never_in_a_file(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("link: {i_have_read: docs/safety.md}\n")
    with pytest.raises(UserError, match=r"run\.yaml: link\.i_have_read: must be typed, by --set"):
        settings("--config", str(file))
    assert settings("--set", "link.i_have_read=docs/safety.md").link.i_have_read == "docs/safety.md"


def test_settings_are_recorded_in_the_form_of_a_file(tmp_path):
    given = settings("--vehicle", "swift", "--log", str(tmp_path), "--set", "link.timeout_s=5")
    (tmp_path / "run.yaml").write_text(json.dumps(plain(given)))
    assert settings("--config", str(tmp_path / "run.yaml")) == given


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

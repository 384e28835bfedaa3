"""Campaigns: cases are pure, nothing flown is lost, though it be killed, and what cannot be flown is said so."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from gate_racer.benchmarks import tables
from gate_racer.benchmarks.tables import Result
from gate_racer.common.errors import UserError
from gate_racer.planner.plan import read_plan
from gate_racer.race.campaign import campaign as prepare_module
from gate_racer.race.campaign import campaign as run
from gate_racer.race.campaign import choice as registry
from gate_racer.race.campaign.campaign import prepare
from gate_racer.race.campaign.case import FILE, Case, Outcome, Row, Store
from gate_racer.race.campaign.choice import BenchSettings, Choice, PreparedCourse
from gate_racer.race.campaign.flight import NoLog, _by_state, attempt, measure, why
from gate_racer.sim.physics.residual import Kernel, ObservationModel, ResidualAcceleration, Residuals
from gate_racer.sim.worlds.world import AS_BELIEVED, Deviations, World
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.benchmarks.work import Place, work
from tests.conftest import ROOT, with_plan, within_this_process
from tests.processes import command, raced, run_here, survivors


@pytest.fixture(scope="module")
def course(sprint, dcl) -> PreparedCourse:
    return prepare(load_track(sprint / "sprint.yaml"), dcl, 1, False, sprint)


@pytest.fixture(scope="module")
def flown(course) -> Row:
    """The plain case: told the true state, in the world as believed."""
    return attempt(a_case(), course)


def a_case(setting="1", seed=0):
    by = "given" if setting in "1234" else "drift"
    return Case("sprint", "dcl", 1, setting, "tracking", by, seed)


# A case


def test_given_the_true_state_the_estimate_is_without_error_and_the_race_near_its_plan(flown):
    o = flown.outcome
    assert o.finished and o.share == 1.0 and o.estimate_m == 0.0 and o.rule == "" and o.frames == 0
    assert o.bound_s < o.planned_s < o.race_s < 1.05 * o.planned_s
    edges = [0.75 - max(map(abs, place)) for place in o.crossing_m]
    assert edges == pytest.approx(o.margin_m, abs=0.01) and len(o.misjudged_m) == 2
    assert len(o.gate_s) == len(o.margin_m) == o.gates_total == 2 and o.lap_s == [o.race_s] and min(o.margin_m) > 0.25


def test_a_flown_time_is_compared_with_the_plans_at_the_last_gate(sprint, dcl, tmp_path, tmp_path_factory, undrawn):
    course = tmp_path / "stop.yaml"
    text = (sprint / "sprint.yaml").read_text().replace("name: sprint", "name: stop\nclock: first_gate")
    course.write_text(text.replace("gates:", "end_m: [-75.0, 1.0, 8.0]\ngates:"))
    with_plan(tmp_path, tmp_path_factory, load_track(course), dcl)
    told = raced(tmp_path, course, "--set", f"plan.folder={tmp_path}")
    prepared = prepare(load_track(course), dcl, 1, False, tmp_path)
    first_s, last_s, stop_s = prepared.plan.gate_times_s
    o = attempt(replace(a_case(), track="stop"), prepared).outcome
    assert told["planned_time_s"] == pytest.approx(last_s - first_s) and o.planned_s == pytest.approx(last_s)
    assert told["race_time_s"] < 1.1 * told["planned_time_s"] and o.race_s < 1.05 * o.planned_s < 0.9 * stop_s
    assert o.bound_s is None, "that of the plan includes its stop"


def test_noisy_observations_are_off_by_their_realisation_which_is_the_seeds(course):
    x = np.array([[-20.0, 0, -1, 1, 0, 0, 0, 5, 0, 0], [20.0, 9, -3, 0.8, 0.6, 0, 0, 15, 5, 1]])
    errors = 0.05 * np.array([np.ones(9), -np.ones(9)])
    model = ObservationModel(x, errors, np.zeros(2, int), [Kernel(np.full(15, 3.0), 1 - 1e-6, 0.0)] * 9)
    noisy = replace(course, errors=model)
    one, other = (attempt(a_case("2", seed), noisy).outcome for seed in (1, 2))
    assert one.estimate_m > 0.005 and other.estimate_m > 0.005 and one.tracking_m != other.tracking_m


def test_a_case_that_raises_has_failed_with_its_reason(course, monkeypatch):
    def broken(*_):
        raise ValueError("no such weights\nand more")

    monkeypatch.setattr("gate_racer.pilot.racer.make_controller", broken)
    flown = attempt(a_case(), course)
    assert flown.outcome.status == "failed" and flown.outcome.cause == "ValueError: no such weights"
    assert flown.outcome.gates_total == 2 and flown.path.shape == (0, 5)


def test_a_filter_that_begins_exactly_known_is_flown_and_judged(course):
    outcome = attempt(replace(a_case("projected"), estimator="drift-swift"), course).outcome
    assert outcome.status != "failed" and outcome.nees is not None


def test_in_a_deviating_world_errors_are_relative_to_the_true_gates(course):
    """Told the true state and a map whose gates all stand 0.2 m too high, it errs by that at each of them."""
    low = replace(AS_BELIEVED.course, gate_moved_m=((0.0, 0.0, 0.2),) * 2)
    world = World.of("low", Deviations(course=low), course.track, course.vehicle)
    case, conditions = a_case(), registry.SETTINGS["1"]
    recorder, tally, verdict, t = _by_state(case, course, conditions, world, NoLog())
    o = measure(course, world, recorder, tally, verdict, t, 0.0)
    assert o.finished and o.at_gates_m == pytest.approx([0.2] * 2, abs=1e-6) and o.estimate_m < 1e-9


WHY = [
    ("finished", "", [0.1], [9.9], ""),
    ("aborted", "no solution for 2 s", [9.9], [9.9], "no solution"),
    ("crashed", "hit gate 2", [0.9], [0.8], "estimate lost"),
    ("crashed", "hit gate 2", [0.9], [0.1], "tracking lost"),
    ("crashed", "hit gate 2", [0.3], [0.1], "clipped"),
    ("crashed", "hit obstacle 0", [np.nan], [np.nan], "clipped"),
    ("missed_gate", "gate 2 was not passed", [], [], "missed gate"),
]


@pytest.mark.parametrize(("status", "cause", "off", "lost", "rule"), WHY, ids=[f"{w[0]} {w[4]}" for w in WHY])
def test_each_end_has_its_rule(status, cause, off, lost, rule):
    found = why(Outcome(status, cause), np.array(off), np.array(lost), 0.75)
    assert found.startswith(rule) and bool(found) == bool(rule)


def test_seeds_are_flown_only_where_something_is_random():
    axes = ["dcl"], ["1", "2", "projected"], ["tracking"], ["drift"], 1, 3, ["as_believed", "unknown"]
    cases = Choice(*axes, first_seed=40).cases(load_track("vq1"), load_vehicle("dcl"))
    seeds = [(case.setting, case.seed) for case in cases if case.world == "as_believed"]
    assert seeds == [("1", 0), *(("2", 40 + k) for k in range(3)), *(("projected", 40 + k) for k in range(3))]
    assert sum(case.world == "unknown" for case in cases) == 9


@pytest.mark.parametrize(
    ("asked", "name"),
    [("usual", ""), ("", ""), ("reserve=1,margin=0,see=0", "reserve=1,margin=0,see=0"), ("see=0.0", "see=0"),
     ("see=0.2,reserve=0.9", ""), ("spam=1", None), ("reserve", None), ("reserve=x", None), ("see=0.5,,", None)],
)  # fmt: skip
def test_a_plan_is_named_by_what_it_asks_for_and_one_that_cannot_be_is_refused(asked, name):
    if name is None:
        with pytest.raises(UserError, match=r"reserve|known"):
            registry.plan_name(asked)
    else:
        assert registry.plan_name(asked) == name
        assert registry.plan_options(name, 2) == registry.plan_options(asked, 2)


def test_plans_are_an_axis_and_each_is_made_once_and_apart(sprint, course, dcl, tmp_path, monkeypatch):
    choice = Choice(["dcl"], ["1"], ["tracking"], ["drift"], 1, 1, ["as_believed"], plans=("usual", "see=0", "see=0.0"))
    assert [case.plan for case in choice.cases(load_track("vq1"), load_vehicle("dcl"))] == ["", "see=0"]
    made = []

    def find(folder, track, vehicle, options, *_):
        made.append((folder, options.see))
        shutil.copytree(sprint, folder)
        return read_plan(folder / "sprint.csv")

    monkeypatch.setattr(prepare_module, "find_or_make_plan", find)
    prepare(course.track, dcl, 1, False, tmp_path / "plans", plan_asked="see=0")
    assert made == [(tmp_path / "plans" / "see=0", 0.0)]


def test_a_residual_file_pushes_what_flies_and_its_errors_are_those_of_noisy_settings(flown, course, sprint, dcl):
    x = np.zeros((10, 13))
    x[:, 3], x[:, 0] = 1.0, np.arange(10)
    push = ResidualAcceleration(x, np.linspace(5, 20, 10), np.tile([0.0, 0.0, 0.3], (10, 1)))
    model = ObservationModel(x, np.zeros((10, 9)), np.zeros(10, int), [Kernel(np.full(15, 3.0), 0.5, 0.0)] * 9)
    residuals = Residuals(dcl.hash, False, push, model)
    pushed = prepare(course.track, dcl, 1, True, sprint, residuals=residuals)
    assert pushed.errors is model and pushed.residual is push
    alone, along = flown.outcome, attempt(a_case(), pushed).outcome
    assert alone.finished and along.finished and along.race_s != alone.race_s


# Many


def test_a_case_that_kills_its_process_fails_alone():
    jobs = [(a_case("projected", seed), Place(deadly=1)) for seed in range(4)]
    found = {row.case.seed: row.outcome for row in run.in_processes(work, jobs, 2)}
    assert {seed: o.status for seed, o in found.items()} == {0: "finished", 1: "failed", 2: "finished", 3: "finished"}
    assert found[1].cause == "the worker process died" and found[3].race_s == 3.0


def test_a_campaign_of_another_commit_is_not_mixed_in(tmp_path):
    store = Store(tmp_path / FILE)
    store.require({"commit": "a", "machine": "x"}, "commit")
    store.require({"commit": "a", "machine": "y"}, "commit")
    with pytest.raises(UserError, match=r"holds results of commit a, not b; choose another --out"):
        store.require({"commit": "b"}, "commit")
    assert store.about() == {"commit": "a", "machine": "y"}


WRONG = [
    (["--settings", "1-5"], "settings 5: unknown; known: 1, 2, 3, 4, projected, rendered, projected-1"),
    (["--controllers", "magic"], "no controller 'magic'; known: mpcc, tracking"),
    (["--set", "estimators=magic"], "estimators=magic: must be one of eskf, drift"),
    (["--set", "laps=2"], "not closed"),
    (["--seeds", "0"], "seeds 0: must lie between 1 and 100000"),
    (["--worlds", "unknwon"], "no world 'unknwon'; did you mean unknown? known: adverse, as_believed, known, unknown"),
    (["--settings", "4-1"], "no flights were asked for: one of the axes"),
    (["--set", "rivals.rotor_radius_m=-1"], "rivals.rotor_radius_m=-1: must lie between 0 and 1"),
    (["--settings", "3"], "vehicle dcl: has no `motors`"),
    (["compare", "nowhere", "nothing"], "nowhere: no such campaign"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments, words, tmp_path):
    out = [] if arguments[0] == "compare" else ["--out", tmp_path]
    done = run_here("gate_racer.race.campaign.cli", *out, *arguments)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_policy_is_a_controller_by_its_name_and_what_is_none_is_refused():
    """It has no plan, and so is flown once whatever plans the others fly."""
    choice, names = Choice(["swift"], ["1"], seeds=1, plans=("usual", "see=0")), ["tracking", "splits_swift"]
    cases = replace(choice, controllers=names).cases(load_track("splits_swift"), load_vehicle("swift"))
    assert [(case.controller, case.plan) for case in cases] == [
        ("tracking", ""),
        ("splits_swift", ""),
        ("tracking", "see=0"),
    ]
    assert "plan" not in cases[1].flown_by
    with pytest.raises(UserError, match=r"no controller 'nothing'; known: .*tracking.*splits_swift"):
        replace(choice, controllers=["nothing"]).require_known()


def test_a_case_is_another_once_its_inputs_are():
    """Names stay; what they stand for is part of a case's identity."""
    choice = Choice(["dcl"], ["1"], ["tracking"], ["drift"], 1, 1, ["as_believed"])
    vq1, dcl = load_track("vq1"), load_vehicle("dcl")
    moved = replace(vq1, gates=(replace(vq1.gates[0], centre_m=(9.0, 9.0, -2.0)), *vq1.gates[1:]))
    stronger = replace(dcl, thrust_lag_s=0.031)
    same, edited, heavier = (choice.cases(*inputs)[0] for inputs in ((vq1, dcl), (moved, dcl), (vq1, stronger)))
    assert same == choice.cases(vq1, dcl)[0]
    assert same.id == edited.id == heavier.id and len({same.content, edited.content, heavier.content}) == 3


def test_a_stored_flight_of_other_content_does_not_count(tmp_path):
    store, outcome = Store(tmp_path / FILE), Outcome("finished")
    case = a_case()
    store.add(Row(replace(case, content="other"), outcome))
    assert (case.id, case.content) not in store.done()
    store.add(Row(case, outcome))
    assert store.done() == {(case.id, case.content): "finished"}


def test_a_disk_that_is_full_is_one_line(tmp_path):
    store, before = Store(tmp_path / FILE), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot be written .* run again to go on"):
            store.require({"commit": "x" * 100_000}, "commit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_flight_by_a_vehicle_file_is_flown_again_by_that_file(sprint, tmp_path, monkeypatch, undrawn):
    """Its name is that of no shipped vehicle. One that is interrupted is flown again once more."""
    own = tmp_path / "own.yaml"
    own.write_text((ROOT / "vehicle/dcl.yaml").read_text(encoding="utf-8").replace("name: dcl", "name: own"))
    settings = BenchSettings(tracks=(str(sprint / "sprint.yaml"),), vehicles=(str(own),), settings=("1",))
    [case] = settings.cases(load_track(settings.tracks[0]), load_vehicle(str(own)))
    row = Row(case, Outcome("crashed"), np.empty((0, 5)))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("gate_racer.race.campaign.campaign.fly", interrupted)
        run.fly_again([row], settings, tmp_path)
    assert not run.log_of(tmp_path, row).exists(), "a log that looks whole would be kept for ever"
    run.fly_again([row], settings, tmp_path)
    assert run.log_of(tmp_path, row).exists()


# A campaign that is killed goes on where it was, and reports the whole.


CAMPAIGN = "gate_racer.race.campaign.cli"


@dataclass(frozen=True)
class Struck:
    """A campaign that was killed after some of its flights."""

    folder: Path
    asked: list
    done: set[str]
    session: int


@pytest.fixture(scope="module")
def struck(hop_plans, tmp_path_factory) -> Struck:
    folder = tmp_path_factory.mktemp("campaign")
    shutil.copytree(hop_plans, folder / "plans")
    flown = ["--tracks", hop_plans / "hop.yaml", "--settings", "1", "projected", "--seeds", "2"]
    asked = [*flown, "--set", "workers=1", "worst=1", "--out", folder]
    words, pipe = command(CAMPAIGN, *asked), subprocess.PIPE
    first = subprocess.Popen(words, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    while not flown_ids(folder):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    for pipe in (first.stdout, first.stderr):
        pipe.close()  # unread: a worker that survived would hold it open
    return Struck(folder, asked, flown_ids(folder), first.pid)


@pytest.fixture(scope="module")
def killed(struck) -> Path:
    """The folder of a campaign that was killed, and then begun again and finished."""
    folder, done = struck.folder, struck.done
    with sqlite3.connect(folder / FILE) as db:  # marked, to see whether they are flown again
        db.execute("update cases set outcome_json = json_set(outcome_json, '$.cause', 'kept')")
    assert 0 < len(done) < 3
    with pytest.MonkeyPatch.context() as patch:
        within_this_process(patch)
        again = run_here(CAMPAIGN, *struck.asked)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{3 - len(done)}/{3 - len(done)}" in again.stderr and "finished [95 %]" in again.stdout
    rows = {row.case.id: row for row in Store.existing(folder).rows()}
    assert len(rows) == 3 and {name for name, row in rows.items() if row.outcome.cause == "kept"} == done
    return folder


def flown_ids(folder: Path) -> set[str]:
    try:
        with sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True) as db:
            return {name for (name,) in db.execute("select id from cases")}
    except sqlite3.OperationalError:
        return set()


def test_a_killed_campaign_goes_on_where_it_was(killed):
    about = json.loads((killed / "tables.json").read_text())["about"]
    assert about["commit"] and about["machine"]
    assert sum(cell["flights"] for cell in json.loads((killed / "tables.json").read_text())["cells"]) == 3


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for survivors in")
def test_no_process_outlives_a_killed_campaign(struck):
    assert not survivors(struck.session)


def test_the_worst_flight_was_flown_again_and_the_campaign_is_stored_as_a_result(killed, tmp_path, capsys):
    logs = list((killed / "worst").glob("*.mcap"))
    assert len(logs) == 1 and logs[0].with_suffix(".png").exists()
    assert f'href="worst/{logs[0].name}"' in (killed / "report.html").read_text()
    assert tables.run(Namespace(campaign=killed, result=tmp_path / "hop.json")) == 0
    stored = Result.load(tmp_path / "hop.json")
    at = [stored.columns.index(name) for name in ("course", "setting", "of")]
    assert [[row[k] for k in at] for row in stored.rows] == [["hop", "1", 1], ["hop", "projected", 2]]
    assert stored.commit and "median time s" in capsys.readouterr().out

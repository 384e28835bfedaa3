"""The last runs change vehicle, map and reserve only where they say so clearly, and towards the truth."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.field.improve import Run, better_track, better_vehicle, explorations, history, improve, next_reserve
from gate_racer.field.mapping.bundle import MappedGate
from gate_racer.field.mapping.flight import MapError
from gate_racer.link.profile import load_profile
from gate_racer.pilot.guidance.explorer import NAME
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.planner.plan import read_plan
from gate_racer.race.session import Session, fly
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from tests.conftest import refused
from tests.exploring import lockstep

FLOOR = 0.25
AWAY_M = np.array([0.0, 0.3, -0.15])


def run(reserve, time_s=6.5, margin_m=0.4):
    return Run(Path("log"), SimpleNamespace(), reserve, time_s, margin_m)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([run(0.75)], 0.79),  # good: a little bolder
        ([run(0.75), run(0.79)], 0.83),
        ([run(0.75), run(0.83, margin_m=0.1)], 0.79),  # too bold: half way back
        ([run(0.75), run(0.83, None)], 0.79),
        ([run(0.79), run(0.80, None)], 0.79),  # as near as is worth it: stay
        ([run(0.75, None)], 0.69),  # nothing good yet: calmer
        ([run(0.79), run(0.79, None)], 0.78),  # good once and bad once
        ([run(0.97)], 0.97),
    ],
)
def test_the_reserve_is_bisected_between_good_and_bad(runs, expected):
    assert next_reserve(runs, FLOOR)[0] == pytest.approx(expected)


@pytest.fixture(scope="module")
def raced(sprint, dcl, tmp_path_factory):
    """A run with a motor that gives 6 % less than the vehicle's file says."""
    track, logs = load_track(sprint / "sprint.yaml"), tmp_path_factory.mktemp("logs")
    weak = replace(dcl, throttle=replace(dcl.throttle, thrust_m_s2=tuple(0.94 * c for c in dcl.throttle.thrust_m_s2)))
    plan = read_plan(sprint / "sprint.csv")
    session = Session(lockstep(logs), track, dcl, load_profile("spec"), plan, world=as_believed(track, weak))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate_racer.pilot.records.plot.draw_flight", lambda *_: None)
        fly(session, lambda outcome: None)
    return history(logs, sprint, "sprint", "dcl"), track


def test_a_course_whose_name_begins_alike_is_another(plan, plan_folder, tmp_path):
    for track in ("vq1", "vq1-night"):
        log = FlightLog(tmp_path / f"{track}-20260101-120000.mcap")
        log.write("flight", 0.0, track=track, vehicle="dcl", plan_hash=plan.hash, seed=0, profile="spec")
        log.write("referee", 7.0, status="finished", gate_times_s=[7.0], gate_margins_m=[0.4])
        log.close()
    assert [one.log.name for one in history(tmp_path, plan_folder, "vq1", "dcl")] == ["vq1-20260101-120000.mcap"]


def test_a_log_whose_plan_has_no_hash_is_refused_in_one_line(plan_folder, tmp_path):
    log = FlightLog(tmp_path / "vq1-20260101-120000.mcap")
    log.write("flight", 0.0, track="vq1", vehicle="dcl", plan_hash=[1])
    log.write("referee", 7.0, status="finished", gate_times_s=[7.0], gate_margins_m=[0.4])
    log.close()
    with refused(r"vq1-20260101-120000\.mcap: malformed"):
        history(tmp_path, plan_folder, "vq1", "dcl")


def test_missing_thrust_is_corrected(raced, dcl):
    runs, _ = raced
    better, changes = better_vehicle(runs, dcl)
    assert better.throttle.thrust(0.5) / dcl.throttle.thrust(0.5) == pytest.approx(0.94, abs=0.015)
    assert changes[0].what == "thrust" and "estimated from 1 flights: 0.9" in changes[0].why


def off(vehicle, thrust, drag):
    throttle = replace(vehicle.throttle, thrust_m_s2=tuple(thrust * c for c in vehicle.throttle.thrust_m_s2))
    return replace(vehicle, throttle=throttle, drag_quadratic_1_m=drag * vehicle.drag_quadratic_1_m)


def test_a_poor_file_is_put_right_by_one_run_and_what_nobody_would_believe_is_told_of_alone(raced, dcl):
    runs, _ = raced
    better, changes = better_vehicle(runs, off(dcl, 0.75, 0.45))
    assert better.throttle.thrust(0.5) / dcl.throttle.thrust(0.5) == pytest.approx(0.94, abs=0.015)
    assert better.drag_quadratic_1_m == pytest.approx(dcl.drag_quadratic_1_m, rel=0.05)
    assert [change.made for change in changes] == [True, True]
    wrong = off(dcl, 0.5, 0.2)
    same, changes = better_vehicle(runs, wrong)
    assert same == wrong and [change.made for change in changes] == [False, False]
    assert all("implausible, not applied" in change.why for change in changes)


def test_a_map_that_is_right_stays_as_it_is(raced, dcl, tmp_path):
    runs, track = raced
    assert better_track(runs, track, dcl, tmp_path) == (track, [])


def test_a_gate_that_was_surely_seen_elsewhere_is_moved(raced, dcl, tmp_path, monkeypatch):
    """Of two gates that seem displaced, only the one with a small enough covariance is moved."""
    runs, track = raced
    known = zip(track.gates, (0.03, 0.2), strict=True)
    seen = [MappedGate(gate.p_wg + AWAY_M, 0.0, sigma**2 * np.eye(4), 20) for gate, sigma in known]
    monkeypatch.setattr("gate_racer.field.improve.moved_to_pad", lambda gate, *_: gate)
    monkeypatch.setattr("gate_racer.field.improve.map_gates", lambda *_: SimpleNamespace(gates=seen))
    moved, changes = better_track(runs, track, dcl, tmp_path)
    assert [change.what for change in changes] == ["gate 0"]
    assert moved.gates[0].p_wg - track.gates[0].p_wg == pytest.approx(AWAY_M, abs=1e-3)
    assert moved.gates[1].centre_m == pytest.approx(track.gates[1].centre_m)
    assert load_track(moved.file).hash == moved.hash


def test_the_last_exploration_of_the_course_helps_and_that_of_another_does_not(raced, dcl, tmp_path, monkeypatch):
    runs, track = raced
    here, elsewhere = tmp_path / f"{NAME}-2.mcap", tmp_path / f"{NAME}-3.mcap"
    used = []

    def mapped(flights, *_):
        if elsewhere in flights:
            raise MapError("none of its gates stands where ...")
        used.append(flights)
        return SimpleNamespace(gates=[])

    monkeypatch.setattr("gate_racer.field.improve.read_flight", lambda log: log)
    monkeypatch.setattr("gate_racer.field.improve.map_gates", mapped)
    better_track(runs, track, dcl, tmp_path, [elsewhere, here])
    better_track(runs, track, dcl, tmp_path, [elsewhere])
    assert used == [[runs[0].log, here], [runs[0].log]]
    for path in (here, elsewhere):
        path.write_bytes(b"cut off before anything was written")
    assert set(explorations(tmp_path)) == {here, elsewhere}
    assert better_vehicle(runs, dcl, [here]) == better_vehicle(runs, dcl)


def test_without_a_run_there_is_nothing_to_improve(dcl, plan_folder, tmp_path):
    with pytest.raises(UserError, match="no run of vq1 with dcl"):
        improve(load_track("tracks/vq1.yaml"), dcl, tmp_path, plan_folder, 1)

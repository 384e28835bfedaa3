"""Past runs and their calibration change vehicle, camera, map and reserve only where they say so clearly, towards the truth."""

from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.estimation.registry import make_estimator
from gate_racer.field.files import OVERCONFIDENCE, combined, write_vehicle
from gate_racer.field.improve import (
    Run,
    better_camera,
    better_track,
    better_vehicle,
    explorations,
    history,
    improve,
    next_reserve,
)
from gate_racer.field.mapping.bundle import MappedGate
from gate_racer.field.mapping.flight import MapError
from gate_racer.link.profile import load_profile
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import STATES, of_camera
from gate_racer.pilot.guidance.explorer import NAME
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.planner.plan import read_plan
from gate_racer.race.session import Session, fly
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import AS_BELIEVED, World, as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.camera import CameraDoubt
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import refused
from tests.exploring import lockstep
from tests.flights import deviating

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
    world, plan = as_believed(track, deviating(dcl, 0.94)), read_plan(sprint / "sprint.csv")
    session = Session(lockstep(logs), track, dcl, load_profile("spec"), plan, world=world)
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


def test_a_poor_file_is_put_right_by_one_run_and_what_nobody_would_believe_is_told_of_alone(raced, dcl):
    runs, _ = raced
    better, changes = better_vehicle(runs, deviating(dcl, 0.75, 0.45))
    assert better.throttle.thrust(0.5) / dcl.throttle.thrust(0.5) == pytest.approx(0.94, abs=0.015)
    assert better.drag_quadratic_1_m == pytest.approx(dcl.drag_quadratic_1_m, rel=0.05)
    assert [change.made for change in changes] == [True, True]
    wrong = deviating(dcl, 0.5, 0.2)
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


# The calibration of past flights is the start of the next one.


DOUBT = CameraDoubt(0.1, 0.2, 0.1, 0.01, 0.003, 1.0, 0.005, 0.001, 0.001, 0.001)  # in the order of its fields


def shown(camera, yaw_deg, sigma_deg=0.1):
    return replace(camera, yaw_deg=yaw_deg, doubt=replace(DOUBT, yaw_deg=sigma_deg))


def test_calibrations_are_weighted_by_how_well_each_knew(dcl):
    found = combined([shown(dcl.camera, 1.0, 0.1), shown(dcl.camera, 2.0, 0.2)], dcl.camera)
    assert found.yaw_deg == pytest.approx((1.0 / 0.01 + 2.0 / 0.04) / (1 / 0.01 + 1 / 0.04), abs=1e-5)
    assert found.doubt.yaw_deg == pytest.approx(OVERCONFIDENCE / np.sqrt(1 / 0.01 + 1 / 0.04), abs=1e-5)
    assert found.fx_px == pytest.approx(dcl.camera.fx_px) and found.tilt_deg == pytest.approx(dcl.camera.tilt_deg)


@pytest.mark.parametrize("cameras", [[], [0.1], [0.3, -0.3]])
def test_a_camera_that_is_as_believed_stays(cameras, dcl):
    assert combined([shown(dcl.camera, yaw) for yaw in cameras], dcl.camera) is None


def test_a_calibrated_camera_is_kept_in_the_vehicles_file_and_narrows_the_priors(dcl, tmp_path):
    write_vehicle(tmp_path / "mine.yaml", replace(dcl, camera=shown(dcl.camera, 1.0)))
    loaded = load_vehicle(str(tmp_path / "mine.yaml"))
    assert loaded.camera.doubt == DOUBT and loaded.hash != dcl.hash
    states = of_camera(loaded.camera.doubt)
    assert states["yaw"].prior == pytest.approx(np.radians(0.1)) and states["radial"].prior == (0.005, 0.001)
    assert states["delay"].prior == states["readout"].prior == 0.001
    assert states["scale"] == STATES["scale"] and of_camera(None) == STATES


def test_a_clock_that_is_known_starts_the_next_flight(dcl, vq1):
    """Exposures 8 ms after their stamps and rows exposed in turn, from the vehicle's file into the filter and out again."""
    camera = replace(dcl.camera, delay_s=0.008, readout_s=0.005, doubt=DOUBT)
    begun = make_estimator("eskf", vq1.start, replace(dcl, camera=camera), GateAppearance()).calibration()
    assert (begun.delay_s, begun.readout_s) == (0.008, 0.005)
    assert (begun.doubt.delay_s, begun.doubt.readout_s) == pytest.approx((0.001, 0.001))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_doubt_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        CameraDoubt(bad, *astuple(DOUBT)[1:])


FACTORS = {  # of the world, by what is found of the camera; stamps that are late are of earlier exposures
    "yaw_deg": ("camera", "yaw_deg", 1),
    "delay_s": ("link", "video_offset_s", -1),
    "readout_s": ("view", "readout_s", 1),
}


def test_the_camera_estimated_in_one_flight_is_the_start_of_the_next(plan, plan_folder, dcl, vq1, tmp_path, undrawn):
    """Each two sigma off: the flight tells most of it, and no more doubt of it than it errs by."""
    off, true = AS_BELIEVED, {}
    for found, (section, field, sign) in FACTORS.items():
        alone = getattr(resolve(f"unknown:7:{section}.{field}+", vq1, dcl).deviations, section)
        off, true[found] = replace(off, **{section: alone}), sign * getattr(alone, field)
    world = World.of("off", off, vq1, dcl)
    session = Session(lockstep(tmp_path, "mpcc"), vq1, dcl, load_profile("spec"), plan, world=world)
    fly(session, lambda outcome: None)
    better, changes = better_camera(history(tmp_path, plan_folder, "vq1", "dcl"), dcl)
    assert changes[0].what == "camera"
    for found, size in true.items():
        assert abs(getattr(better.camera, found) - size) < 0.4 * abs(size), found

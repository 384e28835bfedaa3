"""The calibration of past flights is the start of the next one."""

from dataclasses import astuple, replace

import numpy as np
import pytest

from gate_racer.estimation.registry import make_estimator
from gate_racer.field.files import OVERCONFIDENCE, combined, write_vehicle
from gate_racer.field.improve import better_camera, history
from gate_racer.link.profile import load_profile
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import STATES, of_camera
from gate_racer.race.session import Session, fly
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import AS_BELIEVED, World
from gate_racer.vehicle.camera import CameraDoubt
from gate_racer.vehicle.vehicle import load_vehicle
from tests.exploring import lockstep

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

"""What flights have shown of a camera starts the next one."""

from dataclasses import astuple, replace

import numpy as np
import pytest

from estimation.eskf.noise import of_camera
from estimation.eskf.states import STATES
from field.calibration import OVERCONFIDENCE, combined
from field.corrections import better_camera
from field.files import write_vehicle
from field.runs import history
from link.options import Link
from link.profile import load_profile
from pilot.run import fly
from pilot.session import Session
from sim.worlds.distribution import resolve
from vehicle.camera import CameraDoubt
from vehicle.vehicle import load_vehicle

DOUBT = CameraDoubt(
    yaw_deg=0.1, tilt_deg=0.2, roll_deg=0.1, position_m=0.01, focal=0.003, centre_px=1.0, k1=0.005, k2=0.001
)
NOWHERE = Link(("127.0.0.1", 0), ("127.0.0.1", 0))  # in lock-step nobody listens


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
    assert states["delay"] == STATES["delay"] and of_camera(None) == STATES


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_doubt_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        CameraDoubt(bad, *astuple(DOUBT)[1:])


def test_what_one_flight_finds_of_its_camera_starts_the_next_one(plan, plan_folder, dcl, vq1, tmp_path):
    """A mount yawed by two sigma: the flight tells most of it, and no more doubt of it than it errs by."""
    world = resolve("unknown:7:camera.yaw_deg+", vq1, dcl)
    yaw_deg = world.deviations.camera.yaw_deg
    session = Session(
        vq1, "dcl", dcl, load_profile("spec"), plan, 1, 0, tmp_path, 20.0, "race", "projected", "classical", "eskf", False,
        "mpcc", world=world,
    )  # fmt: skip
    fly(session, "lockstep", NOWHERE, lambda outcome: None)
    runs = history(tmp_path, plan_folder, "vq1", "dcl")
    assert runs[0].camera.doubt.yaw_deg < 0.4
    better, changes = better_camera(runs, dcl)
    assert changes[0].what == "camera"
    assert abs(better.camera.yaw_deg - yaw_deg) < 0.4 * abs(yaw_deg)

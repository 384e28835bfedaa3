"""Plants of other people's simulators: axes and laws as of ours, a race by camera; skipped where a package is missing."""

import importlib.util
import math

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.common.parts import load_part
from gate_racer.race.campaign.campaign import prepare
from gate_racer.race.campaign.case import Case
from gate_racer.race.campaign.choice import Choice, conditions_of
from gate_racer.race.campaign.flight import attempt
from gate_racer.sim.physics import registry
from gate_racer.sim.physics.registry import plant_setting
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import exp, matrix

DT = 1 / 960
pytestmark = pytest.mark.filterwarnings("default")  # of their packages


@pytest.fixture(params=registry.PLANTS)
def plant(request, dcl):
    if why := registry.missing(request.param):
        pytest.skip(why)
    return load_part(registry.class_of(request.param), "plant", ["step"])(dcl)


def flown(plant, u, seconds, turn=(0.0, 0.0, 0.0)):
    x = np.zeros(14)
    x[3:7] = exp(turn)
    for _ in range(round(seconds / DT)):
        x = plant.step(x, np.array(u, float), DT)
    return x


def test_it_falls_with_its_motors_off_and_hovers_at_its_weight(plant):
    fallen = flown(plant, (0, 0, 0, 0), 0.1)
    assert 0.7 * GRAVITY * 0.1 < fallen[9] <= GRAVITY * 0.1 + 1e-6 and abs(fallen[7:9]).max() < 1e-9
    plant.reset()
    hovering = flown(plant, (0, 0, 0, GRAVITY), 1.0)
    assert hovering[13] == pytest.approx(GRAVITY, rel=0.01) and abs(hovering[7:9]).max() < 1e-6


@pytest.mark.parametrize("axis", range(3))
def test_body_rates_follow_about_the_axes_of_ours(plant, axis):
    u = np.array([0.0, 0.0, 0.0, 1.5 * GRAVITY])
    u[axis] = 1.0
    x = flown(plant, u, 0.5)
    assert x[10 + axis] == pytest.approx(1.0, abs=0.15) and np.delete(x[10:13], axis) == pytest.approx([0, 0], abs=0.05)
    assert np.linalg.norm(x[3:7]) == pytest.approx(1.0) and 0.1 < x[4 + axis] < math.sin(0.25)


def test_thrust_points_up_the_body_and_is_that_of_the_vehicle_at_most(plant, dcl):
    x = flown(plant, (0, 0, 0, 1e3), 0.4, turn=(0.0, 0.5, 0.2))
    up = -matrix(exp((0.0, 0.5, 0.2)))[:, 2]
    assert x[13] == pytest.approx(dcl.thrust_max, rel=0.03)
    accelerated = x[7:10] - 0.4 * np.array([0, 0, GRAVITY])
    assert accelerated @ up / np.linalg.norm(accelerated) > 0.98 and accelerated @ up > 5


def test_it_flies_a_race_by_camera_and_imu_as_a_setting_of_a_campaign(plant, sprint, dcl):
    name = next(name for name, (cls, _) in registry.PLANTS.items() if cls.endswith(f":{type(plant).__name__}"))
    course = prepare(load_track(sprint / "sprint.yaml"), dcl, 1, False, sprint)
    outcome = attempt(Case("sprint", "dcl", 1, name, "mpcc", "eskf", 3), course).outcome
    assert outcome.finished and min(outcome.margin_m) > 0.2 and outcome.sightings > 10
    assert conditions_of(name).camera == "projected" and registry.version_of(name)
    (case,) = Choice(("dcl",), (name,), seeds=1).cases(course.track, dcl)
    assert case.setting == name and case.content != Choice(("dcl",), seeds=1).cases(course.track, dcl)[0].content


@pytest.mark.parametrize("name", registry.PLANTS)
def test_a_plant_of_a_package_that_is_not_installed_is_one_line(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    said = f"plant {name}: {name} is not installed: pip install 'gate-racer\\[sims\\]'"
    for asked in (plant_setting, conditions_of):
        with pytest.raises(UserError, match=said):
            asked(name)

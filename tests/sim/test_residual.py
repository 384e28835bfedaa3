"""Errors learned from a flight: realisations have the posterior's mean and spread, and are functions of the state."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor

from link.messages import AttitudeTarget
from link.profile import load_profile
from pilot.records.flight_log import FlightLog
from sim.physics.batch import Batch
from sim.physics.contact import Colliders
from sim.physics.plant import V
from sim.physics.rates_plant import RatesPlant
from sim.physics.residual import ALPHA, ObservationModel, ResidualAcceleration, features
from sim.physics.setting import SETTINGS, make_plant, natural
from sim.physics.swift_plant import SwiftPlant
from sim.simulator import Simulator
from sim.worlds.world import as_believed
from tests.conftest import ROOT
from tracks.track import Start
from vehicle.errors import UserError
from vehicle.rotation import conjugate, exp, from_euler, log, product
from vehicle.vehicle import load_vehicle


def flight(n=80):
    """A circle, banked."""
    s = np.linspace(0, 2 * np.pi, n)
    x = np.zeros((n, 14))
    x[:, :3] = np.column_stack([5 * np.cos(s), 5 * np.sin(s), -2 + 0 * s])
    x[:, 3:7] = [from_euler(0.6, 0, a) for a in s]
    x[:, 7:10] = np.column_stack([-8 * np.sin(s), 8 * np.cos(s), 0 * s])
    return s, x


def errors_of(s):
    return np.column_stack([k * 0.1 * np.sin(s + k) for k in range(1, 10)])


@pytest.fixture(scope="module")
def model():
    s, x = flight()
    return ObservationModel.fit(x, errors_of(s), samples=30)


def test_realisations_have_the_posterior_s_mean_and_spread(model):
    _, x = flight(13)
    x[:, 2] -= 1.0  # off the data
    z = model._scaler(features(x))
    draws = np.array([model.sample(np.random.default_rng(k)).errors(x) for k in range(300)])
    for i in (0, 4, 8):
        gp = GaussianProcessRegressor(model._kernels[i], alpha=ALPHA[i], optimizer=None)
        mean, cov = gp.fit(model._z, model._errors[:, i]).predict(z, return_cov=True)
        sigma = np.sqrt(np.diag(cov))
        assert np.abs(draws[:, :, i].mean(axis=0) - mean).max() < 5 * sigma.max() / np.sqrt(300)
        assert draws[:, :, i].std(axis=0) == pytest.approx(sigma, rel=0.25)
        assert np.cov(draws[:, :, i].T) == pytest.approx(cov, abs=0.3 * sigma.max() ** 2)


def test_a_realisation_is_a_function_of_the_state_and_each_seed_is_another(model):
    _, x = flight(7)
    one = model.sample(np.random.default_rng(1))
    assert one.errors(x)[3] == pytest.approx(one.errors(x[3:4])[0])
    assert one.errors(x) == pytest.approx(model.sample(np.random.default_rng(1)).errors(x))
    assert np.abs(one.errors(x) - model.sample(np.random.default_rng(2)).errors(x)).max() > 1e-3


def test_an_observation_is_the_truth_and_its_error(model):
    _, x = flight(7)
    one = model.sample(np.random.default_rng(1))
    seen, error = one.observe(x[2]), one.errors(x)[2]
    assert seen.p_wb - x[2, :3] == pytest.approx(error[:3]) and seen.v_w - x[2, 7:10] == pytest.approx(error[3:6])
    assert log(product(seen.q_wb, conjugate(x[2, 3:7]))) == pytest.approx(error[6:9])
    assert np.linalg.norm(seen.q_wb) == pytest.approx(1)


def test_a_model_survives_its_file(model, tmp_path):
    _, x = flight(5)
    model.save(tmp_path / "m.npz")
    again = ObservationModel.load(tmp_path / "m.npz").sample(np.random.default_rng(3)).errors(x)
    assert again == pytest.approx(model.sample(np.random.default_rng(3)).errors(x))
    with pytest.raises(UserError, match=r"none.npz: cannot be read"):
        ObservationModel.load(tmp_path / "none.npz")


def script(*arguments):
    return subprocess.run(
        [sys.executable, "tools/fit_residuals.py", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_learns_from_a_flight_log_with_truth(tmp_path, dcl):
    log_file, unknown = FlightLog(tmp_path / "f.mcap"), np.array([1.0, -2.0, 0.5])
    plant = RatesPlant(dcl, Start((0, 0, 0), 0.0), None, lambda t, x, c: unknown)
    plant.place(np.zeros(3), np.array([1.0, 0, 0, 0]), np.zeros(3))
    for k in range(240):
        t, x = k / 120, plant.x.copy()
        error = 0.1 * np.sin(t + np.arange(9))
        q = np.array(product(exp(error[6:9]), x[3:7]))
        seen = {"p": x[:3] + error[:3], "q": q, "v": x[7:10] + error[3:6], "w": np.zeros(3)}
        log_file.write("state", t, **seen, sigma_p=np.zeros(3), drift=0.0)
        log_file.write("truth", t, p=x[:3], q=x[3:7], v=x[7:10], w=x[10:13])
        throttle = 0.3 + 0.1 * np.sin(3 * t)
        log_file.write("command", t, q=q, w=np.zeros(3), throttle=throttle, source="test", status=0, solve_ms=0.0)
        plant.command(t, AttitudeTarget((1.0, 0, 0, 0), (0.3, np.sin(t), 0.0), throttle, True))
        plant.advance((k + 1) / 120)
    log_file.close()
    files = ("--observation", tmp_path / "o.npz", "--acceleration", tmp_path / "a.npz")
    done = script(tmp_path / "f.mcap", *files, "--samples", 20)
    assert done.returncode == 0 and "position" in done.stdout, done.stderr
    learned = ObservationModel.load(tmp_path / "o.npz")
    t = np.linspace(0, 239, 20).round() / 120
    assert learned._errors == pytest.approx(0.1 * np.sin(t[:, None] + np.arange(9)), abs=1e-6)
    lacks = ResidualAcceleration.load(tmp_path / "a.npz")
    assert lacks(0.0, plant.x, dcl.throttle.thrust(throttle)) == pytest.approx(unknown, abs=0.2)


def test_the_script_says_what_a_log_lacks(tmp_path):
    FlightLog(tmp_path / "e.mcap").close()
    done = script(tmp_path / "e.mcap")
    assert done.returncode == 2 and "no truth" in done.stderr and "Traceback" not in done.stderr
    with pytest.raises(UserError, match=r"e.mcap: no .npz file"):
        ResidualAcceleration.load(tmp_path / "e.mcap")


def test_the_residual_acceleration_is_the_mean_of_five_neighbours():
    _, x = flight(40)
    accel = np.arange(120.0).reshape(40, 3)
    model = ResidualAcceleration(x, np.linspace(10, 20, 40), accel)
    at = model(0.0, x[20], np.linspace(10, 20, 40)[20])
    assert at == pytest.approx(accel[18:23].mean(axis=0))
    with pytest.raises(ValueError, match="at least 5"):
        ResidualAcceleration(x[:3], np.zeros(3), accel[:3])


def test_a_plant_with_a_residual_accelerates_by_it_and_feels_it(dcl):
    unknown = np.array([1.0, -2.0, 0.5])
    plain, odd = (RatesPlant(dcl, Start((0, 0, 0), 0.0), None, r) for r in (None, lambda t, x, c: unknown))
    q = from_euler(0.2, -0.3, 1.0)
    for plant in (plain, odd):
        plant.place(np.zeros(3), q, np.zeros(3))
        plant.advance(0.05)
    assert odd.x[V] - plain.x[V] == pytest.approx(0.05 * unknown, rel=0.01)
    felt = odd.truth.accel_b - plain.truth.accel_b
    assert np.linalg.norm(felt) == pytest.approx(np.linalg.norm(unknown), rel=0.01)


@pytest.mark.parametrize(("number", "plant", "noisy"), [(1, RatesPlant, False), (2, RatesPlant, True),
                                                        (3, SwiftPlant, False), (4, SwiftPlant, True)])  # fmt: skip
def test_the_four_settings_of_the_paper(number, plant, noisy):
    setting = SETTINGS[number]
    made = make_plant(load_vehicle("kolibri"), Start((0, 0, 0), 0.0), setting)
    assert type(made) is plant and setting.noisy is noisy


def test_a_vehicle_flies_what_is_known_of_it_and_no_more(dcl, vq1):
    assert natural(load_vehicle("swift")) == SETTINGS[3] and natural(dcl) == SETTINGS[1]
    with pytest.raises(UserError, match="dcl"):
        Simulator(as_believed(vq1, dcl), load_profile("spec"), 0, setting=SETTINGS[3])
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli", "--setting", "4"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "vehicle dcl: has no `motors`" in done.stderr


@pytest.mark.parametrize(("name", "setting"), [("dcl", 1), ("kolibri", 3)])
def test_a_batch_flies_as_its_plants_would_alone(name, setting, vq1):
    vehicle, rng, world = load_vehicle(name), np.random.default_rng(0), Colliders(vq1)
    batch = Batch(vehicle, SETTINGS[setting], 4, world)
    batch.x[:, :3], batch.x[:, 7:10] = vq1.gates[0].p_wg, rng.normal(0, 3, (4, 3))
    omega, throttle = rng.normal(0, 2, (4, 3)), rng.uniform(0.3, 0.6, 4)
    alone = []
    for i in range(4):
        plant = make_plant(vehicle, vq1.start, SETTINGS[setting], world)
        plant.place(batch.x[i, :3], batch.x[i, 3:7], batch.x[i, 7:10])
        plant._active = AttitudeTarget((1.0, 0, 0, 0), tuple(omega[i]), float(throttle[i]), True)
        alone.append(plant)
    for k in range(60):
        batch.step(omega, throttle, 1 / 120)
        for plant in alone:
            plant.advance((k + 1) / 120)
    assert batch.x == pytest.approx(np.array([plant.x[:13] for plant in alone]), abs=1e-9)

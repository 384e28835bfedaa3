"""Residual models learned from flights with truth recover an added force, and nothing that the plant already models."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.profile import load_profile
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.race.campaign import cli, run
from gate_racer.race.campaign import residuals as files
from gate_racer.sim.physics.plant import RIGID, RatesPlant, V, make_plant
from gate_racer.sim.physics.registry import SETTINGS, natural
from gate_racer.sim.physics.residual import ResidualAcceleration, Residuals, residual_accelerations
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import exp, from_euler, product
from gate_racer.vehicle.vehicle import load_vehicle
from tests.processes import run_here

AIR, LEVEL = Start((0.0, 0.0, 0.0), 0.0), (1.0, 0.0, 0.0, 0.0)
UNKNOWN = np.array([1.0, -2.0, 0.5])


def commands(vehicle, seconds=4.0):
    hover = vehicle.throttle.throttle(9.81)
    for k in range(round(60 * seconds)):
        t = k / 60
        omega = (1.5 * np.cos(2 * t), 1.2 * np.cos(1.3 * t), 0.3 * np.sin(t))
        yield t, AttitudeTarget(LEVEL, omega, hover * (1.15 + 0.2 * np.sin(5 * t)), True)


def flown(plant, vehicle, seconds=4.0):
    """Times and true states (N, 13) of a flight by these commands."""
    plant.place(np.zeros(3), np.array(LEVEL), np.array([4.0, 0.0, 0.0]))
    t, x = [0.0], [plant.x[RIGID].copy()]
    for at, target in commands(vehicle, seconds):
        plant.command(at, target)
        for half in (1, 2):
            plant.advance(at + half / 120)
            t.append(plant.t), x.append(plant.x[RIGID].copy())
    return np.array(t), np.array(x)


@pytest.mark.parametrize(("name", "number"), [("dcl", 1), ("swift", 1), ("swift", 3)])
def test_an_unmodelled_acceleration_is_found_and_nothing_else(name, number):
    vehicle, setting = load_vehicle(name), SETTINGS[number]
    for put_in in (np.zeros(3), UNKNOWN):
        t, x = flown(make_plant(vehicle, AIR, setting, None, lambda t, x, c, a=put_in: a), vehicle)
        states, thrusts, accel = residual_accelerations(t, x, commands(vehicle), vehicle, setting)
        assert len(states) == len(thrusts) == pytest.approx((4.0 - 0.3) * 20, abs=3)
        assert accel == pytest.approx(np.tile(put_in, (len(accel), 1)), abs=0.05)


def test_a_plant_with_what_it_lacked_flies_as_the_other_one():
    """Open loop, by the same commands: an unknown drag, learned, takes most of the gap away."""
    vehicle = load_vehicle("dcl")
    dirty = replace(vehicle, drag_quadratic_1_m=3 * vehicle.drag_quadratic_1_m)
    t, x = flown(RatesPlant(dirty, AIR), vehicle)
    learned = ResidualAcceleration(*residual_accelerations(t, x, commands(vehicle), vehicle, SETTINGS[1]))
    gaps = []
    for residual in (None, learned):
        _, y = flown(RatesPlant(vehicle, AIR, None, residual), vehicle)
        gaps.append(np.abs(y[:, V] - x[:, V])[60:].max())
    assert gaps[0] > 1.0 and gaps[1] < 0.25 * gaps[0]


def test_the_pad_and_a_blow_teach_nothing(dcl):
    n = 241
    t, x = np.arange(n) / 120, np.zeros((n, 13))
    x[:, 3] = 1.0
    assert len(residual_accelerations(t, x, [], dcl, SETTINGS[1])[0]) == 0, "it stands, however gravity pulls"
    x[:, 0], x[:, 7] = np.where(t < 1, 5 * t, 10 - 5 * t), np.where(t < 1, 5.0, -5.0)
    states, _, accel = residual_accelerations(t, x, [], dcl, SETTINGS[1])
    assert len(states) > 20 and np.abs(accel).max() < 20


def test_a_residual_acceleration_is_the_mean_of_five_neighbours():
    _, x = flown(RatesPlant(load_vehicle("dcl"), AIR), load_vehicle("dcl"), 1.0)
    x, c, accel = x[:40], np.linspace(10, 20, 40), np.arange(120.0).reshape(40, 3)
    model = ResidualAcceleration(x, c, accel)
    assert model(0.0, x[20], c[20]) == pytest.approx(accel[18:23].mean(axis=0))
    assert model.many(x[5:30], c[5:30])[15] == pytest.approx(model(0.0, x[20], c[20]))
    with pytest.raises(ValueError, match="at least 5"):
        ResidualAcceleration(x[:3], np.zeros(3), accel[:3])


def a_log(path, vehicle, shift=0.0, source=None):
    """A flight of the rates model with an unknown acceleration, and estimates that err."""
    log, plant = FlightLog(path), RatesPlant(vehicle, AIR, None, lambda t, x, c: UNKNOWN)
    t, x = flown(plant, vehicle, 2.0)
    for at, row in zip(t, x, strict=True):
        log.write("truth", at, p=row[:3], q=row[3:7], v=row[7:10], w=row[10:13])
    for at, target in commands(vehicle, 2.0):
        row = x[round(120 * at)]
        error = 0.1 * np.sin(at + shift + np.arange(9))
        q = np.array(product(exp(error[6:9]), row[3:7]))
        seen = {"p": row[:3] + error[:3], "q": q, "v": row[7:10] + error[3:6], "w": np.zeros(3)}
        log.write("state", at, **seen, sigma_p=np.zeros(3), drift=0.0)
        said = {"q": target.q_wb, "w": target.omega, "throttle": target.throttle}
        log.write("command", at, **said, source="test", status=0, solve_ms=0.0)
    log.close()


def race_bench(*arguments):
    return run.run(cli.parser().parse_args([str(a) for a in arguments]))


@pytest.fixture(scope="module")
def learned(tmp_path_factory, dcl):
    folder = tmp_path_factory.mktemp("residuals")
    for k in range(2):
        a_log(folder / f"{k}.mcap", dcl, shift=3.0 * k)
    logs = (folder / "0.mcap", folder / "1.mcap")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "SAMPLES", 30)
        assert race_bench("fit-residuals", "dcl", *logs, "--out", folder / "r.npz") == 0
    return folder / "r.npz"


def test_flight_logs_become_a_residual_file(learned, dcl):
    residuals = Residuals.load(learned)
    assert residuals.acceleration.accel == pytest.approx(np.tile(UNKNOWN, (len(residuals.acceleration.x), 1)), abs=0.05)
    seen = residuals.observation
    assert len(set(seen.flight)) >= 2 and np.abs(seen.errors).max() == pytest.approx(0.1, abs=0.01)
    residuals.require(dcl, SETTINGS[2], "r.npz")


def test_a_residual_file_flies_only_where_it_was_fitted(learned, dcl):
    residuals = Residuals.load(learned)
    with pytest.raises(UserError, match=r"r.npz: was fitted to the `rates` model .*, but the grey-box"):
        residuals.require(dcl, SETTINGS[3], "r.npz")
    with pytest.raises(UserError, match=r"r.npz: was fitted to another vehicle than swift"):
        residuals.require(load_vehicle("swift"), SETTINGS[1], "r.npz")


def test_errors_of_a_published_size_fly_with_every_plant(tmp_path):
    assert race_bench("make-errors", "swift", "splits_swift", "--out", tmp_path / "e.npz") == 0
    residuals, swift = Residuals.load(tmp_path / "e.npz"), load_vehicle("swift")
    assert residuals.acceleration is None
    assert residuals.observation.errors.std(axis=0) == pytest.approx(np.repeat([0.224, 0.316, 0.032], 3))
    for setting in SETTINGS.values():
        residuals.require(swift, setting, "e.npz")
    with pytest.raises(UserError, match="was fitted to another vehicle"):
        residuals.require(load_vehicle("kolibri"), SETTINGS[2], "e.npz")


@pytest.mark.parametrize(
    ("size", "out", "said"),
    [
        (["vins"], "", r"size vins: must be swift, openvins, .*or three numbers"),
        (["0.1,0.2,1e-400"], "", "three numbers must be positive"),
        ([], "e.csv", "must end in .npz"),
    ],
)
def test_errors_that_cannot_be_made_are_one_clear_line(tmp_path, size, out, said):
    with pytest.raises(UserError, match=said):
        race_bench("make-errors", "dcl", "vq1", *size, "--out", out or tmp_path / "e.npz")


def test_a_malformed_residual_file_is_refused_in_one_line(tmp_path):
    FlightLog(tmp_path / "e.mcap").close()
    for file, said in (("e.mcap", "not a valid .npz file"), ("none.npz", "cannot be read")):
        with pytest.raises(UserError, match=f"{file}: {said}"):
            Residuals.load(tmp_path / file)
    with pytest.raises(UserError, match=r"e.mcap: the log has no channel truth"):
        race_bench("fit-residuals", "dcl", tmp_path / "e.mcap", "--out", tmp_path / "r.npz")
    with pytest.raises(UserError, match=r"r.csv: must end in .npz"):
        race_bench("fit-residuals", "dcl", tmp_path / "e.mcap", "--out", tmp_path / "r.csv")


def test_the_simulator_flies_with_a_residual_file(learned, tmp_path):
    from gate_racer.race.race_sim import SimulatorSettings
    from gate_racer.race.serving import residual_of

    asked = SimulatorSettings(residual=learned)
    dcl = load_vehicle("dcl")
    push = residual_of(asked, dcl)(0.0, np.array([1.0, 0, 0, 1, 0, 0, 0, 4, 0, 0]), 10.0)
    assert push == pytest.approx(UNKNOWN, abs=0.05)
    done = run_here("gate_racer.race.race_sim", "--vehicle", "swift", "--set", f"residual={learned}")
    assert done.returncode == 2 and "was fitted to another vehicle" in done.stderr and "Traceback" not in done.stderr


def test_a_vehicle_flies_what_is_known_of_it_and_no_more(dcl, vq1):
    assert natural(load_vehicle("swift")) == SETTINGS[3] and natural(dcl) == SETTINGS[1]
    with pytest.raises(UserError, match="dcl"):
        Simulator(as_believed(vq1, dcl), load_profile("spec"), 0, RunSetup(setting=SETTINGS[3]))
    done = run_here("gate_racer.race.race_sim", "--set", "plant=4")
    assert done.returncode == 2 and "vehicle dcl: has no `motors`" in done.stderr


def test_a_plant_with_a_residual_accelerates_by_it_and_feels_it(dcl):
    plain, odd = (RatesPlant(dcl, AIR, None, r) for r in (None, lambda t, x, c: UNKNOWN))
    q = from_euler(0.2, -0.3, 1.0)
    for plant in (plain, odd):
        plant.place(np.zeros(3), q, np.zeros(3))
        plant.advance(0.05)
    assert odd.x[V] - plain.x[V] == pytest.approx(0.05 * UNKNOWN, rel=0.01)
    felt = odd.truth.accel_b - plain.truth.accel_b
    assert np.linalg.norm(felt) == pytest.approx(np.linalg.norm(UNKNOWN), rel=0.01)

"""A race by an outside VIO and gates: whole flights, their replays, and what is refused."""

import json

import numpy as np
import pytest

from gate_racer.link.messages import LocalPosition, Odometry
from gate_racer.link.profile import load_profile
from gate_racer.race.campaign.residuals import errors_along, sizes
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.worlds.world import as_believed
from tests.processes import raced, run_here

VIO = "perception.estimator=drift-vio"
SIZE = "world.vio=0.1,0.1,0.005"


@pytest.fixture(scope="module")
def flight(tmp_path_factory, plan_folder):
    folder = tmp_path_factory.mktemp("vio")
    return raced(folder, plan_folder / "vq1.csv", "--set", VIO, SIZE)


def test_vq1_is_finished_by_an_outside_vio_and_gates(flight):
    assert flight["status"] == "finished" and flight["vision"]["sightings"] > 30
    assert "odometry" not in flight["troubles"]


def test_a_replay_flies_the_same_estimate_from_the_vio_in_the_log(flight, tmp_path, monkeypatch):
    monkeypatch.setattr("gate_racer.pilot.replay.draw", lambda *_: None)
    done = run_here(
        "gate_racer.pilot.replay_flight", flight["log"], "--out", tmp_path / "a", "--set", "estimator=drift-vio"
    )
    figures = json.loads((tmp_path / "a.json").read_text())
    assert done.returncode == 0 and figures["odometry_used"] > 500, done.stderr
    assert figures["from_logged_rms_m"] < 1e-4 and figures["error_rms_m"] == pytest.approx(
        flight["estimate_rmse_m"], rel=0.1
    )


REFUSED = {
    "no VIO": ([VIO], "needs a VIO: give its errors, as in world.vio=openvins"),
    "and the truth": ([VIO, SIZE, "perception.pose=true"], "cannot be combined with perception.pose"),
    "for the truth": ([SIZE, "perception.pose=true"], "world.vio: cannot be combined with perception.pose"),
    "elsewhere": ([VIO, SIZE, "link.live=true"], "world.vio: applies to the built-in simulator only"),
    "by MSP": ([VIO, SIZE, "link.profile=betaflight"], "not available with the MSP profile betaflight"),
    "that MSP has not": ([VIO, "link.profile=betaflight"], "not available with the MSP profile betaflight"),
    "of no size": ([VIO, "world.vio=large"], "error: world.vio large: must be swift, openvins"),
    "in real time": (["world.vio=large", "link.lockstep=false"], "error: world.vio large: must be swift, openvins"),
    "too large": ([VIO, "world.vio=1e300,1e300,1e300"], "must be positive, and at most 1000"),
}


@pytest.mark.parametrize(("keys", "words"), REFUSED.values(), ids=REFUSED)
def test_a_vio_that_contradicts_is_refused_in_a_line(keys, words, tmp_path, plan_folder):
    asked = plan_folder / "vq1.csv", "--log", tmp_path, "--set", "link.lockstep=true", *keys
    done = run_here("gate_racer.race.run_mpc", *asked)
    assert done.returncode == 2 and words in done.stderr.splitlines()[0], done.stderr


def test_a_simulator_sends_one_odometry():
    done = run_here("gate_racer.race.race_sim", "--set", SIZE, "link.pose=true")
    assert done.returncode == 2 and "world.vio: cannot be combined with link.pose" in done.stderr, done.stderr


def test_a_campaign_by_vio_needs_its_errors():
    done = run_here("gate_racer.race.campaign.cli", "--seeds", 1, "--set", "estimators=drift-vio")
    assert done.returncode == 2 and "residual=FILE of race-bench make-errors" in done.stderr


def test_the_simulated_vio_begins_at_an_origin_and_a_heading_of_its_own(vq1, dcl):
    setup = RunSetup(vio=errors_along(vq1, sizes("openvins")))
    simulator = Simulator(as_believed(vq1, dcl), load_profile("dcl"), 0, setup)
    told = [message for _ in range(120) for message in simulator.tick().telemetry]
    odometry = [message for message in told if isinstance(message, Odometry)]
    assert len(odometry) == 100 and not any(isinstance(message, LocalPosition) for message in told)
    w, x, y, z = odometry[0].q_wb
    assert np.abs(odometry[-1].p_wb).max() < 1e-6 and np.arctan2(
        2 * (w * z + x * y), 1 - 2 * (y * y + z * z)
    ) == pytest.approx(0)

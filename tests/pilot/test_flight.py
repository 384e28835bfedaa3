"""Whole flights: real processes, real sockets, real files."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import casadi
import pytest
from mcap.reader import make_reader

from tests.conftest import ROOT, changed
from tests.processes import command, few_images, free_port, in_real_time, raced, run_here

KEYS = {
    "status", "race_time_s", "planned_time_s", "gates_passed", "gates_total", "gate_times_s", "gate_margins_m",
    "min_margin_m", "mean_margin_m", "tracking_rmse_m", "estimate_rmse_m", "mpc_solve_ms", "command_hz",
    "command_hz_max_1s", "vision", "seed", "track", "vehicle", "plan_hash", "log",
}  # fmt: skip


DIFFERS = {"mpc_solve_ms", "mpc_late", "log", "settings", "printed"}


def flown(sprint, folder, camera, seed):
    """The result of a flight in lock-step, with fewer images than usual: drawing them takes the time."""
    few = "--profile", few_images("spec", folder, 12.0)
    keys = "--set", f"plan.folder={sprint}"
    return raced(folder, sprint / "sprint.yaml", "--camera", camera, "--seed", seed, *few, *keys)


@pytest.fixture(scope="module")
def lockstep(sprint, tmp_path_factory):
    """Results of flights in lock-step by camera."""
    folder = tmp_path_factory.mktemp("lockstep")
    return {camera: flown(sprint, folder, camera, 3) for camera in ("rendered", "projected")}


def require_sound(outcome, gates):
    assert outcome.keys() >= KEYS
    assert outcome["status"] == "finished" and outcome["gates_passed"] == outcome["gates_total"] == gates
    assert outcome["race_time_s"] < 1.1 * outcome["planned_time_s"] and outcome["min_margin_m"] >= 0.25
    assert outcome["vision"]["sightings"] > 4 * gates and outcome["estimate_rmse_m"] < 0.5
    assert outcome["command_hz_max_1s"] < 100 and 50 < outcome["command_hz"] < 100


def test_a_course_is_finished_by_sight_with_room_at_every_gate(lockstep):
    for outcome in lockstep.values():
        require_sound(outcome, 2)


def test_the_same_seed_flies_the_same_flight(lockstep, sprint, tmp_path, undrawn):
    flights = lockstep["projected"], flown(sprint, tmp_path, "projected", 3)
    first, again = ({key: one[key] for key in one.keys() - DIFFERS} for one in flights)
    assert first == again


def test_the_log_holds_every_channel_with_its_schema(lockstep):
    with Path(lockstep["rendered"]["log"]).open("rb") as file:
        seen, last = {}, {}
        for schema, channel, message in make_reader(file).iter_messages():
            last[channel.topic] = record = json.loads(message.data)
            assert set(json.loads(schema.data)["properties"]) >= set(record)
            seen[channel.topic] = seen.get(channel.topic, 0) + 1
    steps, vision = seen["/command"], lockstep["rendered"]["vision"]
    assert steps > 150 and seen["/state"] == seen["/reference"] == steps
    assert seen["/camera"] == vision["frames"] and seen["/sighting"] == vision["sightings"]
    assert {"/truth", "/referee", "/phase", "/flight"} <= seen.keys()
    assert lockstep["rendered"]["learned"].items() <= last["/learned"].items(), "of the vehicle, as in the result"
    assert Path(lockstep["rendered"]["log"]).with_suffix(".png").read_bytes().startswith(b"\x89PNG"), "it is drawn"


def test_the_traps_of_the_real_builds_are_flown_through_and_as_fast_as_by_a_told_state(sprint, tmp_path, undrawn):
    """From any folder; images count where a state is told, too."""
    shutil.copytree(sprint, tmp_path / "plans")
    words = "--lockstep", "--camera", "projected", "--profile", "dcl", "--seed", 3, "--json", "logs/result.json"
    done = run_here("gate_racer.race.run_mpc", "plans/sprint.yaml", *words, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"plans", "logs"}
    outcome = json.loads((tmp_path / "logs/result.json").read_text())
    assert outcome["status"] == "finished" and outcome["min_margin_m"] >= 0.25 and outcome["estimate_rmse_m"] < 0.5
    assert outcome["command_hz_max_1s"] < 100
    told = raced(tmp_path, sprint / "sprint.csv", "--profile", "dcl", "--seed", 3, "--set", "perception.pose=true")
    assert told["race_time_s"] < 1.005 * outcome["race_time_s"] and not told["retries"]
    assert told["estimate_rmse_m"] < 0.2 * outcome["estimate_rmse_m"] and told["vision"]["sightings"] > 5


def test_a_replay_repeats_the_flights_own_estimate_and_can_try_another(lockstep, sprint, tmp_path):
    figures = []
    for estimator, detector in (("eskf", "classical"), ("drift", "logged"), ("eskf", "logged")):
        keys = f"track={sprint / 'sprint.yaml'}", f"estimator={estimator}", f"detector={detector}"
        options = "--set", *keys, "--out", tmp_path / estimator
        done = run_here("gate_racer.pilot.replay_flight", lockstep["rendered"]["log"], *options)
        assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stdout + done.stderr
        assert (tmp_path / f"{estimator}.png").read_bytes().startswith(b"\x89PNG")
        figures.append(json.loads((tmp_path / f"{estimator}.json").read_text()))
    assert figures[0]["from_logged_max_m"] < 1e-6 < 1e-3 < figures[1]["from_logged_rms_m"]
    assert figures[0]["error_rms_m"] == pytest.approx(lockstep["rendered"]["estimate_rmse_m"], abs=1e-3)
    assert figures[2]["from_logged_max_m"] < 0.01, "detections are in the log, but for their last digits"


def test_a_log_without_images_is_replayed_by_the_detections_that_it_holds(lockstep, sprint, tmp_path):
    flight = lockstep["projected"]
    options = "--set", f"track={sprint / 'sprint.yaml'}", "--out", tmp_path / "again"
    done = run_here("gate_racer.pilot.replay_flight", flight["log"], *options)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "again.json").read_text())
    assert figures["detector"] == "logged" and figures["gates_used"] >= flight["vision"]["sightings"] - 5
    assert figures["from_logged_rms_m"] < 0.02 and figures["attitude_deg"] < 0.5


LESS = {  # what is sent of the IMU or ATTITUDE, and the estimator
    "an IMU of 50 Hz": ("imu_hz: 120.0\nimu_fresh_hz: 120.0", "imu_hz: 50.0\nimu_fresh_hz: 50.0", "eskf"),
    "no attitude, and the drift filter": ("attitude_hz: 120.0", "attitude_hz: 0", "drift"),
}


@pytest.mark.parametrize(("usual", "less", "estimator"), LESS.values(), ids=LESS)
def test_less_telemetry_is_enough_to_finish(hop_plans, tmp_path, undrawn, usual, less, estimator):
    profile = changed(tmp_path, ROOT / "link/profiles/spec.yaml", usual, less)
    keys = "--set", f"perception.estimator={estimator}"
    outcome = raced(tmp_path, hop_plans / "hop.csv", "--profile", profile, *keys)
    assert outcome["race_time_s"] < 1.05 * outcome["planned_time_s"] and outcome["min_margin_m"] > 0.25
    assert outcome["min_margin_m"] >= 0.25 and outcome["estimate_rmse_m"] < 0.3


def test_the_embedded_simulator_flies_in_real_time(hop_plans, tmp_path, undrawn):
    """By a profile of one's own, whose name is not that of a shipped one: the simulator has to get the file."""
    profile = changed(tmp_path, few_images("spec", tmp_path), "name: spec", "name: own")

    def fly(folder):
        flags = "--profile", profile, "--log", folder, "--json", folder / "result.json"
        return run_here("gate_racer.race.run_mpc", hop_plans / "hop.yaml", "--set", f"plan.folder={hop_plans}", *flags)

    outcome = json.loads((in_real_time(fly, tmp_path) / "result.json").read_text())
    assert outcome["gates_passed"] == 1 and outcome["command_hz_max_1s"] < 100
    assert outcome["estimate_rmse_m"] is not None


def test_ctrl_c_ends_cleanly_with_the_log_saved(sprint, tmp_path, monkeypatch):
    monkeypatch.setattr("gate_racer.pilot.live.wait", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    flags = "--set", "link.listen=127.0.0.1:0", "link.video=127.0.0.1:0", "--log", tmp_path
    flags += "--json", tmp_path / "result.json"
    ended = run_here("gate_racer.race.run_mpc", sprint / "sprint.csv", "--live", *flags)
    assert ended.returncode == 130 and "Traceback" not in ended.stderr and "aborted (interrupted)" in ended.stdout
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "aborted"
    with next(tmp_path.glob("*.mcap")).open("rb") as file:
        assert make_reader(file).get_summary() is not None


class Struck:
    """A solver that is interrupted while it computes, as by Ctrl-C."""

    def __init__(self, *problem, make=casadi.nlpsol):
        self._solver = make(*problem)

    def __call__(self, **start):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            return self._solver(**start)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def __getattr__(self, name):
        return getattr(self._solver, name)


def test_an_interrupted_plan_leaves_nothing_behind(tmp_path, monkeypatch):
    """Struck while IPOPT runs, where CasADi would swallow it."""
    monkeypatch.setattr("casadi.nlpsol", Struck)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    ended = run_here("gate_racer.race.plan_track", "tracks/vq2.yaml", "--out", tmp_path / "plans")
    signal.signal(signal.SIGALRM, before)
    assert ended.returncode == 130 and ended.stderr.endswith("interrupted\n") and "Traceback" not in ended.stderr
    assert not (tmp_path / "plans").exists()


# Simulator and pilot in two processes, in lock-step so that a busy machine does not matter.


ASIDE = '"SensorPosXYZ": [0.1, 0, -0.03], "SensorAngEular": [0, 20'  # where the file has it at [0, 0, 0]


def both(sprint, folder):
    """The simulator and the pilot in two processes, with PX4's side of MAVLink and a camera of RflySim between them."""
    own, client, desk = (f"127.0.0.1:{free_port()}" for _ in range(3))
    text = (ROOT / "examples/rflysim.json").read_text(encoding="utf-8")
    text = text.replace(ASIDE.replace("[0.1, 0, -0.03]", "[0, 0, 0]"), ASIDE)
    (folder / "Config.json").write_text(text.replace("9999, 0, 0", f"{free_port()}, 1400, 0"))
    keys = "--set", "once=true", f"link.bind={own}", f"link.client={client}", f"link.vision_protocol=rflysim://{desk}"
    profile = few_images("px4", folder)
    with subprocess.Popen(
        command("gate_racer.race.race_sim", "--track", sprint / "sprint.yaml", "--profile", profile, "--lockstep",
                "--seed", 5, "--report", folder / "report.json", *keys),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as server:  # fmt: skip
        try:
            vision = f"link.vision=rflysim://{desk}?config={folder / 'Config.json'}"
            flags = "--profile", profile, "--log", folder, "--json", folder / "result.json"
            keys = "--set", f"link.listen={client}", f"link.peer={own}", vision
            done = run_here("gate_racer.race.run_mpc", sprint / "sprint.csv", "--live", "--lockstep", *flags, *keys)
            if done.returncode != 0:
                server.terminate()
            return done, server.communicate(timeout=30)[0]
        finally:
            server.kill()


def test_a_course_is_finished_in_offboard_by_a_camera_of_rflysim_that_sits_elsewhere(sprint, tmp_path, undrawn):
    """Flown once more where another program took a port in between."""
    for _ in range(2):
        done, told = both(sprint, tmp_path)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr + told
    outcome, report = (json.loads((tmp_path / name).read_text()) for name in ("result.json", "report.json"))
    assert outcome["status"] == report["status"] == "finished" and len(report["gate_times_s"]) == 2
    assert outcome["gate_times_s"] == pytest.approx(report["gate_times_s"], abs=0.1)
    assert "finished: 2/2 gates" in told and "Traceback" not in told + done.stderr
    assert min(report["gate_margins_m"]) >= 0.25 and outcome["vision"]["sightings"] > 7
    assert "autopilot" not in done.stderr and not outcome["troubles"]
    assert outcome["estimate_rmse_m"] is None, "nothing but camera and IMU: the truth is not there to compare with"

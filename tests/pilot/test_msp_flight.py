"""Flights behind a flight controller: by sticks and polls over a slow line, and down to the ground at the end."""

import contextlib
import json
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gate_racer.link.msp.client import MspLine
from gate_racer.link.msp.ports import open_port
from gate_racer.link.msp.preflight import read_steady, write_preflight
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.record import read_records
from gate_racer.link.sockets import LinkError
from gate_racer.planner.plan import read_plan
from gate_racer.sim.betaflight.server import TerminalLine
from gate_racer.sim.betaflight.station import StationPort
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle
from tests.conftest import ROOT, with_plan
from tests.preflights import made
from tests.processes import command, few_images, free_port, in_real_time, raced, run, run_here

MSP = "--profile", "betaflight", "--vehicle", "archer"
REST = np.array([43.5, 7.5, -1.4])
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def hall(tmp_path_factory) -> Path:
    return make_hall(tmp_path_factory)


def make_hall(tmp_path_factory) -> Path:
    """A folder with the first two gates of the physical qualifier's course, a stop behind them, and the plan."""
    folder = tmp_path_factory.mktemp("hall")
    lines = (ROOT / "tracks/pq.yaml").read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("gates:"))
    kept = [line for line in lines[: first + 3] if not line.startswith(("closed:", "end_m:"))]
    text = "\n".join(kept).replace("name: pq", f"name: hall\nend_m: {REST.tolist()}")
    (folder / "hall.yaml").write_text(text, encoding="utf-8")
    return with_plan(folder, tmp_path_factory, load_track(folder / "hall.yaml"), load_vehicle("archer"))


def last(log: Path, topic: str) -> dict:
    return [record for name, record in read_records(log) if name == topic][-1]


class TerminalStation(StationPort):
    """A station at the other end of a pseudo-terminal, whose clock stands still while bytes are under way."""

    def __init__(self, station):
        super().__init__(station)
        self._line = TerminalLine()
        self._port = open_port(self._line.name, 0)

    def read(self, timeout_s):
        return self._through(super().read(timeout_s), self._line, self._port)

    def write(self, data):
        super().write(self._through(data, self._port, self._line))

    @staticmethod
    def _through(data, one, other):
        arrived = b""
        one.write(data)
        while len(arrived) < len(data):
            arrived += other.read(1.0)
        return arrived


def test_a_flight_over_a_pseudo_terminal_ends_at_rest_and_sinks_to_the_floor(hall, tmp_path, monkeypatch):
    """Its accelerometer is corrected by the velocity, in flight and in a replay."""
    corrected, correct = list[tuple[float, ...]](), Vehicle.steadied
    monkeypatch.setattr(Vehicle, "steadied", lambda self, a, v_b: corrected.append(v_b) or correct(self, a, v_b))
    monkeypatch.setattr("gate_racer.race.lockstep.StationPort", TerminalStation)
    outcome = raced(tmp_path, hall / "hall.csv", *MSP[2:], "--profile", few_images("betaflight", tmp_path, 15.0))
    assert outcome["verdict_by"] == "referee" and outcome["gates_passed"] == 2
    assert outcome["command_hz"] == pytest.approx(40.0, abs=0.5)
    states = [record for name, record in read_records(Path(outcome["log"])) if name == "/state"]
    p = np.array([state["p"] for state in states])
    sinking = p[np.flatnonzero(p[:, 2] < -1.0)[-1] :]
    touchdown = sinking[sinking[:, 2] > -0.3][0]  # the estimate drifts on while the vehicle lies there
    assert np.linalg.norm(touchdown[:2] - REST[:2]) < 0.5
    along = {tuple(np.round(matrix(one["q"]).T @ one["v"], 6)) for one in states}
    flown = {tuple(np.round(v_b, 6)) for v_b in corrected}
    assert len(flown & along) > 0.9 * len(along), "what was measured while a state was the last"
    corrected.clear()
    assert (
        run_here("gate_racer.pilot.replay_flight", outcome["log"], "--set", f"track={hall}/hall.yaml").returncode == 0
    )
    assert max(np.linalg.norm(v_b) for v_b in corrected) > 5.0


def test_a_plan_from_the_floor_rises_before_it_leans(hall):
    """Plans that leaned within 0.2 m of the floor came down there in worlds with less thrust or more delay."""
    plan, archer, start = read_plan(hall / "hall.csv"), load_vehicle("archer"), load_track(hall / "hall.yaml").start
    early = plan.t < 0.5
    cosine = 1 - 2 * (plan.x[early][:, 4] ** 2 + plan.x[early][:, 5] ** 2)
    rim = archer.contact_radius_m * np.sqrt(1 - cosine**2)
    assert rim.max() > 0.15, "it does lean"
    assert np.all(rim <= start.p_wb[2] - plan.x[early][:, 2] + 0.06)


def test_a_wrong_field_of_view_and_a_long_delay_are_found_before_the_first_gate(hall, tmp_path):
    """90 deg where 74 are believed, and 50 ms more delay: of a learned policy 42 and 55 crashes in 100 gates are published."""
    wrong = "{camera: {focal_scale: 0.75}, plant: {command_delay_s: 0.05}}"
    (tmp_path / "wrong.yaml").write_text(f"name: wrong\nsource: a test\nworld: {wrong}\n", encoding="utf-8")
    outcome = raced(tmp_path, hall / "hall.csv", *MSP, "--world", tmp_path / "wrong.yaml", "--seed", 3)
    assert outcome["camera"]["focal_scale"] == pytest.approx(0.75, rel=0.08)
    assert outcome["learned"]["delay_s"] == pytest.approx(0.126, abs=0.012)  # by a mode; they lie 10 ms apart


def found(where: str, name: Path, folder: Path) -> Path:
    """The file of a preflight of what answers there, which is set up by a profile's file."""
    profile, port = load_betaflight(str(name)), open_port(where, 0)
    try:
        constants = read_steady(MspLine(port, profile, 0.0), profile)
    finally:
        port.close()
    write_preflight(folder / "found.yaml", replace(made(str(name)), constants=constants))
    return folder / "found.yaml"


@contextlib.contextmanager
def race_sim(*arguments):
    """A simulator on a pseudo-terminal that draws few images. Yields its process, and run-mpc's options to fly it."""
    video = f"127.0.0.1:{free_port()}"
    simulator = command("gate_racer.race.race_sim", *arguments, "--set", "once=true", f"link.video={video}")
    with subprocess.Popen(simulator, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = re.search(r"MSP on (\S+) at", process.stdout.readline())[1]
            yield process, line, ("--live", "--set", f"link.msp={line}", f"link.video={video}")
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


@pytest.mark.soak  # three processes in real time that draw and see: both cores, without another test beside it
def test_a_flight_over_a_pseudo_terminal_by_drawn_images_lands_before_the_simulator_goes(hall, tmp_path):
    profile = few_images("betaflight", tmp_path)
    msp = "--profile", profile, "--vehicle", "archer"

    def fly(folder):
        with race_sim(*msp, "--track", hall / "hall.yaml", "--report", folder / "r.json") as (process, line, there):
            flags = "--log", folder, "--json", folder / "result.json"
            flags += "--set", f"link.preflight={found(line, profile, folder)}"
            flown = run("gate_racer.race.run_mpc", hall / "hall.csv", *msp, *there, *flags)
            assert flown.returncode != 0 or process.wait(60) == 0
        return flown

    folder = in_real_time(fly, tmp_path)
    assert json.loads((folder / "r.json").read_text())["status"] == "finished"
    (log,) = folder.glob("*.mcap")
    stopped = last(log, "/command")["t"]
    accel = [one["accel"] for name, one in read_records(log) if name == "/imu" and one["t"] > stopped + 0.1]
    assert np.linalg.norm(np.mean(accel[-10:], axis=0)) > 0.7 * GRAVITY, "without thrust: the floor carries it"


def test_whoever_sends_sticks_has_a_guard_and_a_shadow_needs_none(hall, monkeypatch):
    def opened(what):
        def refuse(*_):
            raise LinkError(f"{what} was opened")

        return refuse

    for name in ("GuardedPort", "open_port"):
        monkeypatch.setattr(f"gate_racer.race.session.{name}", opened(name))
    for keys, name in (((), "GuardedPort"), (("link.shadow=true",), "open_port")):
        line = "--live", "--set", "link.msp=tcp:127.0.0.1:1", *keys
        done = run_here("gate_racer.race.run_mpc", hall / "hall.csv", *MSP, *line)
        assert done.returncode == 2 and f"{name} was opened" in done.stderr

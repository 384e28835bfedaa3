"""A shadow looks on while a person flies: it commands and sends nothing, logs both, and learns from what was carried out."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gate_racer.field.report.charts import time_charts
from gate_racer.field.report.flight import read_logged_flight
from gate_racer.link.messages import Arm, AttitudeTarget, HumanSticks, Imu
from gate_racer.link.msp.client import MspClient
from gate_racer.link.msp.profile import STICKS, load_betaflight
from gate_racer.link.record import read_records
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.flight import EndReason, FlightOptions
from gate_racer.pilot.lockstep import LockstepFlight
from gate_racer.pilot.pilot import PilotModels, build_racer
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import read_plan
from gate_racer.race.lockstep import BetaflightLink, open_perception
from gate_racer.sim.betaflight.station import BetaflightStation, StationPort, switched
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import to_euler
from gate_racer.vehicle.vehicle import load_vehicle
from tests.pilot.test_msp_flight import make_hall

BF, ARCHER = replace(load_betaflight("betaflight"), boot_s=1.0, video_hz=10.0), load_vehicle("archer")
HOVER = ARCHER.throttle.throttle(9.80665)
ARM_S, LIFT_S, STOP_S = 2.5, 3.0, 8.0
WEAKER = 0.9  # of the thrust that is believed


class Person:
    """Arms, climbs and bobs about a height, by what the eye sees, with the override off all the time."""

    station: BetaflightStation

    def reset(self):
        pass

    def channels(self, controller, t):
        if t < ARM_S:
            return switched(BF)
        us, x = switched(BF, BF.aux.arm), self.station.simulator.truth.x
        if t > LIFT_S:
            roll, pitch, _ = to_euler(x[3:7])
            height = 3.5 - 2.5 * np.cos(1.6 * (t - LIFT_S))
            throttle = HOVER / WEAKER * (1 + 0.25 * (height + x[2]) + 0.25 * x[9])
            us[:STICKS] = BF.sticks_by_rates((-3.0 * roll, -3.0 * pitch, 0.3), float(np.clip(throttle, 0.1, 0.6)))
        return us


@pytest.fixture(scope="module")
def flown(tmp_path_factory):
    """A shadow's pilot, the station and the log of eight seconds in a person's hands."""
    folder = make_hall(tmp_path_factory)
    weak = f"name: weak\nsource: a test\nworld: {{plant: {{thrust_scale: {WEAKER}}}}}\n"
    (folder / "weak.yaml").write_text(weak, encoding="utf-8")
    track, plan = load_track(folder / "hall.yaml"), read_plan(folder / "hall.csv")
    world, person = resolve(str(folder / "weak.yaml"), track, ARCHER), Person()
    station = person.station = BetaflightStation(world, BF, 3, pilot=person)
    controller = make_controller("auto", plan, ARCHER, track)
    shadow = build_racer(PilotModels.of(track, ARCHER, BF.wire), controller, FlightOptions(lands=True, shadow=True))
    eye = open_perception("projected", "race", world, ARCHER.camera, BF.wire, 3)
    recorder = Recorder(FlightLog(folder / "shadow.mcap"))
    about = {"track": "hall", "vehicle": "archer", "plan_hash": "", "world": {}, "seed": 3, "profile": "betaflight"}
    recorder.log.write("flight", 0.0, **about, planned_gate_times_s=[])
    link = BetaflightLink(station, BF, eye, shadow=True)
    for _ in LockstepFlight(shadow, BF.wire, link, recorder):
        if link.t > STOP_S:
            shadow.abort(EndReason.INTERRUPTED, "enough")
    recorder.close()
    eye.close()
    return shadow, station, folder / "shadow.mcap"


def test_the_person_flies_no_stick_is_sent_and_what_is_learned_comes_of_the_persons(flown):
    shadow, station, _ = flown
    assert station.controller.receiver.companion_t is None, "no SET_RAW_RC has come"
    assert station.simulator.truth.x[2] < -1.0 and station.controller.armed
    assert shadow.cause == "enough", "neither a late launch nor a plan that is over ends it"
    assert shadow.go_t == pytest.approx(ARM_S, abs=1.0)
    shadow, _, _ = flown
    assert shadow.guidance.learned().thrust_scale == pytest.approx(WEAKER, abs=0.08)


def test_the_log_holds_both_and_the_page_draws_them(flown):
    _, _, log = flown
    sticks = [record for topic, record in read_records(log) if topic == "/sticks"]
    late = [record for record in sticks if record["t"] > LIFT_S + 1.0]
    assert len(late) > 150
    assert np.mean([record["w"][2] for record in late]) == pytest.approx(0.3, abs=0.02)
    assert np.mean([record["throttle"] for record in late]) == pytest.approx(HOVER / WEAKER, rel=0.1)
    drawn = time_charts(read_logged_flight(log))
    charts = {chart["title"]: [line["name"] for line in chart["data"]] for chart in drawn}
    for title in ("Throttle, 0 to 1", "Commanded roll rate", "Commanded pitch rate", "Commanded yaw rate"):
        assert charts[title] == ["commanded", "the person's sticks"]


class Listening(StationPort):
    """Port that records what was written."""

    written = b""

    def write(self, data):
        self.written += data
        super().write(data)


def client(angle=False):
    """A shadow's client on a line whose person has armed and leans, and what it has heard."""
    station = BetaflightStation(as_believed(load_track("pq"), ARCHER), BF, 0)
    us = switched(BF, BF.aux.arm, *([BF.aux.angle] if angle else []))
    us[BF.channel("A")] = 1750.0

    class Leaning:
        def channels(self, controller, t):
            return us if t > 1.5 else switched(BF)

    station.pilot = Leaning()
    port = Listening(station)
    shadow, received = MspClient(port, BF, port.clock, shadow=True), []
    while port.t < 3.0:
        shadow.keep_alive(port.t)
        received += [message for _, message in shadow.receive(0.01)]
    return shadow, port, received


def test_a_shadows_client_polls_takes_commands_and_sends_none():
    shadow, port, received = client()
    assert shadow.handed_over and any(isinstance(message, Imu) for message in received)
    before = len(port.written)
    assert shadow.send(AttitudeTarget((1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0), 0.5), port.t, port.t)
    assert shadow.send(Arm(False), port.t, port.t)
    shadow.keep_alive(port.t)
    assert len(port.written) - before < 20, "a request at most"
    assert b"\x24\x4d\x3c\x08\xc8" not in port.written, "the head of SET_RAW_RC with four channels"


def test_sticks_are_rates_by_the_aircrafts_curves_and_in_angle_mode_what_it_turns_with():
    told = [message for message in client()[2] if isinstance(message, HumanSticks)]
    assert all(a.t < b.t for a, b in pairwise(told))
    assert told[-1].omega == pytest.approx((BF.rates.rate(0, 0.5), 0.0, 0.0)) and told[-1].throttle == 0.0
    angled = [message for message in client(angle=True)[2] if isinstance(message, HumanSticks)]
    assert max(map(abs, angled[-1].omega)) < 0.2, "it stands still"

"""The real-time driver ends by itself, whatever the simulator does."""

import multiprocessing
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gate_racer.link.client import MavlinkClient
from gate_racer.link.messages import Farewell
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import EndReason, Phase
from gate_racer.pilot.handshake import Handshake
from gate_racer.pilot.live import SILENCE_S, LiveDriver
from gate_racer.pilot.pilot import Pilot
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder


def pilot_after_go(dcl, phase):
    guidance = SimpleNamespace(conclude=lambda end: end, receive=lambda message: None)
    profile = load_profile("spec")
    pilot = Pilot(Handshake(profile), SimpleNamespace(t=10.0), guidance, profile, dcl)
    pilot.handshake.phase, pilot.handshake.go_t, pilot._flight.airborne = Phase.LAUNCH, 3.0, True
    if phase is Phase.FINISHED:
        pilot.abort(EndReason.FINISHED, "")
    pilot.act = lambda: []
    return pilot


@contextmanager
def driver(pilot, folder):
    """Run the driver with a perception that detects nothing."""
    ours, theirs = multiprocessing.Pipe()
    perception = SimpleNamespace(
        pipe=ours, receive=list, alive=True, accept_only=lambda host: None, silent_s=lambda now: 0.0
    )
    log = FlightLog(folder / "flight.mcap")
    with MavlinkClient("127.0.0.1", 0, load_profile("spec")) as client:
        yield LiveDriver(pilot, client, perception, load_profile("spec"), Recorder(log))
    log.close()
    for pipe in (ours, theirs):
        pipe.close()


def test_one_heartbeat_of_a_simulator_that_ends_is_not_the_end(dcl, tmp_path, monkeypatch):
    last_words = Farewell(10.0, "for no reason")
    monkeypatch.setattr(MavlinkClient, "receive", lambda *_: [(0.0, last_words)])
    pilot = pilot_after_go(dcl, Phase.RACE)
    with driver(pilot, tmp_path) as live:
        live._listen()
    assert not pilot.over
    pilot.receive(last_words)
    assert pilot.over and "for no reason" in pilot.cause


def test_a_finished_pilot_does_not_fly_on_in_a_simulator_that_has_ended(dcl):
    pilot = pilot_after_go(dcl, Phase.FINISHED)
    assert not pilot.over
    pilot.receive(Farewell(10.0, "no message for 10 s"))
    assert pilot.over and pilot.phase is Phase.FINISHED


@pytest.mark.parametrize(
    ("phase", "end", "reason"),
    [(Phase.RACE, Phase.ABORTED, f"no IMU sample for {SILENCE_S:g} s"), (Phase.FINISHED, Phase.FINISHED, "")],
)
def test_a_simulator_that_falls_silent_ends_the_flight(dcl, tmp_path, phase, end, reason):
    pilot = pilot_after_go(dcl, phase)
    with driver(pilot, tmp_path) as live:
        live.fly(5.0, lambda pilot: None)
    assert pilot.phase is end and pilot.cause == reason

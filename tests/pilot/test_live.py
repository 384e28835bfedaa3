"""The real-time driver ends by itself, whatever the simulator does."""

import multiprocessing
from types import SimpleNamespace

import pytest

from link.profile import load_profile
from link.udp import MavlinkClient
from pilot.flight import EndReason, Phase
from pilot.flight_log import FlightLog
from pilot.handshake import Handshake
from pilot.live import SILENCE_S, LiveDriver
from pilot.pilot import Pilot
from pilot.recorder import Recorder


def pilot_after_go(dcl, phase):
    guidance = SimpleNamespace(conclude=lambda end: end)
    profile = load_profile("spec")
    pilot = Pilot(Handshake(profile), SimpleNamespace(t=10.0), guidance, profile, dcl.throttle)
    pilot.handshake.phase, pilot.handshake.go_t, pilot._airborne = Phase.LAUNCH, 3.0, True
    if phase is Phase.FINISHED:
        pilot.abort(EndReason.FINISHED, "")
    pilot.act = lambda: []
    return pilot


@pytest.mark.parametrize(
    ("phase", "end", "reason"),
    [(Phase.RACE, Phase.ABORTED, f"no IMU sample for {SILENCE_S:g} s"), (Phase.FINISHED, Phase.FINISHED, "")],
)
def test_a_simulator_that_falls_silent_ends_the_flight(dcl, tmp_path, phase, end, reason):
    """In flight that is an abort; after the last gate the flight stays finished."""
    ours, theirs = multiprocessing.Pipe()
    perception = SimpleNamespace(
        pipe=ours, receive=list, alive=True, hear_only=lambda host: None, silent_s=lambda now: 0.0
    )
    pilot, log = pilot_after_go(dcl, phase), FlightLog(tmp_path / "flight.mcap")
    with MavlinkClient("127.0.0.1", 0, load_profile("spec")) as client:
        LiveDriver(pilot, client, perception, load_profile("spec"), Recorder(log)).fly(5.0, lambda pilot: None)
    log.close()
    for pipe in (ours, theirs):
        pipe.close()
    assert pilot.phase is end and pilot.cause == reason

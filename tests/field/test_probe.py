"""A simulator that nobody has described is described by what it sends."""

from dataclasses import replace

import pytest

from gate_racer.field.probe.at_rest import best, probe, unflown
from gate_racer.field.probe.check import CheckVerdict
from gate_racer.field.probe.links import RawLink, listen
from gate_racer.link.profile import load_profile
from gate_racer.link.sockets import LinkError
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.field.simulated import SimulatedRawLink, Sphere
from tests.processes import free_port

SPEC, DCL = load_profile("spec"), load_profile("dcl")


@pytest.fixture(scope="module")
def traps():
    """The real builds, listened to until their race has begun."""
    simulator = Simulator(as_believed(load_track("tracks/vq1.yaml"), load_vehicle("dcl")), DCL, 0)
    return listen(SimulatedRawLink(simulator, Sphere(simulator.world.vehicle.camera, 0)), 2.5, 30.0, to_fly=True)


def test_the_real_builds_are_told_from_the_specification(traps):
    assert best(traps, [SPEC, DCL]) is DCL


def test_every_trap_that_shows_at_rest_is_found(traps):
    checks, found = probe(traps, SPEC)
    differs = {check.name for check in checks if check.verdict is CheckVerdict.DIFFERS}
    assert {
        "component",
        "stamp clock, Hz",
        "copies of an image",
        "video clock's epoch, s",
        "race status",
        "sign of ATTITUDE pitch",
    } <= differs
    assert found.component == DCL.component and found.video_copies == DCL.video_copies
    assert found.stamp_hz == pytest.approx(DCL.stamp_hz, rel=0.03) and found.signs.euler[1] == -1
    assert found.video_epoch_s == pytest.approx(DCL.video_epoch_s, abs=2.0)


def test_conventions_that_need_a_flight_are_reported_as_unknown():
    assert {c.name for c in unflown()} >= {"signs of the gyro", "rate gain and hover throttle"}


def test_a_changed_build_differs_in_that_alone(traps):
    changed = replace(DCL, video_copies=8, timesync=False)
    differs = {c.name for c in probe(traps, changed)[0] if c.verdict is CheckVerdict.DIFFERS and "Hz" not in c.name}
    assert differs == {"copies of an image", "TIMESYNC answered"}


def test_silence_is_one_clear_line():
    with (
        RawLink(("127.0.0.1", free_port()), ("127.0.0.1", free_port())) as link,
        pytest.raises(LinkError, match=r"no MAVLink within 0\.2 s"),
    ):
        listen(link, 1.0, 0.2)

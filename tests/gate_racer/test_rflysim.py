"""`gate-racer` with RflySim: the scene has the boxes of the track's file, no others; each part is heard, or its remedy told."""

import argparse
import json
import random
import struct
import threading
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer import rflysim
from gate_racer.common.errors import UserError
from gate_racer.link.messages import Imu
from gate_racer.link.profile import load_profile
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim import desk
from gate_racer.link.rflysim.desk import encode_command, imu_port
from gate_racer.link.sockets import UdpEndpoint, bind_udp
from gate_racer.rflysim import examine_rflysim, objects_of
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.view.style import load_style
from gate_racer.sim.wire.rflysim import CopterSimImu, RflySimOutlet
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import from_euler, matrix
from tests.processes import free_port
from tests.rflysim import LOCAL_HOST, at


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """On loopback states come within milliseconds; the client waits for those of boxes that are not there."""
    monkeypatch.setattr("gate_racer.link.rflysim.desk.ASK_S", 0.2)
    monkeypatch.setattr("gate_racer.link.rflysim.desk.PAUSE_S", 1e-4)


class Server:
    """The stand-in, whose states come to the client's port instead of STATE_PORT, and may be lost or changed."""

    def __init__(self, track, change=lambda datagram: datagram):
        self.outlet = RflySimOutlet(track, load_style("race"), 0, 30.0, (LOCAL_HOST, 0))
        self.client, self.told, self._change = desk.SceneClient(self.outlet.address, 0), {}, change
        self._track, self._over = track, threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        with bind_udp(LOCAL_HOST, 0) as wire:
            while not self._over.wait(0.01):
                for datagram, (_, port) in self.outlet.datagrams(at(self._track)):
                    if port == desk.STATE_PORT and (sent := self._change(datagram)) is not None:
                        self.told[desk.object_state(datagram).number] = desk.object_state(datagram)
                        wire.sendto(sent, ("127.0.0.1", self.client.port))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.client.close()
        self.outlet.close()


@pytest.mark.parametrize("course", ["vq1", "vq2", "pillars"])
def test_the_boxes_are_those_that_a_vehicle_hits(course):
    track = load_track(course)
    solids, walls = Colliders(track).solids, Colliders(track).walls
    objects, raised = objects_of(track)
    origin = np.array([0.0, 0.0, -raised])
    assert [one.number for one in objects] == list(desk.NUMBERS[: len(objects)])
    np.testing.assert_allclose([one.p_w for one in objects], solids.centre[walls:] + origin)
    np.testing.assert_allclose([one.scale for one in objects], 2 * solids.half[walls:])
    turned = [matrix(from_euler(*one.rpy)) for one in objects]
    np.testing.assert_allclose(turned, solids.axes[walls:], atol=1e-9)


def test_a_scene_has_the_boxes_of_the_last_course_and_of_no_other(vq1):
    many, few = objects_of(load_track("vq2"))[0], objects_of(load_track("pillars"))[0]
    few, lost = few[:3], iter([True] * 5)
    with Server(vq1, lambda datagram: None if next(lost, False) else datagram) as server:
        assert server.client.make(many).placed == len(many), "though some states were lost"
        second = server.client.make(few)
        assert (second.placed, second.removed) == (len(few), len(many) - len(few))
        assert second.missing == second.different == second.left == []
        last = {one.number: server.told[one.number] for one in few}
        assert all(last[one.number].near(one.state()) for one in few)
        assert not last[few[0].number].near(replace(few[0], rpy=(0.0, 0.0, 1.0)).state())
        assert server.client.make([]).removed == len(few)


def test_a_server_that_is_none_and_states_of_others_are_no_success(vq1):
    one = objects_of(load_track("pillars"))[0][0]
    state = one.state()
    with (
        bind_udp("127.0.0.2", 0) as liar,
        bind_udp(LOCAL_HOST, 0) as other,
        closing(desk.SceneClient((LOCAL_HOST, 9), 0)) as client,
    ):
        bad = (b"", bytes(80), struct.pack("<2i16fd", 1234567891, one.number, *[float("nan")] * 17))
        for wire, datagrams in ((liar, [state.encode()]), (other, [*bad, replace(state, number=7).encode()])):
            for datagram in datagrams:
                wire.sendto(datagram, (LOCAL_HOST, client.port))
        report = client.make([one], 0.2)
        assert (report.missing, client.foreign, client.malformed) == ([one.number], 1, 3)


def test_states_of_older_servers_have_no_quaternion():
    new = desk.ObjectState(3, (1.0, 2.0, 3.0), (0.0, 0.0, 0.5), (0.0,) * 4, (1.0, 2.0, 3.0), (0.5, 1.0, 1.5), 2.5)
    old = struct.pack("<2i12fd", 1234567891, 3, 1, 2, 3, 0, 0, 0.5, 1, 2, 3, 0.5, 1, 1.5, 2.5)
    assert desk.object_state(old) == desk.object_state(new.encode()) == new
    for bad in (old[:-1], bytes(64), bytes(80)):
        with pytest.raises(MalformedError):
            desk.object_state(bad)


def test_no_command_whatever_about_objects_stops_the_stand_in(vq1):
    good, words = objects_of(load_track("pillars"))[0][0], ("", "1", "1 ² 0", f"1 {10**40} 0", "-1 3 0", "99 10000 0")
    bad = [encode_command(f"RflyReqObjData {text}") for text in words] + [random.Random(1).randbytes(52)]
    flood = [replace(good, number=number).encode() for number in range(3 * len(desk.NUMBERS))]
    with closing(RflySimOutlet(vq1, load_style("race"), 0, 30.0, (LOCAL_HOST, 0))) as outlet:
        with bind_udp(LOCAL_HOST, 0) as wire:
            for batch, answers in ((bad, 0), (flood, 0), ([desk.query(desk.TELL, 1)], 1)):
                told = []
                for datagram in batch:
                    wire.sendto(datagram, outlet.address)
                    told += [one for one, (_, port) in outlet.datagrams(at(vq1, number=1)) if port == desk.STATE_PORT]
                assert len(told) == answers
        assert outlet.refused == 1 + 2 * len(desk.NUMBERS)


@pytest.mark.parametrize(
    ("track", "server", "words"),
    [
        ("vq1", "rflysim://127.0.0.1?up=3", "unknown option 'up'; known: model"),
        ("vq1", "rflysim://127.0.0.1?model=" + "9" * 5000, "model: must be the number"),
        ("vq1", "http://127.0.0.1", "expected something like rflysim://"),
        ("nowhere", "rflysim", "nowhere"),
        ("vq1", "rflysim://no.such.host.invalid", "unknown host"),
    ],
)
def test_a_command_that_means_nothing_is_one_line(track, server, words):
    with pytest.raises(UserError, match=words):
        rflysim.make_scene(argparse.Namespace(track=track, server=server, json=None))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (desk.SceneReport(0, [10_000], [], 0, []), "no state of any box from 127.0.0.1:20010"),
        (desk.SceneReport(18, [], [10_001], 0, []), "is the model a cube of 1 m? ?model=NUMBER): 10001"),
        (desk.SceneReport(19, [], [], 1, [10_400]), "not removed, which a change of the map does: 10400"),
        (desk.SceneReport(19, [], [], 0, []), "19 of 19 boxes placed, 0 of earlier courses removed"),
    ],
)
def test_the_command_says_what_became_of_the_boxes(report, words, monkeypatch, capsys):
    told = report if report.placed else replace(report, missing=[*desk.NUMBERS[:19]])
    client = SimpleNamespace(server=(LOCAL_HOST, 20010), make=lambda objects: told)
    monkeypatch.setattr(rflysim, "SceneClient", lambda server: nullcontext(client))
    arguments = argparse.Namespace(track="pillars", server="rflysim", json=None)
    if not report.placed:
        with pytest.raises(UserError, match=words):
            rflysim.make_scene(arguments)
    else:
        assert rflysim.make_scene(arguments) == (report != desk.SceneReport(19, [], [], 0, []))
        assert words in capsys.readouterr().out


def test_a_course_is_raised_above_the_ground_and_its_start_with_it(vq1):
    objects, raised = objects_of(vq1)
    assert raised == 26 and max(one.p_w[2] + one.scale[2] / 2 for one in objects) <= 0.1
    assert objects_of(load_track("figure8"))[1] == 0


COPTER = 77  # whose ports no other test has
PROFILE = load_profile("px4").of_copter(COPTER)


@pytest.fixture
def config(tmp_path):
    entry = {
        "SeqID": 4, "TypeID": 5, "TargetCopter": COPTER, "TargetMountType": 0, "DataWidth": 0, "DataHeight": 0,
        "DataCheckFreq": 30, "SendProtocol": [1, 0, 0, 0, 0, free_port(), 0, 0], "CameraFOV": 90,
        "SensorPosXYZ": [0, 0, 0], "SensorAngEular": [0, 0, 0], "otherParams": [50, *[0] * 7],
    }  # fmt: skip
    (tmp_path / "Config.json").write_text(json.dumps({"VisionSensors": [entry]}))
    return tmp_path / "Config.json"


@pytest.fixture
def served(vq1):
    """All of RflySim for one copter; its port of requests."""
    with ExitStack() as closing:
        outlet = closing.enter_context(RflySimOutlet(vq1, load_style("race"), 0, 30.0, (LOCAL_HOST, 0), COPTER))
        felt = closing.enter_context(CopterSimImu((LOCAL_HOST, imu_port(COPTER)), PROFILE))
        px4 = closing.enter_context(UdpEndpoint(LOCAL_HOST, PROFILE.simulator_port))
        packer, over = dialect.MAVLink(None, PROFILE.system, PROFILE.component), threading.Event()

        def serve():
            number = 0
            while not over.wait(0.02):
                number += 1
                for datagram, target in outlet.datagrams(at(vq1, number / 30, number)):
                    px4.transmit(datagram, target)
                felt.serve([Imu(number / 100, (0.0, 0.0, -9.8), (0.0,) * 3)])
                beat = packer.heartbeat_encode(dialect.MAV_TYPE_QUADROTOR, dialect.MAV_AUTOPILOT_PX4, 0, 0, 0)
                px4.transmit(beat.pack(packer), (LOCAL_HOST, PROFILE.mavlink_port))

        thread = threading.Thread(target=serve)
        thread.start()
        yield outlet.address[1]
        over.set()
        thread.join()


def test_all_parts_that_are_there_are_heard(served, config):
    found = {one.what: one for one in examine_rflysim(f"rflysim://{LOCAL_HOST}:{served}?config={config}")}
    assert list(found) == ["sensor 4, rangefinder", "CopterSim's heartbeat", "CopterSim's IMU", "PX4 by MAVLink"]
    assert all(one.good for one in found.values() if "in use" not in one.detail), found
    assert found["PX4 by MAVLink"].detail == f"heard on UDP {PROFILE.mavlink_port}"


def test_what_is_silent_is_told_with_its_remedy_and_a_port_in_use_likewise(config):
    with UdpEndpoint(LOCAL_HOST, PROFILE.mavlink_port):
        found = examine_rflysim(f"rflysim://{LOCAL_HOST}:9?config={config}", 0.3)
    sensor, _, imu, px4 = found
    assert not any(one.good for one in found) and [one.needed for one in found] == [True, False, False, True]
    assert "no frame from 127.0.0.1:9: is RflySim3D running" in sensor.detail and "no answer" in imu.detail
    assert f"UDP 127.0.0.1:{PROFILE.mavlink_port} is in use" in px4.line and px4.line.startswith("MISSING")


@pytest.mark.parametrize("url", ["http://x", "rflysim://127.0.0.1?config=none", "rflysim://127.0.0.1?confg=none"])
def test_a_server_that_is_none_is_one_line(url):
    with pytest.raises(UserError):
        examine_rflysim(url, 0.1)

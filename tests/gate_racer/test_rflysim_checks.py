"""`gate-racer doctor rflysim://HOST`: each part of RflySim is heard, or its remedy named."""

import json
import threading
from contextlib import ExitStack

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.errors import UserError
from gate_racer.link.messages import Imu
from gate_racer.link.profile import load_profile
from gate_racer.link.rflysim.request import imu_port
from gate_racer.link.sockets import UdpEndpoint
from gate_racer.rflysim import examine_rflysim
from gate_racer.sim.view.style import load_style
from gate_racer.sim.wire.rflysim import CopterSimImu, RflySimOutlet
from tests.processes import free_port
from tests.sim.rflysim_requests import LOCAL_HOST, at

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


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "rflysim://no.such.host.invalid",
        "rflysim://127.0.0.1?config=none.json",
        "rflysim://127.0.0.1?confg=x",
    ],
)
def test_a_server_that_is_none_is_one_line(url):
    with pytest.raises(UserError):
        examine_rflysim(url, 0.1)

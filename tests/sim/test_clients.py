"""Other people's clients fly the simulator, process to process."""

import importlib.util
import json
import re
import signal
import subprocess
from contextlib import contextmanager

import pytest
from mcap.reader import make_reader
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.profile import load_profile
from gate_racer.link.sockets import bind_udp
from tests.conftest import ROOT
from tests.mavlink import command_long, packed
from tests.processes import few_images, free_port, python, run_here, started

RACE_SIM = "gate_racer.race.race_sim"


@contextmanager
def race_sim(*arguments):
    """A simulator whose client's port is free."""
    port = free_port()
    own = ["--set", "link.bind=127.0.0.1:0", f"link.client=127.0.0.1:{port}", "once=true"]
    own += [f"link.video=127.0.0.1:{free_port()}"]
    with started(RACE_SIM, *own, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert "race-sim" in process.stdout.readline()
        yield port, process


@pytest.mark.skipif(importlib.util.find_spec("mavsdk") is None, reason="the package mavsdk is not installed")
def test_mavsdk_connects_arms_and_flies_by_attitude_and_position(tmp_path):
    report, record, profile = tmp_path / "report.json", tmp_path / "flight.mcap", few_images("spec", tmp_path, 1.0)
    with race_sim("--report", report, "--profile", profile, "--set", f"record={record}") as (port, simulator):
        done = python(ROOT / "tests/sim/mavsdk_client.py", port)
        assert done.returncode == 0, done.stdout + done.stderr
        simulator.wait(60)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["pad_pitch_deg"] == pytest.approx(-17.8, abs=0.1)
    assert seen["pad_accel"] == pytest.approx([-2.999, 0.0, -9.340], abs=0.5)
    assert abs(seen["flight_pitch_deg"]) < 5 and seen["offboard"]
    told = json.loads(report.read_text())
    p_wb = told["x"][-1][:3]
    assert told["cause"] == "disarmed in flight" and p_wb[2] == pytest.approx(-3.0, abs=1.0), p_wb
    recorded(record)


def test_yamspy_reads_a_flight_controller_is_armed_and_climbs(tmp_path, hop):
    pytest.importorskip("yamspy")
    there = "--track", hop, "--set", "once=true", f"link.video=127.0.0.1:{free_port()}"
    profile = few_images("betaflight", tmp_path, 1.0)
    with started(RACE_SIM, "--profile", profile, "--vehicle", "archer", *there, stdout=subprocess.PIPE) as process:
        line = re.search(r"MSP on (\S+) at 115200 baud", process.stdout.readline())[1]
        done = python(ROOT / "tests/sim/yamspy_client.py", line, tmp_path / "msp.log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["flightControllerIdentifier"] == "BTFL" and told["flightControllerVersion"].startswith("4.4")
    assert told["armed"] and 400 < told["accel"][2] < 700, "512 counts are 1 g"
    assert max(told["altitudes"]) - told["altitudes"][0] > 5.0, "m; the barometer falls by 2.5 as propellers spin"


def test_a_probed_simulator_that_is_cut_short_reports(tmp_path):
    report, wire, video = tmp_path / "report.json", tmp_path / "wire.yaml", free_port()
    with race_sim("--report", report, "--profile", few_images("spec", tmp_path, 1.0)) as (port, simulator):
        keys = f"link.listen=127.0.0.1:{port}", f"link.video=127.0.0.1:{video}", "fly=false", "seconds=1"
        done = run_here("gate_racer.field.probe.cli", "--out", wire, "--set", *keys)
        found = load_profile(str(wire))
        ports = found.mavlink_port, found.video_port, found.offboard
        assert ports == (port, video, None), done.stdout + done.stderr
        with bind_udp("127.0.0.1", port) as client:
            client.settimeout(20)
            to, reader = client.recvfrom(65535)[1], dialect.MAVLink(None)
            motors = dialect.MAVLink_set_actuator_control_target_message(0, 0, 1, 1, [0.0] * 8)
            for message in (motors, command_long(400, 1)):
                client.sendto(packed(message), to)
            while not any(one.get_type() == "COMMAND_ACK" for one in reader.parse_buffer(client.recv(65535)) or []):
                pass
            simulator.send_signal(signal.SIGTERM)
            out, err = simulator.communicate(timeout=20)
    told = json.loads(report.read_text())
    assert (told["status"], told["cause"]) == ("aborted", "race-sim was stopped") and "aborted (race-sim" in out, out
    assert [one["rule"] for one in told["violations"]] == ["dropped: message"] and err.endswith("stopped\n"), err


def recorded(path):
    """The simulator's own record holds the truth of every tick, the commands, the verdict and every message as bytes."""
    seen, names = {}, set()
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            seen[channel.topic] = seen.get(channel.topic, 0) + 1
            if channel.message_encoding == "mavlink2":
                names.add(dialect.MAVLink(None).decode(bytearray(message.data)).get_type())
            else:
                assert set(json.loads(message.data)) <= set(json.loads(schema.data)["properties"])
    assert {"/truth", "/command", "/referee", "/sent", "/heard"} <= seen.keys()
    assert {"HIGHRES_IMU", "ATTITUDE", "HEARTBEAT", "COMMAND_LONG", "COMMAND_ACK", "SET_ATTITUDE_TARGET"} <= names
    assert seen["/sent"] > 2 * seen["/truth"] > 1000

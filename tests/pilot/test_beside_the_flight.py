"""What is beside the flight may hang or die: a full, slow or too small disk, the live view, the perception process."""

import os
import random
import resource
import signal
import socket
import threading
import time
from functools import partial

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.client import VideoReceiver
from gate_racer.link.messages import VideoFrame
from gate_racer.link.profile import load_profile
from gate_racer.link.record import read_records
from gate_racer.link.video import datagrams
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot import perception_process
from gate_racer.pilot.perception_process import PerceptionProcess, SeenImage
from gate_racer.pilot.records.flight_log import SCHEMAS, FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.view import LiveView


def test_a_full_disk_ends_the_log_with_one_warning_and_keeps_what_was_written_before(tmp_path):
    told = []
    log = FlightLog(tmp_path / "flight.mcap", tell=told.append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    try:
        for k in range(200):
            log.image(0.03 * k, os.urandom(40_000))
            log.write("phase", 0.03 * k, phase="race", reason="")
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.problem.endswith("flight.mcap: File too large") and len(told) == 1
    assert log.records_dropped > 100, "what comes after the end is counted"
    assert 5 < sum(1 for _ in read_records(tmp_path / "flight.mcap", only=["/phase"])) < 200


def test_a_disk_that_hangs_costs_images_first_and_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr("gate_racer.pilot.records.flight_log.CLOSE_S", 0.2)
    told, hangs = [], threading.Event()
    log = FlightLog(tmp_path / "log.mcap", patient=False, tell=told.append)
    log._file.add_raw = lambda *_: hangs.wait()
    for k in range(300):
        log.image(0.03 * k, bytes(50_000))
        log.write("phase", 0.03 * k, phase="race", reason="x" * 500)
    assert log.images_dropped > 100 and log.records_dropped == 0
    log.close()
    assert "the disk has not responded" in log.problem and len(told) == 1
    hangs.set()


def test_a_patient_log_loses_nothing(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap")
    for k in range(150):
        log.image(0.03 * k, random.Random(k).randbytes(100_000))
    log.close()
    assert sum(1 for _ in read_records(tmp_path / "flight.mcap", only=["/camera"])) == 150 and not log.images_dropped


def test_a_limit_leaves_out_images_and_keeps_records(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap", limit_mb=4.0)
    for k in range(200):
        log.image(0.03 * k, os.urandom(40_000))
        log.write("phase", 0.03 * k, phase="race", reason="")
    log.close()
    kept = [topic for topic, _ in read_records(tmp_path / "flight.mcap")]
    assert kept.count("/phase") == 200 and kept.count("/camera") + log.images_dropped == 200 and log.images_dropped
    assert (tmp_path / "flight.mcap").stat().st_size < 5_500_000


def test_records_missing_in_the_log_are_counted_in_the_result(tmp_path):
    folder = tmp_path / "logs"
    recorder = Recorder(FlightLog(folder / "flight.mcap"))
    (folder / "flight.mcap").unlink()
    folder.rmdir()
    recorder.log.write("link", 0.0, counters={})
    recorder.close()
    assert recorder.troubles["log"].endswith("flight.mcap: was removed in flight")


# The live view shows the records of the flight, and the flight never waits for it.


UPGRADE = (
    "GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n"
)


@pytest.fixture(scope="module")
def view(vq1, plan):
    """One server, which the last test ends."""
    pytest.importorskip("foxglove")
    view = LiveView(("127.0.0.1", 0), SCHEMAS, vq1, plan)
    yield view
    view.close()


@pytest.mark.parametrize(
    ("lines", "passes"),
    [
        ("", True),
        ("Origin: https://app.foxglove.dev\r\n", True),
        ("Origin: http://localhost:8080\r\n", True),
        ("origin: file://\r\n", True),
        ("Origin: https://app.foxglove.dev.evil.example\r\n", False),
        ("Origin: http://localhost:8080.evil.example\r\n", False),
        ("ORIGIN : http://evil.example\r\n", False),
        ("Origin: null\r\n", False),
        ("Origin: http://localhost\r\nOrigin: http://evil.example\r\n", False),
        ("X: y\r\n Origin: http://evil.example\r\n", False),
    ],
)
def test_a_page_from_elsewhere_is_not_let_in(view, lines, passes):
    with socket.create_connection(("127.0.0.1", view.port), timeout=20.0) as viewer:
        viewer.sendall(UPGRADE.replace("\r\n\r\n", f"\r\n{lines}\r\n").encode())
        assert viewer.recv(65536).startswith(b"HTTP/1.1 101" if passes else b"HTTP/1.1 403")


def test_a_viewer_is_told_every_channel_and_no_flight_waits_for_it(view, vq1, plan, tmp_path):
    log = FlightLog(tmp_path / "flight.mcap", view)
    with socket.create_connection(("127.0.0.1", view.port), timeout=5.0) as viewer:
        viewer.sendall(UPGRADE.encode())
        told = b""
        while not all(f'"/{name}"'.encode() in told for name in ("state", "command", "camera", "scene", "link")):
            told += viewer.recv(65536)
        assert b"101 Switching Protocols" in told
    with pytest.raises(UserError, match="cannot be served"):
        LiveView(("127.0.0.1", view.port), SCHEMAS, vq1, plan)
    os.kill(view.worker.process.pid, signal.SIGKILL)
    for k in range(200):  # some seconds of flight
        log.write("phase", 0.01 * k, phase="race", reason="")
        log.write("reference", 0.01 * k, theta=0.0, p=np.zeros(3), q=np.zeros(4), v=np.zeros(3))
        log.image(0.01 * k, b"jpeg" * 5000)
        time.sleep(0.001)
    log.close()
    assert (tmp_path / "flight.mcap").stat().st_size > 10_000


# The perception process: a real one, with a real socket. It looks where it is told to, and nobody waits for it.


LIMIT_S = 20.0


def two_gates() -> bytes:
    image = np.full((360, 640, 3), 20, np.uint8)
    for left in (100, 400):
        cv2.rectangle(image, (left, 100), (left + 134, 234), (25, 60, 245), -1)
        cv2.rectangle(image, (left + 30, 130), (left + 104, 204), (20, 20, 20), -1)
    jpeg: bytes = cv2.imencode(".jpg", image)[1].tobytes()
    return jpeg


def look(perception: PerceptionProcess, sender: socket.socket, number: int) -> SeenImage:
    """Send an image until it was seen: a process may still load."""
    profile, jpeg, end = load_profile("spec"), two_gates(), time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for datagram in datagrams(VideoFrame(number / 30, number, jpeg), profile):
            sender.sendto(datagram, perception.address)
        for _ in range(20):
            for seen in perception.receive():
                if seen.id == number:
                    return seen
            time.sleep(0.01)
    raise AssertionError(f"nothing was seen within {LIMIT_S:g} s")


def test_the_process_sees_within_its_window_and_is_replaced_at_its_port_once_it_has_died(dcl, monkeypatch):
    monkeypatch.setattr(perception_process, "REVIVE_S", 0.0)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        PerceptionProcess(partial(VideoReceiver, "127.0.0.1", 0), dcl.camera, "classical") as perception,
    ):
        assert len(look(perception, sender, 1).detections) == 2
        perception.expect(SearchWindow(1.8, 360, 60, 600, 280))
        (right,) = look(perception, sender, 2).detections
        perception.expect(SearchWindow(1.8))
        np.testing.assert_allclose(right.corners_px.mean(0), [467.0, 167.0], atol=1.0)
        lives = perception.worker.process.pid
        perception.revive()
        assert perception.worker.process.pid == lives, "one that lives is not replaced"
        assert len(look(perception, sender, 3).detections) == 2
        perception.worker.process.kill()
        perception.worker.process.join(LIMIT_S)
        assert not perception.alive and perception.receive() == []
        perception.revive()
        assert perception.alive and len(look(perception, sender, 4).detections) == 2

"""The perception process: a real one, with a real socket. It looks where it is told to, and nobody waits for it."""

import socket
import time
from functools import partial

import cv2
import numpy as np

from gate_racer.link.client import VideoReceiver
from gate_racer.link.messages import VideoFrame
from gate_racer.link.profile import load_profile
from gate_racer.link.video import datagrams
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot import perception_process
from gate_racer.pilot.perception_process import PerceptionProcess, SeenImage

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

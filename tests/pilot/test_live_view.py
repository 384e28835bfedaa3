"""The live view shows the records of the flight, and the flight never waits for it."""

import os
import signal
import socket
import time

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.pilot.records.flight_log import SCHEMAS, FlightLog
from gate_racer.pilot.records.view import LiveView

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

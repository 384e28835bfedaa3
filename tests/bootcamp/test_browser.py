"""The live view: a page that asks nobody else, and images as they come, whoever reads them or not."""

import socket
import threading
import urllib.request
from contextlib import ExitStack

import cv2
import numpy as np
import pytest

from gate_racer.bootcamp.display import BrowserView, jpeg_of
from gate_racer.common.errors import UserError


@pytest.fixture
def view():
    made = BrowserView("127.0.0.1:0", "a <b> flight")
    yield made
    made.close()


def frame(grey):
    return np.full((48, 64, 3), grey, np.uint8)


def part(stream):
    """The next image of a multipart stream."""
    while not (line := stream.readline()).startswith(b"Content-Length"):
        assert line
    length = int(line.split(b":")[1])
    stream.readline()
    return cv2.imdecode(np.frombuffer(stream.read(length), np.uint8), cv2.IMREAD_COLOR)


def test_the_page_shows_the_stream_and_nothing_of_it_can_run(view):
    with urllib.request.urlopen(view.url, timeout=10) as answer:
        text, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    assert '<img src="live"' in text and "a &lt;b&gt; flight" in text and "<script" not in text
    assert policy.startswith("default-src 'none'") and 'name="viewport" content="width=device-width"' in text
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(view.url + "etc/passwd", timeout=10)


def test_images_come_as_they_are_shown_and_one_who_does_not_read_holds_nobody_up(view):
    with socket.create_connection(("127.0.0.1", int(view.url.split(":")[2][:-1]))) as lazy:
        lazy.sendall(b"GET /live HTTP/1.0\r\n\r\n")
        view.show(jpeg_of(frame(50)))
        with urllib.request.urlopen(view.url + "live", timeout=10) as stream:
            assert stream.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=frame"
            assert part(stream).mean() == pytest.approx(50, abs=2)
            for _ in range(300):
                view.show(jpeg_of(frame(200)))
            assert part(stream).mean() == pytest.approx(200, abs=2)


def test_a_flight_waits_for_its_page_and_is_repeated_until_it_is_closed(view):
    assert not view.wait_opened(0.01)
    for grey in (50, 200):
        view.show(jpeg_of(frame(grey)))
    with urllib.request.urlopen(view.url + "live", timeout=10) as stream:
        assert view.wait_opened(10.0)
        playing = threading.Thread(target=view.play, args=(0.01,), daemon=True)
        playing.start()
        greys = {round(part(stream).mean() / 50) for _ in range(4)}
        assert greys == {1, 4}
    playing.join(30)
    assert not playing.is_alive()


def closed(view):
    """Whether it closes, which is given half a minute."""
    closing = threading.Thread(target=view.close, daemon=True)
    closing.start()
    closing.join(30)
    return not closing.is_alive()


def test_connections_that_have_asked_for_nothing_are_not_waited_for(monkeypatch):
    monkeypatch.setattr("gate_racer.bootcamp.display.LINGER_S", 600.0)
    view = BrowserView("127.0.0.1:0", "flight")
    with ExitStack() as stack:
        for said in [b"", b"GET /li"] * 2:
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", int(view.url.split(":")[2][:-1]))))
            silent.sendall(said)
        view.show(jpeg_of(frame(50)))
        assert closed(view)


def test_clients_that_never_read_are_cut_off_at_the_end(monkeypatch):
    monkeypatch.setattr("gate_racer.bootcamp.display.LINGER_S", 0.2)
    view = BrowserView("127.0.0.1:0", "flight")
    noise = np.random.default_rng(0).integers(0, 255, (720, 1280, 3), np.uint8)
    with ExitStack() as stack:
        for _ in range(3):
            lazy = stack.enter_context(socket.create_connection(("127.0.0.1", int(view.url.split(":")[2][:-1]))))
            lazy.sendall(b"GET /live HTTP/1.0\r\n\r\n")
        for _ in range(10):
            view.show(jpeg_of(noise))
        assert closed(view)


def test_an_address_that_is_taken_is_told_in_one_line(view):
    with pytest.raises(UserError, match=r"--browser 127.0.0.1:\d+: cannot be served there"):
        BrowserView(view.url[7:-1], "second")

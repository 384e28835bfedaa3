"""The live view: a page that asks nobody else, and the newest image whenever it is asked for."""

import base64
import hashlib
import re
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from gate_racer.bootcamp.display import BrowserView
from gate_racer.common.errors import UserError


@pytest.fixture
def view(tmp_path):
    made = BrowserView("127.0.0.1:0", tmp_path / "a <b> flight.webm")
    yield made
    made.close()


def asked(view, what="live"):
    with urllib.request.urlopen(view.url + what, timeout=10) as answer:
        return answer.read()


def test_the_page_shows_the_images_and_nothing_else_of_it_can_run(view):
    with urllib.request.urlopen(view.url, timeout=10) as answer:
        text, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*)</script>", text, re.S)
    assert "a &lt;b&gt; flight" in text and 'name="viewport" content="width=device-width"' in text
    assert policy.startswith("default-src 'none'") and "'unsafe-inline'" not in policy.partition("script-src")[2]
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    with pytest.raises(urllib.error.HTTPError):
        asked(view, "etc/passwd")


def test_the_newest_image_is_shown_and_one_who_does_not_ask_or_read_holds_nobody_up(view):
    port = int(view.url.split(":")[2][:-1])
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as lazy:
        assert asked(view) == b""
        view.show(bytes(1 << 24))
        lazy.sendall(b"GET /live HTTP/1.0\r\n\r\n")
        view.show(b"first")
        assert asked(view) == b"first" == asked(view)
        view.show(b"second")
        assert asked(view) == b"second"


def test_a_flight_waits_for_its_page_and_is_repeated_until_it_is_closed(view, monkeypatch):
    monkeypatch.setattr("gate_racer.bootcamp.display.GONE_S", 0.5)
    monkeypatch.setattr("gate_racer.bootcamp.display.AGAIN_S", 0.1)
    assert not view.opened.wait(0.01)
    for jpeg in (b"first", b"second"):
        view.show(jpeg)
    asked(view)
    assert view.opened.wait(10.0)
    playing = threading.Thread(target=view.play, args=(0.01,), daemon=True)
    playing.start()
    seen = set()
    while seen != {b"first", b"second"}:
        seen.add(asked(view))
    playing.join(30)
    assert not playing.is_alive()


def test_the_film_of_a_flight_is_had_from_the_page_once_it_is_complete(view, tmp_path):
    def offered():
        with urllib.request.urlopen(view.url + "live", timeout=10) as answer:
            return answer.headers["Film"]

    view.show(b"frame")
    (tmp_path / "a <b> flight.webm").write_bytes(b"film")
    assert offered() == "0"
    with pytest.raises(urllib.error.HTTPError):
        asked(view, "film")
    threading.Thread(target=view.play, args=(0.01,), daemon=True).start()
    end = time.monotonic() + 30
    while offered() == "0":
        assert time.monotonic() < end
    assert asked(view, "film") == b"film" and b'download="a &lt;b&gt; flight.webm"' in asked(view, "")


def test_an_address_that_is_taken_is_told_in_one_line(view):
    with pytest.raises(UserError, match=r"--browser 127.0.0.1:\d+: cannot be served there"):
        BrowserView(view.url[7:-1], Path("second.webm"))

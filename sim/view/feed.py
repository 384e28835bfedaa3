"""Video feed: poses in, JPEG images out. Rendering takes longer than a tick, so in real time it has a process of its own,
which renders the newest pose and sends the chunks itself.
"""

import contextlib
import functools
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import cv2
import numpy as np

from gate_racer.common.process import Worker, ignore_signals, prefer
from gate_racer.link.messages import VideoFrame
from gate_racer.link.profile import Profile
from gate_racer.link.sockets import Address, bind_udp, listening_host
from gate_racer.link.video import datagrams
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

START_S = 60.0  # s, time limit for the outlet to open; it takes about 2 s
ENOUGH = 0.8  # fraction of the images due that a vision-based client needs (chosen)


class Feed:
    def __init__(self, track: Track, vehicle: Vehicle, style: RenderingStyle, seed: int):
        """Open the camera. Raises UserError when this machine cannot render."""
        self._camera = RenderedCamera(track, vehicle.camera, style, seed)
        chroma = cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420
        self._quality = [cv2.IMWRITE_JPEG_QUALITY, style.jpeg_quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, chroma]

    def frame(self, exposure: Exposure) -> VideoFrame:
        seen = exposure.p_wb, exposure.q_wb, exposure.v_w, exposure.omega_b, exposure.t, exposure.rivals
        _, jpeg = cv2.imencode(".jpg", self._camera.expose(*seen), self._quality)
        return VideoFrame(exposure.stamp, exposure.id, np.asarray(jpeg).tobytes())

    def close(self) -> None:
        self._camera.close()


Drawn = list[tuple[bytes, Address]]  # datagrams of an image, each with its target


class Outlet(Protocol):
    """Video stream of one protocol."""

    def datagrams(self, exposure: Exposure) -> Drawn:
        """Render an exposure and return its datagrams."""

    def close(self) -> None: ...


class VideoOutlet(Feed):
    """Video stream of VADR-TS-002, 4.6."""

    def __init__(
        self, track: Track, vehicle: Vehicle, profile: Profile, style: RenderingStyle, seed: int, target: Address
    ):
        """Open the camera and render a first image, which takes longest. Raises UserError when this machine cannot render."""
        super().__init__(track, vehicle, style, seed)
        self._profile, self._target = profile, target
        self.frame(Exposure(0, 0.0, track.start.p_wb, track.start.q_wb, np.zeros(3), np.zeros(3), 0.0, 0.0))

    def datagrams(self, exposure: Exposure) -> Drawn:
        return [(datagram, self._target) for datagram in datagrams(self.frame(exposure), self._profile)]


class FeedProcess:
    """Outlet in its own process that renders and sends each image, or the newest where rendering takes too long."""

    def __init__(self, open_outlet: Callable[[], Outlet]):
        """Start the process and wait until the outlet is open. Raises UserError when it cannot be opened."""
        self._drawn, self._due = multiprocessing.get_context("spawn").RawValue("l", 0), 0
        self._worker = Worker(_work, open_outlet, self._drawn, name="camera")
        self._worker.started(START_S)

    def expose(self, exposure: Exposure) -> bool:
        """Send an exposure to the process; return False when the process has ended."""
        self._due += 1
        try:
            self._worker.pipe.send(exposure)
        except OSError:
            return False
        return True

    @property
    def trouble(self) -> str:
        """Message for the user when too many images were dropped; empty otherwise."""
        drawn, due = self._drawn.value, self._due
        slow = f"only {drawn} of {due} images were rendered: this machine is too slow for this world in real time"
        return "" if drawn >= ENOUGH * due else f"{slow}; use --lockstep or a smaller --realtime"

    def close(self) -> None:
        self._worker.close(2.0)


def _work(pipe: Connection, open_outlet: Callable[[], Outlet], count: Any) -> None:
    ignore_signals()
    prefer()
    outlet = open_outlet()
    pipe.send("open")
    coming: queue.SimpleQueue[tuple[float, Drawn]] = queue.SimpleQueue()
    threading.Thread(target=_send, args=(coming,), name="sender", daemon=True).start()
    try:
        while True:
            exposure = pipe.recv()
            while pipe.poll():
                exposure = pipe.recv()
            drawn = outlet.datagrams(exposure)
            count.value += 1
            coming.put((time.monotonic() + exposure.late_s, drawn))
    except (EOFError, OSError):
        outlet.close()


def _send(coming: "queue.SimpleQueue[tuple[float, Drawn]]") -> None:
    bound = functools.cache(bind_udp)
    while True:
        due, drawn = coming.get()
        time.sleep(max(due - time.monotonic(), 0.0))
        for datagram, target in drawn:
            with contextlib.suppress(OSError):  # no listener there (yet)
                bound(listening_host(target), 0).sendto(datagram, target)

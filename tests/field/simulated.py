"""A raw link into a simulator in this process: bytes as over UDP, simulated time, a camera in a patterned sphere."""

import cv2
import numpy as np

from gate_racer.field.probe.links import RawLink, ReceivedMessages
from gate_racer.link.messages import VideoFrame
from gate_racer.link.options import Link
from gate_racer.link.video import datagrams
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.wire.station import Station
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import matrix

LATENCY_S = 0.0135
ME = ("simulator", 1)


class Sphere:
    """Draw what a camera sees of blots on a far sphere: rotation shows, translation does not."""

    def __init__(self, camera: Camera, seed: int):
        rng = np.random.default_rng(seed)
        self._world = cv2.resize(rng.integers(0, 255, (60, 120), np.uint8), (720, 360), interpolation=cv2.INTER_CUBIC)
        self._size = camera.width_px // 4, camera.height_px // 4
        u, v = np.meshgrid(*(4 * np.arange(n) + 1.5 for n in self._size))
        rays = [(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, np.ones_like(u)]
        self._rays_b = np.stack(rays, -1) @ camera.R_bc.T
        self._full = camera.width_px, camera.height_px

    def jpeg(self, q_wb) -> bytes:
        x, y, z = np.moveaxis(self._rays_b @ matrix(q_wb).T, -1, 0)
        azimuth, elevation = np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))
        at = (
            ((azimuth / np.pi + 1) * 359.5).astype(np.float32),
            ((2 * elevation / np.pi + 1) * 179.5).astype(np.float32),
        )
        small = cv2.remap(self._world, *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        return cv2.imencode(".jpg", cv2.resize(small, self._full), [cv2.IMWRITE_JPEG_QUALITY, 70])[1].tobytes()


class SimulatedRawLink(RawLink):
    """`drop`: types of messages that this simulator does not send. Without a sphere there is no video."""

    def __init__(self, simulator: Simulator, sphere: Sphere | None = None, drop: tuple[str, ...] = ()):
        super().__init__(Link(("127.0.0.1", 0), ("127.0.0.1", 0)))
        self.close()  # it needs no sockets
        self.simulator, self._station = simulator, Station(simulator)
        self._sphere, self._drop = sphere, drop
        self._coming: list[tuple[float, bytes]] = []
        self._replies: list[bytes] = []

    address = "here"

    def now(self) -> float:
        return self.simulator.t

    def poll(self, received: ReceivedMessages, timeout_s: float = 0.0):
        """One tick."""
        packets, exposure = self._station.tick()
        if exposure is not None and self._sphere is not None:
            frame = VideoFrame(exposure.t, exposure.id, self._sphere.jpeg(exposure.q_wb))
            due = exposure.t + LATENCY_S
            self._coming += [(due, datagram) for datagram in datagrams(frame, self.simulator.profile)]
        messages, frames = [], []
        packets, self._replies = [*self._replies, *packets], []
        for packet in packets:
            messages += self._messages(received, packet, ME)
        for kind in self._drop:
            received.messages.pop(kind, None)
        while self._coming and self._coming[0][0] <= self.now():
            frames += self._image(received, self.now(), self._coming.pop(0)[1])
        return [(t, m) for t, m in messages if m.get_type() not in self._drop], frames

    def transmit(self, datagram, peer):
        self._replies += self._station.receive(datagram, ME, self.now())

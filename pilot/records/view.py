"""`run-mpc --view`: live view of the flight log's records and of the course in 3-D, over Foxglove's WebSocket.

The flight loop only puts the newest record of each channel into a mailbox. A thread moves them into a pipe some times a
second, and a process of its own serves them: no command waits for a viewer or the network.

Any page in a browser may connect to ports of this machine, and the browser names the page in the header Origin (RFC 6455,
10.2); programs send none. Foxglove's SDK does not check it: a proxy before it refuses handshakes of foreign pages.
"""

import asyncio
import contextlib
import re
import secrets
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.process import Worker, ignore_signals
from gate_racer.link.record import encoded
from gate_racer.link.sockets import Address
from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

HEAD_BYTES, HEAD_S = 16 << 10, 10.0  # largest handshake, bytes, and its time-out, s
BLOCK_BYTES = 64 << 10  # bytes read at a time (chosen)
# The viewers themselves, and pages of this machine. Sandboxed frames of any page send "null".
ALLOWED_ORIGINS = re.compile(r"file://|https://app\.foxglove\.dev|https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def welcome(head: bytes) -> bool:
    """Return whether a handshake may pass: a WebSocket upgrade with no or an allowed Origin, and no ambiguous header."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
    if any(line[:1] in (b" ", b"\t") or set(line) & set(b"\0\r\n") for line in lines):
        return False
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    origins = [value.decode("latin-1") for name, value in fields if name == b"origin"]
    upgrades = any(name == b"upgrade" and value.lower() == b"websocket" for name, value in fields)
    return upgrades and len(origins) <= 1 and all(map(ALLOWED_ORIGINS.fullmatch, origins))


class OriginGuard:
    """Proxy from an address to the server behind it, in a thread of its own."""

    def __init__(self, address: Address, server: Address):
        """Start listening. Raises OSError when the address is unavailable."""
        self._server, self._loop = server, asyncio.new_event_loop()
        self._listening = self._loop.run_until_complete(asyncio.start_server(self._accept, *address, limit=HEAD_BYTES))
        self.port: int = self._listening.sockets[0].getsockname()[1]
        threading.Thread(target=self._loop.run_forever, name="origin guard", daemon=True).start()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = OSError, EOFError, asyncio.LimitOverrunError, TimeoutError
        with contextlib.suppress(*gone), contextlib.closing(writer):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            if not welcome(head):
                writer.write(FORBIDDEN)
                await writer.drain()
                return
            from_server, to_server = await asyncio.open_connection(*self._server)
            with contextlib.closing(to_server):
                to_server.write(head)
                passes = _pass(reader, to_server), _pass(from_server, writer)
                directions = [asyncio.ensure_future(one) for one in passes]
                _, running = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
                for task in running:
                    task.cancel()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(BLOCK_BYTES):
            writer.write(data)
            await writer.drain()


START_S = 60.0  # s, longest start of the server's process; typically 1 s
UPDATE_HZ = 20  # Hz, rate of records to the viewer (chosen)
SCENE_S = 0.5  # s between two drawings of course and path
PATH_POINTS = 2000  # points kept of the path that is drawn (chosen)
NORTH_WEST_UP = np.array([1.0, -1.0, -1.0])  # factors on NED: viewers have z up
Polyline = tuple[str, tuple[float, float, float], list[list[float]]]  # name, colour, points


class LiveView:
    """Live view in a process of its own; `offer` never waits and never raises."""

    def __init__(self, address: tuple[str, int], schemas: dict[str, dict[str, Any]], track: Track, plan: Plan | None):
        """Show records by the log's `schemas`. Raises UserError: the address is unavailable, or Foxglove's SDK not installed."""
        rings = [gate.corners()[[0, 1, 2, 3, 0]] for gate in track.gates if gate.opening_m]
        lines = [(f"gate {i}", (1.0, 0.2, 0.1), _drawn(ring)) for i, ring in enumerate(rings)]
        if plan is not None:
            lines.append(("plan", (0.6, 0.6, 0.6), _drawn(plan.x[:, :3])))
        self.worker = Worker(_serve, address, schemas, lines, name="live view")
        self.port: int = self.worker.started(START_S)
        self._newest: dict[str, tuple[float, Any]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._pump, name="view", daemon=True)
        self._thread.start()

    def offer(self, channel: str, t: float, fields: Any) -> None:
        """Offer the newest record of a channel at t, s; an image is bytes."""
        self._newest[channel] = t, fields

    def _pump(self) -> None:
        with contextlib.suppress(OSError):  # the server has ended: there is no viewer
            sent: dict[str, Any] = {}
            while not self._closed.wait(1 / UPDATE_HZ):
                newest = dict(self._newest)  # a copy in one step, since records may be offered meanwhile
                news = {name: record for name, record in newest.items() if sent.get(name) is not record}
                if news:
                    self.worker.pipe.send(news)
                sent = newest

    def close(self) -> None:
        self._closed.set()
        self.worker.close(1.0)
        self._thread.join(timeout=1.0)


def _drawn(p_w: Array) -> list[list[float]]:
    points: list[list[float]] = np.round(p_w * NORTH_WEST_UP, 3).tolist()
    return points


def _serve(
    pipe: Connection, address: tuple[str, int], schemas: dict[str, dict[str, Any]], lines: list[Polyline]
) -> None:
    ignore_signals()
    foxglove, server, port = guarded_server("run-mpc", address)
    from foxglove.channels import CompressedImageChannel, SceneUpdateChannel
    from foxglove.messages import CompressedImage, Timestamp

    channels = {name: foxglove.Channel(f"/{name}", schema=schema) for name, schema in schemas.items()}
    camera, scene = CompressedImageChannel("/camera"), SceneUpdateChannel("/scene")
    pipe.send(port)
    path: list[list[float]] = []
    drawn = -SCENE_S
    with contextlib.suppress(EOFError, OSError):
        while True:
            for name, (t, fields) in pipe.recv().items():
                stamp = round(t * 1e9)
                if name == "camera":
                    when = Timestamp(sec=stamp // 1_000_000_000, nsec=stamp % 1_000_000_000)
                    image = CompressedImage(timestamp=when, frame_id="camera", data=fields, format="jpeg")
                    camera.log(image, log_time=stamp)
                elif name in channels:
                    channels[name].log(encoded(fields), log_time=stamp)
                if name == "state":
                    path = [*path[1 - PATH_POINTS :], *_drawn(np.array(fields["p"])[None])]
            if time.monotonic() - drawn > SCENE_S:
                drawn = time.monotonic()
                scene.log(_scene([*lines, ("flown", (0.1, 0.6, 1.0), path)]))
    server.stop()


def guarded_server(name: str, address: Address) -> tuple[Any, Any, int]:
    """Start Foxglove's server behind an `OriginGuard` at an address. Returns the SDK's module, the server, and the guard's port.

    Raises UserError: the address is unavailable, or Foxglove's SDK not installed.
    """
    try:
        import foxglove
    except ImportError:
        raise UserError("a live view needs Foxglove's SDK: pip install foxglove-sdk") from None
    try:
        host = _random_loopback()
        server = foxglove.start_server(name=name, host=host, port=0)
        return foxglove, server, OriginGuard(address, (host, server.port)).port
    except Exception as error:  # the SDK has no exception class of its own
        raise UserError(f"live view on {address[0]}:{address[1]}: cannot be served ({error})") from None


def _random_loopback() -> str:
    """Return a loopback address that no web page can guess, for the guarded server; only Linux answers on all of them."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def _scene(lines: list[Polyline]) -> Any:
    from foxglove.messages import Color, LinePrimitive, LinePrimitiveLineType, Point3, SceneEntity, SceneUpdate

    look: dict[str, Any] = {"type": LinePrimitiveLineType.LineStrip, "thickness": 3.0, "scale_invariant": True}
    entities = []
    for name, (r, g, b), points in lines:
        places = [Point3(x=x, y=y, z=z) for x, y, z in points]
        line = LinePrimitive(points=places, color=Color(r=r, g=g, b=b, a=1.0), **look)
        entities.append(SceneEntity(frame_id="world", id=name, lines=[line]))
    return SceneUpdate(entities=entities)

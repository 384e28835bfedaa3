"""`run-mpc --view`: live view of the flight log's records and of the course in 3-D, over Foxglove's WebSocket.

The flight loop only puts the newest record of each channel into a mailbox. A thread moves them into a pipe some times a
second, and a process of its own serves them: no command waits for a viewer or the network.
"""

import contextlib
import json
import multiprocessing
import secrets
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.process import end, shielded
from gate_racer.vehicle.rotation import Array

START_S = 60.0  # s, longest start of the server's process; typically 1 s
UPDATE_HZ = 20  # Hz, rate of records to the viewer (chosen)
SCENE_S = 0.5  # s between two drawings of course and path
PATH_POINTS = 2000  # points kept of the path that is drawn (chosen)
WORLD = "world"
NORTH_WEST_UP = np.array([1.0, -1.0, -1.0])  # factors on NED: viewers have z up
Polyline = tuple[str, tuple[float, float, float], list[list[float]]]  # name, colour, points


class LiveView:
    """Live view in a process of its own; `offer` never waits and never raises."""

    def __init__(self, address: tuple[str, int], schemas: dict[str, dict[str, Any]], track: Track, plan: Plan | None):
        """
        Args:
            schemas: JSON Schema of each channel, as in the log.

        Raises:
            UserError: the address is unavailable, or Foxglove's SDK is not installed.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        lines = [
            (f"gate {i}", (1.0, 0.2, 0.1), _drawn(_ring(gate))) for i, gate in enumerate(track.gates) if gate.opening_m
        ]
        if plan is not None:
            lines.append(("plan", (0.6, 0.6, 0.6), _drawn(plan.x[:, :3])))
        self._process = context.Process(target=_serve, args=(theirs, address, schemas, lines), name="view", daemon=True)
        with shielded():
            self._process.start()
        theirs.close()
        self.port, problem = 0, f"the live view did not start within {START_S:g} s"
        try:
            if self._pipe.poll(START_S):
                self.port, problem = self._pipe.recv()
        except EOFError:
            problem = "the live view died at its start"
        if problem:
            self._process.kill()
            self._process.join()
            raise UserError(problem)
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
                    self._pipe.send(news)
                sent = newest

    def close(self) -> None:
        """End the server's process."""
        self._closed.set()
        self._pipe.close()
        end(self._process, 1.0)
        self._thread.join(timeout=1.0)


def _ring(gate: Any) -> Array:
    ring: Array = gate.corners()[[0, 1, 2, 3, 0]]
    return ring


def _drawn(p_w: Array) -> list[list[float]]:
    points: list[list[float]] = np.round(p_w * NORTH_WEST_UP, 3).tolist()
    return points


def _serve(
    pipe: Connection, address: tuple[str, int], schemas: dict[str, dict[str, Any]], lines: list[Polyline]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process by closing the pipe
    try:
        import foxglove
        from foxglove.channels import CompressedImageChannel, SceneUpdateChannel

        from gate_racer.pilot.records.origin_guard import OriginGuard
    except ImportError:
        pipe.send((0, "--view: needs Foxglove's SDK: pip install foxglove-sdk"))
        return
    try:
        server_host = _random_loopback()
        server = foxglove.start_server(name="run-mpc", host=server_host, port=0)
        guard = OriginGuard(address, (server_host, server.port))
    except Exception as error:  # the SDK has no exception class of its own
        pipe.send((0, f"--view {address[0]}:{address[1]}: cannot be served ({error})"))
        return
    channels = {name: foxglove.Channel(f"/{name}", schema=schema) for name, schema in schemas.items()}
    camera, scene = CompressedImageChannel("/camera"), SceneUpdateChannel("/scene")
    pipe.send((guard.port, ""))
    path: list[list[float]] = []
    drawn = -SCENE_S
    with contextlib.suppress(EOFError, OSError):
        while True:
            for name, (t, fields) in pipe.recv().items():
                stamp = round(t * 1e9)
                if name == "camera":
                    camera.log(_image(fields, stamp), log_time=stamp)
                elif name in channels:
                    channels[name].log(json.dumps(fields, default=_plain).encode(), log_time=stamp)
                if name == "state":
                    path = [*path[1 - PATH_POINTS :], *_drawn(np.array(fields["p"])[None])]
            if time.monotonic() - drawn > SCENE_S:
                drawn = time.monotonic()
                scene.log(_scene([*lines, ("flown", (0.1, 0.6, 1.0), path)]))
    server.stop()


def _random_loopback() -> str:
    """Return a loopback address that no web page can guess, for the guarded server; only Linux answers on all of them."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def _plain(value: Any) -> Any:
    return value.tolist()


def _image(jpeg: bytes, stamp: int) -> Any:
    from foxglove.messages import CompressedImage, Timestamp

    when = Timestamp(sec=stamp // 1_000_000_000, nsec=stamp % 1_000_000_000)
    return CompressedImage(timestamp=when, frame_id="camera", data=jpeg, format="jpeg")


def _scene(lines: list[Polyline]) -> Any:
    from foxglove.messages import Color, LinePrimitive, LinePrimitiveLineType, Point3, SceneEntity, SceneUpdate

    strip = LinePrimitiveLineType.LineStrip
    entities = []
    for name, (r, g, b), points in lines:
        line = LinePrimitive(
            type=strip,
            thickness=3.0,
            scale_invariant=True,
            points=[Point3(x=x, y=y, z=z) for x, y, z in points],
            color=Color(r=r, g=g, b=b, a=1.0),
        )
        entities.append(SceneEntity(frame_id=WORLD, id=name, lines=[line]))
    return SceneUpdate(entities=entities)

"""The flight log: MCAP with one JSON channel per kind of record, behind a bounded queue, so that no flight waits for a disk.

When the queue is full, or the file near its limit, images are dropped first. A full or missing disk ends the log only.
Dropped records are counted.

Schemas are JSON Schema (`SCHEMAS`); the log's time is the simulator's. World NED, body FRD, quaternions wxyz, SI.
"""

import base64
import json
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate_racer.link.record import RecordFile, encoded, record, scalar, vector
from gate_racer.vehicle.rotation import Array

if TYPE_CHECKING:
    from gate_racer.pilot.records.view import LiveView

DRAIN_S = 0.05  # s between writes: in portions, so that the thread rarely holds the interpreter
IMAGE_BYTES = 8 << 20  # bytes of queued images: some 5 s at 30 Hz
QUEUE_BYTES = 32 << 20  # bytes of all queued records
IMAGES_SHARE = 0.8  # fraction of the file's limit beyond which images are dropped: they make some 95 % of the bytes
CLOSE_S = 10.0  # s to write the rest at the end, after which the disk counts as hung


@dataclass
class Dropped:
    """Counts of records that are not in the file."""

    images: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    channel: int
    t: float
    data: bytes  # JPEG of an image
    is_image: bool = False


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _compressed(entry: _Entry) -> bytes:
    """Return a foxglove.CompressedImage."""
    sec, nsec = divmod(round(entry.t * 1e9), 1_000_000_000)
    image = {
        "timestamp": {"sec": sec, "nsec": nsec},
        "frame_id": "camera",
        "data": base64.b64encode(entry.data).decode(),
    }
    return json.dumps({**image, "format": "jpeg"}).encode()


_NUMBER, _INTEGER, _TEXT, _OBJECT = {"type": "number"}, {"type": "integer"}, {"type": "string"}, {"type": "object"}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


SCHEMAS = {
    "flight": record(
        track=_TEXT,
        vehicle=_TEXT,
        plan_hash=_TEXT,
        planned_gate_times_s=_list(_NUMBER),
        seed=_INTEGER,
        profile=_TEXT,
        world=_OBJECT,
        settings=_OBJECT,
    ),
    "phase": record(phase=_TEXT, reason=_TEXT),
    "imu": record(accel=vector(3, "m/s^2, specific force, body FRD"), gyro=vector(3, "rad/s, body FRD")),
    "attitude": record(q=vector(4, "telemetry, body to world, wxyz")),
    "state": record(
        p=vector(3, "m, world NED"),
        q=vector(4, "body to world, wxyz"),
        v=vector(3, "m/s, world NED"),
        w=vector(3, "rad/s, body FRD"),
        sigma_p=vector(3, "m, standard deviation"),
        drift=scalar("number", "m, estimated error of the odometry"),
    ),
    "reference": record(
        theta=scalar("number", "s of plan time, one command delay ahead"),
        p=vector(3, "m, world NED"),
        q=vector(4, "body to world, wxyz"),
        v=vector(3, "m/s, world NED"),
    ),
    "command": record(
        q=vector(4, "attitude, body to world, wxyz"),
        w=vector(3, "rad/s, body FRD"),
        throttle=scalar("number", "0..1"),
        source=_TEXT,
        status=scalar("integer", "status of the solver, 0 = solved"),
        solve_ms=_NUMBER,
    ),
    "sticks": record(  # sticks of a person who flies instead
        w=vector(3, "rad/s, body FRD"), throttle=scalar("number", "0..1")
    ),
    "fallback": record(source=_TEXT, reason=_TEXT),  # written once, when commands begin to come from a fall-back
    "sighting": record(
        frame=_INTEGER,
        gate=_INTEGER,
        range_m=_NUMBER,
        p=vector(3, "m, world NED, vehicle position from this gate"),
        sigma_p=vector(3, "m, standard deviation"),
        corners_px=_list(vector(2, "px")),
    ),
    "detection": record(
        frame=_INTEGER,
        corners_px=_list(vector(2, "px, corners of the opening, clockwise from the top left of the image")),
        cov_px=_list(vector(3, "px^2, covariance uu, uv, vv of each corner")),
        visible=_list({"type": "boolean"}),
        score=_NUMBER,
        outer_px=_list(vector(2, "px, outer corners of the frame in the same order; empty if not detected")),
        outer_cov_px=_list(vector(3, "px^2, covariance uu, uv, vv of each outer corner")),
        near_face=scalar("boolean", "true: corners of the near face; false: of the inner contour"),
    ),
    "window": record(  # search window of the following image
        frame_ratio=scalar("number", "outer side of the frame over side of the opening; 0: unknown"),
        left=scalar("integer", "px, region searched for gates; empty: the whole image"),
        top=_INTEGER,
        right=_INTEGER,
        bottom=_INTEGER,
    ),
    "calibration": record(camera=scalar("object", "camera section of the vehicle's file, as calibrated in flight")),
    "replan": record(  # plan requested in flight, at the time of the request
        asked_s=scalar("number", "s since GO, time of the request"),
        taken_s=scalar("number", "s since GO, time of the hand-over; absent: not taken over"),
        thrust=scalar("number", "thrust of the vehicle planned for, relative to its file; drag likewise"),
        drag=_NUMBER,
        before_s=scalar("number", "s, remaining flight time from the start of the new plan, by the previous plan"),
        after_s=scalar("number", "s, remaining flight time by the new plan; absent: no answer in time"),
        solve_s=_NUMBER,
        why=scalar("string", "reason why it was not taken over; empty if taken over"),
    ),
    "learned": record(
        thrust_scale=scalar("number", "relative to the vehicle's file, as the other scales"),
        drag_scale=_NUMBER,
        lift_1_m=scalar("number", "1/m, increase of thrust per squared speed in the rotor plane"),
        delay_s=scalar("number", "s, from a command to its effect in the IMU's stamps"),
        rate_lag_scale=_NUMBER,
    ),
    "widths": record(  # at the time when the measurements first contradicted the assumed uncertainties
        ratios={
            "type": "object",
            "description": "standard deviations at the end of the flight over those assumed, by factor",
            "additionalProperties": _NUMBER,
        }
    ),
    "counters": record(  # once, at the end
        frames=_INTEGER,
        frames_dropped=_INTEGER,
        sightings=_INTEGER,
        rejected=_INTEGER,
        fallbacks=_INTEGER,
        fallback_reasons={"type": "object", "additionalProperties": _INTEGER},
        late=scalar("integer", "commands computed in more than a command period"),
        lost=scalar("integer", "commands issued while the position was too uncertain to hit a gate"),
    ),
    "link": record(counters={"type": "object", "additionalProperties": _NUMBER}),
    "truth": record(p=vector(3, "m"), q=vector(4, "wxyz"), v=vector(3, "m/s"), w=vector(3, "rad/s")),
    "referee": record(
        status=_TEXT,
        cause=_TEXT,
        by=scalar("string", "source of the verdict"),
        gate_times_s=_list(_NUMBER),
        gate_margins_m=_list(_NUMBER),
    ),
}
IMAGE = {
    "type": "object",
    "title": "foxglove.CompressedImage",
    "properties": {
        "timestamp": {"type": "object", "properties": {"sec": _INTEGER, "nsec": _INTEGER}},
        "frame_id": _TEXT,
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": _TEXT,
    },
}


class FlightLog:
    """Log of one flight. `close` completes the file; without it the file holds what was written so far.

    Writing never raises, and waits only if `patient`.
    """

    def __init__(
        self,
        path: Path,
        view: "LiveView | None" = None,
        limit_mb: float = math.inf,
        patient: bool = True,
        tell: Callable[[str], None] = lambda line: None,
    ):
        """Open the log. Raises UserError if the file cannot be written.

        Args:
            view: receives the same records.
            patient: wait for room in the queue instead of dropping records, where simulated time stands.
            tell: called once with the first problem.
        """
        self._file, self.path, self._view = RecordFile(path), path, view
        channel = self._file.json_channel
        self._channels = {name: channel(name, f"gate_racer.{name}", schema) for name, schema in SCHEMAS.items()}
        self._image = channel("camera", "foxglove.CompressedImage", IMAGE)
        self.images = True  # images are logged; they are the first to be dropped when time is short
        self.problem = ""  # reason why the file is incomplete; empty if it is complete
        self.dropped = Dropped()
        self._limit, self._patient, self._tell = limit_mb * 1e6, patient, tell
        self._queue: deque[_Entry] = deque()
        self._bytes = self._image_bytes = 0  # bytes queued
        self._lock = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def write(self, channel: str, t: float, **fields: Any) -> None:
        """Write one record to a channel of `SCHEMAS` at t, s; arrays may be numpy's."""
        self._add(_Entry(self._channels[channel], t, encoded({"t": t, **fields})))
        if self._view is not None:
            self._view.offer(channel, t, {"t": t, **fields})

    def image(self, t: float, jpeg: bytes) -> None:
        """Write one camera image, exposed at t, s."""
        entry = _Entry(self._image, t, jpeg, is_image=True)
        if self.images:
            self._add(entry)
        else:
            self._drop(entry)
        if self._view is not None:
            self._view.offer("camera", t, jpeg)

    def close(self) -> None:
        """Write the rest and complete the file, unless the disk hangs; end the live view."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._fail(f"the disk has not responded for {CLOSE_S:g} s")
        elif not self.problem and not self.path.exists():
            self._fail("was removed in flight")
        if self._view is not None:
            self._view.close()

    def _add(self, entry: _Entry) -> None:
        size, is_image = len(entry.data), entry.is_image
        with self._lock:
            while self._patient and self._bytes + size > QUEUE_BYTES and not self.problem:
                self._lock.wait()
            full = self._bytes + size > QUEUE_BYTES or (is_image and self._image_bytes + size > IMAGE_BYTES)
            if self.problem or (full and not self._patient):
                self._drop(entry)
                return
            self._queue.append(entry)
            self._bytes += size
            self._image_bytes += size * is_image

    def _work(self) -> None:
        while not self._closing:
            with self._lock:
                self._lock.wait_for(lambda: self._closing, DRAIN_S)
            self._drain()
        self._drain()
        try:
            self._file.close()
        except Exception as error:
            self._fail(_reason(error))

    def _drain(self) -> None:
        """Write all queued records."""
        while self._queue:
            with self._lock:
                entry = self._queue.popleft()
                self._bytes -= len(entry.data)
                self._image_bytes -= len(entry.data) * entry.is_image
                self._lock.notify_all()
            try:
                if self.problem or self._file.size > self._limit * (IMAGES_SHARE if entry.is_image else 1.0):
                    self._drop(entry)
                else:
                    self._file.add_raw(entry.channel, entry.t, _compressed(entry) if entry.is_image else entry.data)
            except Exception as error:  # any error concerns the log alone
                self._fail(_reason(error))

    def _drop(self, entry: _Entry) -> None:
        self.dropped.images += entry.is_image
        self.dropped.records += not entry.is_image

    def _fail(self, reason: str) -> None:
        if not self.problem:
            self.problem = f"{self.path}: {reason}"
            self._tell(f"warning: {self.problem}; the flight continues without a log")
        with self._lock:
            self._lock.notify_all()


def sigmas(cov: Array) -> Array:
    """Return the standard deviations (n,) of a covariance (n, n)."""
    return cov.diagonal() ** 0.5

"""The client: request RflySim3D's sensors, receive each on the port of its entry, and fly by one of the cameras.

A flight's camera has the URL `rflysim://HOST:PORT?config=Config.json`; its images are as from `link.client`.
"""

import contextlib
import math
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from gate_racer.common.command import remark
from gate_racer.common.config import ConfigError
from gate_racer.link.messages import VideoFrame
from gate_racer.link.reassembly import StreamCounters
from gate_racer.link.rflysim import request
from gate_racer.link.rflysim.desk import CLEAR_COMMAND, RequestSocket, encode_command
from gate_racer.link.rflysim.request import SensorRequest, camera_of, load_sensors
from gate_racer.link.rflysim.stream import Sample, Stream, StreamHealth, Tell, Value, image_file, reader
from gate_racer.link.sockets import Address, Closing, LinkError, parse_address
from gate_racer.vehicle.camera import Camera

BUFFER_BYTES = 8 << 20  # bytes, the kernel's receive buffer: some frames of the largest sensors (chosen)
SILENCE_S, SILENT_FRAMES = 0.5, 5  # s and frame periods without a frame, after which a sensor is silent
NO_ANSWER_S = 3.0  # s of unanswered requests, after which they are reported


class SensorSocket(RequestSocket):
    """One bound port, the request that starts its sensor, and the sensor's stream."""

    def __init__(
        self, sensor: SensorRequest, server: Address, tell: Tell = remark, read: Callable[[bytes], Value] | None = None
    ):
        super().__init__(server, sensor.port, BUFFER_BYTES)
        self.stream = Stream(sensor, tell, read or reader(sensor))
        self._patience_s = max(SILENCE_S, SILENT_FRAMES / max(sensor.rate_hz, 1))
        self._request, self._opened = sensor.encode(), time.monotonic()
        self.ask(self._opened)

    def ask(self, now: float) -> None:
        if self.renew(self._request, now, self._patience_s) and now - max(self.received, self._opened) >= NO_ANSWER_S:
            cause = "is RflySim3D running, does it reject this sensor, or does another client request the same SeqID?"
            self.stream.say("silent", f"no frame from {self.server[0]}:{self.server[1]}: {cause} requests continue")

    def samples(self, timeout_s: float = 0.0) -> Iterator[tuple[Sample, float]]:
        """Yield the server's samples with the reception (monotonic, s) of their last datagram; request what is missing."""
        for datagram, _, received in self.drain(timeout_s):
            sample = self.stream.feed(datagram, received)
            if sample is not None:
                self.received = received
                yield sample, received
        self.stream.counters.foreign = self.foreign
        self.ask(time.monotonic())

    def close(self) -> None:
        """Release the sensor and the port. RflySim3D releases all sensors; clients that still need one request it again."""
        self.send(encode_command(CLEAR_COMMAND))
        super().close()


class SensorReceiver(Closing):
    def __init__(self, sensors: tuple[SensorRequest, ...], server: Address, tell: Tell = remark):
        with contextlib.ExitStack() as opened:
            self._sockets = [opened.enter_context(SensorSocket(sensor, server, tell)) for sensor in sensors]
            self._opened = opened.pop_all()

    @property
    def streams(self) -> list[Stream]:
        return [endpoint.stream for endpoint in self._sockets]

    def receive(self, timeout_s: float) -> list[tuple[Sample, float]]:
        """Return the samples completed, with the reception (monotonic, s) of the last datagram; wait at most timeout_s."""
        samples = list[tuple[Sample, float]]()
        select.select([endpoint.socket for endpoint in self._sockets], [], [], max(0.0, timeout_s))
        for endpoint in self._sockets:
            samples += endpoint.samples()
        return samples

    def health(self, seq_id: int) -> StreamHealth:
        return next(stream.health for stream in self.streams if stream.sensor.seq_id == seq_id)

    def report(self, now: float) -> list[str]:
        lines = []
        for endpoint in self._sockets:
            stream = endpoint.stream
            lost = {name: count for name, count in asdict(stream.counters).items() if count}
            state = stream.health.report(now, "frame", endpoint.server)
            trouble = "".join(f", {count} {name}" for name, count in lost.items())
            lines.append(f"sensor {stream.sensor.seq_id} on port {endpoint.port}: {state}{trouble}")
        return lines

    def close(self) -> None:
        self._opened.close()


SCHEME = "rflysim"
OPTIONS = ("config", "sensor", "angles")
ANGLES = ("deg", "rad")
EXAMPLE = f"{SCHEME}://127.0.0.1:{request.REQUEST_PORT}?config=Config.json"


@dataclass(frozen=True)
class Vision:
    server: Address
    sensor: SensorRequest
    camera: Camera
    warning: str = ""


def parse_server(url: str, *known: str) -> tuple[Address, dict[str, str]]:
    """Parse address and `known` options of `rflysim` or `rflysim://HOST:PORT?NAME=VALUE&...`. Raises LinkError."""
    try:
        parts = urlsplit(url if "://" in url else f"{url}://", allow_fragments=False)
    except ValueError:  # unmatched brackets
        parts = urlsplit("")
    if parts.scheme != SCHEME or parts.path not in ("", "/"):
        raise LinkError(f"vision {url!r}: expected something like {EXAMPLE}")
    # A file may have a + in its name.
    options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
    if unknown := [name for name in options if name not in known]:
        raise LinkError(f"vision {url!r}: unknown option {unknown[0]!r}; known: {', '.join(known) or 'none'}")
    return parse_address(parts.netloc or "127.0.0.1", request.REQUEST_PORT), options


def parse_vision(url: str) -> Vision:
    """Return the camera of a URL: `config` is a Config.json, `sensor` a SeqID (default: the first colour camera), `angles`
    the unit of its SensorAngEular, deg or rad. Raises UserError if one is malformed, or no camera is suitable for flight.
    """
    server, options = parse_server(url, *OPTIONS)
    if not options.get("config"):
        raise LinkError(f"vision {url!r}: no sensors given; expected something like {EXAMPLE}")
    if options.get("angles", ANGLES[0]) not in ANGLES:
        raise LinkError(f"vision {url!r}: angles: must be deg or rad")
    path, radians = options["config"], options.get("angles") == "rad"
    sensors, seq_id = load_sensors(path), options.get("sensor", "")
    cameras = {str(sensor.seq_id): sensor for sensor in sensors if sensor.type_id == request.RGB}
    sensor = cameras.get(seq_id or next(iter(cameras), ""))
    if sensor is None:
        wanted, available = f" of SeqID {seq_id}" if seq_id else "", ", ".join(cameras) or "none"
        raise ConfigError(f"{path}: no colour camera (TypeID {request.RGB}){wanted}; available: {available}")
    try:
        camera = camera_of(sensor, radians)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    # So small as degrees that radians may be meant.
    small = 0 < max(map(abs, sensor.euler)) <= 2 * math.pi and not (sensor.turned_by_quat or radians)
    assumed = f"SensorAngEular {sensor.euler} is assumed to be in degrees; or add &angles=rad"
    return Vision(server, sensor, camera, f"{path}: sensor {sensor.seq_id}: {assumed}" if small else "")


class VisionReceiver(SensorSocket):
    def __init__(self, vision: Vision, tell: Tell = remark):
        super().__init__(vision.sensor, vision.server, tell, partial(image_file, sensor=vision.sensor))
        # Function that opens a receiver in this one's place, once it is closed.
        self.successor = partial(VisionReceiver, vision, tell)

    def accept_only(self, host: str) -> None:
        """Do nothing: images are accepted from the server's host only, wherever the telemetry comes from."""

    @property
    def counters(self) -> StreamCounters:
        return self.stream.counters

    def receive(self, timeout_s: float) -> list[tuple[VideoFrame, float]]:
        """Return the frames completed, with the reception (monotonic, s) of the last datagram; wait at most timeout_s."""
        frames = []
        for sample, received in self.samples(timeout_s):
            assert isinstance(sample.value, bytes)
            number = self.stream.health.frames if sample.frame_id is None else sample.frame_id & 0xFFFFFFFF
            frames.append((VideoFrame(sample.t, number, sample.value), received))
        return frames

"""Flight by a camera of RflySim: the URL `rflysim://HOST:PORT?config=Config.json`, and its images as from `link.udp`."""

from dataclasses import dataclass
from time import monotonic
from urllib.parse import parse_qsl, urlsplit

from gate_racer.link.messages import VideoFrame
from gate_racer.link.peer import Address
from gate_racer.link.rflysim.config import camera_of, load_sensors, looks_like_radians
from gate_racer.link.rflysim.images import image_file
from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.link.rflysim.request import REQUEST_PORT, SensorRequest
from gate_racer.link.rflysim.sensors import FLYABLE, RGB, SENSORS
from gate_racer.link.rflysim.stream import ReassembledStream, StreamCounters, Tell
from gate_racer.link.rflysim.udp import SensorSocket, to_stderr
from gate_racer.link.sockets import LinkError, parse_address
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.config import ConfigError

SCHEME = "rflysim"
OPTIONS = ("config", "sensor", "angles")
ANGLES = ("deg", "rad")
EXAMPLE = f"{SCHEME}://127.0.0.1:{REQUEST_PORT}?config=Config.json"


@dataclass(frozen=True)
class Vision:
    """Server, and the camera for flight."""

    server: Address
    sensor: SensorRequest
    camera: Camera
    warning: str = ""


def parse_server(url: str) -> tuple[Address, dict[str, str]]:
    """Parse address and options of `rflysim`, `rflysim://HOST:PORT` or `rflysim://HOST:PORT?NAME=VALUE&...`.

    Raises:
        LinkError: the text is none of these.
    """
    try:
        parts = urlsplit(url if "://" in url else f"{url}://", allow_fragments=False)
    except ValueError:  # unmatched brackets
        raise LinkError(f"vision {url!r}: expected something like {EXAMPLE}") from None
    if parts.scheme != SCHEME or parts.path not in ("", "/"):
        raise LinkError(f"vision {url!r}: expected something like {EXAMPLE}")
    # A file may have a + in its name.
    options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
    return parse_address(parts.netloc or "127.0.0.1", REQUEST_PORT), options


def parse_vision(url: str) -> Vision:
    """Return the camera of a URL: `config` is a Config.json, `sensor` a SeqID (default: the first colour camera), `angles`
    the unit of its SensorAngEular, deg or rad.

    Raises:
        UserError: malformed URL or file, or no camera suitable for flight.
    """
    server, options = parse_server(url)
    for name in options:
        if name not in OPTIONS:
            raise LinkError(f"vision {url!r}: unknown option {name!r}; known: {', '.join(OPTIONS)}")
    if not options.get("config"):
        raise LinkError(f"vision {url!r}: no sensors given; expected something like {EXAMPLE}")
    if options.get("angles", ANGLES[0]) not in ANGLES:
        raise LinkError(f"vision {url!r}: angles: must be deg or rad")
    path, radians = options["config"], options.get("angles") == "rad"
    sensor = _chosen(load_sensors(path), options.get("sensor", ""), path)
    try:
        camera = camera_of(sensor, radians)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    small = looks_like_radians(sensor) and not radians
    warning = (
        f"{path}: sensor {sensor.seq_id}: SensorAngEular {sensor.euler} is assumed to be in degrees; or add &angles=rad"
    )
    return Vision(server, sensor, camera, warning if small else "")


def _chosen(sensors: tuple[SensorRequest, ...], seq_id: str, path: str) -> SensorRequest:
    cameras = [sensor for sensor in sensors if sensor.type_id in FLYABLE]
    for sensor in cameras:
        if seq_id in ("", str(sensor.seq_id)):
            return sensor
    for sensor in sensors:
        if seq_id == str(sensor.seq_id):
            name = SENSORS[sensor.type_id].name
            raise ConfigError(f"{path}: sensor {seq_id} is a {name}, not a colour camera: TypeID must be {RGB}")
    known = ", ".join(str(sensor.seq_id) for sensor in cameras) or "none"
    raise ConfigError(f"{path}: no colour camera{' of SeqID ' + seq_id if seq_id else ''}; available: {known}")


class VisionReceiver:
    """Receiver of one camera, in place of `link.udp.VideoReceiver`."""

    def __init__(self, vision: Vision, tell: Tell = to_stderr):
        """Bind the port. Raises LinkError when the port is in use or the server is unknown."""
        self._joined, self._endpoint = (
            ReassembledStream(vision.sensor, tell),
            SensorSocket(vision.sensor, vision.server, tell),
        )
        self.socket = self._endpoint.socket
        self.address: Address = self.socket.getsockname()
        self._frames = 0

    def accept_only(self, host: str) -> None:
        """Do nothing: images are accepted from the server's host only, wherever the telemetry comes from."""

    @property
    def counters(self) -> StreamCounters:
        """Counters of the stream, with the datagrams of other hosts."""
        self._joined.counters.foreign = self._endpoint.foreign
        return self._joined.counters

    def receive(self, timeout_s: float) -> list[tuple[VideoFrame, float]]:
        """Return the frames completed, with the reception (monotonic, s) of the last datagram; wait at most timeout_s."""
        frames: list[tuple[VideoFrame, float]] = []
        for datagram, sender, now in self._endpoint.drain(timeout_s):
            payload = self._joined.feed(datagram, (sender, self.address[1]), now)
            if payload is None:
                continue
            self._endpoint.received(now)
            try:
                data = image_file(payload.data, self._joined.sensor)
            except MalformedError as error:
                self._joined.unreadable(error)
                continue
            self._frames += 1
            number = self._frames if payload.frame_id is None else payload.frame_id & 0xFFFFFFFF
            frames.append((VideoFrame(payload.t, number, data), now))
        self._endpoint.ask(monotonic())
        return frames

    def __enter__(self) -> "VisionReceiver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the sensor and the port."""
        self._endpoint.close()

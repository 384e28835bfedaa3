"""Stream of one sensor: datagrams in, decoded samples out; unusable input is counted and reported once."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from gate_racer.link.rflysim.fragments import FragmentCounters, FragmentReassembler, Payload
from gate_racer.link.rflysim.payloads import (
    BoundingBox,
    Cloud,
    CloudLayout,
    CloudReader,
    Image,
    Range,
    Spot,
    decode_boxes,
    decode_payload,
    decode_range,
    decode_spots,
)
from gate_racer.link.rflysim.request import SENSORS, MalformedError, SensorKind, SensorRequest
from gate_racer.link.sockets import Address

Value = Image | Cloud | Range | list[BoundingBox] | list[Spot]
Tell = Callable[[str], None]
MOST_TOPICS = 20  # per stream
MILESTONES = {10**n for n in range(7)}  # occurrences that are reported


@dataclass(slots=True)
class StreamCounters(FragmentCounters):
    """Counters of fragments, and of frames that were complete but could not be decoded."""

    unreadable: int = 0
    foreign: int = 0  # datagrams from hosts other than the server


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Measurement of a sensor at t (s, simulation time)."""

    sensor: SensorRequest
    t: float
    frame_id: int | None
    value: Value


class RateLimitedReporter:
    """Reporter of events at their first, tenth, hundredth ... occurrence, for at most `MOST_TOPICS` topics."""

    def __init__(self, tell: Tell, name: str):
        self._tell, self._name, self._times = tell, name, Counter[str]()

    def __call__(self, topic: str, text: str) -> None:
        """Count an event on a topic, and report it if due."""
        if topic not in self._times and len(self._times) == MOST_TOPICS:
            return
        self._times[topic] += 1
        times = self._times[topic]
        if times in MILESTONES:
            often = f" ({times} times so far)" if times > 1 else ""
            self._tell(f"rflysim: {self._name}: {text}{often}")


class ReassembledStream:
    """Reassembly of one stream, with counters and reports; common to all uses of a stream."""

    def __init__(self, sensor: SensorRequest, tell: Tell):
        self.sensor, self.counters = sensor, StreamCounters()
        self.say = RateLimitedReporter(
            tell, f"sensor {sensor.seq_id} ({SENSORS[sensor.type_id].name}), port {sensor.port}"
        )
        self._reassembler = FragmentReassembler()
        self._reassembler.counters = self.counters

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Payload | None:
        """Process a datagram, as `FragmentReassembler.feed`."""
        before = self.counters.malformed
        payload = self._reassembler.feed(datagram, source, now)
        if self.counters.malformed > before:
            self.say("malformed", f"dropped a datagram: {self._reassembler.reason}; further ones are only counted")
        return payload

    def unreadable(self, error: MalformedError) -> None:
        """Count and report a frame that was complete but could not be decoded."""
        self.counters.unreadable += 1
        self.say("unreadable", f"dropped a frame: {error}; further ones are only counted")


class Stream:
    """Decoder of one stream."""

    def __init__(self, sensor: SensorRequest, tell: Tell, layout: CloudLayout | None = None):
        """Create it; `layout` of a cloud, detected by default."""
        self.joined = ReassembledStream(sensor, tell)
        self.sensor, self.counters, self.health = sensor, self.joined.counters, StreamHealth()
        self._clouds = CloudReader(sensor, layout)

    def update(self, sensor: SensorRequest) -> None:
        """Change the sensor's parameters; frames of the old size still on their way are unreadable."""
        self.sensor = self.joined.sensor = sensor
        self._clouds = CloudReader(sensor, self._clouds.layout)

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Sample | None:
        """Process a datagram at `now` (s, monotonic); return the sample that it completes."""
        payload = self.joined.feed(datagram, source, now)
        if payload is None:
            return None
        try:
            value = self._decoded(payload.data)
        except MalformedError as error:
            self.joined.unreadable(error)
            return None
        if self.health.frames == 0:
            kind = f", layout {value.layout.label}" if isinstance(value, Cloud) else ""
            age = "numbered" if payload.frame_id is not None else "older"
            self.joined.say("first", f"first frame at {payload.t:.3f} s, {age} header{kind}")
        self.health.saw(now)
        return Sample(self.sensor, payload.t, payload.frame_id, value)

    def _decoded(self, data: bytes) -> Value:
        match SENSORS[self.sensor.type_id].kind:
            case SensorKind.IMAGE:
                return decode_payload(data, self.sensor)
            case SensorKind.CLOUD:
                return self._clouds.read(data)
            case SensorKind.RANGE:
                return decode_range(data)
            case SensorKind.BOXES:
                return decode_boxes(data)
            case _:
                return decode_spots(data)


class StreamHealth:
    """Rate, gaps and age of a stream, by times of arrival."""

    def __init__(self) -> None:
        self.frames, self.longest_gap_s, self.shortest_gap_s, self.gap_s = 0, 0.0, 0.0, 0.0
        self._first = self._last = 0.0

    def saw(self, now: float) -> None:
        """Record a frame at `now`, s."""
        if self.frames:
            self.gap_s = max(now - self._last, 0.0)
            self.longest_gap_s = max(self.longest_gap_s, self.gap_s)
            self.shortest_gap_s = min(self.shortest_gap_s, self.gap_s) if self.frames > 1 else self.gap_s
        else:
            self._first = now
        self.frames += 1
        self._last = now

    @property
    def hz(self) -> float:
        """Mean rate so far, Hz."""
        return (self.frames - 1) / (self._last - self._first) if self._last > self._first else 0.0

    def report(self, now: float, what: str, server: Address) -> str:
        """Return a line on the state of a stream of `what` from a server."""
        age = self.age(now)
        if age is None:
            return f"no {what} yet from {server[0]}:{server[1]}"
        return f"{self.frames} {what}s, {self.hz:.1f} Hz, gap {self.longest_gap_s:.2f} s, age {age:.2f} s"

    def age(self, now: float) -> float | None:
        """Return the time (s) since the last frame, at least 0; None before the first."""
        return max(now - self._last, 0.0) if self.frames else None

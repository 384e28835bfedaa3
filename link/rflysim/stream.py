"""Stream of one sensor: datagrams in, decoded samples out; unusable input is counted and reported once."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.fragments import fragment_reassembler
from gate_racer.link.rflysim.payloads import (
    BoundingBox,
    Cloud,
    Image,
    Range,
    Spot,
    decode_cloud,
    decode_items,
    decode_payload,
    decode_range,
)
from gate_racer.link.rflysim.request import SENSORS, SensorKind, SensorRequest
from gate_racer.link.sockets import Address

Value = Image | Cloud | Range | list[BoundingBox] | list[Spot] | bytes  # bytes: of an image file
Tell = Callable[[str], None]
MOST_TOPICS = 20  # per stream
MILESTONES = {10**n for n in range(7)}  # occurrences that are reported


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


class Stream:
    """Decoder of one stream."""

    def __init__(self, sensor: SensorRequest, tell: Tell, read: Callable[[bytes], Value]):
        """Create it; `read` decodes a frame, or raises MalformedError."""
        self.sensor, self.read, self.health = sensor, read, StreamHealth()
        self.say = RateLimitedReporter(
            tell, f"sensor {sensor.seq_id} ({SENSORS[sensor.type_id].name}), port {sensor.port}"
        )
        self._fragments = fragment_reassembler()
        self.counters = self._fragments.counters

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Sample | None:
        """Process a datagram at `now` (s, monotonic); return the sample that it completes."""
        before = self.counters.malformed
        payload = self._fragments.feed(datagram, source, now)
        if self.counters.malformed > before:
            self.say("malformed", f"dropped a datagram: {self._fragments.reason}; further ones are only counted")
        if payload is None:
            return None
        try:
            value = self.read(payload.data)
        except MalformedError as error:
            self.counters.unreadable += 1
            self.say("unreadable", f"dropped a frame: {error}; further ones are only counted")
            return None
        self.health.saw(now)
        return Sample(self.sensor, payload.t, payload.frame_id, value)


def reader(sensor: SensorRequest) -> Callable[[bytes], Value]:
    """Return the decoder of a sensor's frames."""
    match SENSORS[sensor.type_id].kind:
        case SensorKind.IMAGE:
            return partial(decode_payload, sensor=sensor)
        case SensorKind.CLOUD:
            return partial(decode_cloud, sensor=sensor)
        case SensorKind.RANGE:
            return decode_range
        case SensorKind.BOXES:
            return partial(decode_items, kind=BoundingBox)
        case _:
            return partial(decode_items, kind=Spot)


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

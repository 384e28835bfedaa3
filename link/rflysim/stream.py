"""One sensor's stream: datagrams in, decoded samples out; what cannot be used is counted and told of once."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from link.peer import Address
from link.rflysim.clouds import Cloud, CloudLayout, CloudReader
from link.rflysim.fragments import FragmentCounters, FragmentReassembler, Payload
from link.rflysim.images import Image, decode_payload
from link.rflysim.malformed import MalformedError
from link.rflysim.ranges import BoundingBox, Range, Spot, decode_boxes, decode_range, decode_spots
from link.rflysim.request import SensorRequest
from link.rflysim.sensors import SENSORS, SensorKind

Value = Image | Cloud | Range | list[BoundingBox] | list[Spot]
Tell = Callable[[str], None]
MOST_TOPICS = 20  # of one stream
MILESTONES = {10**n for n in range(7)}


@dataclass(slots=True)
class StreamCounters(FragmentCounters):
    """Adds the frames that came whole and yet could not be read."""

    unreadable: int = 0
    foreign: int = 0  # datagrams of other hosts than the server's


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What a sensor saw at t (s, simulation time)."""

    sensor: SensorRequest
    t: float
    frame_id: int | None
    value: Value


class Teller:
    """Says each thing when it happens first, for the tenth time, for the hundredth ...; and `MOST_TOPICS` things at most."""

    def __init__(self, tell: Tell, name: str):
        self._tell, self._name, self._times = tell, name, Counter[str]()

    def __call__(self, topic: str, text: str) -> None:
        """Something on a topic has happened."""
        if topic not in self._times and len(self._times) == MOST_TOPICS:
            return
        self._times[topic] += 1
        times = self._times[topic]
        if times in MILESTONES:
            often = f" ({times} times by now)" if times > 1 else ""
            self._tell(f"rflysim: {self._name}: {text}{often}")


class Joined:
    """The reassembly of one stream, with its account: what every use of a stream begins with."""

    def __init__(self, sensor: SensorRequest, tell: Tell):
        self.sensor, self.counters = sensor, StreamCounters()
        self.say = Teller(tell, f"sensor {sensor.seq_id} ({SENSORS[sensor.type_id].name}), port {sensor.port}")
        self._reassembler = FragmentReassembler()
        self._reassembler.counters = self.counters

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Payload | None:
        """As `FragmentReassembler.feed`."""
        before = self.counters.malformed
        payload = self._reassembler.feed(datagram, source, now)
        if self.counters.malformed > before:
            self.say(
                "malformed", f"a datagram is dropped: {self._reassembler.reason}; more of the kind are only counted"
            )
        return payload

    def unreadable(self, error: MalformedError) -> None:
        """A frame came whole but says nothing."""
        self.counters.unreadable += 1
        self.say("unreadable", f"a frame is dropped: {error}; more of the kind are only counted")


class Stream:
    """Decodes."""

    def __init__(self, sensor: SensorRequest, tell: Tell, layout: CloudLayout | None = None):
        """`layout` of a cloud; detected when it is not given."""
        self.joined = Joined(sensor, tell)
        self.sensor, self.counters, self.health = sensor, self.joined.counters, StreamHealth()
        self._clouds = CloudReader(sensor, layout)

    def update(self, sensor: SensorRequest) -> None:
        """The same sensor with other parameters; frames of the old size that are on their way are unreadable."""
        self.sensor = self.joined.sensor = sensor
        self._clouds = CloudReader(sensor, self._clouds.layout)

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Sample | None:
        """Takes a datagram at `now` (s, steady); returns the sample that it completes."""
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
    """Rate, longest gap and age of a stream, in times of arrival."""

    def __init__(self) -> None:
        self.frames, self.longest_gap_s, self.shortest_gap_s, self.gap_s = 0, 0.0, 0.0, 0.0
        self._first = self._last = 0.0

    def saw(self, now: float) -> None:
        """A frame came at `now`, s."""
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
        """Mean rate so far."""
        return (self.frames - 1) / (self._last - self._first) if self._last > self._first else 0.0

    def report(self, now: float, what: str, server: Address) -> str:
        """What came of a stream of `what` from a server, in words."""
        age = self.age(now)
        if age is None:
            return f"no {what} yet from {server[0]}:{server[1]}"
        return f"{self.frames} {what}s, {self.hz:.1f} Hz, gap {self.longest_gap_s:.2f} s, age {age:.2f} s"

    def age(self, now: float) -> float | None:
        """s since the last frame, which may have come after `now`; None before the first."""
        return max(now - self._last, 0.0) if self.frames else None

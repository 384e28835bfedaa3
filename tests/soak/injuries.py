"""Injuries of a race by networks, other vehicles and wrong clocks."""

import struct
from collections.abc import Callable, Iterable
from functools import partial

from pymavlink.dialects.v20 import common as dialect
from pymavlink.generator.mavcrc import x25crc

from tests.soak.proxy import Context, Injury, Passage

HIGHRES_IMU, IMU_CRC = 105, 93
UNMEASURED = [float("nan")] * 7


class Everywhere(Injury):
    """The same for telemetry, video and commands."""

    def __init__(self, passages: Callable[[bytes, Context], Iterable[Passage]]):
        self.telemetry = self.video = self.commands = passages  # type: ignore[method-assign]


def loss(share: float) -> Injury:
    return Everywhere(lambda datagram, about: [] if about.rng.random() < share else [(0.0, datagram)])


def duplication(share: float) -> Injury:
    return Everywhere(lambda datagram, about: [(0.0, datagram)] * (2 if about.rng.random() < share else 1))


def reordering(share: float, by_s: float) -> Injury:
    return Everywhere(lambda datagram, about: [(by_s if about.rng.random() < share else 0.0, datagram)])


def jitter(most_s: float) -> Injury:
    return Everywhere(lambda datagram, about: [(about.rng.random() * most_s, datagram)])


def bursts(every_s: float, held_s: float) -> Injury:
    """A radio that sleeps: what comes in its sleep arrives at once at its end."""

    def passages(datagram: bytes, about: Context) -> list[Passage]:
        return [(max(0.0, held_s - about.t % every_s), datagram)]

    return Everywhere(passages)


def corruption(share: float) -> Injury:
    """Bits flip, and ends are missing."""

    def passages(datagram: bytes, about: Context) -> list[Passage]:
        rng = about.rng
        if rng.random() >= share:
            return [(0.0, datagram)]
        changed = bytearray(datagram[: rng.choice((len(datagram), rng.randrange(1, len(datagram) + 1)))])
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return [(0.0, bytes(changed))]

    return Everywhere(passages)


class Silence(Injury):
    """Nothing passes for a while, some s after GO."""

    def __init__(self, at_s: float, for_s: float, telemetry: bool = True):
        self._begin, self._end, self._telemetry = at_s, at_s + for_s, telemetry

    def video(self, datagram: bytes, about: Context) -> list[Passage]:
        return [] if self._begin <= about.since_go < self._end else [(0.0, datagram)]

    def telemetry(self, datagram: bytes, about: Context) -> list[Passage]:
        return self.video(datagram, about) if self._telemetry else [(0.0, datagram)]


class Stamps(Injury):
    """IMU samples from some s after GO on are stamped otherwise; `count` of them, 0 for all."""

    def __init__(self, at_s: float, count: int, stamp: Callable[[int], int]):
        self._at, self._left, self._stamp = at_s, count or 1 << 60, stamp

    def telemetry(self, datagram: bytes, about: Context) -> list[Passage]:
        if about.since_go >= self._at and self._left and _message_id(datagram) == HIGHRES_IMU:
            self._left -= 1
            (usec,) = struct.unpack_from("<Q", datagram, 10)
            changed = bytearray(datagram)
            struct.pack_into("<Q", changed, 10, min(max(self._stamp(usec), 0), 2**64 - 1))
            datagram = _checked(changed, IMU_CRC)
        return [(0.0, datagram)]


class Vehicle(Injury):
    """Another sender that says so many things a second, in some seconds since the proxy began."""

    def __init__(self, messages: list, system: int, component: int, hz: float, until_s: float = float("inf")):
        self._messages, self._mav = messages, dialect.MAVLink(None, system, component)
        self._every, self._until = max(1, round(100 / hz)), until_s
        self._asked = 0

    def strangers(self, about: Context) -> list[bytes]:
        self._asked += 1
        if about.t > self._until or self._asked % self._every:
            return []
        return [message.pack(self._mav) for message in self._messages]


class Aboard(Vehicle):
    """The same, through the simulator's own link."""

    def telemetry(self, datagram: bytes, about: Context) -> list[Passage]:
        said = [(0.0, each) for each in Vehicle.strangers(self, about)]
        return [(0.0, datagram), *said]

    def strangers(self, about: Context) -> list[bytes]:
        return []


class Stale(Injury):
    """Every heartbeat comes once more after a while, among the present ones."""

    def __init__(self, after_s: float):
        self._after = after_s

    def telemetry(self, datagram: bytes, about: Context) -> list[Passage]:
        again = [(self._after, datagram)] if _message_id(datagram) == 0 else []
        return [(0.0, datagram), *again]


class Flood(Injury):
    """Noise on the video port: some thousand datagrams a second of random bytes and of headers that might be true."""

    def noise(self, about: Context) -> list[bytes]:
        rng = about.rng
        header = struct.pack("<IHHIIQ", rng.randrange(9999), 0, 40, 50_000, 1400, rng.randrange(2**40))
        return [rng.randbytes(rng.randrange(1, 1400)) for _ in range(15)] + [header + bytes(1400)] * 15


def beat(kind: int, autopilot: int, armed: bool) -> dialect.MAVLink_heartbeat_message:
    mode = dialect.MAV_MODE_FLAG_SAFETY_ARMED if armed else 0
    return dialect.MAVLink_heartbeat_message(kind, autopilot, mode, 0, dialect.MAV_STATE_ACTIVE, 3)


VEHICLE = beat(dialect.MAV_TYPE_QUADROTOR, dialect.MAV_AUTOPILOT_PX4, False)
GIMBAL = beat(dialect.MAV_TYPE_GIMBAL, dialect.MAV_AUTOPILOT_INVALID, False)
IMU = dialect.MAVLink_highres_imu_message(10**12, 30.0, 0.0, 0.0, 5.0, 5.0, 5.0, *UNMEASURED, 63)


class Together(Injury):
    """Several injuries, one after the other."""

    def __init__(self, *injuries: Injury):
        self._injuries = injuries
        for name in ("telemetry", "video", "commands"):
            setattr(self, name, partial(self._through, name))

    def _through(self, name: str, datagram: bytes, about: Context) -> list[Passage]:
        passages: list[Passage] = [(0.0, datagram)]
        for injury in self._injuries:
            passages = [(d + more, out) for d, one in passages for more, out in getattr(injury, name)(one, about)]
        return passages

    def strangers(self, about: Context) -> list[bytes]:
        return [said for injury in self._injuries for said in injury.strangers(about)]

    def noise(self, about: Context) -> list[bytes]:
        return [said for injury in self._injuries for said in injury.noise(about)]


def _message_id(datagram: bytes) -> int:
    return int.from_bytes(datagram[7:10], "little") if len(datagram) > 12 and datagram[0] == 0xFD else -1


def _checked(packet: bytearray, crc_extra: int) -> bytes:
    """An unsigned packet with its checksum put right."""
    crc = x25crc(bytes(packet[1:-2]))
    crc.accumulate(bytes([crc_extra]))
    packet[-2:] = crc.crc.to_bytes(2, "little")
    return bytes(packet)

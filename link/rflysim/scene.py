"""Objects of RflySim3D's scene, by the commands of its public SDK: placed, removed, and asked for.

An object is placed or moved by its number, model, pose and scale; `RflyReqObjData` deletes it, or asks for its state, which comes
to the port of the gimbals'. World NED of the map, m.
"""

import math
import re
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gate_racer.link.packed import Packed
from gate_racer.link.rflysim.desk import ASK_S, GROUP, STATE_PORT, RequestSocket
from gate_racer.link.rflysim.request import COMMAND_SUM, decode_command, encode_command
from gate_racer.link.sockets import Address
from gate_racer.vehicle.rotation import Quaternion, Vector, conjugate, from_euler, log, product

NUMBERS = range(10_000, 10_500)  # of our objects (chosen: no aircraft has them, and 16 bit hold them)
CUBE = 1000813  # model of a box with sides of 1 m, as courses of users have it; the SDK's pages list no models
QUERY, TELL, DELETE = "RflyReqObjData", 1, 11  # the command, and what it does with an object
FAR_M = 1e5  # m below the map, where a removed object is moved to, in case that deletion only ends its states
PAUSE_S = 0.001  # s between objects, whose datagrams would overflow a receiver's buffer (chosen)
NEAR_M, NEAR_RAD = 0.05, 0.02  # differences of a state from what was placed (chosen)


@dataclass(frozen=True, slots=True)
class SceneObject(Packed):
    """Request to place or move an object."""

    LAYOUT, SUM, WHAT = struct.Struct("<3i10f"), (COMMAND_SUM,), "an object"
    number: int
    model: int
    rotor_rpm: float
    p_w: Vector
    rpy: Vector  # rad
    scale: Vector  # of the model; m for one of 1 m

    def state(self, t: float = 0.0) -> "ObjectState":
        """Return the state in which it is as it was placed, if the model's sides are 1 m."""
        (w, x, y, z), (length, width, height) = from_euler(*self.rpy).tolist(), self.scale
        half_m = length / 2, width / 2, height / 2
        return ObjectState(self.number, self.p_w, self.rpy, (w, x, y, z), self.p_w, half_m, t)


@dataclass(frozen=True, slots=True)
class ObjectState(Packed):
    """State of an object."""

    LAYOUT, SUM, WHAT = struct.Struct("<2i16fd"), (1234567891,), "an object's state"
    number: int
    p_w: Vector
    rpy: Vector  # rad
    q: Quaternion  # zeros from older servers
    box_w: Vector  # centre of its box
    half_m: Vector  # half sides of its box
    t: float  # s

    def near(self, other: "ObjectState") -> bool:
        """Return whether both are at the same place, as large, and in the same attitude."""
        apart = max(math.dist(self.p_w, other.p_w), math.dist(self.half_m, other.half_m))
        turn = log(product(conjugate(from_euler(*other.rpy)), from_euler(*self.rpy)))
        return apart < NEAR_M and math.hypot(*turn) < NEAR_RAD


def object_state(datagram: bytes) -> ObjectState:
    """Decode a state of 80 bytes, or of 64 without the quaternion. Raises MalformedError."""
    return ObjectState.decode(datagram[:32] + bytes(16) + datagram[32:] if len(datagram) == 64 else datagram)


def query(what: int, number: int) -> bytes:
    """Return the command that does `what`, TELL or DELETE, with an object."""
    return encode_command(f"{QUERY} {what} {number} 0")


def read_query(datagram: bytes) -> tuple[int, int] | None:
    """Return what is to be done with which object; None for another command. Raises MalformedError."""
    found = re.match(rf"{QUERY} (\d{{1,9}}) (\d{{1,9}})\b", decode_command(datagram), re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class SceneReport:
    """What became of the objects."""

    placed: int  # confirmed
    missing: list[int]  # numbers without a state
    different: list[int]  # elsewhere or of another size
    removed: int
    left: list[int]  # still there


class SceneClient(RequestSocket):
    """Objects of a server's scene."""

    def __init__(self, server: Address, port: int = STATE_PORT):
        """Bind the port of the states. Raises LinkError when it is in use, or the server is unknown."""
        super().__init__(server, port, group=GROUP)

    def make(self, objects: Sequence[SceneObject], patience_s: float = 5.0) -> SceneReport:
        """Place objects, and remove all others with NUMBERS; states tell what came of it, waited for at most patience_s."""
        wanted = {one.number: one for one in objects}
        others = [number for number in self._present(NUMBERS) if number not in wanted]
        for number in others:
            hidden = SceneObject(number, CUBE, 0.0, (0.0, 0.0, FAR_M), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
            self._send_all((hidden.encode(), query(DELETE, number)))
        told = self._told(wanted, patience_s)
        different = [number for number, state in told.items() if not state.near(wanted[number].state())]
        left = self._present(others)
        missing = [number for number in wanted if number not in told]
        return SceneReport(len(told) - len(different), missing, different, len(others) - len(left), left)

    def _present(self, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of the objects that are there."""
        told = self._told(dict.fromkeys(numbers), 2 * ASK_S)
        return sorted(number for number, state in told.items() if state.p_w[2] < FAR_M / 2)

    def _told(self, wanted: Mapping[int, SceneObject | None], patience_s: float) -> dict[int, ObjectState]:
        """Place objects, ask for their states until each is as wanted, or as it may be (None), and return the last ones."""
        told: dict[int, ObjectState] = {}
        pending, end = dict(wanted), time.monotonic() + patience_s
        while pending and (now := time.monotonic()) < end:
            for number, placed in pending.items():
                self._send_all((*((placed.encode(),) if placed else ()), query(TELL, number)))
            until = min(now + ASK_S, end)
            while pending and (left := until - time.monotonic()) > 0:
                for state, _, _ in self.messages(object_state, left):
                    if state.number in pending:
                        told[state.number], placed = state, pending[state.number]
                        if placed is None or state.near(placed.state()):
                            del pending[state.number]
        return told

    def _send_all(self, datagrams: Iterable[bytes]) -> None:
        for datagram in datagrams:
            self.send(datagram)
        time.sleep(PAUSE_S)

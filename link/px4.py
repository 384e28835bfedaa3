"""PX4's additions to MAVLink: modes, streams on request, refusals with their reasons, texts in chunks.

PX4 user guide, "Offboard Mode" and "MAVLink Messaging"; MAVLink, "Command Protocol" and STATUSTEXT.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.errors import one_line

SET_MESSAGE_INTERVAL = dialect.MAV_CMD_SET_MESSAGE_INTERVAL
FORCE = 21196  # param2 of MAV_CMD_COMPONENT_ARM_DISARM: disarm in the air too
CUSTOM = dialect.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED
MAIN_MODES = {
    1: "MANUAL", 2: "ALTCTL", 3: "POSCTL", 4: "AUTO", 5: "ACRO", 6: "OFFBOARD", 7: "STABILIZED", 8: "RATTITUDE",
}  # fmt: skip
AUTO_MODES = {1: "READY", 2: "TAKEOFF", 3: "LOITER", 4: "MISSION", 5: "RTL", 6: "LAND", 8: "FOLLOW", 9: "PRECLAND"}
OFFBOARD, LAND = (6, 0), (4, 6)  # main and sub-mode
IN_PROGRESS = dialect.MAV_RESULT_IN_PROGRESS
CHUNK = 50  # characters of one STATUSTEXT
CHUNKED = 1  # STATUSTEXT.id of a text in several chunks; its first chunk separates it from the one before
LONGEST_TEXT = 200  # characters, longest text assembled from chunks (chosen)
ASK_S = 1.0  # s between checks of the stream rates
TOO_SLOW = 0.7  # fraction of the requested rate; PX4 rounds intervals to those of its sensors


def custom_mode(main: int, sub: int) -> int:
    return main << 16 | sub << 24


def mode_name(custom: int) -> str:
    main, sub = custom >> 16 & 0xFF, custom >> 24 & 0xFF
    name = MAIN_MODES.get(main, f"mode {main}")
    return f"{name}.{AUTO_MODES.get(sub, sub)}" if main == LAND[0] else name


def result_name(result: int) -> str:
    known = dialect.enums["MAV_RESULT"].get(result)
    return known.name.removeprefix("MAV_RESULT_") if known is not None else f"result {result}"


class StreamRequests:
    """Message rate monitor, which requests streams that are slower than wanted."""

    def __init__(self, wanted_hz: Mapping[int, float]):
        self._wanted = {message: hz for message, hz in wanted_hz.items() if hz > 0}
        self.forget()

    def forget(self) -> None:
        self._received: Counter[int] = Counter()
        self._since: float | None = None  # s, start of the count

    def received(self, message: int) -> None:
        if message in self._wanted:
            self._received[message] += 1

    def due(self, now: float) -> list[tuple[int, float]]:
        """Return the message ids and rates (Hz) to request at `now`, s of any monotonic clock; call often."""
        first = self._since is None
        passed = 0.0 if self._since is None else now - self._since
        if not first and 0 <= passed < ASK_S:
            return []
        slow = [(m, hz) for m, hz in self._wanted.items() if first or self._received[m] < TOO_SLOW * hz * passed]
        self._received.clear()
        self._since = now
        return slow


class TextReader:
    """Joiner of STATUSTEXT chunks, one text at a time."""

    def __init__(self) -> None:
        self._id, self._chunks = 0, list[str]()

    def read(self, packet: Any) -> str | None:
        text = str(packet.text)
        if packet.id == 0:
            return one_line(text, LONGEST_TEXT)
        if packet.id != self._id or packet.chunk_seq != len(self._chunks):
            self._id, self._chunks = packet.id, []
            if packet.chunk_seq:
                return None  # its beginning is lost
        self._chunks.append(text)
        if len(text) == CHUNK and len(self._chunks) * CHUNK < LONGEST_TEXT:
            return None
        whole, self._id, self._chunks = "".join(self._chunks), 0, []
        return one_line(whole, LONGEST_TEXT)


def text_packets(text: str, severity: int) -> list[Any]:
    data = text.encode()
    if len(data) <= CHUNK:
        return [dialect.MAVLink_statustext_message(severity, data)]
    starts = range(0, len(data) + 1, CHUNK)  # a text that ends with its chunk is followed by an empty one
    return [
        dialect.MAVLink_statustext_message(severity, data[at : at + CHUNK], CHUNKED, part)
        for part, at in enumerate(starts)
    ]

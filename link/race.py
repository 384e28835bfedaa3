"""The real simulator's use of ENCAPSULATED_DATA: the status of the race (type 1) and the map of the gates (type 2).

The layouts are as observed: `<BQqqIq` for the status; for the map a DATA_TRANSMISSION_HANDSHAKE (width: number of the transfer;
packets: of chunks), then chunks with the header `<BH` (type, transfer), which join in the order of `seqnr` to `<H` (count) and
`<H9f` per gate (number, position, quaternion wxyz, width, height).
"""

import math
import struct
from collections.abc import Iterator
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.messages import MapGate, RaceStatus, TrackMap

STATUS, MAP = 1, 2
STATUS_LAYOUT = struct.Struct("<BQqqIq")  # type, boot ms, start ms, finish ns, gate, last gate's race time ns
CHUNK, COUNT, GATE = struct.Struct("<BH"), struct.Struct("<H"), struct.Struct("<H9f")
DATA_BYTES = 253  # payload of one ENCAPSULATED_DATA
CHUNK_BYTES = DATA_BYTES - CHUNK.size
ROUNDED_S = 2e-3  # s, by which times that are sent in ms and in ns may differ
TRANSFER = 1  # number of the only transfer


def status_message(status: RaceStatus) -> Any:
    start = -1 if status.start is None else round(status.start * 1e3)
    finish, gate_time = (-1 if t is None else round(t * 1e9) for t in (status.finish, status.gate_time))
    data = STATUS_LAYOUT.pack(STATUS, round(status.t * 1e3), start, finish, status.gate, gate_time)
    return dialect.MAVLink_encapsulated_data_message(0, data.ljust(DATA_BYTES, b"\0"))


def map_messages(track: TrackMap) -> list[Any]:
    data = COUNT.pack(len(track.gates))
    for gate in track.gates:
        data += GATE.pack(gate.number, *gate.p_w, *gate.q_wg, gate.width, gate.height)
    parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    about = 0, len(data), TRANSFER, 0, len(parts), CHUNK_BYTES, 0  # of no kind defined by MAVLink
    shake = dialect.MAVLink_data_transmission_handshake_message(*about)
    chunks = [(CHUNK.pack(MAP, TRANSFER) + part).ljust(DATA_BYTES, b"\0") for part in parts]
    return [shake, *(dialect.MAVLink_encapsulated_data_message(n, chunk) for n, chunk in enumerate(chunks))]


class RaceReader:
    def __init__(self) -> None:
        self._parts: dict[int, bytes] = {}
        self._expected = self._transfer = 0

    def handshake(self, message: Any) -> None:
        self._parts, self._expected, self._transfer = {}, message.packets, message.width

    def read(self, message: Any, t: float) -> RaceStatus | TrackMap | None:
        """Decode ENCAPSULATED_DATA. `t` (s) stamps a map, which has no stamp of its own. None: incomplete or invalid."""
        data = bytes(message.data)
        if data[0] == STATUS:
            _, now, start, finish, gate, gate_time = STATUS_LAYOUT.unpack_from(data)
            stamps = (None if x < 0 else x / unit for x, unit in ((start, 1e3), (finish, 1e9), (gate_time, 1e9)))
            start_s, finish_s, gate_s = stamps
            return RaceStatus(now / 1e3, start_s, _finish(now / 1e3, start_s, finish_s, gate_s), gate, gate_s)
        if data[0] != MAP or not self._expected:
            return None
        _, transfer = CHUNK.unpack_from(data)
        if transfer == self._transfer and message.seqnr < self._expected:
            self._parts[message.seqnr] = data[CHUNK.size :]
        if len(self._parts) < self._expected:
            return None
        joined = b"".join(self._parts[n] for n in range(self._expected))
        self._parts, self._expected = {}, 0
        gates = tuple(_gates(joined))
        return TrackMap(t, gates) if gates else None


def _finish(now: float, start: float | None, finish: float | None, gate_s: float | None) -> float | None:
    """Return the finish, s, simulator clock, sent as such or since GO: the possible one that is nearer to the last gate."""
    if finish is None or finish <= 0:  # some senders have 0 for none
        return None
    if start is None:
        return finish
    last = start + (gate_s or 0.0)
    possible = [t for t in (finish, start + finish) if last - ROUNDED_S <= t <= now + ROUNDED_S]
    return min(possible, default=finish)


def _gates(data: bytes) -> Iterator[MapGate]:
    (count,) = COUNT.unpack_from(data)
    end = COUNT.size + count * GATE.size
    if len(data) < end:
        return
    for number, *values in GATE.iter_unpack(data[COUNT.size : end]):
        if all(map(math.isfinite, values)):
            x, y, z, qw, qx, qy, qz, width, height = values
            yield MapGate(number, (x, y, z), (qw, qx, qy, qz), width, height)

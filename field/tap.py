"""A listener on the raw link: every message as it stands on the wire, with its time of arrival. No convention is applied."""

import contextlib
import select
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from link.framing import Counters, Framing
from link.udp import LARGEST_DATAGRAM, LinkError, bind_udp
from link.video import HEADER

HEARTBEAT_S = 0.25  # between our own
TIMESYNC_S = 0.5
CLIENT = (255, 190)  # system and component of a ground station
GROUND_STATION, NO_AUTOPILOT = dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID


@dataclass
class Heard:
    """What came in a while. Times of arrival in s of the local clock."""

    seconds: float
    messages: dict[str, list[tuple[float, Any]]] = field(default_factory=dict)  # by type: arrival, pymavlink message
    pictures: list[tuple[float, int, int]] = field(
        default_factory=list
    )  # arrival of a last chunk, frame_id, sim_time_ns
    chunk_bytes: int = 0
    malformed: int = 0
    components: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __getitem__(self, kind: str) -> list[tuple[float, Any]]:
        return self.messages.get(kind, [])


def listen(mavlink: tuple[str, int], video: tuple[str, int], seconds: float, wait_s: float) -> Heard:
    """Waits for a first message, then notes everything for so many seconds. Says no more than heartbeats and TIMESYNC.

    Raises:
        LinkError: a port is taken, or nothing came in time.
    """
    heard, counters = Heard(seconds), Counters()
    framing = Framing(*CLIENT, counters)
    with contextlib.ExitStack() as stack:
        link, pictures = (stack.enter_context(bind_udp(*address)) for address in (mavlink, video))
        for socket in (link, pictures):
            socket.setblocking(False)
        begin, said, synced, peer = time.monotonic(), 0.0, 0.0, None
        limit = wait_s
        while (now := time.monotonic()) - begin < limit:
            for socket in select.select([link, pictures], [], [], 0.05)[0]:
                data, sender = socket.recvfrom(LARGEST_DATAGRAM)
                if socket is pictures:
                    _picture(heard, time.monotonic(), data)
                    continue
                if peer is None:
                    peer, begin, limit = sender, time.monotonic(), seconds
                    heard.pictures.clear()
                for message in framing.unpack(data):
                    heard.messages.setdefault(message.get_type(), []).append((time.monotonic(), message))
                    heard.components[message.get_srcSystem(), message.get_srcComponent()] += 1
            if peer is not None and now - said > HEARTBEAT_S:
                said = now
                beat = dialect.MAVLink_heartbeat_message(GROUND_STATION, NO_AUTOPILOT, 0, 0, 0, 3)
                link.sendto(framing.pack(beat), peer)
            if peer is not None and now - synced > TIMESYNC_S:
                synced = now
                link.sendto(framing.pack(dialect.MAVLink_timesync_message(0, round(now * 1e9))), peer)
    if peer is None:
        raise LinkError(f"no MAVLink within {wait_s:g} s on {mavlink[0]}:{mavlink[1]}: is the simulator in a race?")
    heard.malformed = counters.malformed
    return heard


def _picture(heard: Heard, now: float, data: bytes) -> None:
    if len(data) < HEADER.size:
        heard.malformed += 1
        return
    frame_id, chunk_id, total, _, payload, stamp_ns = HEADER.unpack_from(data)
    heard.chunk_bytes = max(heard.chunk_bytes, payload)
    if chunk_id == total - 1:
        heard.pictures.append((now, frame_id, stamp_ns))

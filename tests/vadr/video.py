"""VADR-TS-002, 4.6: the vision stream."""

from gate_racer.link.messages import VideoFrame
from gate_racer.link.video import HEADER, chunks, image_reassembler
from tests.vadr.row import SPEC, Row, said


def vision() -> list[Row]:
    jpeg = bytes(range(256)) * 20
    parts = chunks(7, 1_250_000_000, jpeg, SPEC.video_chunk_bytes)
    fields = [HEADER.unpack_from(part) for part in parts]
    little = {
        "frame_id": (0, 4, 7), "chunk_id": (4, 2, 0), "total_chunks": (6, 2, len(parts)), "jpeg_size": (8, 4, len(jpeg)),
        "payload_size": (12, 4, SPEC.video_chunk_bytes), "sim_time_ns": (16, 8, 1_250_000_000),
    }  # fmt: skip
    payloads, numbers = [len(part) - 24 for part in parts], list(range(len(parts)))
    rows = [
        Row("4.6", "images come at 30 Hz", lambda: said(VideoFrame) == 60),
        Row("4.6", "the port is 5600", lambda: SPEC.video_port == 5600),
        Row("4.6", "the header has 24 bytes", lambda: HEADER.size == 24),
        Row("4.6", "chunks count from 0 to total_chunks - 1", lambda: [f[1] for f in fields] == numbers),
        Row("4.6", "payload_size is that of the packet", lambda: [f[4] for f in fields] == payloads),
        Row("4.6", "the payloads make the JPEG", lambda: b"".join(p[24:] for p in parts) == jpeg),
        Row("4.6", "the client puts it together, in any order", lambda: _assembled(parts[::-1]) == jpeg),
        Row("4.6", "sim_time_ns comes from the simulator's clock", lambda: SPEC.video_stamp(1.25) == 1_250_000_000),
    ]
    for name, (offset, size, value) in little.items():
        rows.append(Row("4.6", f"{name} stands at byte {offset}, little-endian",
                        lambda o=offset, s=size, v=value: int.from_bytes(parts[0][o : o + s], "little") == v))  # fmt: skip
    return rows


def _assembled(parts) -> bytes:
    reassembler = image_reassembler()
    (frame,) = [frame for part in parts if (frame := reassembler.feed(part)) is not None]
    return frame.jpeg

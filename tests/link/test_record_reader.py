"""A damaged log gives all that is whole, and says what it lost; one that is made to do harm does none."""

import json
from io import BytesIO

import pytest
import zstandard
from mcap.data_stream import RecordBuilder
from mcap.records import Chunk
from mcap.stream_reader import StreamReader
from mcap.writer import Writer

from gate_racer.common.errors import UserError
from gate_racer.link.record import MAGIC, Losses, read_records

RECORDS, CHUNKS = 400, 8


def write(path, payloads, **options):
    """A file of messages; their channel stands in its first chunk."""
    with path.open("wb") as file:
        writer = Writer(file, **options)
        writer.start()
        channel = writer.register_channel("/state", "json", 0)
        for k, payload in enumerate(payloads):
            writer.add_message(channel, k, payload, k)
        writer.finish()
    return path.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    payloads = [json.dumps({"t": k, "text": "x" * 80}).encode() for k in range(RECORDS)]
    return write(tmp_path_factory.mktemp("logs") / "whole.mcap", payloads, chunk_size=5000)


def chunks(data: bytes) -> list[tuple[int, int]]:
    """Begin and end of each chunk's data."""
    stream, found = BytesIO(data), []
    for record in StreamReader(stream, emit_chunks=True).records:
        if isinstance(record, Chunk):
            found.append((stream.tell() - len(record.data), stream.tell()))
    return found


def read(path, data: bytes) -> tuple[list[int], Losses]:
    path.write_bytes(data)
    told: list[Losses] = []
    times = [record["t"] for _, record in read_records(path, report=lambda _, losses: told.append(losses))]
    return times, told[0]


def test_a_whole_file_is_read_without_a_word(whole, tmp_path, capsys):
    times, losses = read(tmp_path / "a.mcap", whole)
    assert times == list(range(RECORDS)) and str(losses) == "" and len(chunks(whole)) >= CHUNKS
    list(read_records(tmp_path / "a.mcap"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [0, 3])
def test_one_bad_chunk_hides_no_other(whole, tmp_path, number, capsys):
    """The first one has the channel."""
    begin, end = chunks(whole)[number]
    times, losses = read(tmp_path / "a.mcap", whole[: begin + 100] + bytes(50) + whole[begin + 150 :])
    assert RECORDS * (1 - 1.5 / CHUNKS) <= len(times) < RECORDS and times == sorted(times) and begin + 150 < end
    list(read_records(tmp_path / "a.mcap"))
    assert capsys.readouterr().err == f"{tmp_path / 'a.mcap'}: 1 chunk damaged; the undamaged part is used\n"
    assert str(losses) == "1 chunk damaged; the undamaged part is used"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999])
def test_a_file_that_was_cut_off_gives_what_it_holds(whole, tmp_path, share):
    times, losses = read(tmp_path / "a.mcap", whole[: int(share * len(whole))])
    assert times == list(range(len(times))) and (len(times) < RECORDS or share > 0.9)
    where = f", at {times[-1] / 1e9:.2f} s" if times else ", and no message was read"
    assert f"it is truncated after {losses.cut_off / 1e3:.1f} kB{where}; the undamaged part is used" in str(losses)


def chunk(unpacked: int, data: bytes) -> bytes:
    builder = RecordBuilder()
    Chunk("zstd", data, 0, 0, 0, unpacked).write(builder)
    return builder.end()


def test_chunks_that_unpack_to_gigabytes_are_not_unpacked(whole, tmp_path):
    """96 kB that would take 3 GB: whether the header says so or lies."""
    bomb = zstandard.ZstdCompressor().compress(bytes(100 << 20))
    content = b"".join(chunk(size, bomb) for size in (100 << 20, 60 << 20, 1000) for _ in range(10))
    times, losses = read(tmp_path / "a.mcap", MAGIC + content + whole[len(MAGIC) :])
    assert times == list(range(RECORDS)) and losses.counts["chunk"] == 30


HOSTILE = {"no JSON": b"{", "no object": b"[1]", "too deep": b"[" * 5000, "long": b"1" * 9000, "no text": b'"\xff"'}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_record_that_is_none_is_counted(text, tmp_path):
    times, losses = read(tmp_path / "a.mcap", write(tmp_path / "a.mcap", [text, b'{"t": 1}']))
    assert times == [1] and str(losses) == "1 record damaged; the undamaged part is used"


def test_a_file_that_is_no_log_is_refused(tmp_path):
    (tmp_path / "a.mcap").write_bytes(b"something else")
    for path in (tmp_path / "a.mcap", tmp_path / "none.mcap", tmp_path):
        with pytest.raises(UserError, match=str(path)):
            list(read_records(path))

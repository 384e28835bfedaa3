"""Whatever a file holds, its reader answers with one line that names it; what is written is whole, and never an input."""

import errno
import multiprocessing
import os
import struct
import tracemalloc
import zlib
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest
from matplotlib.figure import Figure

from gate_racer.common import files
from gate_racer.common.config import load, write
from gate_racer.common.errors import UserError, one_line
from gate_racer.common.images import MOST_SCANS, Film, decode_image, image_size
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.request import load_sensors
from gate_racer.link.rflysim.stream import decode_payload
from gate_racer.tracks.track import load_track
from tests.conftest import ROOT

BOMB = "a: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)
)
YAML = {
    "aliases that unfold to 10^9 values": (BOMB, "more than 50000 values"),
    "an alias of itself": ("name: &a [*a]\n", "nested deeper"),
    "a tag": ("name: !!python/object/apply:os.system [x]\n", "unsupported type"),
    "a number of 5000 digits": ("name: " + "9" * 5000, "not valid YAML"),
    "a large number": (
        "name: x\nsource: y\nstart: {position_m: [1e999, 0, 0], yaw_deg: 0}",
        "expected a finite number",
    ),
    "deep nesting": ("[" * 1_000, "nested deeper"),
    "very many values": ("a: [" + "1," * 60_000 + "]", "more than 20000 values"),
    "very many lines": ("a: b\n" * 60_000, "larger than 256 kB"),
    "a control character": ("name: \0", "not valid YAML"),
    "no fields": ("- 1\n", "expected named fields"),
    "other bytes": (b"\xff\xfe\x00", "not a text file"),
}


@pytest.mark.parametrize("content, words", YAML.values(), ids=YAML)
def test_a_yaml_file_that_is_none_is_one_line(content, words, tmp_path):
    path = tmp_path / "track.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        load_track(path)
    assert str(path) in str(error.value) and words in str(error.value) and len(one_line(str(error.value))) < 700


def test_aliases_are_understood(tmp_path):
    @dataclass(frozen=True)
    class Pair:
        a: tuple[float, ...]
        b: tuple[float, ...]

    (tmp_path / "pair.yaml").write_text("a: &a [1, 2]\nb: *a\n")
    assert load(tmp_path / "pair.yaml", Pair) == Pair((1.0, 2.0), (1.0, 2.0))


JSON = {
    "nothing": ("", "not valid JSON"),
    "half a list": ("[1, 2", "not valid JSON"),
    "deep lists": ("[" * 100_000, "nested deeper"),
    "lists of 100 levels": ("[" * 100 + "]" * 100, "nested deeper than 64"),
}


@pytest.mark.parametrize("text, words", JSON.values(), ids=JSON)
def test_a_json_file_that_is_none_is_one_line(text, words, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(files.FileError, match=words):
        files.read_json(tmp_path / "x.json")
    assert files.parse_json(b"[[1], {}]", "x") == [[1], {}]


def test_things_that_are_no_files_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "none", Path("\0")):
        with pytest.raises(files.FileError):
            files.read_text(path)


def test_a_table_has_no_blanks_and_no_comments(tmp_path):
    (tmp_path / "x.csv").write_text("# no\na, b\n\n1, 2\n")
    assert files.read_csv(tmp_path / "x.csv") == [["a", "b"], ["1", "2"]]
    (tmp_path / "x.csv").write_text("a" * 200_000)
    with pytest.raises(files.FileError, match="malformed"):
        files.read_csv(tmp_path / "x.csv")


def test_arrays_that_unpack_to_more_than_may_be_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(20_000_000))
    with pytest.raises(files.FileError, match="unpacked"):
        files.read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", ".hidden", "", "a\nb", "x" * 300, None, ["a"]])
def test_a_name_from_a_file_leads_nowhere_else(name):
    with pytest.raises(files.FileError):
        files.file_name(name, "log")
    assert files.file_name("vq1-a.b", "log") == "vq1-a.b"


def test_a_path_from_a_file_stays_within_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert files.within("vehicle/mine.yaml", "log") == "vehicle/mine.yaml"
    for path in ("/etc/passwd", "../x.yaml", "a/../../x", 5):
        with pytest.raises(files.FileError, match="outside"):
            files.within(path, "log")


def test_an_output_is_no_input_by_whatever_name(tmp_path):
    (tmp_path / "in").write_text("x")
    (tmp_path / "soft").symlink_to(tmp_path / "in")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    for name in ("in", "soft", "hard", "../" + tmp_path.name + "/in"):
        with pytest.raises(files.FileError, match="would overwrite"):
            files.require_output(tmp_path / name, None, "dcl", tmp_path / "in")
    files.require_output(tmp_path / "out", tmp_path / "in")


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file/out", tmp_path / "file/deeper/out"):
        with pytest.raises(files.FileError, match=r"cannot be written \(.*file is a file\)"):
            files.require_output(path)
    files.require_output(tmp_path / "new/deeper/out")
    (tmp_path / "file").chmod(0o444)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in (tmp_path / "file", tmp_path / "link"):
        with pytest.raises(files.FileError, match=r"cannot be written \(is read-only\)"):
            files.require_output(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(files.FileError, match=r"out: cannot be written \(no permission in "):
        files.require_output(tmp_path / "new/out")


@pytest.mark.parametrize("path", ["", "/", ".."])
def test_a_log_has_a_name(path):
    with pytest.raises(files.FileError, match="expected the name of a log"):
        files.require_named(Path(path))


def _write(path: Path, text: str) -> None:
    for _ in range(50):
        files.write_file(path, text)


def test_writers_at_once_leave_one_whole_file(tmp_path):
    crew = [multiprocessing.Process(target=_write, args=(tmp_path / "plan.csv", c * 100_000)) for c in "abcd"]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    assert [process.exitcode for process in crew] == [0] * 4
    assert len(set((tmp_path / "plan.csv").read_text())) == 1 and len(list(tmp_path.iterdir())) == 1


WRITERS = {
    "text": lambda path: files.write_file(path, "a"),
    "YAML": lambda path: write(path, {"a": 1.0}),
    "figure": lambda path: files.write_figure(path, Figure()),
    "arrays": lambda path: files.write_arrays(path, {"a": np.zeros(1)}),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_one_error_and_leaves_the_earlier_file(tmp_path, monkeypatch, writer):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "old").write_text("whole")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(files.FileError, match=r"old: cannot be written \(No space left on device\)"):
        writer(tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"] and (tmp_path / "old").read_text() == "whole"


def test_a_message_is_one_line_whatever_a_file_puts_into_it():
    assert one_line("a\nb\x1b[31m\t\u2028c" + "x" * 9999).startswith("a b?[31m c") and len(one_line("x" * 9999)) < 700


def test_a_device_a_pipe_a_link_and_a_file_that_is_kept_are_not_replaced(tmp_path):
    files.write_file(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_file(tmp_path / "pipe", "told")
    assert os.read(reader, 10) == b"told" and (tmp_path / "pipe").is_fifo()
    os.close(reader)
    ours, theirs = os.pipe()  # as /dev/stdout, a link to what has no path
    files.require_output(Path(f"/dev/fd/{theirs}"))
    files.write_file(Path(f"/dev/fd/{theirs}"), "told")
    assert os.read(ours, 10) == b"told"
    os.close(ours)
    os.close(theirs)
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    files.write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"
    (tmp_path / "target").chmod(0o444)
    with pytest.raises(files.FileError, match="cannot be written"):
        files.write_file(tmp_path / "target", "newer")
    assert (tmp_path / "target").read_text() == "new"


# An image is decoded only when its header says what was to be expected; a film plays, in its own time.


SMALL = np.zeros((360, 640, 3), np.uint8)
JPEG = cv2.imencode(".jpg", SMALL)[1].tobytes()
PNG = cv2.imencode(".png", SMALL)[1].tobytes()
PROGRESSIVE = cv2.imencode(".jpg", SMALL, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()


def claiming(jpeg: bytes, width: int, height: int) -> bytes:
    at = next(k for k in range(len(jpeg)) if jpeg[k] == 0xFF and jpeg[k + 1] in (0xC0, 0xC2))
    return jpeg[: at + 5] + struct.pack(">HH", height, width) + jpeg[at + 9 :]


def huge_png(width: int, height: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG[:12] + head + struct.pack(">I", zlib.crc32(head)) + PNG[33:]


@pytest.mark.parametrize("data", [JPEG, PNG, PROGRESSIVE])
def test_a_sound_image_is_decoded(data, dcl):
    assert image_size(data) == (640, 360)
    image = decode_image(data, (640, 360))
    assert image is not None and image.shape == SMALL.shape


HOSTILE = {
    "a small JPEG that claims gigabytes": claiming(JPEG, 30000, 30000),
    "a PNG that claims gigabytes": huge_png(30000, 30000),
    "another size than the camera's": cv2.imencode(".jpg", SMALL[:100])[1].tobytes(),
    "a JPEG without its end": JPEG[:-2],
    "a JPEG cut in its header": JPEG[:40],
    "a JPEG of endless scans": PROGRESSIVE[:-2] + b"\xff\xda\0\x08\x01\x01\0\0\0\0" * MOST_SCANS + b"\xff\xd9",
    "a PNG whose header is damaged": PNG[:20] + b"\x01" + PNG[21:],
    "a bitmap": cv2.imencode(".bmp", SMALL)[1].tobytes(),
    "a TIFF": cv2.imencode(".tiff", SMALL)[1].tobytes(),
    "a lossless JPEG": JPEG.replace(b"\xff\xc0", b"\xff\xc3"),
    "nothing": b"",
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_images_that_the_camera_cannot_send_are_not_decoded(data, dcl, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    assert decode_image(data, (640, 360)) is None


def test_without_a_camera_an_image_is_limited_all_the_same():
    tracemalloc.start()
    assert decode_image(claiming(JPEG, 30000, 30000)) is None and decode_image(huge_png(65535, 4096)) is None
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_a_sensor_of_rflysim_takes_only_its_own_size(monkeypatch):
    sensor = load_sensors(ROOT / "examples/rflysim.json")[0]
    assert decode_payload(JPEG, sensor).shape == SMALL.shape
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(MalformedError, match="30000 x 30000"):
        decode_payload(claiming(JPEG, 30000, 30000), sensor)


def test_a_film_keeps_the_flights_time_when_frames_were_left_out(tmp_path, capfd):
    film = Film(tmp_path / "film.webm", 0.1)
    for step in (0, 1, 5, 9):
        film.show(np.full((96, 128, 3), 20 * step, np.uint8), step)
    film.close()
    assert (tmp_path / "film.webm").read_bytes()[:4] == bytes.fromhex("1A45DFA3")  # EBML: what browsers take for WebM
    read = cv2.VideoCapture(str(tmp_path / "film.webm"))
    assert read.get(cv2.CAP_PROP_FRAME_COUNT) == 10 and read.get(cv2.CAP_PROP_FPS) == 10
    assert int(read.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little") == b"VP80"
    frames = [read.read()[1] for _ in range(10)]
    assert [round(frame.mean() / 20) for frame in frames] == [0, 1, *[5] * 4, *[9] * 4], "it plays"
    assert capfd.readouterr().err == "", "the encoder's remarks are nothing that a user can mend"

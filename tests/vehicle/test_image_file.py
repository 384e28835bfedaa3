"""An image is decoded only when its header says what was to be expected; a film plays, in its own time."""

import struct
import tracemalloc
import zlib

import cv2
import numpy as np
import pytest

from gate_racer.common.images import MOST_SCANS, Film, decode_image, image_size
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.config import load_sensors
from gate_racer.link.rflysim.stream import decode_payload
from gate_racer.perception.detection import decode
from tests.conftest import ROOT

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
    image = decode(data, dcl.camera)
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
    assert decode(data, dcl.camera) is None


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

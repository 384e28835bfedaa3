"""A film plays, in its own time."""

import cv2
import numpy as np

from gate_racer.common.images import Film


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

"""A film shows what the log holds, in the flight's own time or slower."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from gate_racer.commands import COMMANDS
from gate_racer.common.errors import UserError
from gate_racer.field.report.film import DETECTED, EXPECTED, FLOWN, MAP_PX, write_film
from gate_racer.field.report.flight import read_logged_flight
from tests.field.flown import IMAGES_S, standing
from tests.processes import run_here


@pytest.fixture
def still(late_flight, vq1, dcl):
    """A flight that stood before the first gate, with two images and a detection in the first."""
    return standing(read_logged_flight(late_flight), dcl.camera, vq1.start.p_wb, vq1.start.q_wb)


def frames(path):
    film = cv2.VideoCapture(str(path))
    while (read := film.read())[0]:
        yield read[1]


def pixels_of(image, colour):
    """Return the number of pixels close to a colour, after a lossy codec."""
    return int((np.abs(image.astype(int) - colour).max(axis=2) < 60).sum())


def test_it_shows_detections_in_their_image_the_maps_gates_in_all_and_the_way_flown(still, vq1, tmp_path):
    assert write_film(tmp_path / "film.webm", still, vq1, slower=2.0) == 2
    shown = list(frames(tmp_path / "film.webm"))
    assert len(shown) == 1 + round(2.0 * 30 * (IMAGES_S[1] - IMAGES_S[0])), "each image stands until the next"
    first, last = (np.split(image, [640], axis=1) for image in (shown[0], shown[-1]))
    assert first[0].shape == (360, 640, 3) and first[1].shape == (MAP_PX, MAP_PX, 3)
    assert pixels_of(first[0], DETECTED) > 100 > 10 > pixels_of(last[0], DETECTED)
    assert min(pixels_of(image[0], EXPECTED) for image in (first, last)) > 10
    assert pixels_of(last[1], FLOWN) > pixels_of(first[1], FLOWN)


def test_a_film_needs_images_and_a_single_log(still, vq1, tmp_path):
    with pytest.raises(UserError, match="holds no images to film"):
        write_film(tmp_path / "film.webm", replace(still, images=((0.5, b"no JPEG"),)), vq1)
    assert not (tmp_path / "film.webm").exists()
    done = run_here(COMMANDS["fly-report"], "flight.mcap", "other.mcap", "--set", "film=film.webm")
    assert done.returncode == 2 and done.stderr.endswith("film film.webm: needs a single log\n")

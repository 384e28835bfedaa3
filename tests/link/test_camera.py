"""Images of a camera in place of a stream: a film, since no camera is here."""

import time
from functools import partial

import cv2
import numpy as np
import pytest

from gate_racer.link.camera import CameraReceiver
from gate_racer.link.sockets import LinkError
from gate_racer.pilot.perception_process import PerceptionProcess
from gate_racer.vehicle.vehicle import load_vehicle

SIZE, HZ, COUNT = (640, 360), 30.0, 12
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """A film whose images grow brighter by 20 each."""
    path = tmp_path_factory.mktemp("film") / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), HZ, SIZE)
    for k in range(COUNT):
        writer.write(np.full((*SIZE[::-1], 3), 20 * k, np.uint8))
    writer.release()
    return f"film:{path}"


def test_a_film_gives_each_image_once_at_its_time(film):
    frames, begin = [], time.monotonic()
    with CameraReceiver(film, SIZE, HZ) as camera:
        while len(frames) < COUNT - 1 and time.monotonic() - begin < LIMIT_S:
            frames += camera.receive(0.1)
    stamps, received = np.array([frame.t for frame, _ in frames]), np.array([at for _, at in frames])
    assert np.diff(stamps) == pytest.approx(1 / HZ, abs=2e-3)
    assert [frame.id for frame, _ in frames] == [*range(COUNT - 1)]
    assert (received - begin >= stamps - stamps[0] - 5e-3).all(), "none is there before its time"
    grey = [cv2.imdecode(np.frombuffer(frame.jpeg, np.uint8), 1).mean() for frame, _ in frames]
    assert grey == pytest.approx([20 * k for k in range(1, COUNT)], abs=2), "the first one showed the size"


def test_what_cannot_be_read_or_has_another_size_is_one_line(film, capfd):
    for source in ("film:/nowhere.avi", "v4l2:/dev/video99", "gst:nonsense ! appsink", "film:", "v4l2:"):
        with pytest.raises(LinkError, match=f"link.video {source}: cannot be read"):
            CameraReceiver(source, SIZE, HZ)
    assert capfd.readouterr().err == ""
    with pytest.raises(LinkError, match="its images have 640x360 px; the vehicle's camera has 320x180 px"):
        CameraReceiver(film, (320, 180), HZ)


def test_the_perception_process_sees_a_camera(film):
    seen, begin = [], time.monotonic()
    with PerceptionProcess(partial(CameraReceiver, film, SIZE, HZ), load_vehicle("dcl").camera, "classical") as process:
        while not seen and time.monotonic() - begin < LIMIT_S:
            seen += process.receive()
    assert seen and seen[0].detections == [] and seen[0].jpeg

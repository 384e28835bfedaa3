"""Gates that the camera shows from the pad are looked for where they stand, before anything flies."""

import numpy as np
import pytest

from gate_racer.estimation.localisation import displaced
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.pilot.flight import DetectedImage
from gate_racer.pilot.guidance.protocol import GateObserver
from gate_racer.tracks.track import load_track
from tests.estimation.flying import Flight

STEP = np.array([-0.7, 1.8, 0.0])


@pytest.fixture
def pad(dcl):
    """Return observer, images and estimator at rest on VQ2's pad, with the first gate 2 m off the map."""
    track, rng = load_track("vq2"), np.random.default_rng(4)
    flight = Flight(track, dcl)
    p_wc, R_wc = dcl.camera.pose(track.start.p_wb, track.start.q_wb)
    px = dcl.camera.project((displaced(track.gates[0], STEP).corners() - p_wc) @ R_wc)
    images = [
        DetectedImage(k / 30, k, [Detection.whole(px + rng.normal(0, 0.2, (4, 2)), 0.2, 1.0)], b"") for k in range(20)
    ]
    return GateObserver(Associator(track.gates, dcl.camera), track.gates), images, flight.estimator


def test_a_gate_off_the_map_is_found_from_the_pad(pad):
    observer, images, estimator = pad
    observer.end_of_rest(images, estimator, {0})
    assert np.linalg.norm(observer.moved(0) - STEP) < 0.5
    error = STEP - observer.moved(0) - estimator.gate_offset(0, observer.moved(0))
    assert error @ np.linalg.solve(estimator.gate_covariance(0, np.zeros(3)), error) < 16.3, "its doubt is honest"


def test_nobody_looks_for_gates_that_are_not_asked_for(pad):
    observer, images, estimator = pad
    observer.end_of_rest(images, estimator, {1})
    observer.end_of_rest(images, estimator)
    assert not observer.moved(0).any() and not observer.moved(1).any()

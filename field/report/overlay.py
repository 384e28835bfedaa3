"""Overlay of a camera image: detected openings, and the gates of the map projected from the estimate."""

from typing import Any

import numpy as np

from gate_racer.field.report.flight import ReportedFlight
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, between

SAME_IMAGE_S = 1e-3  # detections have the stamp of their image
NEAR_M = 0.2  # m, depth below which a corner is not drawn


def overlays(flight: ReportedFlight, track: Track, stamps: list[float]) -> dict[str, Any]:
    """Return the size of the images, and two lists with an entry for each image at these times (s since GO).

    `detected` holds openings, `expected` pairs of a gate's number and its opening: corners in px, with the centre of the
    first pixel at 0.5 as in SVG. Empty without a camera.
    """
    camera = flight.camera
    if camera is None:
        return {}
    seen = np.array([t for t, _ in flight.detections])
    detected, expected = [], []
    for t in stamps:
        first, last = np.searchsorted(seen, [t - SAME_IMAGE_S, t + SAME_IMAGE_S])
        detected.append([_drawn(corners) for _, corners in flight.detections[first:last]])
        gates = _expected(flight, track, camera, t) if flight.state.t[0] <= t <= flight.state.t[-1] else []
        expected.append([(gate, _drawn(corners)) for gate, corners in gates])
    return {"size": [camera.width_px, camera.height_px], "detected": detected, "expected": expected}


def _expected(flight: ReportedFlight, track: Track, camera: Camera, t: float) -> list[tuple[int, Array]]:
    """Return the numbers of the gates in view at t, and the projected corners (4, 2) px of their openings."""
    state, exposed = flight.state, np.array([t + camera.delay_s])
    k = int(np.clip(np.searchsorted(state.t, exposed[0]) - 1, 0, len(state) - 2))
    share = float(np.clip((exposed[0] - state.t[k]) / (state.t[k + 1] - state.t[k]), 0.0, 1.0))
    q_wb = between(state["q"][k], state["q"][k + 1], share)
    p_wc, R_wc = camera.pose(state.at("p", exposed)[0], q_wb)
    found = []
    for number, gate in enumerate(track.gates):
        corners_c = (_outline(gate) - p_wc) @ R_wc
        if corners_c[:, 2].min() > NEAR_M and camera.sees(px := camera.project(corners_c)).any():
            found.append((number, px))
    return found


def _outline(gate: Gate) -> Array:
    """Return the corners (4, 3) m, world NED, of the opening, or of a square as wide as a ball."""
    return gate.corners(2 * gate.half if gate.is_ball else None)


def _drawn(corners_px: Array) -> list[list[float]]:
    return np.round(corners_px + 0.5, 1).tolist()

"""Film of a flight: images with detections and predicted gates, and the course from above."""

from contextlib import closing
from pathlib import Path

import cv2
import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.images import Film, decode_image
from gate_racer.field.report.flight import ReportedFlight
from gate_racer.field.report.pages import overlays
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

FILM_HZ = 30.0  # Hz, frame rate of the film: the camera's
MAP_PX, EDGE_PX, LINE_PX = 360, 30, 22
PAPER, INK, GATE, FLOWN = (24, 20, 18), (235, 235, 235), (90, 190, 255), (255, 190, 90)  # BGR
DETECTED, EXPECTED = (90, 230, 90), (90, 190, 255)
SIGMAS, ROUND = 3.0, 24  # scale of the uncertainty ellipse, and its number of corners
SHIFT = 4  # fractional bits of pixel coordinates in OpenCV


def write_film(path: Path, flight: ReportedFlight, track: Track, slower: float = 1.0) -> int:
    """Film a flight from its log, slowed down. Return the number of images. Raises UserError if there is none, or no film."""
    images = [(t, pixels) for t, data in flight.images if (pixels := decode_image(data)) is not None]
    if not images:
        raise UserError(f"{flight.path}: holds no images to film")
    begin, first, map_view = images[0][0], images[0][1].shape, MapView(flight, track)
    drawn = overlays(flight, track, [t for t, _ in images])
    film, height = Film(path, 1 / FILM_HZ), max(first[0], MAP_PX)
    with closing(film):
        for k, (t, pixels) in enumerate(images):
            if pixels.shape != first:
                continue
            if drawn:
                scale = np.array(first[1::-1]) / drawn["size"]
                for _, corners in drawn["expected"][k]:
                    _polygon(pixels, np.array(corners) * scale - 0.5, EXPECTED, 1)
                for corners in drawn["detected"][k]:
                    _polygon(pixels, np.array(corners) * scale - 0.5, DETECTED, 2)
            frame = np.full((height, first[1] + MAP_PX, 3), PAPER, np.uint8)
            frame[: first[0], : first[1]] = pixels
            frame[:MAP_PX, first[1] :] = map_view.at(t)
            film.show(frame, round((t - begin) * slower * FILM_HZ))
    return len(images)


def _polygon(
    pixels: np.ndarray, corners_px: Array, colour: tuple[int, int, int], width: int, closed: bool = True
) -> None:
    at = np.clip(np.nan_to_num(corners_px), -4096, 8192) * (1 << SHIFT)
    cv2.polylines(pixels, [np.round(at).astype(np.int32)], closed, colour, width, cv2.LINE_AA, SHIFT)


class MapView:
    def __init__(self, flight: ReportedFlight, track: Track):
        self._flight, self._flown = flight, flight.path_flown
        rims = [gate.corners(2 * gate.half if gate.is_ball else None) for gate in track.gates]
        points = np.concatenate([self._flown["p"], flight.state["p"], *rims])[:, :2]
        low, high = points.min(0), points.max(0)
        self._middle, self._scale = (low + high) / 2, (MAP_PX - 2 * EDGE_PX) / max(float((high - low).max()), 1.0)
        self._paper = np.full((MAP_PX, MAP_PX, 3), PAPER, np.uint8)
        if len(flight.reference) > 1:
            _polygon(self._paper, self._px(flight.reference["p"]), (110, 110, 110), 1, closed=False)
        for rim in rims:
            _polygon(self._paper, self._px(rim), GATE, 2)

    def at(self, t: float) -> np.ndarray:
        """Return the view (MAP_PX, MAP_PX, 3) BGR at t s since GO."""
        view, flight, state = self._paper.copy(), self._flight, self._flight.state
        path = self._flown["p"][self._flown.t <= t]
        if len(path) > 1:
            _polygon(view, self._px(path), FLOWN, 2, closed=False)
        p, sigma = (state.at(name, np.array([t]))[0] for name in ("p", "sigma_p"))
        turn = np.linspace(0, 2 * np.pi, ROUND, endpoint=False)
        _polygon(view, self._px(p[:2] + SIGMAS * sigma[:2] * np.column_stack([np.cos(turn), np.sin(turn)])), INK, 1)
        cv2.circle(view, tuple(int(value) for value in np.round(self._px(p[None]))[0]), 3, INK, -1, cv2.LINE_AA)
        speed, passed = float(np.linalg.norm(state.at("v", np.array([t])))), int((flight.gate_times_s <= t).sum())
        lines = f"{t:.2f} s   {speed:.1f} m/s   gate {passed}", f"estimate +- {SIGMAS * sigma.max():.2f} m (3 sigma)"
        for k, line in enumerate(lines):
            at = 10, MAP_PX - 12 - LINE_PX * (len(lines) - 1 - k)
            cv2.putText(view, line, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, INK, 1, cv2.LINE_AA)
        return view

    def _px(self, p_w: Array) -> Array:
        """Return pixels (N, 2) of positions (N, 2 or more), world NED: east to the right, north up."""
        north, east = ((p_w[:, :2] - self._middle) * self._scale).T
        return np.column_stack([MAP_PX / 2 + east, MAP_PX / 2 - north])

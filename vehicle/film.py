"""Films that every browser plays."""

import os
from pathlib import Path

import cv2
import numpy as np

from vehicle.command import ERR, descriptor_aside
from vehicle.errors import UserError


class Film:
    """A WebM film (VP8) with the flight's own time: a frame that was left out stays on for longer.

    Every browser plays it. Of what OpenCV's wheels can write, MPEG-4 in MP4 plays in none; H.264 is left out of them for its
    patents; VP9 plays as well, but takes 0.17 s of CPU time a frame, and VP8 0.05.
    """

    def __init__(self, path: Path, step_s: float):
        """`step_s`: of the film's time, between two frames."""
        self._path, self._hz, self._shown = path, 1 / step_s, 0
        self._writer: cv2.VideoWriter | None = None

    def show(self, frame: np.ndarray, step: int) -> None:
        """A frame (H, W, 3) BGR uint8, all of one size, from a step on. Raises UserError where no film can be written."""
        if self._writer is None:
            size = (frame.shape[1], frame.shape[0])
            # FFmpeg remarks, past OpenCV's own log levels, that WebM spells its codec otherwise.
            with Path(os.devnull).open("wb") as nowhere, descriptor_aside(ERR, nowhere.fileno()):
                self._writer = cv2.VideoWriter(str(self._path), cv2.VideoWriter.fourcc(*"VP80"), self._hz, size)
            if not self._writer.isOpened():
                raise UserError(f"{self._path}: cannot be written as a WebM film")
        for _ in range(max(1, step + 1 - self._shown)):
            self._writer.write(frame)
        self._shown = step + 1

    def close(self) -> None:
        """Ends the film; without a frame there is no file."""
        if self._writer is not None:
            self._writer.release()

"""Video files that every browser plays."""

import os
from pathlib import Path

import cv2
import numpy as np

from gate_racer.vehicle.command import ERR, descriptor_aside
from gate_racer.vehicle.errors import UserError


class Film:
    """WebM video (VP8) in real time of the flight: over skipped steps the next frame is repeated.

    Of the formats that OpenCV's wheels write, browsers do not play MPEG-4 in MP4; H.264 is not included for patent reasons; VP9
    plays too, but takes 0.17 s of CPU time per frame, VP8 0.05 s.
    """

    def __init__(self, path: Path, step_s: float):
        """`step_s`: s, time between two frames."""
        self._path, self._hz, self._shown = path, 1 / step_s, 0
        self._writer: cv2.VideoWriter | None = None

    def show(self, frame: np.ndarray, step: int) -> None:
        """Append a frame (H, W, 3), BGR uint8, of constant size, up to a step.

        Raises:
            UserError: the file cannot be written.
        """
        if self._writer is None:
            size = (frame.shape[1], frame.shape[0])
            # FFmpeg warns, regardless of OpenCV's log level, about the codec's tag in WebM.
            with Path(os.devnull).open("wb") as nowhere, descriptor_aside(ERR, nowhere.fileno()):
                self._writer = cv2.VideoWriter(str(self._path), cv2.VideoWriter.fourcc(*"VP80"), self._hz, size)
            if not self._writer.isOpened():
                raise UserError(f"{self._path}: cannot be written as a WebM film")
        for _ in range(max(1, step + 1 - self._shown)):
            self._writer.write(frame)
        self._shown = step + 1

    def close(self) -> None:
        """Close the file; without a frame none is written."""
        if self._writer is not None:
            self._writer.release()

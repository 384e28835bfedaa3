"""What the drone sees, what was found in it, and a pane of information: in a window, or as MP4 where there is none."""

import contextlib
from pathlib import Path

import cv2
import numpy as np

from bootcamp.api import Box, Location, Report
from bootcamp.ground import Image
from vehicle.errors import UserError
from vehicle.files import write_file

PANE_PX, MAP_PX = 240, 200
INK, FOUND = (235, 235, 235), (0, 220, 255)  # BGR


def compose(
    image: Image,
    report: Report,
    boxes: list[Box],
    pads: list[Location],
    trail: list[Location],
    boundary_m: float,
) -> Image:
    """The picture with its boxes; to its left a pane with what is known, and a map of where the drone has been."""
    seen = image.copy()
    for box in boxes:
        left, top, right, bottom = (round(edge) for edge in box)
        cv2.rectangle(seen, (left, top), (right, bottom), FOUND, 2)
    pane = np.full((len(image), PANE_PX, 3), 30, np.uint8)
    for row, line in enumerate(_lines(report, pads), start=1):
        cv2.putText(pane, line, (8, 18 * row), cv2.FONT_HERSHEY_SIMPLEX, 0.4, INK, 1, cv2.LINE_AA)
    scale, corner = (MAP_PX - 1) / (2 * boundary_m), np.array([(PANE_PX - MAP_PX) // 2, len(image) - MAP_PX - 10])

    def at(place: Location) -> list[int]:
        east_south = np.array([place.east, -place.north])
        return np.round(corner + scale * (boundary_m + east_south)).astype(int).tolist()

    cv2.rectangle(pane, corner.tolist(), (corner + MAP_PX - 1).tolist(), INK, 1)
    cv2.polylines(pane, [np.array([at(place) for place in trail], np.int32)], False, INK, 1, cv2.LINE_AA)
    if report.waypoint is not None:
        cv2.drawMarker(pane, at(report.waypoint), FOUND, cv2.MARKER_CROSS, 8)
    cv2.circle(pane, at(report.position), 3, FOUND, -1)
    return np.hstack([pane, seen])


def _lines(report: Report, pads: list[Location]) -> list[str]:
    goal = "none" if report.waypoint is None else f"{_place(report.waypoint)}{' reached' if report.reached else ''}"
    return [
        f"seed {report.seed}   step {report.step}   {report.t:.1f} s",
        f"state {report.status}",
        f"at {_place(report.position)}",
        f"height {report.height:.1f} m",
        f"speed {report.speed:.2f} m/s",
        f"drift {report.drift:.2f} m",
        f"destination {_place(report.destination)}",
        f"gate {goal}",
        f"commands {report.taken}, ignored {report.ignored}",
        *(f"pad {_place(pad)}" for pad in pads),
        *([report.warning[:34]] if report.warning else []),
    ]


def _place(location: Location) -> str:
    return f"{location.north:.1f} N {location.east:.1f} E"


class Film:
    """An MP4 with the flight's own time: a frame that was left out stays on for longer."""

    def __init__(self, path: Path, step_s: float):
        self._path, self._hz, self._shown = path, 1 / step_s, 0
        self._writer: cv2.VideoWriter | None = None

    def show(self, frame: Image, step: int) -> None:
        if self._writer is None:
            size = (frame.shape[1], frame.shape[0])
            self._writer = cv2.VideoWriter(str(self._path), cv2.VideoWriter.fourcc(*"mp4v"), self._hz, size)
            if not self._writer.isOpened():
                raise UserError(f"{self._path}: cannot be written as MP4")
        for _ in range(max(1, step + 1 - self._shown)):
            self._writer.write(frame)
        self._shown = step + 1

    def close(self) -> None:
        if self._writer is not None:
            self._writer.release()


class Window:
    """A window of the desktop. One that was closed shows nothing, and nothing else happens."""

    def __init__(self, title: str):
        """Raises UserError where no window can be opened."""
        try:
            import tkinter
        except ImportError:
            raise UserError("--window needs tkinter: apt-get install python3-tk") from None
        self._tk = tkinter
        try:
            self._root = tkinter.Tk()
        except tkinter.TclError as error:
            raise UserError(f"--window: no window can be opened here ({error})") from None
        self._root.title(title)
        self._label = tkinter.Label(self._root)
        self._label.pack()

    def show(self, frame: Image, step: int) -> None:
        ppm = b"P6 %d %d 255\n" % (frame.shape[1], frame.shape[0]) + frame[..., ::-1].tobytes()
        with contextlib.suppress(self._tk.TclError):  # the user has closed it
            self._photo = self._tk.PhotoImage(data=ppm, format="PPM", master=self._root)
            self._label.configure(image=self._photo)
            self._root.update()

    def close(self) -> None:
        with contextlib.suppress(self._tk.TclError):
            self._root.destroy()


def screenshot(path: Path, frame: Image) -> None:
    """Writes a PNG in one step."""
    write_file(path, cv2.imencode(".png", frame)[1].tobytes())

"""The pictures on the surfaces of the drawn world, painted once as layers of one texture array. RGB, row 0 at the top."""

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

SIZE = 512  # px, side of every layer
PLAIN, GATE, PANEL, MOTTLE, STATION = range(5)

ORANGE, RIM, WHITE = (252, 50, 6), (255, 112, 20), (255, 228, 222)
# Strokes of the lettering in a unit cell, x right, y down: open angular shapes, as on the real gates.
LETTERS = {
    "A": (((0, 1), (0, 0.25), (0.25, 0), (1, 0), (1, 1)), ((0, 0.55), (1, 0.55))),
    "I": (((0, 0), (0, 1)),),
    "-": (((0, 0.5), (0.6, 0.5)),),
    "G": (((1, 0), (0.25, 0), (0, 0.25), (0, 1), (0.8, 1), (1, 0.8), (1, 0.5), (0.4, 0.5)),),
    "P": (((0, 1), (0, 0.5), (1, 0.5), (1, 0), (0, 0)),),
}


def layers(seed: int, opening: float) -> Picture:
    """All layers (5, SIZE, SIZE, 3) in the order of the names above.

    Args:
        seed: of the pictures of boxes; the gate is the same for all seeds.
        opening: side of a gate's opening as a fraction of its outer side.
    """
    rng = np.random.default_rng(seed)
    plain = np.full((SIZE, SIZE, 3), 255, np.uint8)
    return np.stack([plain, gate_face(opening), _panel(rng), _mottle(rng), _station(int(rng.integers(10, 40)))])


def gate_face(opening: float) -> Picture:
    """The front of a gate (SIZE, SIZE, 3), its outer square filling the picture."""
    face = np.full((SIZE, SIZE, 3), ORANGE, np.uint8)
    bar = SIZE * (1 - opening) / 2
    _write(face, "AI-GP", (0.16 * SIZE, 0.2 * bar), (0.68 * SIZE, 0.52 * bar))
    for left, up in ((True, False), (False, True)):
        x = bar / 2 if left else SIZE - bar / 2
        _checker(face, x, 1.15 * bar, SIZE - bar, 0.18 * bar, up)
    _marks(face, SIZE - 0.4 * bar, bar)
    # The outline of both squares, 2 cm of a frame of 2.7 m.
    for inset in (0.0, bar):
        a, b = round(inset), round(SIZE - 1 - inset)
        cv2.rectangle(face, (a, a), (b, b), RIM, 6)
    return face


def _write(face: Picture, text: str, corner: tuple[float, float], size: tuple[float, float], gap: float = 0.3) -> None:
    """Letters from the top-left corner on, filling width and height `size`, px."""
    widths = [max(x for stroke in LETTERS[letter] for x, _ in stroke) for letter in text]
    scale = np.array([size[0] / (sum(widths) + gap * (len(text) - 1)), size[1]])
    pen = np.array(corner)
    for letter, width in zip(text, widths, strict=True):
        for stroke in LETTERS[letter]:
            points = np.round(pen + np.array(stroke) * scale).astype(np.int32)
            cv2.polylines(face, [points], False, WHITE, round(0.2 * size[1]), cv2.LINE_AA)
        pen[0] += (width + gap) * scale[0]


def _checker(face: Picture, x: float, top: float, bottom: float, cell: float, up: bool) -> None:
    """Three columns of staggered squares that thin out towards the bottom, or towards the top if `up`."""
    rows = int((bottom - top) / cell)
    for row in range(round(0.9 * rows)):
        y = bottom - (row + 1) * cell if up else top + row * cell
        staggered = (0,) if row % 2 else (-1, 1)
        for column in staggered if row < 0.6 * rows else (row % 3 - 1,):
            a = (round(x + (column - 0.5) * cell), round(y))
            cv2.rectangle(face, a, (round(a[0] + cell), round(a[1] + cell)), WHITE, -1)


def _marks(face: Picture, y: float, bar: float) -> None:
    """Small emblems on the bottom bar."""
    r = 0.16 * bar
    cv2.circle(face, (round(0.17 * SIZE), round(y)), round(r), WHITE, 3, cv2.LINE_AA)
    cv2.line(face, (round(0.17 * SIZE - 2 * r), round(y)), (round(0.17 * SIZE + 2 * r), round(y)), WHITE, 3)
    for i in range(6):
        a = (round(0.42 * SIZE + i * r), round(y - 0.4 * r))
        cv2.rectangle(face, a, (round(a[0] + 0.6 * r), round(a[1] + 0.8 * r)), WHITE, -1)
    _write(face, "GP-G", (0.75 * SIZE, y - 0.7 * r), (5.5 * r, 1.4 * r))


def _panel(rng: np.random.Generator) -> Picture:
    """Sheet metal: plates of slightly different grey between pale seams."""
    grey = np.full((SIZE, SIZE), 200, np.uint8)
    for _ in range(14):
        a, b = rng.integers(0, SIZE, 2), rng.integers(40, 260, 2)
        cv2.rectangle(grey, a.tolist(), (a + b).tolist(), int(rng.integers(165, 225)), -1)
        cv2.rectangle(grey, a.tolist(), (a + b).tolist(), 255, 2)
    cv2.rectangle(grey, (0, 0), (SIZE - 1, SIZE - 1), 250, 6)
    return _rgb(grey)


def _mottle(rng: np.random.Generator) -> Picture:
    """Blocky noise, nearly black and grey, as on some walls of the real course."""
    coarse = rng.random((16, 16)) + 0.5 * rng.random((16, 16))
    noise = cv2.resize(coarse, (64, 64)) + 0.6 * rng.random((64, 64))
    grey = np.where(noise > np.median(noise), rng.integers(140, 255, (64, 64)), rng.integers(10, 60, (64, 64)))
    return _rgb(cv2.resize(grey.astype(np.uint8), (SIZE, SIZE), interpolation=cv2.INTER_NEAREST))


def _station(number: int) -> Picture:
    """A numbered pillar, the name running upward."""
    grey = np.full((SIZE, SIZE), 110, np.uint8)
    grey[:, SIZE // 2 :] = 85
    cv2.putText(grey, f"Station {number}", (16, 300), cv2.FONT_HERSHEY_SIMPLEX, 3.0, 230, 14, cv2.LINE_AA)
    return _rgb(np.ascontiguousarray(np.rot90(grey)))


def _rgb(grey: Picture) -> Picture:
    return np.repeat(grey[..., None], 3, axis=2)

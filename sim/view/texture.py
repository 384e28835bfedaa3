"""Textures of the rendered world, painted once as layers of one texture array. RGB, row 0 at the top."""

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

SIZE = 512  # px, side of every layer
PLAIN, GATE, REVEAL, PANEL, MOTTLE, STATION, FLOOR = range(7)

STATIONS = 8  # numbered pillars side by side in one layer

ORANGE, RIM, WHITE = (253, 50, 4), (255, 116, 8), (255, 216, 208)
# Strokes of the lettering in a unit cell, x right, y down: open angular shapes, as on the real gates.
LETTERS = {
    "A": (((0, 1), (0, 0.25), (0.25, 0), (1, 0), (1, 1)), ((0, 0.55), (1, 0.55))),
    "I": (((0, 0), (0, 1)),),
    "-": (((0, 0.5), (0.7, 0.5)),),
    "G": (((1, 0), (0.25, 0), (0, 0.25), (0, 1), (0.8, 1), (1, 0.8), (1, 0.5), (0.4, 0.5)),),
    "P": (((0, 1), (0, 0.5), (1, 0.5), (1, 0.2), (0.8, 0), (0, 0)),),
    "V": (((0, 0), (0.5, 1), (1, 0)),),
    "Q": (((0, 0), (1, 0), (1, 1), (0, 1), (0, 0)), ((0.6, 0.6), (1, 1))),
    "0": (((0, 0), (1, 0), (1, 1), (0, 1), (0, 0)),),
    "1": (((0.2, 0), (0.5, 0), (0.5, 1)),),
    "D": (((0, 0), (0.8, 0), (1, 0.3), (1, 1), (0, 1), (0, 0.4)),),
    "C": (((1, 0), (0.2, 0), (0, 0.3), (0, 1), (1, 1)),),
    "L": (((0, 0), (0, 1), (1, 1)),),
    "T": (((0, 0), (1, 0)), ((0.5, 0), (0.5, 1))),
    "M": (((0, 1), (0, 0), (0.5, 0.5), (1, 0), (1, 1)),),
}


def layers(seed: int, opening: float, outline: tuple[float, float]) -> Image:
    """Return all layers (7, SIZE, SIZE, 3) in the order of the names above; the gate's are the same for all seeds.

    `opening`: side of a gate's hole over its outer side. `outline`: width of the line on its edges over outer side and depth.
    """
    rng = np.random.default_rng(seed)
    plain = np.full((SIZE, SIZE, 3), 255, np.uint8)
    stations = _stations(int(rng.integers(10, 40)))
    of_face, of_wall = outline
    return np.stack(
        [plain, gate_face(opening, of_face), _reveal(of_wall), _panel(rng), _mottle(rng), stations, _floor(rng)]
    )


def gate_face(opening: float, outline: float) -> Image:
    """Paint the front of a gate (SIZE, SIZE, 3), its outer square filling the image. `outline`: width over SIZE."""
    face = np.full((SIZE, SIZE, 3), ORANGE, np.uint8)
    bar = SIZE * (1 - opening) / 2
    _write(face, "AI-GP", (0.09 * SIZE, 0.22 * bar), (0.82 * SIZE, 0.5 * bar), weight=0.24)
    _write(face, "TM", (0.88 * SIZE, 0.8 * bar), (0.04 * SIZE, 0.1 * bar))
    for x, top in ((bar / 2, True), (SIZE - bar / 2, False)):
        cell = 0.155 * bar
        _checker(face, x, 1.15 * bar if top else 1.75 * bar, SIZE - (1.6 if top else 0.8) * bar, cell, not top)
        _write(face, "VQ-01", (x - 0.28 * bar, SIZE - 1.35 * bar if top else 1.4 * bar), (0.56 * bar, 0.13 * bar))
        left, y = x - 0.3 * bar, SIZE - 1.05 * bar if top else bar
        for row, width in enumerate((0.5, 0.35, 0.45)):  # lines too small to read
            high = round(y + 0.09 * bar * row)
            cv2.rectangle(face, (round(left), high), (round(left + width * bar), round(high + 0.04 * bar)), WHITE, -1)
    _marks(face, SIZE - 0.45 * bar, bar)
    rim = round(outline * SIZE)
    for inset in ((rim - 1) / 2, bar - (rim - 1) / 2) if rim else ():
        a, b = round(inset), round(SIZE - 1 - inset)
        cv2.rectangle(face, (a, a), (b, b), RIM, rim)
    return face


def _reveal(outline: float) -> Image:
    """Paint the inner sides of a gate, with the depth along the rows. `outline`: width of the edge lines over the depth."""
    side = np.full((SIZE, SIZE, 3), ORANGE, np.uint8)
    rim = round(min(outline, 0.5) * SIZE)
    side[:rim] = side[SIZE - rim :] = RIM
    return side


def _write(face: Image, text: str, corner: tuple[float, float], size: tuple[float, float], weight: float = 0.2) -> None:
    """Paint letters from the top-left corner, filling width and height `size`, px, with strokes of `weight` of the height."""
    gap = 0.3
    widths = [max(x for stroke in LETTERS[letter] for x, _ in stroke) for letter in text]
    scale = np.array([size[0] / (sum(widths) + gap * (len(text) - 1)), size[1]])
    pen = np.array(corner)
    for letter, width in zip(text, widths, strict=True):
        for stroke in LETTERS[letter]:
            points = np.round(pen + np.array(stroke) * scale).astype(np.int32)
            cv2.polylines(face, [points], False, WHITE, max(round(weight * size[1]), 2), cv2.LINE_AA)
        pen[0] += (width + gap) * scale[0]


def _checker(face: Image, x: float, top: float, bottom: float, cell: float, up: bool) -> None:
    """Paint three columns of staggered squares that thin out towards the bottom, or towards the top if `up`."""
    rows = int((bottom - top) / cell)
    for row in range(round(0.9 * rows)):
        y = bottom - (row + 1) * cell if up else top + row * cell
        staggered = (0,) if row % 2 else (-1, 1)
        for column in staggered if row < 0.6 * rows else (row % 3 - 1,):
            a = (round(x + (column - 0.5) * cell), round(y))
            cv2.rectangle(face, a, (round(a[0] + cell), round(a[1] + cell)), WHITE, -1)


def _marks(face: Image, y: float, bar: float) -> None:
    r = 0.16 * bar
    cv2.circle(face, (round(0.17 * SIZE), round(y)), round(r), WHITE, 3, cv2.LINE_AA)
    cv2.line(face, (round(0.17 * SIZE - 2 * r), round(y)), (round(0.17 * SIZE + 2 * r), round(y)), WHITE, 5)
    for i in range(7):
        a = (round(0.42 * SIZE + i * 1.2 * r), round(y - 0.4 * r))
        cv2.rectangle(face, a, (round(a[0] + 0.8 * r), round(a[1] + 0.8 * r)), WHITE, -1)
    _write(face, "DCL", (0.76 * SIZE, y - 0.6 * r), (5 * r, 1.3 * r), weight=0.3)


def _panel(rng: np.random.Generator) -> Image:
    """Paint sheet metal: plates of slightly different grey between thin pale or dark seams, and a few vents."""
    grey = np.full((SIZE, SIZE), 190, np.uint8)
    for _ in range(12):
        a, b = rng.integers(0, SIZE, 2), rng.integers(60, 300, 2)
        cv2.rectangle(grey, a.tolist(), (a + b).tolist(), int(rng.integers(165, 215)), -1)
        cv2.rectangle(grey, a.tolist(), (a + b).tolist(), int(rng.choice([90, 245])), 2)
    for _ in range(8):
        a, length = rng.integers(0, SIZE, 2), int(rng.integers(40, 200))
        b = a + rng.permutation([length, 0])
        cv2.line(grey, a.tolist(), b.tolist(), int(rng.choice([60, 250])), 4)
    cv2.rectangle(grey, (0, 0), (SIZE - 1, SIZE - 1), 235, 4)
    return _rgb(grey)


def _floor(rng: np.random.Generator) -> Image:
    """Paint polished concrete: broad stains, and the joints of its slabs."""
    stains = cv2.resize(rng.random((8, 8)).astype(np.float32), (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    grey = np.clip(150 + 70 * stains, 0, 255).astype(np.uint8)
    cv2.rectangle(grey, (0, 0), (SIZE - 1, SIZE - 1), 110, 1)
    return _rgb(grey)


def _mottle(rng: np.random.Generator) -> Image:
    """Paint crumbling blocks, nearly black and grey, with a few upright bars, as on some walls of the real course."""
    cells = 96
    coarse = cv2.resize(rng.random((12, 12)), (cells, cells), interpolation=cv2.INTER_CUBIC)
    noise = coarse + 0.8 * rng.random((cells, cells))
    grey = np.where(
        noise > np.quantile(noise, 0.45), rng.integers(120, 200, noise.shape), rng.integers(0, 40, noise.shape)
    )
    for x in rng.integers(0, cells - 8, 4):
        top = int(rng.integers(0, cells // 2))
        grey[top : top + cells // 3, x : x + 7] = rng.integers(170, 220, (len(grey[top : top + cells // 3]), 7))
    return _rgb(cv2.resize(grey.astype(np.uint8), (SIZE, SIZE), interpolation=cv2.INTER_NEAREST))


def _stations(first: int) -> Image:
    """Paint numbered pillars side by side: the name runs upward, the number is repeated on top."""
    pillars = []
    for number in range(first, first + STATIONS):
        face = np.full((SIZE // STATIONS, SIZE), 100, np.uint8)
        face[SIZE // STATIONS // 2 :] = 85
        cv2.putText(face, f"Station {number}", (90, 50), cv2.FONT_HERSHEY_SIMPLEX, 1.5, 235, 6, cv2.LINE_AA)
        face = np.ascontiguousarray(np.rot90(face))
        cv2.putText(face, str(number), (6, 90), cv2.FONT_HERSHEY_SIMPLEX, 1.25, 255, 6, cv2.LINE_AA)
        pillars.append(face)
    return _rgb(np.hstack(pillars))


def _rgb(grey: Image) -> Image:
    return np.repeat(grey[..., None], 3, axis=2)

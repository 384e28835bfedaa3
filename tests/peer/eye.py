"""The camera: a pinhole of 640 x 360, f = 320 px, 20 deg up; polygons from far to near, drawn twice as large and averaged."""

import cv2
import numpy as np

from tests.peer.course import INNER, OUTER, Gate
from tests.peer.craft import Array, rotation

W, H, F, FINE, NEAR = 640, 360, 320.0, 2, 0.05
RED, SIDE, WHITE, CYAN, EDGE = (66, 82, 240), (40, 52, 190), (225, 225, 225), (90, 72, 14), (210, 150, 30)  # BGR
DRAWN, HOLE = 0.16, INNER - 0.02  # m, as fitted to real frames: depth, and opening less its outline
FONT = {"A": (7, 5, 7, 5, 5), "I": (2, 2, 2, 2, 2), "-": (0, 0, 7, 0, 0), "G": (7, 4, 5, 5, 7), "P": (7, 5, 7, 4, 4)}
RING = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
EDGES = list(zip(RING, np.roll(RING, -1, 0), strict=True))


def lettering() -> list[Array]:
    """Return the squares of a gate's sign and of its chequered legs: (y, z) of their corners, m."""
    cells = [
        (4 * i - 8 - col, row)
        for i, letter in enumerate("AI-GP")
        for row, bits in enumerate(FONT[letter])
        for col in range(3)
        if bits >> col & 1
    ]
    sign = [0.07 * np.array(cell) - [0, 1.22] + RING * 0.035 for cell in cells]
    legs = [np.array([y + 0.08 * (k % 2), 0.08 * k - 0.5]) + RING * 0.04 for y in (-1.13, 0.97) for k in range(10)]
    return sign + legs


class Eye:
    """Draws gates with lettering, and guiding light, in a black hall."""

    def __init__(self, gates: list[Gate], start: Array) -> None:
        """Lay the light from the start through the gates."""
        s, c = np.sin(np.deg2rad(20.0)), np.cos(np.deg2rad(20.0))
        self._axes = np.array([[0, 1, 0], [s, 0, c], [c, 0, -s]])  # RDF from body
        self._gates, self._letters = gates, lettering()
        path = np.array([start, *(gate.p for gate in gates)])
        knots = np.concatenate([np.linspace(a, b, 7)[:-1] for a, b in zip(path, path[1:], strict=False)])
        self._ribbon = []
        for a, b in zip(knots, knots[1:], strict=False):
            side = np.cross(b - a, [0, 0, 0.6 / np.linalg.norm(b - a)])
            self._ribbon.append(np.array([a - side, b - side, b + side, a + side]) + [0, 0, 0.7])

    def _pixels(self, points: Array) -> Array | None:
        """Project a convex polygon of the world, cut off at the near plane; None if nothing is left of it."""
        c = (points - self._p) @ self._R.T
        if (c[:, 2] <= NEAR).any():
            kept = []
            for a, b in zip(c, np.roll(c, -1, 0), strict=True):
                kept += [a] * bool(a[2] > NEAR)
                if (a[2] > NEAR) != (b[2] > NEAR):
                    kept.append(a + (NEAR - a[2]) / (b[2] - a[2]) * (b - a))
            if not kept:
                return None
            c = np.array(kept)
        pixels = (F * c[:, :2] / c[:, 2:] + [W / 2, H / 2]) * FINE - 0.5
        return np.clip(np.rint(pixels), -30000, 30000).astype(np.int32)

    def _fill(self, canvas: Array, points: Array, colour: tuple[float, ...]) -> None:
        if (pixels := self._pixels(points)) is not None:
            cv2.fillConvexPoly(canvas, pixels, colour)

    def _gate(self, canvas: Array, gate: Gate) -> None:
        """Draw the far face, the visible sides, the near face and its lettering."""
        eye, d = gate.local(self._p), DRAWN / 2
        near = -d if eye[0] < 0 else d

        def quads(corners: list[list[tuple[float, float, Array]]], colour: tuple[int, int, int]) -> None:
            for quad in corners:
                self._fill(canvas, gate.world(np.array([[x, *corner * half] for x, half, corner in quad])), colour)

        def face(x: float) -> list[list[tuple[float, float, Array]]]:
            return [[(x, OUTER / 2, p), (x, OUTER / 2, q), (x, HOLE / 2, q), (x, HOLE / 2, p)] for p, q in EDGES]

        quads(face(-near), RED)
        for half, inner in ((HOLE / 2, True), (OUTER / 2, False)):
            seen = [(p, q) for p, q in EDGES if (eye[1:] @ (p + q) / 2 < half) == inner]
            quads([[(-d, half, p), (-d, half, q), (d, half, q), (d, half, p)] for p, q in seen], SIDE)
        quads(face(near), RED)
        if np.linalg.norm(eye) < 20:
            for square in self._letters:
                self._fill(canvas, gate.world(np.c_[np.full(4, near), square]), WHITE)

    def jpeg(self, p: Array, q: Array) -> bytes:
        """Return the image at a position and attitude of the body."""
        self._p, self._R = p, self._axes @ rotation(q).T
        canvas, light = (np.zeros((H * FINE, W * FINE, 3), np.uint8) for _ in range(2))
        for gate in sorted(self._gates, key=lambda gate: -np.linalg.norm(gate.p - p)):
            self._gate(canvas, gate)
        for quad in self._ribbon:
            self._fill(light, quad, CYAN)
            for border in (quad[:2], quad[2:]):
                if (pixels := self._pixels(border)) is not None:
                    cv2.polylines(light, [pixels], False, EDGE, FINE)
        image = cv2.resize(cv2.add(canvas, light), (W, H), interpolation=cv2.INTER_AREA)
        return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()

"""Training samples: a randomly augmented crop of a frame, and the network's target maps."""

from pathlib import Path

import cv2
import numpy as np

from gate_racer.perception.learned.network import CORNERS, FIELDS, STRIDE, to_map
from gate_racer.vehicle.rotation import Array

CROP = (320, 192)  # px, width and height of a sample
PEAK = 1.0  # map pixels, standard deviation of a corner's peak
EDGE_WIDTH = 2  # map pixels, width of an edge's field
SMALLEST_PX = 7.0, 4.0  # longest and shortest side below which openings are excluded from the loss
AROUND = 3  # map pixels about such an opening that are excluded as well
HUE_DEG = 18.0  # greatest hue shift: gates stay red to orange; beyond, they would be decoys
REACH = 4  # map pixels, extent of a drawn peak


class Samples:
    """Frames of a folder, all in memory: 0.7 MB each."""

    def __init__(self, folder: Path):
        labels = np.load(folder / "labels.npz")
        self.corners_px, self.visible, self.edges_px = labels["corners"], labels["visible"], labels["edges"]
        self.images = [cv2.imread(str(folder / f"{k:05d}.jpg")) for k in range(len(self.corners_px))]

    def __len__(self) -> int:
        return len(self.images)

    def sample(self, k: int, rng: np.random.Generator) -> tuple[np.ndarray, Array, Array]:
        """Return a crop (3, h, w) uint8 of frame k, its maps (12, h / 2, w / 2) and their weights (h / 2, w / 2)."""
        image = self.images[k]
        (height, width), (w, h) = image.shape[:2], CROP
        seen = self.visible[k]
        at = np.array([rng.uniform(0, width), rng.uniform(0, height)])
        if seen.any() and rng.random() < 0.8:  # around a corner
            corners = self.corners_px[k][seen]
            at = corners[rng.integers(len(corners))] + rng.normal(0, 60, 2)
        u = int(np.clip(at[0] - w / 2, 0, width - w))
        v = int(np.clip(at[1] - h / 2, 0, height - h))
        image = image[v : v + h, u : u + w]
        corners, edges = self.corners_px[k] - [u, v], self.edges_px[k] - [u, v]
        if rng.random() < 0.5:
            image, corners, edges, seen = mirrored(image, corners, edges, seen, 0)
        if rng.random() < 0.15:
            image, corners, edges, seen = mirrored(image, corners, edges, seen, 1)
        maps, counts = targets(corners, edges, seen, w // STRIDE, h // STRIDE)
        return np.ascontiguousarray(disturbed(image, rng).transpose(2, 0, 1)), maps, counts


def mirrored(
    image: np.ndarray, corners: Array, edges: Array, seen: np.ndarray, axis: int
) -> tuple[np.ndarray, Array, Array, np.ndarray]:
    """Mirror left-right (axis 0) or up-down (1); the corners still run clockwise as seen."""
    image = image[:, ::-1] if axis == 0 else image[::-1]
    sign, far = np.ones(2), np.zeros(2)
    sign[axis], far[axis] = -1.0, image.shape[1 - axis] - 1
    corners, edges = far + sign * corners, far + sign * edges
    return image, corners[:, ::-1], edges[:, [2, 1, 0, 3]][:, :, ::-1], seen[:, ::-1]


def from_top_left(corners: Array) -> int:
    """Return the index of the corner (4, 2) nearest to the image's top left; NaN corners, behind the camera, are ignored."""
    reach = corners.sum(-1)
    return int(np.nanargmin(reach)) if np.isfinite(reach).any() else 0


def targets(corners_px: Array, edges_px: Array, seen: np.ndarray, width: int, height: int) -> tuple[Array, Array]:
    """Return target maps (12, height, width), peaks of height 1 at corners and unit vectors along edges, and their weights."""
    maps = np.zeros((CORNERS + FIELDS, height, width), np.float32)
    counts = np.ones((height, width), np.float32)
    for c, e, s in zip(corners_px[::-1], edges_px[::-1], seen[::-1], strict=True):  # the nearest last, over the others
        if not s.any():
            continue
        side = np.linalg.norm(e[:, 1] - e[:, 0], axis=-1)
        at, ends = to_map(c), to_map(e)
        if np.nanmax(side) < SMALLEST_PX[0] or np.nanmin(side) < SMALLEST_PX[1]:
            (u0, v0), (u1, v1) = np.nanmin(at, 0) - AROUND, np.nanmax(at, 0) + AROUND
            counts[max(int(v0), 0) : max(int(v1) + 1, 0), max(int(u0), 0) : max(int(u1) + 1, 0)] = 0.0
            continue
        first = from_top_left(c)
        for k in range(4):
            i = (first + k) % 4
            if s[i]:
                _peak(maps[k], at[i])
            if (s[i] or s[(i + 1) % 4]) and np.isfinite(ends[i]).all():
                a, b = ends[i]
                way = (b - a) / max(float(np.linalg.norm(b - a)), 1e-6)
                _line(maps[CORNERS + 2 * k], a, b, float(way[0]))
                _line(maps[CORNERS + 2 * k + 1], a, b, float(way[1]))
    return maps, counts


def _peak(heat: Array, at: Array) -> None:
    h, w = heat.shape
    u0, v0 = np.floor(at).astype(int) - REACH + 1
    u1, v1 = min(u0 + 2 * REACH, w), min(v0 + 2 * REACH, h)
    u0, v0 = max(u0, 0), max(v0, 0)
    if u0 >= u1 or v0 >= v1:
        return
    du, dv = np.arange(u0, u1) - at[0], np.arange(v0, v1) - at[1]
    part = heat[v0:v1, u0:u1]
    np.maximum(part, np.exp(-(du**2 + dv[:, None] ** 2) / (2 * PEAK**2)), out=part)


def _line(field: Array, a: Array, b: Array, value: float) -> None:
    h, w = field.shape
    way = b - a
    lo, hi = 0.0, 1.0  # clipped to near the map, as OpenCV's lines accept no distant points
    for axis, most in ((0, w), (1, h)):
        if abs(way[axis]) > 1e-9:
            s = sorted(((-8 - a[axis]) / way[axis], (most + 8 - a[axis]) / way[axis]))
            lo, hi = max(lo, s[0]), min(hi, s[1])
        elif not -8 <= a[axis] <= most + 8:
            return
    if lo < hi:
        p, q = (np.round((a + s * way) * 16).astype(int).tolist() for s in (lo, hi))
        cv2.line(field, p, q, value, EDGE_WIDTH, cv2.LINE_8, 4)


def disturbed(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Augment an image (h, w, 3) uint8 by light, colour, blur, noise, occluders and compression."""
    x = image.astype(np.float32)
    h, w = x.shape[:2]
    if rng.random() < 0.3:
        x = _behind(x, rng)
    if rng.random() < 0.3:  # overexposing light on a part, cyan or of any colour
        light = np.array([255.0, 200.0, 40.0]) if rng.random() < 0.6 else rng.uniform(0, 255, 3)
        x += _blob(h, w, rng)[..., None] * light.astype(np.float32) * rng.uniform(0.2, 0.9)
    for _ in range(rng.integers(0, 4) if rng.random() < 0.3 else 0):  # occluders
        a, size = rng.uniform(0, [w, h]), np.exp(rng.uniform(np.log(4), np.log(60), 2))
        colour = rng.uniform(0, 255, 3) * (0.4 if rng.random() < 0.5 else 1.0)
        if colour[2] < 1.3 * max(colour[0], colour[1]):  # not of the gates' colour
            corner, far = np.round(a - size / 2).astype(int).tolist(), np.round(a + size / 2).astype(int).tolist()
            cv2.rectangle(x, corner, far, colour.tolist(), -1) if rng.random() < 0.6 else cv2.line(
                x, corner, far, colour.tolist(), int(rng.integers(1, 3))
            )
    if rng.random() < 0.35:  # false gates: rings of other colours, plain red surfaces
        _decoy(x, rng)
    if rng.random() < 0.7:
        gain = np.exp(rng.normal(0, 0.18)) * np.exp(rng.normal(0, 0.1, 3))
        x = 255 * (np.clip(x * gain.astype(np.float32) + rng.normal(0, 6), 0, 255) / 255) ** np.exp(rng.normal(0, 0.3))
    if rng.random() < 0.25:
        x = _tinted(x, rng.uniform(-HUE_DEG, HUE_DEG))
    if rng.random() < 0.2:
        grey = x.mean(-1, keepdims=True)
        x = grey + (x - grey) * rng.uniform(0.4, 1.3)
    if rng.random() < 0.25:
        x = cv2.GaussianBlur(x, (0, 0), rng.uniform(0.3, 1.3))
    if rng.random() < 0.15:
        x = _smeared(x, rng)
    if rng.random() < 0.4:
        x = x + rng.normal(0, rng.uniform(1, 9), (h, w, 1 if rng.random() < 0.5 else 3)).astype(np.float32)
    x = np.clip(x, 0, 255).astype(np.uint8)
    if rng.random() < 0.8:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(45, 97))]
        chroma = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]
        x = cv2.imdecode(cv2.imencode(".jpg", x, quality + chroma)[1], cv2.IMREAD_COLOR)
    return x


def _blob(h: int, w: int, rng: np.random.Generator) -> np.ndarray:
    """Return a smooth random field (h, w), 0 to 1."""
    cells = rng.random((int(rng.integers(2, 6)), int(rng.integers(2, 8)))).astype(np.float32)
    return np.clip(cv2.resize(cells, (w, h), interpolation=cv2.INTER_CUBIC) * 1.6 - 0.5, 0, 1)


def _behind(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add a random background where the image is dark, as of a brighter hall."""
    h, w = x.shape[:2]
    back = cv2.resize(rng.random((h // 16, w // 16, 1)).astype(np.float32), (w, h))[..., None]
    if rng.random() < 0.5:
        back = back * rng.random(3).astype(np.float32)
    back = np.array(np.broadcast_to(back, (h, w, 3)))
    for _ in range(rng.integers(0, 8)):
        a, b = rng.uniform(0, [w, h]), rng.uniform(0, [w, h])
        colour = rng.random(3).tolist()
        cv2.rectangle(back, np.int32(a).tolist(), np.int32(b).tolist(), colour, int(rng.choice([-1, 1, 2, 4])))
    dark = np.clip(1 - x.max(-1, keepdims=True) / 130, 0, 1)
    return x + dark * back * rng.uniform(20, 140)


def _decoy(x: np.ndarray, rng: np.random.Generator) -> None:
    """Draw decoys with a gate's shape or its colour, but not both (rings, bars, discs, lines), away from gates."""
    h, w = x.shape[:2]
    red = x[..., 2] > 1.6 * x[..., 1] + 40
    for _ in range(rng.integers(1, 4)):
        size = float(np.exp(rng.uniform(np.log(8), np.log(70))))
        u, v = rng.uniform(0, [w, h])
        box = np.s_[max(int(v - size), 0) : int(v + size) + 1, max(int(u - size), 0) : int(u + size) + 1]
        if red[box].any():
            continue
        gate = rng.uniform([0, 30, 200], [60, 110, 255])
        turn = rng.uniform(0, np.pi)
        square = cv2.boxPoints(((u, v), (size, size * rng.uniform(0.4, 1.0)), np.degrees(turn)))
        thick = max(int(size * rng.uniform(0.05, 0.25)), 1)
        kind = rng.integers(4)
        if kind == 0:  # a ring in white, blue or green
            colour = rng.uniform(0, 255, 3)
            colour[2] = min(colour[2], 0.9 * max(colour[:2]))
            if rng.random() < 0.4:
                colour[:] = rng.uniform(150, 255)
            cv2.polylines(x, [np.int32(square * 16)], True, colour.tolist(), thick, cv2.LINE_AA, 4)
        elif kind == 1:  # a bar or a slab of the gates' colour
            cv2.fillPoly(x, [np.int32(square * 16)], gate.tolist(), cv2.LINE_AA, 4)
        elif kind == 2:  # a glow
            cv2.circle(x, (int(u), int(v)), max(int(size / 3), 1), gate.tolist(), -1, cv2.LINE_AA)
        else:
            cv2.line(x, *[np.int32(p).tolist() for p in square[:2]], gate.tolist(), thick, cv2.LINE_AA)


def _tinted(x: np.ndarray, turn_deg: float) -> np.ndarray:
    """Shift all hues, as another camera or paint would."""
    hsv = cv2.cvtColor(np.clip(x, 0, 255).astype(np.float32) / 255, cv2.COLOR_BGR2HSV)  # hue of floats: degrees
    hsv[..., 0] = (hsv[..., 0] + turn_deg) % 360
    return 255 * cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)


def _smeared(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Apply centred motion blur of a few pixels."""
    n = int(rng.integers(1, 4)) * 2 + 1
    kernel = np.zeros((n, n), np.float32)
    way = np.array([np.cos(a := rng.uniform(0, np.pi)), np.sin(a)]) * (n // 2)
    mid = n // 2
    cv2.line(kernel, np.round(mid - way).astype(int).tolist(), np.round(mid + way).astype(int).tolist(), 1.0)
    return cv2.filter2D(x, -1, kernel / kernel.sum())

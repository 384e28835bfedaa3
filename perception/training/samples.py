"""Training samples: an image as a camera would see it that is turned and zoomed, in another light, and the network's targets.

A turn about the camera's centre maps an image by a homography, K R K^-1, whatever is in it (Hartley and Zisserman, 2004, section
8.4.2). So a few photographs give all attitudes and apparent sizes, with exact labels.
"""

import cv2
import numpy as np

from gate_racer.common.compiled import Float32, Image
from gate_racer.model.quadrilateral import enlarged, first_corner, side_lengths
from gate_racer.perception.taught.detector import HEAD_STRIDES, OFFSET_UNIT, STRIDE, cell_centres, to_map
from gate_racer.perception.training.labels import Photograph
from gate_racer.vehicle.rotation import Array, exp, matrix

CROP_PX = (256, 256)  # width and height of a sample
GREY = (127, 127, 127)  # beyond the image: zero for the network, as its padding

# Distribution of the turned and zoomed views. Tuned on held-out photographs (twice as much gives no better corners).
ROLL_DEG = 15.0  # standard deviation
TURN_DEG = 12.0  # ... of pitch and of yaw
ZOOM = 0.35  # ... of the logarithm of the scale
FOCAL = (0.6, 1.2)  # range of the assumed focal length, image widths
ABOUT_AN_OPENING = 0.8  # share of the crops with an opening near their centre
OFF_CENTRE = 0.42  # greatest offset of what the crop shows from its centre, crop sizes
# Assignment of openings to the network's outputs. Chosen.
PEAK = 1.0  # map pixels, standard deviation of a corner's peak
PEAK_REACH = 4  # map pixels, half extent of a drawn peak
SIZES_PX = (0.0, 40.0, 100.0, np.inf)  # limits of the openings of each head, mean side
SHARED_SIZES = 1.25  # factor within which an opening at a limit belongs to both heads
NEAR_CELLS = 1.0  # strides, greatest distance of a reporting cell from the opening's centre
LEAST_LONGEST_PX = 7.0  # longest side of an opening below which it is neither wanted nor wrong,
LEAST_SHORTEST_PX = 4.0  # ... and shortest one


def draw_sample(photograph: Photograph, rng: np.random.Generator) -> tuple[Image | Float32, ...]:
    """Return a random view: an image (3, h, w) BGR, peaks (1, h / 2, w / 2) at visible corners, and each `head_target`."""
    height, width = photograph.image.shape[:2]
    H = _view(width, height, photograph.corners_px, rng)
    scale = float(np.sqrt(abs(np.linalg.det(H[:2, :2]))))
    source = photograph.image if scale > 0.8 else cv2.GaussianBlur(photograph.image, (0, 0), 0.4 / scale)
    image = cv2.warpPerspective(source, H, CROP_PX, flags=cv2.INTER_LINEAR, borderValue=GREY)
    corners_px = _mapped(H, photograph.corners_px)
    visible = photograph.visible
    if rng.random() < 0.5:
        image, visible = image[:, ::-1], visible[:, ::-1]
        corners_px = np.array([CROP_PX[0] - 1, 0]) + [-1, 1] * corners_px[:, ::-1]
    drawn = np.ascontiguousarray(relit(image, rng).transpose(2, 0, 1))
    return drawn, corner_target(corners_px[visible]), *(head_target(corners_px, k) for k in range(len(HEAD_STRIDES)))


def _view(width: int, height: int, corners_px: Array, rng: np.random.Generator) -> Array:
    """Return the homography (3, 3) from an image to a random crop of a turned and zoomed view of it."""
    f = width * rng.uniform(*FOCAL)
    roll, pitch, yaw = np.radians(rng.normal(0, [ROLL_DEG, TURN_DEG, TURN_DEG]))
    K = np.array([[f, 0, width / 2], [0, f, height / 2], [0, 0, 1]])
    R = matrix(exp([0, 0, roll])) @ matrix(exp([pitch, 0, 0])) @ matrix(exp([0, yaw, 0]))
    zoom = np.exp(rng.normal(0, ZOOM))
    middles = corners_px.mean(1)[np.isfinite(corners_px).all((1, 2))]
    at = rng.uniform(0, [width, height])
    if len(middles) and rng.random() < ABOUT_AN_OPENING:
        at = middles[rng.integers(len(middles))]
    H = np.diag([zoom, zoom, 1]) @ K @ R @ np.linalg.inv(K)
    seen = H @ [*at, 1.0]
    move = np.eye(3)
    move[:2, 2] = np.array(CROP_PX) * (0.5 + rng.uniform(-OFF_CENTRE, OFF_CENTRE, 2)) - seen[:2] / seen[2]
    H = move @ H
    return np.asarray(H / H[2, 2])


def _mapped(H: Array, px: Array) -> Array:
    """Map points (..., 2) by a homography; NaN for those behind the turned camera."""
    x = px @ H[:, :2].T + H[:, 2]
    return np.asarray(np.where(x[..., 2:] > 0, x[..., :2] / x[..., 2:], np.nan))


def corner_target(corners_px: Array) -> Float32:
    """Return the heat map (1, h / 2, w / 2) of corners (N, 2)."""
    width, height = (side // STRIDE for side in CROP_PX)
    heat = np.zeros((1, height, width), np.float32)
    for at in to_map(corners_px[np.isfinite(corners_px).all(-1)]):
        if ((at > 0) & (at < [width - 1, height - 1])).all():
            u, v = np.floor(at).astype(int)
            rows = np.arange(max(v - PEAK_REACH + 1, 0), min(v + PEAK_REACH + 1, height))
            columns = np.arange(max(u - PEAK_REACH + 1, 0), min(u + PEAK_REACH + 1, width))
            part = heat[0, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            square = (columns - at[0]) ** 2 + (rows[:, None] - at[1]) ** 2
            np.maximum(part, np.exp(-square / (2 * PEAK**2)), out=part)
    return heat


def head_target(corners_px: Array, head: int) -> Float32:
    """Return the target (10, h, w) of a head: cells that report an opening, those that count (placed, large), and offsets."""
    stride, (low, high) = HEAD_STRIDES[head], SIZES_PX[head : head + 2]
    cells = cell_centres(CROP_PX[1] // stride, CROP_PX[0] // stride, stride)
    target = np.zeros((10, *cells.shape[:2]), np.float32)
    target[1] = 1.0
    nearest = np.full(cells.shape[:2], np.inf)
    for quad in corners_px:
        if not np.isfinite(quad).any():
            continue
        known = np.isfinite(quad).all()
        centre = enlarged(quad[None], 0.0)[0, 0] if known else np.nanmean(quad, 0)
        away = np.linalg.norm(cells - centre, axis=-1)
        near = away < NEAR_CELLS * stride
        sides = side_lengths(quad)
        if not known or sides.max() < LEAST_LONGEST_PX or sides.min() < LEAST_SHORTEST_PX:
            target[1][near] = 0.0
        elif low / SHARED_SIZES < sides.mean() < high * SHARED_SIZES:
            mine = near & (away < nearest)
            nearest[mine] = away[mine]
            target[0][mine] = target[1][mine] = 1.0
            offsets = (np.roll(quad, -first_corner(quad), 0) - cells[mine][:, None]) / (OFFSET_UNIT * stride)
            target[2:, mine] = offsets.reshape(-1, 8).T
    return target


def relit(image: Image, rng: np.random.Generator) -> Image:
    """Augment an image (h, w, 3) by light, occluders, gain, colour, blur, noise and compression. Shares and ranges: chosen."""
    x = image.astype(np.float32)
    h, w = x.shape[:2]
    if rng.random() < 0.3:  # glare of any colour on a part
        cells = rng.random((int(rng.integers(2, 6)), int(rng.integers(2, 8)))).astype(np.float32)
        glare = np.clip(cv2.resize(cells, (w, h), interpolation=cv2.INTER_CUBIC) * 1.6 - 0.5, 0, 1)
        x += glare[..., None] * (rng.uniform(0, 255, 3) * rng.uniform(0.1, 0.7)).astype(np.float32)
    for _ in range(int(rng.integers(0, 3)) if rng.random() < 0.3 else 0):  # occluders
        at, size = rng.uniform(0, [w, h]), np.exp(rng.uniform(np.log(4), np.log(40), 2))
        low, high = (np.round(at + sign * size / 2).astype(int).tolist() for sign in (-1, 1))
        cv2.rectangle(x, low, high, rng.uniform(0, 255, 3).tolist(), -1)
    if rng.random() < 0.7:
        gain = (np.exp(rng.normal(0, 0.15)) * np.exp(rng.normal(0, 0.06, 3))).astype(np.float32)
        gamma = np.float32(np.exp(rng.normal(0, 0.25)))
        x = 255 * (np.clip(x * gain + np.float32(rng.normal(0, 6)), 0, 255) / 255) ** gamma
    if rng.random() < 0.2:
        grey = x.mean(-1, keepdims=True)
        x = grey + (x - grey) * np.float32(rng.uniform(0.4, 1.3))
    if rng.random() < 0.25:
        x = cv2.GaussianBlur(x, (0, 0), rng.uniform(0.3, 1.1))
    if rng.random() < 0.15:
        x = _smeared(x, rng)
    if rng.random() < 0.4:
        x = x + rng.normal(0, rng.uniform(1, 7), (h, w, 1)).astype(np.float32)
    out = np.clip(x, 0, 255).astype(np.uint8)
    if rng.random() < 0.3:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(50, 97))]
        out = cv2.imdecode(cv2.imencode(".jpg", out, quality)[1], cv2.IMREAD_COLOR)
    return out


def _smeared(x: Float32, rng: np.random.Generator) -> Float32:
    n = int(rng.integers(1, 4)) * 2 + 1
    kernel, angle = np.zeros((n, n), np.float32), rng.uniform(0, np.pi)
    way = np.array([np.cos(angle), np.sin(angle)]) * (n // 2)
    low, high = (np.round(n // 2 + sign * way).astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, low, high, 1.0)
    return np.asarray(cv2.filter2D(x, -1, kernel / kernel.sum()))

"""The frame around an opening: where its silhouette stands, and what a side that is not seen must be by it and the others.

A side may be out of the picture, or what is seen in its place may be that of a gate behind. The three others make a square in
one way only. With fewer of them the width of the frame, which is the same on all sides, tells the opening's size.
"""

import cv2
import numpy as np

from perception.candidates import scaled, unit_square
from perception.edges import AFTER, BEFORE, Edges, meet
from vehicle.camera import Camera
from vehicle.rotation import Array

DEPTH = 0.16 / 1.5  # of the AI Grand Prix's gates as drawn, over their opening
ACROSS = np.linspace(0.11, 2.7, 48)  # where the frame's end is looked for, over its width
ALONG = np.linspace(0.15, 0.85, 9)
AGREE = 0.15  # of the width: profiles that differ by more do not see the same end
FEWEST = 3  # profiles that make a width
FALSE = 1.2  # a side of a gate behind stands nearer than its opposite says by this factor
OPPOSITE = [2, 3, 0, 1]


def restored(
    channel: np.ndarray, threshold: int, edges: Edges, outer: float, camera: Camera, origin_px: Array
) -> tuple[Edges, np.ndarray, np.ndarray, np.ndarray]:
    """The openings (Q) with the sides that were not measured put where the frame beside their opposites says.

    After them once more, for each side that seems to be that of a gate behind, with this side put and no longer measured;
    and then once more those of which three sides are left, with the fourth where these say: near a gate the frame is not
    as wide on all sides, and may not be in the picture.

    Args:
        channel: the part of the camera's picture that begins at origin_px (2,), uint8.
        threshold: above it a gate shines.
        outer: so many times a frame is as large as its opening.

    Returns:
        the openings (R >= Q); which of their measured sides (R, 4) are doubtful as those of a gate behind; which of their sides
        were put in the place of such; and which (R,) of the openings they were made of.
    """
    frame = (outer - 1) / 2  # its width over the opening's side
    width_px = _widths(channel, threshold, edges, frame)
    lean_px = leans(edges.corners_px, camera, origin_px)
    a, b = edges.corners_px, edges.corners_px[:, AFTER]
    middle, normal = (a + b) / 2, _outward(a, b)
    depth_px = ((middle - middle[:, OPPOSITE]) * normal).sum(-1)
    theirs = width_px[:, OPPOSITE] / frame
    false = edges.measured & (theirs - lean_px / frame > FALSE * (depth_px + lean_px))
    which, side = np.nonzero(false)
    again = np.append(np.arange(len(a)), which)
    edges, a, b, middle, normal, theirs = (
        Edges(*(column[again] for column in edges)),
        *(column[again] for column in (a, b, middle, normal, theirs)),
    )
    doubtful = np.vstack([false, np.zeros((len(which), 4), bool)])
    false = np.vstack([np.zeros_like(false), np.arange(4) == side[:, None]])
    place = ((~edges.measured | false) & np.isfinite(theirs))[..., None]
    across = normal[:, OPPOSITE]
    start = np.where(place, middle[:, OPPOSITE] - np.nan_to_num(theirs)[..., None] * across, a)
    direction = np.where(place, (a - b)[:, OPPOSITE], b - a)
    outward = np.where(place, -across, edges.outward)
    left = edges.measured & ~false
    placed = edges._replace(corners_px=meet(start, direction), outward=outward, measured=left)

    which = np.flatnonzero(left.sum(-1) == 3)
    if not len(which):
        return placed, doubtful, false, again
    side = left[which].argmin(-1)
    far = _fourth_sides(edges.corners_px[which] + origin_px, camera)[np.arange(len(which)), side] - origin_px
    sound = np.isfinite(far).all((-1, -2))
    which, side, far = which[sound], side[sound], far[sound]  # far: (N, 2 ends, 2)
    fourth = Edges(*(column[which] for column in placed))
    row = np.arange(len(which))
    fourth.corners_px[row, side], fourth.corners_px[row, np.take(AFTER, side)] = far[:, 0], far[:, 1]
    fourth.outward[row, side] = _outward(far[:, 0], far[:, 1])
    both = Edges(*(np.concatenate(pair) for pair in zip(placed, fourth, strict=True)))
    doubtful, false = (np.vstack([flag, flag[which]]) for flag in (doubtful, false))
    return both, doubtful, false, np.append(again, again[which])


def leans(quads: Array, camera: Camera, origin_px: Array) -> Array:
    """How far (Q, 4) px a gate's depth reaches across each side of openings (Q, 4, 2) seen at a slant.

    A square with the axes r1, r2 and the normal n, at z along the ray (x, 1), has the sides A = (f/z) [I | -x] [r1 r2], and a
    rod as long, upright on it, is m = (f/z) [I | -x] n. Since r1, r2 and n are orthonormal, m m' = (f/z)^2 (I + x x') - A A',
    where (f/z)^2 makes the determinant zero.
    """
    f = np.array([camera.fx_px, camera.fy_px])
    p, a, b, gh = unit_square((quads + origin_px - [camera.cx_px, camera.cy_px]) / f)
    w = 1 + gh.sum(-1, keepdims=True) / 2
    x = (p + (a + b) / 2) / w
    A = np.stack([a - gh[:, :1] * x, b - gh[:, 1:] * x], -1) / w[..., None]
    AA, G = A @ np.swapaxes(A, -1, -2), np.eye(2) + x[:, :, None] * x[:, None]
    M = np.linalg.solve(G, AA)
    half = np.trace(M, axis1=-2, axis2=-1) / 2
    largest = half + np.sqrt(np.maximum(half**2 - np.linalg.det(M), 0.0))
    normal = _outward(quads, quads[:, AFTER]) * f
    square = np.einsum("qki,qij,qkj->qk", normal, largest[:, None, None] * G - AA, normal)
    return DEPTH * np.sqrt(np.maximum(square, 0.0))


def silhouettes(quads: Array, outer: float, lean_px: Array) -> Array:
    """What frames `outer` times as large as their openings (Q, 4, 2), deep as lean_px (Q, 4) says, cover: (Q, 4, 2).

    An opening is seen between the near and the far face, so that its sides stand in by half of that, and the silhouette's out.
    """
    square = scaled(quads, outer)
    direction = square[:, AFTER] - square
    out = (1 + outer) / 2 * lean_px[..., None] * _outward(square, square[:, AFTER])
    return meet(square + out, direction)


@np.errstate(all="ignore")
def _fourth_sides(quads: Array, camera: Camera) -> Array:
    """Ends (Q, 4, 2, 2) px of each side of quads (Q, 4, 2) as the three others tell it; NaN where no square explains them.

    The two next to it meet in the picture of their direction v, and the plane through the eye and the opposite side, of
    normal n, holds that side, which is at right angles to v: its direction is n x v. As long as it is, along v, a square is.
    """
    x = (quads - [camera.cx_px, camera.cy_px]) / [camera.fx_px, camera.fy_px]
    x = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    base, end = (
        x[:, OPPOSITE],
        x[:, BEFORE],
    )  # of the opposite side; from there the others lead to the ends of this side
    to_base, to_end = x[:, AFTER], x
    v = np.cross(np.cross(to_base, base), np.cross(to_end, end))
    n = np.cross(base, end)
    along = np.cross(n, v)
    v, along = (d / np.linalg.norm(d, axis=-1, keepdims=True) for d in (v, along))
    n2 = (n * n).sum(-1, keepdims=True)
    depth = [(np.cross(a, b) * n).sum(-1, keepdims=True) / n2 for a, b in ((end, along), (base, along))]
    sign = np.sign(depth[0])
    near = np.stack([end * depth[1] * sign, base * depth[0] * sign], -2)  # (Q, 4, 2 ends, 3), of a side of length 1
    ways = near[..., None, :, :] + np.array([1.0, -1.0])[:, None, None] * v[..., None, None, :]
    px = ways[..., :2] / ways[..., 2:]
    ahead = (ways[..., 2] > 0) & (near[..., 2] > 0)[..., None, :]
    there = np.stack([to_end - end, to_base - base], -2)[..., None, :, :2]
    toward = ((px - near[..., None, :, :2] / near[..., None, :, 2:]) * there).sum(-1)
    right = np.all(ahead & (toward > 0), axis=-1)
    chosen = np.where(right[..., :1, None], px[..., 0, :, :], px[..., 1, :, :])
    chosen = np.where(right.any(-1)[..., None, None], chosen, np.nan)
    return chosen * [camera.fx_px, camera.fy_px] + [camera.cx_px, camera.cy_px]


def _outward(a: Array, b: Array) -> Array:
    """Unit normals (..., 2) of sides from a to b, clockwise."""
    along = b - a
    normal = np.stack([along[..., 1], -along[..., 0]], -1)
    return normal / np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-9)


def _widths(channel: np.ndarray, threshold: int, edges: Edges, frame: float) -> Array:
    """Width (Q, 4) in px of the frame beside each measured side, across it; NaN where its end does not show."""
    a, b = edges.corners_px, edges.corners_px[:, AFTER]
    about_px = frame * np.linalg.norm(b - a, axis=-1).max(-1)
    reach = about_px[:, None, None, None] * ACROSS  # (Q, 1, 1, n)
    foot = a[..., None, :] + ALONG[:, None] * (b - a)[..., None, :]
    at = foot[..., None, :] + reach[..., None] * _outward(a, b)[..., None, None, :]  # (Q, 4, P, n, 2)
    grid = at.reshape(-1, len(ACROSS), 2).astype(np.float32)
    shines = (
        cv2.remap(channel, grid, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT).reshape(at.shape[:-1])
        > threshold
    )
    end = shines.argmin(-1)
    ends = shines[..., 0] & ~shines.all(-1)
    at_end = np.take_along_axis(at, end[..., None, None], -2)[..., 0, :]
    width = np.where(ends & _inside(at_end, channel), about_px[:, None, None] * ACROSS[end], np.nan)
    width = np.sort(width, -1)  # NaN last
    known = np.isfinite(width).sum(-1)
    median = np.take_along_axis(width, (np.maximum(known, 1) - 1)[..., None] // 2, -1)[..., 0]
    agree = (np.abs(width - median[..., None]) < AGREE * median[..., None]).sum(-1)
    return np.where(edges.measured & (agree >= FEWEST), median, np.nan)


def _inside(px: Array, image: np.ndarray) -> np.ndarray:
    limit = np.array([image.shape[1], image.shape[0]]) - 1
    return np.asarray(((px >= 0) & (px <= limit)).all(-1))

"""The frame around an opening: where its silhouette stands, and what a side that is not seen must be by it and the others.

A side may be out of the picture, or what is seen in its place may be that of a gate behind. The three others make a square in
one way only. With fewer of them the width of the frame, which is the same on all sides, tells the opening's size.
"""

import numpy as np

from perception.edges import Edges
from perception.profiles import bar_widths
from perception.squares import AFTER, BEFORE, OPPOSITE, leans, meet, normals
from vehicle.camera import Camera
from vehicle.rotation import Array

ACROSS = np.linspace(0.11, 2.7, 48)  # where the frame's end is looked for, over its width
ALONG = np.linspace(0.15, 0.85, 9)
FALSE = 1.2  # a side of a gate behind stands nearer than its opposite says by this factor


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
    px = edges.corners_px
    about_px = frame * np.linalg.norm(px[:, AFTER] - px, axis=-1).max(-1)
    width_px = bar_widths(channel, threshold, px, normals(px, px[:, AFTER]), about_px, ALONG, ACROSS)
    width_px[~edges.measured] = np.nan
    lean_px = leans(edges.corners_px, camera, origin_px)
    a, b = edges.corners_px, edges.corners_px[:, AFTER]
    middle, normal = (a + b) / 2, normals(a, b)
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
    fourth.outward[row, side] = normals(far[:, 0], far[:, 1])
    both = Edges(*(np.concatenate(pair) for pair in zip(placed, fourth, strict=True)))
    doubtful, false = (np.vstack([flag, flag[which]]) for flag in (doubtful, false))
    return both, doubtful, false, np.append(again, again[which])


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
    v = _cross(_cross(to_base, base), _cross(to_end, end))
    n = _cross(base, end)
    along = _cross(n, v)
    v, along = (d / np.linalg.norm(d, axis=-1, keepdims=True) for d in (v, along))
    n2 = (n * n).sum(-1, keepdims=True)
    depth = [(_cross(a, b) * n).sum(-1, keepdims=True) / n2 for a, b in ((end, along), (base, along))]
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


def _cross(a: Array, b: Array) -> Array:
    """a x b (..., 3); numpy's own is slow on a few."""
    return a[..., [1, 2, 0]] * b[..., [2, 0, 1]] - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]

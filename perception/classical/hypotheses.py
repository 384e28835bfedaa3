"""Stage 3, complete: predict unmeasured sides from the width of the frame and from the other three sides.

A side may be outside the image, or be mistaken for that of a gate behind. Three sides determine the fourth of a square. With
fewer, the width of the frame, which is equal on all sides, gives the opening's size.
"""

from typing import NamedTuple

import numpy as np

from gate_racer.perception.classical.config import HypothesisConfig
from gate_racer.perception.classical.scene import View
from gate_racer.perception.common.edge_fit import QuadEdges
from gate_racer.perception.common.gate_model import GateModel
from gate_racer.perception.common.quadrilateral import NEXT, OPPOSITE, PREVIOUS, intersect_lines, outward_normals
from gate_racer.perception.common.sampling import bar_widths
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices, Mask


class Hypotheses(NamedTuple):
    """Hypotheses of openings (R), the measured ones first, then alternatives to them."""

    edges: QuadEdges
    suspect: Mask  # (R, 4) measured sides that may be those of a gate behind
    replaced: Mask  # (R, 4) sides predicted in place of suspect ones
    source: Indices  # (R,) the measured opening that each derives from

    def select(self, which: Indices) -> "Hypotheses":
        """Return a subset of the hypotheses."""
        return Hypotheses(self.edges.select(which), self.suspect[which], self.replaced[which], self.source[which])


def complete(view: View, edges: QuadEdges, model: GateModel, config: HypothesisConfig) -> Hypotheses:
    """Place the unmeasured sides of openings (Q) by the width of the frame beside the opposite sides.

    Each suspect side adds a hypothesis with that side predicted instead of measured; hypotheses with three measured sides add
    one with the fourth side predicted from these: near a gate the apparent frame width differs between sides, and the frame
    may be outside the image.
    """
    opposite_says_px = _size_beside_opposite(view, edges, model, config)
    suspect = edges.measured & _stands_nearer(edges.corners_px, opposite_says_px, model, config)
    which, side = np.nonzero(suspect)
    source = np.append(np.arange(len(suspect)), which)
    replaced = np.vstack([np.zeros_like(suspect), np.arange(4) == side[:, None]])
    suspect = np.vstack([suspect, np.zeros((len(which), 4), bool)])
    as_measured = edges.select(source)
    placed = _placed(as_measured, replaced, opposite_says_px[source])
    return _with_fourth_sides(Hypotheses(placed, suspect, replaced, source), as_measured.corners_px, model)


def _size_beside_opposite(view: View, edges: QuadEdges, model: GateModel, config: HypothesisConfig) -> Array:
    """Return sizes (Q, 4) px of the openings across each side by the frame's width beside the opposite one; NaN if unknown."""
    px = edges.corners_px
    about_px = model.frame_width_px(px)[:, 0]
    along, across = np.linspace(*config.along), np.linspace(*config.across)
    normals = outward_normals(px, px[:, NEXT])
    width_px = bar_widths(view.opening, view.threshold, px, normals, about_px, along, across, config.agree)
    width_px[~edges.measured] = np.nan
    return width_px[:, OPPOSITE] / ((model.ratio - 1) / 2)


def _stands_nearer(quads: Array, opposite_says_px: Array, model: GateModel, config: HypothesisConfig) -> Mask:
    """Find sides (Q, 4) nearer to their opposites than predicted by the frame's width there, allowing for the gate's depth."""
    a, b = quads, quads[:, NEXT]
    middle = (a + b) / 2
    size_px = ((middle - middle[:, OPPOSITE]) * outward_normals(a, b)).sum(-1)
    extent_px, frame = model.depth_extent_px(quads), (model.ratio - 1) / 2
    return np.asarray(opposite_says_px - extent_px / frame > config.occluder_width_ratio * (size_px + extent_px))


def _placed(edges: QuadEdges, replaced: Mask, opposite_says_px: Array) -> QuadEdges:
    """Return the openings (R) with replaced and unmeasured sides at the predicted distance from their opposites."""
    a, b = edges.corners_px, edges.corners_px[:, NEXT]
    middle, across = (a + b) / 2, outward_normals(a, b)[:, OPPOSITE]
    put = ((~edges.measured | replaced) & np.isfinite(opposite_says_px))[..., None]
    start = np.where(put, middle[:, OPPOSITE] - np.nan_to_num(opposite_says_px)[..., None] * across, a)
    direction = np.where(put, (a - b)[:, OPPOSITE], b - a)
    outward = np.where(put, -across, edges.outward)
    corners_px = intersect_lines(start, direction)
    return edges._replace(corners_px=corners_px, outward=outward, measured=edges.measured & ~replaced)


def _with_fourth_sides(found: Hypotheses, as_measured_px: Array, model: GateModel) -> Hypotheses:
    """Return all hypotheses, and copies of those with three measured sides, with the fourth side completing a square.

    Args:
        as_measured_px: (R, 4, 2) corners on the measured lines, before any side was replaced.
    """
    which = np.flatnonzero(found.edges.measured.sum(-1) == 3)
    if not len(which):
        return found
    side = found.edges.measured[which].argmin(-1)
    ends_px = fourth_sides(as_measured_px[which] + model.origin_px, model.camera)
    ends_px = ends_px[np.arange(len(which)), side] - model.origin_px  # (N, 2 ends, 2)
    known = np.isfinite(ends_px).all((-1, -2))
    which, side, ends_px = which[known], side[known], ends_px[known]
    fourth = found.select(which)
    row = np.arange(len(which))
    fourth.edges.corners_px[row, side], fourth.edges.corners_px[row, np.take(NEXT, side)] = ends_px[:, 0], ends_px[:, 1]
    fourth.edges.outward[row, side] = outward_normals(ends_px[:, 0], ends_px[:, 1])
    edges = QuadEdges(*(np.concatenate(pair) for pair in zip(found.edges, fourth.edges, strict=True)))
    return Hypotheses(edges, *(np.concatenate(pair) for pair in zip(found[1:], fourth[1:], strict=True)))


@np.errstate(all="ignore")
def fourth_sides(quads: Array, camera: Camera) -> Array:
    """Return the ends (Q, 4, 2, 2) px of each side of quads (Q, 4, 2) by the three others; NaN where no square fits them.

    The two adjacent sides meet in the vanishing point of their direction v. The plane through the eye and the opposite side, of
    normal n, contains that side, which is perpendicular to v: its direction is n x v, its length that of the sides along v.
    """
    x = (quads - [camera.cx_px, camera.cy_px]) / [camera.fx_px, camera.fy_px]
    x = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    # Rays to the ends of the opposite side; the adjacent sides lead from there to the ends of this side.
    base, end = x[:, OPPOSITE], x[:, PREVIOUS]
    to_base, to_end = x[:, NEXT], x
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
    return np.asarray(chosen * [camera.fx_px, camera.fy_px] + [camera.cx_px, camera.cy_px])


def _cross(a: Array, b: Array) -> Array:
    """Return a x b (..., 3); NumPy's is slow for few vectors."""
    return a[..., [1, 2, 0]] * b[..., [2, 0, 1]] - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]

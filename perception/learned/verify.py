"""Verify and report: a frame must surround the measured opening, and no corner may be another gate's."""

import numpy as np

from gate_racer.perception.common.quadrilateral import PREVIOUS, first_corner, is_inside
from gate_racer.perception.common.types import Image
from gate_racer.perception.detection import Detection
from gate_racer.perception.learned.config import AcceptanceConfig, LearnedConfig
from gate_racer.perception.learned.frame_ends import frame_ends, goes_on
from gate_racer.perception.learned.frame_widths import fitting_share, guess_is_even, is_even, occluded_sides
from gate_racer.perception.learned.measure import MeasuredQuads
from gate_racer.perception.learned.network import NetworkCard


def verify(red: Image, quads: MeasuredQuads, ratio: float, card: NetworkCard, config: LearnedConfig) -> list[Detection]:
    """Return the quads surrounded by a frame `ratio` times as large, in an image (H, W) in which gates are bright."""
    if not len(quads.score):
        return []
    limits, widths = config.acceptance, config.frame_widths
    corners_px, whole = quads.corners_px, quads.found.all(-1)
    ends, shines = (np.where(quads.expected, x, np.nan) for x in frame_ends(red, corners_px, config.frame_ends))
    longer = goes_on(red, corners_px, config.frame_ends)
    hidden = occluded_sides(ends, corners_px, longer, ratio, widths) & ~quads.guessed[:, None]
    covered = hidden | hidden[:, PREVIOUS]  # corners of hidden sides
    seen = quads.found & ~covered & is_inside(corners_px, red, limits.border_px)
    guess_cov = quads.guess_px[..., None, None] ** 2 * np.eye(2)
    cov_px = np.where(covered[..., None, None], guess_cov, quads.cov_px)

    framed_guess, framed = guess_is_even(ends, ratio, widths), is_even(ends, corners_px, hidden, ratio, widths)
    frame_ok = np.where(quads.guessed, framed_guess, framed)
    shines_ok = np.nan_to_num(shines, nan=1.0).min(-1) > limits.shines_min
    corners_ok = seen.sum(-1) >= limits.corners_min
    sure_ok = whole | (quads.score > card.sure_part)
    score = quads.score * (1 + fitting_share(ends, corners_px, ratio, widths)) / 2
    accepted = np.flatnonzero(frame_ok & shines_ok & corners_ok & sure_ok & (score > limits.score_min))

    detections = []
    for k in accepted:
        order = (np.arange(4) + first_corner(corners_px[k])) % 4
        detections.append(Detection(corners_px[k, order], cov_px[k, order], seen[k, order], float(score[k])))
    return detections


def is_same_gate(a: Detection, b: Detection, config: AcceptanceConfig) -> bool:
    """Check whether two detections are of one gate: whole ones share two corners, others one."""
    near = np.linalg.norm(a.corners_px[a.visible][:, None] - b.corners_px[b.visible], axis=-1) < config.same_px
    return int(near.any(1).sum()) >= (2 if a.visible.all() and b.visible.all() else 1)

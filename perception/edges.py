"""Sub-pixel refinement of the edges of bright-framed quadrilaterals, many at a time.

Across each edge the picture is sampled on short profiles; each gives the place where the brightness passes half-way
between its own two sides, which a symmetric blur does not move. A robust line through these places replaces the edge,
and neighbouring lines meet in the corners.

Quadrilaterals run clockwise in the picture (as seen, v down), so that the outward normal of an edge (du, dv) is (dv, -du).
"""

from typing import NamedTuple

import numpy as np

from perception.candidates import OUTER
from perception.detection import crossings_cov_px
from perception.profiles import fit_sides
from perception.squares import AFTER, meet
from vehicle.rotation import Array

END = 0.1  # share of an edge left out at either end, where the neighbouring edge blurs into the profile
STEP_PX = 0.5  # between the samples of a profile
# Pass by pass: half-length of the profiles, at least so many px and so great a share of the frame's width, as large candidates
# are off by more; and how many there are on each edge. Where the frame's outer edge stands changes with the slant.
PASSES = {False: ((6.0, 0.34, 16), (3.0, 0.0, 32)), True: ((6.0, 0.57, 32),)}
REACH_WIDTH = {False: 0.57, True: 0.8}  # ... and at most this share of it
SUPPORT = 0.3  # least share of a side's profiles that lie on its line
FLOOR_PX = 0.15  # std of what all profiles of a side have in common: blur, compression, the drawn edge itself


class Edges(NamedTuple):
    """Refined quadrilaterals (Q). Side k runs from corner k to corner k + 1."""

    corners_px: Array  # (Q, 4, 2)
    outward: Array  # (Q, 4, 2) normals of the sides
    ends_px: Array  # (Q, 4, 2) std of each line across itself, at its start and end
    measured: np.ndarray  # (Q, 4) bool: the line was seen
    support: Array  # (Q, 4) share of the profiles in the picture that agree with the line

    def cov_px(self) -> Array:
        """(Q, 4, 2, 2) of each corner."""
        return crossings_cov_px(self.corners_px, self.measured, np.hypot(FLOOR_PX, self.ends_px))


def refine(
    image: np.ndarray, corners_px: Array, outer: float = OUTER, bright_inside: bool = False, wide: bool = True
) -> Edges:
    """Fits the sides of quads (Q, 4, 2) in a one-channel uint8 picture that is bright outside each quad, or inside.

    A side with too little to see keeps its place. A frame is `outer` times as large as its opening. Where lettering spoils
    the frame the search must not be wide.
    """
    for least_px, share, profiles in PASSES[bright_inside]:
        edges = _refine_once(image, corners_px, least_px, share if wide else 0.0, outer, bright_inside, profiles)
        corners_px = edges.corners_px
    return edges


def _refine_once(
    image: np.ndarray,
    corners_px: Array,
    reach_px: float,
    share: float,
    outer: float,
    bright_inside: bool,
    profiles: int,
) -> Edges:
    along = corners_px[:, AFTER] - corners_px
    side_px = np.maximum(np.sqrt((along * along).sum(-1)), 1.0)
    along = along / side_px[..., None]
    outward = np.stack([along[..., 1], -along[..., 0]], -1)

    diagonal = corners_px[:, 2:] - corners_px[:, :2]
    area = np.abs(diagonal[:, 0, 0] * diagonal[:, 1, 1] - diagonal[:, 0, 1] * diagonal[:, 1, 0]) / 2
    width_px = area / side_px.max(-1) * (outer - 1) / 2 / (outer if bright_inside else 1.0)
    reach = np.minimum(np.maximum(reach_px, share * width_px), REACH_WIDTH[bright_inside] * width_px)
    if bright_inside:
        reach = -reach
    s = np.linspace(END - 0.5, 0.5 - END, profiles)
    n = 2 * round(reach_px / STEP_PX) + 1
    found = fit_sides(image, corners_px, outward, reach, s, n)
    level, slope, ends_px, agree, inside = found[..., 0], found[..., 1], found[..., 2:4], found[..., 4], found[..., 5]
    start = corners_px + (level - slope * 0.5)[..., None] * outward
    end = start + side_px[..., None] * along + slope[..., None] * outward
    support = agree / np.maximum(inside, 1)
    measured = (agree >= profiles // 4) & (support > SUPPORT)
    return Edges(meet(start, end - start), outward, ends_px, measured, support)

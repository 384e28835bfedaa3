"""Every threshold of the learned detector, stage by stage, with quantity, unit and source.

Sources: *derived* from geometry, the network's stride or quantisation; *tuned*: set by hand for recall and precision of
`benchmarks/perception.py` on rendered flights, and checked on real frames. What belongs to the trained weights, heights of
peaks with their errors and the least scores, stands in the network's card, `gate_net.yaml`, and is measured on held-out frames.
"""

from dataclasses import dataclass

from perception.common.edge_fit import OPENING_EDGES, EdgeFitConfig
from perception.common.preprocessing import EXPOSURE, GATE_REGION, ExposureConfig, RegionConfig
from vehicle.camera import LEAST_SIDE_PX


@dataclass(frozen=True, slots=True)
class HeatmapConfig:
    """From maps to groups of corners. Lengths in pixels of the maps. Tuned, except where a source is named."""

    peak_min: float = 0.12  # probability of a peak; near 45 deg of roll two names share one corner
    apart: float = 2.5  # between peaks: a Gaussian of the training targets has one (derived)
    above_mean: float = 1.1  # times the mean of the 3 x 3 around it: plains have no peaks
    crowd: int = 20_000  # pixels above peak_min: no image of a course has so many, and cost is bounded
    peaks: int = 48  # at most, the highest
    edge_min: float = 2.0  # between two corners
    lone_edge_min: float = 10.0  # ... of which no others are seen
    samples: int = 10  # of a field between two corners
    aligned_min: float = 0.5  # mean share of the field that points along an edge
    aligned_sure: float = 0.95  # ... that leaves no doubt
    aligned_share: float = 0.7  # share of the samples that point at least half along it
    bend_min: float = 0.3  # sine of the angle between two edges
    ways: int = 3  # from a corner on, the likeliest
    groups: int = 30  # at most, those with most to show


@dataclass(frozen=True, slots=True)
class GroupMeasurementConfig:
    """From groups of corners to measured quadrilaterals. Tuned, except where a source is named."""

    moved_px: float = (
        2.5  # most that measuring may move a mapped corner: three standard deviations of the card (derived)
    )
    moved_side: float = 0.15  # ... or this share of the longest side, if that is more: beyond it is another line
    support_min: float = 0.4  # share of a side's profiles at which its edge was seen
    support_clear: float = 0.8  # ... at which it is beyond doubt, wherever it was looked for
    nearby: float = 0.5  # of the square on a lone edge: so near its sides' directions are looked for
    guess: float = 0.5  # standard deviation of a corner that is not seen, over the longest side that is
    side_min_px: float = LEAST_SIDE_PX  # shortest side that is worth measuring
    part_min_px: float = 24.0  # longest side of a gate that is seen in part
    skew_px: float = 1.0  # corners farther from a square's, beyond perspective, are none,
    skew_side: float = 0.02  # ... with this share of the side


@dataclass(frozen=True, slots=True)
class FrameEndConfig:
    """Where the frames end beside the sides, measured. Ratios over the opening. Tuned."""

    first: float = 0.06  # width of the frame at the first square, and ...
    growth: float = 1.14  # ... its growth from square to square: frames end at 1.4 to 2, if the opening is not cut
    squares: int = 33
    frame_squares: int = 8  # first ones that lie on any frame
    places: tuple[float, float, int] = (-0.7, 0.7, 7)  # along each side: first, last and number
    dark: float = 0.55  # of the frame's brightness: what is below is beyond it
    contrast: int = 40  # grey levels between the frame and the inside of an opening
    inside: tuple[float, ...] = (0.7, 0.8, 0.92)  # of the opening: there it is dark, unless another gate stands behind
    beyond: tuple[float, ...] = (
        0.55,
        0.65,
        0.75,
        0.85,
    )  # of a side's length, beyond its ends: there its frame has ended
    beside: float = 0.12  # of a side's length to both hands, where a longer edge is looked for
    longer_share: float = 0.7  # least share of such places with an edge


@dataclass(frozen=True, slots=True)
class FrameWidthConfig:
    """What the widths of a frame say. Ratios over the opening, or between widths. Tuned, except where a source is named."""

    depth: float = 0.17  # a gate's depth over its opening, at most: 0.26 m of 1.5 m by the specification (derived)
    flattest: float = 0.85  # most of an opening that its depth hides
    slanted: float = 0.1  # so much hidden of it is surely a slant
    wider: float = 1.15  # so many times as wide, and ...
    wider_px: float = 0.5  # ... so many px beyond it, a frame may seem than it is,
    bulge: float = 0.12  # ... and so much of the opening, from nearby
    alone: float = 1.7  # as `wider`, if of a side and its opposite only one is in the image
    occluder: float = 1.3  # times as wide as the frame facing it the edge of another gate seems to be,
    occluder_sure: float = 1.75  # ... and surely is
    alike: float = 1.3  # a frame whose widths differ by no more than this factor on all sides is as wide as it seems
    guess: tuple[float, float] = (
        0.35,
        1.45,
    )  # times the expected width about a guess: at least; on all sides but one at most


@dataclass(frozen=True, slots=True)
class AcceptanceConfig:
    """What a measured gate must show. Tuned, except where a source is named."""

    border_px: float = 2.0  # a corner nearer to the image's border may be cut (derived: half a JPEG chroma block)
    shines_min: float = 0.6  # share of each side's places at which the frame is brighter than the opening
    corners_min: int = 2  # corners that are seen
    score_min: float = 0.4  # what is less sure is left out
    same_px: float = 3.0  # corners so near are one


@dataclass(frozen=True, slots=True)
class LearnedConfig:
    """The configuration of all stages, in the order in which an image meets them."""

    exposure: ExposureConfig = EXPOSURE
    region: RegionConfig = GATE_REGION
    heatmaps: HeatmapConfig = HeatmapConfig()
    edges: EdgeFitConfig = OPENING_EDGES
    measurement: GroupMeasurementConfig = GroupMeasurementConfig()
    frame_ends: FrameEndConfig = FrameEndConfig()
    frame_widths: FrameWidthConfig = FrameWidthConfig()
    acceptance: AcceptanceConfig = AcceptanceConfig()

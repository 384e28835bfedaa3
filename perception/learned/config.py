"""Thresholds of the learned detector, stage by stage, with quantity, unit and source.

Sources: *derived* from geometry, the network's stride or quantisation; *tuned*: set by hand for recall and precision of
`benchmarks/perception.py` on rendered flights, and checked on real frames. Values that depend on the trained weights (heights of
peaks with their errors, least scores) are in the network's card, `gate_net.yaml`, measured on held-out frames.
"""

from dataclasses import dataclass

from gate_racer.perception.edges import OPENING_EDGES, EdgeFitConfig
from gate_racer.perception.sampling import EXPOSURE, GATE_REGION, ExposureConfig, RegionConfig
from gate_racer.vehicle.camera import LEAST_SIDE_PX


@dataclass(frozen=True, slots=True)
class HeatmapConfig:
    """Grouping of corners from the maps. Lengths in map pixels. Tuned, except where a source is named."""

    peak_min: float = 0.12  # least probability of a peak; near 45 deg of roll two maps share one corner
    apart: float = 2.5  # least distance between peaks: a Gaussian of the training targets has one (derived)
    above_mean: float = 1.1  # -, least ratio of a peak to the mean of its 3 x 3 neighbourhood: a plateau has no peak
    crowd: int = 20_000  # greatest number of pixels above peak_min: more than any image of a course, bounds the cost
    peaks: int = 48  # greatest number of peaks, the highest
    edge_min: float = 2.0  # least distance between two corners
    lone_edge_min: float = 10.0  # ... of a group of two
    samples: int = 10  # samples of a field between two corners
    aligned_min: float = 0.5  # -, least mean component of the field along an edge
    aligned_sure: float = 0.95  # -, mean component of an unambiguous edge
    aligned_share: float = 0.7  # -, least share of samples with a component above one half
    bend_min: float = 0.3  # -, least sine of the angle between two edges
    ways: int = 3  # greatest number of edges from a corner, the likeliest
    groups: int = 30  # greatest number of groups, the best supported


@dataclass(frozen=True, slots=True)
class GroupMeasurementConfig:
    """Measurement of quadrilaterals from groups of corners. Tuned, except where a source is named."""

    moved_px: float = 2.5  # greatest displacement of a mapped corner: three standard deviations of the card (derived)
    moved_side: float = 0.15  # ... or this share of the longest side, if greater: beyond it is another line
    support_min: float = 0.4  # -, least share of a side's profiles for a measured edge
    support_clear: float = 0.8  # ... for one that is accepted at any distance from its prediction
    nearby: float = 0.5  # -, scale of the square on a single edge within which its sides' directions are measured
    guess: float = 0.5  # -, standard deviation of an unseen corner over the longest visible side
    side_min_px: float = LEAST_SIDE_PX  # least side of an opening
    part_min_px: float = 24.0  # least longest side of a partly visible gate
    skew_px: float = 1.0  # greatest skew beyond that of perspective
    skew_side: float = 0.02  # -, part of the side that is added to it


@dataclass(frozen=True, slots=True)
class FrameEndConfig:
    """Measurement of the frame's end beside each side. Ratios over the opening. Tuned."""

    first: float = 0.06  # distance of the first square beyond the opening, and ...
    growth: float = 1.14  # ... its growth from square to square: frames end at 1.4 to 2, if the opening is not cut
    squares: int = 33  # number of squares
    frame_squares: int = 8  # number of first squares that lie on any frame
    places: tuple[float, float, int] = (-0.7, 0.7, 7)  # first, last and number of samples along each side
    dark: float = 0.55  # of the frame's brightness: lower levels are beyond the frame
    contrast: int = 40  # grey levels, least difference between the frame and the inside of an opening
    inside: tuple[float, ...] = (0.7, 0.8, 0.92)  # squares inside the opening: dark, unless another gate is behind
    beyond: tuple[float, ...] = (0.55, 0.65, 0.75, 0.85)  # of a side's length, points beyond its ends, past its frame
    beside: float = 0.12  # of a side's length, offset to both sides of these points, by which a longer edge is found
    longer_share: float = 0.7  # least share of these points with an edge


@dataclass(frozen=True, slots=True)
class FrameWidthConfig:
    """Consistency of a frame's widths. Ratios over the opening, or between widths. Tuned, except where a source is named."""

    depth: float = 0.17  # greatest depth of a gate over its opening: 0.26 m of 1.5 m by the specification (derived)
    flattest: float = 0.85  # greatest part of an opening hidden by its depth
    slanted: float = 0.1  # hidden part above which the view is oblique
    wider: float = 1.15  # greatest ratio of apparent to true width, with
    wider_px: float = 0.5  # ... a tolerance in px,
    bulge: float = 0.12  # ... and one over the opening, for nearby gates
    alone: float = 1.7  # as `wider`, if only one of a side and its opposite is in the image
    occluder: float = 1.3  # ratio to the opposite width above which a side may be another gate's edge,
    occluder_sure: float = 1.75  # ... above which it is
    alike: float = 1.3  # greatest ratio between the widths of a frame that is taken to be as wide as it appears
    guess: tuple[float, float] = (0.35, 1.45)  # over the expected width about a guess: least; greatest on three sides


@dataclass(frozen=True, slots=True)
class AcceptanceConfig:
    """Acceptance of measured gates. Tuned, except where a source is named."""

    border_px: float = 2.0  # a corner nearer to the image border may be cut (derived: half a JPEG chroma block)
    shines_min: float = 0.6  # -, least share of each side's samples at which the frame is brighter than the opening
    corners_min: int = 2  # least number of visible corners
    score_min: float = 0.4  # -, least score of a detection
    same_px: float = 3.0  # distance below which two corners are the same


@dataclass(frozen=True, slots=True)
class LearnedConfig:
    """Configuration of all stages, in order of processing."""

    exposure: ExposureConfig = EXPOSURE
    region: RegionConfig = GATE_REGION
    heatmaps: HeatmapConfig = HeatmapConfig()
    edges: EdgeFitConfig = OPENING_EDGES
    measurement: GroupMeasurementConfig = GroupMeasurementConfig()
    frame_ends: FrameEndConfig = FrameEndConfig()
    frame_widths: FrameWidthConfig = FrameWidthConfig()
    acceptance: AcceptanceConfig = AcceptanceConfig()

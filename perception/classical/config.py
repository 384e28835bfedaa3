"""Thresholds of the classical detector, stage by stage, with quantity, unit and source.

Sources: *measured* on the public frames of AI Grand Prix builds; *derived* from geometry, sampling or quantisation;
*tuned*: set by hand for recall and precision of `benchmarks/perception.py` on rendered flights, and checked on real frames.
Levels are of 255. Ratios are dimensionless. Red over green is red - green, which chroma subsampling and lamps leave to gates.
"""

from dataclasses import dataclass

from gate_racer.perception.edges import OPENING_EDGES, SILHOUETTE_EDGES, EdgeFitConfig, LineFitConfig
from gate_racer.perception.sampling import EXPOSURE, GATE_REGION, ExposureConfig, RegionConfig


@dataclass(frozen=True, slots=True)
class SceneConfig:
    """Channels in which gates are bright, and conditions for using the second one."""

    red_min: int = 140  # threshold of red; gates have 234 to 255, corridor and lit floor under 110 (measured)
    red_over_green_min: int = 60  # likewise of red over green; gates over 130, wood and skin under 50 (measured)
    glow_over_blue: int = 85  # green - blue; the gates' outline has as much, the glow on the floor over 150 (measured)
    # px; wider areas of the gates' own hue are background, as no side of a frame is so wide (tuned).
    background_width_px: int = 100
    background_every_px: int = 4  # px, sampling step of that search (tuned: its cost)
    # The second channel is used if the share of bright pixels exceeds that of gate-coloured ones by bright_share, or the ratio
    # of bright to gate-coloured pixels is below dim_share; and unexplained_px gate-coloured pixels remain (tuned).
    bright_share: float = 0.02
    dim_share: float = 0.5
    unexplained_px: int = 150
    explained_ratio: float = 1.1  # -, size explained by a gate over its silhouette: outline and glow included (tuned)


@dataclass(frozen=True, slots=True)
class ColourConfig:
    """Limits of the gates' colour, and positions of its samples about an opening."""

    red_min: float = 140.0  # as in `SceneConfig`
    red_over_green_min: float = 25.0  # half of an overexposed, pink gate has over 40, lamps and lettering 0 (measured)
    red_over_yellow: float = 0.6  # (red - green) / (green - blue); gates 5, orange ones 0.8, glow under 0.5 (measured)
    samples: int = 12  # per side of a square (tuned: cost)
    on_frame: tuple[float, ...] = (0.28, 0.45, 0.63)  # squares on the frame, over its width: clear of its edges
    beyond: tuple[float, ...] = (1.14, 1.28)  # squares beyond the frame, over its size: clear of its outline


@dataclass(frozen=True, slots=True)
class ProposalConfig:
    """Proposal of quadrilaterals by holes and connected components of the mask. Tuned, except where a source is named."""

    lines_px: tuple[int, ...] = (0, 4)  # widths of lines (the corridor's borders) that are erased, one trial each
    side_min_px: float = 8.0  # least side of an opening; profiles across a shorter one reach its other side (derived)
    cut_min_px: float = 20.0  # least extent of a hole cut by the image border
    image_share_max: float = 0.95  # -, greatest share of the image: a larger hole surrounds all gates
    candidates: int = 64  # greatest number, the largest first; more than any image of a course has, with bounded cost
    filled_min: float = 0.7  # -, least share of a quadrilateral filled by its hole or component
    aspect_max: float = 15.0  # -, greatest ratio of longest to shortest side; beyond it no hole is measurable
    bend: float = 0.03  # -, greatest deviation of a polygon from the hull of a cut hole, over its circumference
    same_px: float = 1.0  # candidates whose centres and radii differ by less lead to the same edges
    border_px: float = 2.5  # a side of a hole nearer to the image border is that border
    coloured_sides_min: int = 2  # least number of sides with the gates' colour beside them
    background_slack: float = 1.5  # -, times verification's limit of colour beyond the frame, before any measurement


@dataclass(frozen=True, slots=True)
class MeasurementConfig:
    """Acceptance of measured openings. Tuned."""

    sides_min: int = 2  # least number of measured sides: fewer have no corner
    skew_max: float = 0.1  # -, greatest skew beyond that of perspective, over the mean side


@dataclass(frozen=True, slots=True)
class HypothesisConfig:
    """Prediction of unmeasured sides by the width of the frame. Tuned."""

    across: tuple[float, float, int] = (0.11, 2.7, 48)  # first and last sample over the frame's width, and number
    along: tuple[float, float, int] = (0.15, 0.85, 9)  # first and last profile along a side over its length, and number
    agree: float = 0.15  # -, greatest relative difference between profiles that show the same end of a bar
    # -, least ratio of the size predicted by the frame's width to the measured one, for a side of a gate behind.
    occluder_width_ratio: float = 1.2


@dataclass(frozen=True, slots=True)
class EvidenceConfig:
    """Limits of the silhouette's position and visibility. Tuned, except where a source is named."""

    border_px: float = 2.0  # a corner nearer to the image border may be cut (derived: half a JPEG chroma block)
    samples_along: int = 21  # points on a side by which its visibility is checked
    shown_min: float = 0.25  # -, least share of them within the image, for a visible side
    shown_border: float = 0.5  # -, over the frame's width: an edge nearer to the image border has no complete profile
    silhouette_miss: float = 0.16  # -, greatest position error of a silhouette's edge over the frame's width
    silhouette_miss_px: float = 1.2  # ... and at least this: quantisation to pixels and the edge's own error (derived)
    depth_scale: tuple[float, float] = (-1.0, 0.6)  # -, range of (true - drawn depth) / drawn depth; -1: a flat gate
    doubt_background: float = 0.3  # -, share of the gates' colour beyond the frame above which a side is uncertain


@dataclass(frozen=True, slots=True)
class VerificationConfig:
    """Criteria by which a hypothesis is accepted as a gate. Tuned."""

    coloured_min: float = 0.5  # -, least share of the gates' colour on the frame beside each measured side
    coloured_min_fits: float = 0.2  # ... beside a side whose silhouette fits: the frame may be overexposed to white
    # -, greatest mean share of the gates' colour beyond the frame: other gates may be behind some sides. In the second view
    # lettering forms holes, so its limit is lower.
    background_max: float = 0.6
    background_max_second: float = 0.3
    full: float = 0.8  # -, least share on the frame, and ...
    free: float = 0.1  # ... greatest share beyond it, that show the frame's end as well as an edge does
    three_sides: int = 3  # sides that must fit where a fourth is overexposed or hidden
    score_min: float = 0.4  # -, least score of a detection

    def background_limit(self, first_view: bool) -> float:
        """Return the greatest mean share of the gates' colour beyond the frame."""
        return self.background_max if first_view else self.background_max_second


RIM_LINES = LineFitConfig()


@dataclass(frozen=True, slots=True)
class RefinementConfig:
    """Conditions for measuring the rim of the near face instead of the hole."""

    side_min_px: float = 60.0  # least side of the hole: below, the rims' gap is under 0.6, outlines 0.8 (derived)
    sides_min: int = 3  # least number of sides with a visible outline; the depth is the same on all
    miss_px: float = 1.0  # greatest position error of the outline
    # -, range of (true - drawn depth) / drawn depth: 0.1 m to 0.3 m; sources state 0.14 to 0.26 m.
    depth_range: tuple[float, float] = (-0.4, 0.9)
    gap_share_min: float = 0.5  # -, least share of the rims' gaps on sides with a visible outline (a majority)
    # -, error of a gap over the gap: the hole that gives the pose is not quite a square (derived: its sides belong to both
    # faces).
    gap_doubt: float = 0.3
    square_doubt: float = 0.1  # -, of a side, two standard deviations of the fourth side predicted by three (rendered)
    outline_doubt: float = 0.1  # -, standard deviation of the nominal edge within the outline, over its width (guess)


@dataclass(frozen=True, slots=True)
class DuplicateConfig:
    """Criteria for duplicate detections of one gate. Tuned."""

    overlap: float = 0.5  # -, intersection over union above which two openings are the same
    corner_px: float = 2.0  # distance of corners below which two openings are the same


@dataclass(frozen=True, slots=True)
class StyleConfig:
    """Identification and adoption of an unknown style of gates. Tuned."""

    every_px: int = 3  # px, sampling step of rows and columns for the histogram of hues
    bins: int = 32  # bins of the histogram
    saturation_min: int = 90  # of 255, least saturation of a pixel with a defined hue
    chroma_min: int = 40  # of 255, least chroma of such a pixel
    weight_min: float = 10.0  # fully coloured pixels, least weight of a hue that is tried, and ...
    weight_share: float = 0.02  # ... least share of all
    hues_max: int = 2  # greatest number of hues tried
    same_hue_deg: float = 50.0  # hues nearer than this belong to one style
    same_ratio: float = 0.08  # -, relative difference below which silhouette ratios are equal
    openings: int = 12  # number of openings, the largest, whose frame is examined
    scales: tuple[float, float, int] = (1.08, 3.0, 32)  # first, last and number of squares searched for a frame's end
    on_frame_min: float = 0.7  # -, least share of a side's samples with the colour before the frame's end
    beyond_max: float = 0.3  # -, greatest share after it
    before_end: float = 0.95  # squares up to this multiple of the ratio are on the frame,
    beyond_from: float = 1.1  # ... from this multiple on beyond it,
    beyond_to: float = 1.3  # ... up to this one
    ratios: tuple[float, float] = (1.2, 2.8)  # -, range of silhouette over hole
    alike: float = 0.15  # -, greatest difference between sides of one frame, over its width
    sure_score: float = 0.6  # least score, and ...
    sure_px: float = 14.0  # ... least size of a gate by which the style of the others is decided
    retry_images: int = 10  # images between searches for other styles while no gate is seen with high confidence


@dataclass(frozen=True, slots=True)
class ClassicalConfig:
    """Configuration of all stages, in order of processing."""

    exposure: ExposureConfig = EXPOSURE
    region: RegionConfig = GATE_REGION
    scene: SceneConfig = SceneConfig()
    colour: ColourConfig = ColourConfig()
    proposal: ProposalConfig = ProposalConfig()
    opening_edges: EdgeFitConfig = OPENING_EDGES
    measurement: MeasurementConfig = MeasurementConfig()
    hypothesis: HypothesisConfig = HypothesisConfig()
    silhouette_edges: EdgeFitConfig = SILHOUETTE_EDGES
    evidence: EvidenceConfig = EvidenceConfig()
    verification: VerificationConfig = VerificationConfig()
    rim_lines: LineFitConfig = RIM_LINES
    refinement: RefinementConfig = RefinementConfig()
    duplicates: DuplicateConfig = DuplicateConfig()
    style: StyleConfig = StyleConfig()

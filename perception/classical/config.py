"""Every threshold of the classical detector, stage by stage, with quantity, unit and source.

Sources: *measured* on the public frames of AI Grand Prix builds; *derived* from geometry, sampling or quantisation;
*tuned*: set by hand for recall and precision of `benchmarks/perception.py` on rendered flights, and checked on real frames.
Levels are of 255. Ratios are dimensionless. RED over green is the excess that colour subsampling and lamps leave to gates.
"""

from dataclasses import dataclass

from perception.common.edge_fit import OPENING_EDGES, SILHOUETTE_EDGES, EdgeFitConfig
from perception.common.line_fit import LineFitConfig
from perception.common.preprocessing import EXPOSURE, GATE_REGION, ExposureConfig, RegionConfig


@dataclass(frozen=True, slots=True)
class SceneConfig:
    """Channels in which gates shine, and when the second one is asked."""

    red_min: int = (
        140  # threshold of the red channel; gates have 234 to 255, corridor and lit floor under 110 (measured)
    )
    red_over_green_min: int = (
        60  # ... of red over green; unwashed gates have over 130, wood and skin under 50 (measured)
    )
    glow_over_blue: int = (
        85  # green over blue; the gates' outline has as much, their glow on the floor over 150 (measured)
    )
    # A background of the gates' own hue is taken away: what is no narrower than this is no side of a frame, px (tuned).
    background_width_px: int = 100
    background_every_px: int = 4  # sampling of that search (tuned: its cost)
    # The first look may have missed something when so much more of the image is as bright as a gate than is of its colour,
    # or so little of what has the colour is bright; and so many gate-coloured pixels are left unexplained (tuned).
    bright_share: float = 0.02
    dim_share: float = 0.5
    unexplained_px: int = 150
    explained_ratio: float = 1.1  # of the silhouette: what a found gate explains, its outline and glow included (tuned)


@dataclass(frozen=True, slots=True)
class ColourConfig:
    """What has the gates' colour, and where about an opening it is asked."""

    red_min: float = 140.0  # as of the scene
    red_over_green_min: float = 25.0  # half of a gate washed out to pink has over 40, lamps and lettering 0 (measured)
    red_over_yellow: float = (
        0.6  # red over green per green over blue; gates 5, orange ones 0.8, glow under 0.5 (measured)
    )
    samples: int = 12  # on each side of a square (tuned: cost)
    on_frame: tuple[float, ...] = (0.28, 0.45, 0.63)  # squares on the frame, over its width: clear of its edges
    beyond: tuple[float, ...] = (1.14, 1.28)  # squares beyond the frame, over its size: clear of its outline


@dataclass(frozen=True, slots=True)
class ProposalConfig:
    """Quadrilaterals around holes of the mask, and within its connected components. Tuned, except where a source is named."""

    lines_px: tuple[int, ...] = (0, 4)  # trial by trial: lines up to so wide (borders of the corridor) are wiped out
    side_min_px: float = (
        8.0  # shortest side of an opening; the profiles across a shorter one reach its other side (derived)
    )
    cut_min_px: float = 20.0  # longest side of a hole that the image's border cuts
    image_share_max: float = 0.95  # of the image, of a hole: a larger one is what surrounds all gates
    candidates: int = 64  # at most, the largest first; no image of a course has more, and cost is bounded
    filled_min: float = 0.7  # share of a quadrilateral that its hole or component fills
    aspect_max: float = 15.0  # longest over shortest side; a steeper slant leaves no measurable hole
    bend: float = 0.03  # of the circumference: what a polygon may stray from the hull of a cut hole
    same_px: float = 1.0  # candidates whose centres and radii differ by less lead to the same edges
    border_px: float = 2.5  # a side of a hole as near to the image's border is that border
    coloured_sides_min: int = 2  # sides with enough of the gates' colour beside them
    background_slack: float = 1.5  # times the colour beyond the frame that verification allows: nothing is measured yet


@dataclass(frozen=True, slots=True)
class MeasurementConfig:
    """Which measured openings go on. Tuned."""

    sides_min: int = 2  # measured sides: fewer have no corner
    skew_max: float = 0.1  # of the mean side: corners farther from a square's, beyond perspective, are none


@dataclass(frozen=True, slots=True)
class HypothesisConfig:
    """Sides that are not seen, by the width of the frame. Tuned."""

    across: tuple[float, float, int] = (0.11, 2.7, 48)  # first and last sample, over the frame's width, and how many
    along: tuple[float, float, int] = (0.15, 0.85, 9)  # first and last profile along a side, over its length
    agree: float = 0.15  # of a bar's width: profiles that differ by more do not see the same end
    # A side of a gate behind stands nearer than the frame beside its opposite says, by this factor.
    occluder_width_ratio: float = 1.2


@dataclass(frozen=True, slots=True)
class EvidenceConfig:
    """Where the silhouette must stand, and what the image can show. Tuned, except where a source is named."""

    border_px: float = 2.0  # a corner nearer to the image's border may be cut (derived: half a JPEG chroma block)
    samples_along: int = 21  # places on a side that are asked whether the image holds them
    shown_min: float = 0.25  # share of them in an image that shows the side
    shown_border: float = 0.5  # of the frame's width: an edge nearer to the image's border has no profile to be seen on
    silhouette_miss: float = 0.16  # of the frame's width: how far an edge of the silhouette may stand from its place
    silhouette_miss_px: float = 1.2  # ... and at least this: one pixel of staircase and the edge's own error (derived)
    depth_scale: tuple[float, float] = (
        -1.0,
        0.6,
    )  # gates may be flat, or deeper than drawn, by such shares of the depth
    doubt_background: float = 0.3  # share of the gates' colour beyond the frame that makes a side doubtful


@dataclass(frozen=True, slots=True)
class VerificationConfig:
    """What a hypothesis must show to be a gate. Tuned."""

    coloured_min: float = 0.5  # share of the gates' colour on the frame beside each measured side
    coloured_min_fits: float = (
        0.2  # ... beside a side whose silhouette stands in its place: light may have washed it white
    )
    # Mean share of the gates' colour beyond the frame: other gates may stand behind some sides. The second view sees lettering
    # as holes, and allows less.
    background_max: float = 0.6
    background_max_second: float = 0.3
    full: float = 0.8  # share on the frame, and ...
    free: float = 0.1  # ... beyond it, that show the frame's end as well as an edge does
    three_sides: int = 3  # sides that must be in order where a fourth is washed white or hidden
    score_min: float = 0.4  # what is less sure is left out

    def background_limit(self, first_view: bool) -> float:
        """Most mean share of the gates' colour beyond the frame."""
        return self.background_max if first_view else self.background_max_second


RIM_LINES = LineFitConfig()


@dataclass(frozen=True, slots=True)
class RefinementConfig:
    """When the rim of the near face is told from the hole."""

    side_min_px: float = (
        60.0  # of the hole: at smaller ones rims are under 0.6 px apart, outlines under 0.8 px wide (derived)
    )
    sides_min: int = 3  # on which the outline is seen; the depth is the same on all
    miss_px: float = 1.0  # how far the outline may stand from its place, and ...
    # Shares by which gates may be deeper or flatter than drawn: from 0.1 m to 0.3 m; anybody tells 0.14 to 0.26 m.
    depth_range: tuple[float, float] = (-0.4, 0.9)
    gap_share_min: float = 0.5  # of the gaps between both rims, on the sides where the outline is seen (a majority)
    # ... and share of a gap by which it may differ from the others': the hole that the pose is read off is not quite a square
    # (derived: the two faces cut different sides of it).
    gap_doubt: float = 0.3
    square_doubt: float = 0.1  # of a side: how well three sides tell the fourth, twice (rendered)
    outline_doubt: float = 0.1  # standard deviation of the nominal edge within the outline, over its width (a guess)


@dataclass(frozen=True, slots=True)
class DuplicateConfig:
    """Which detections are one gate. Tuned."""

    overlap: float = 0.5  # of two openings' joint area: no two gates show theirs at places that overlap more
    corner_px: float = 2.0  # no two gates share a corner


@dataclass(frozen=True, slots=True)
class StyleConfig:
    """How an unknown style of gates is read off an image, and adopted. Tuned."""

    every_px: int = 3  # sampling of rows and columns for the histogram of hues
    bins: int = 32  # of the histogram
    saturation_min: int = 90  # of a pixel that tells its hue
    chroma_min: int = 40  # of such a pixel
    weight_min: float = 10.0  # fully coloured pixels of a hue worth a look, and ...
    weight_share: float = 0.02  # ... their share of all
    hues_max: int = 2  # hues worth a look
    same_hue_deg: float = 50.0  # a hue as near to that of a style is found in that style
    same_ratio: float = 0.08  # frames whose silhouette ratios differ by a smaller share have the same
    openings: int = 12  # so many, the largest, are asked for their frame
    scales: tuple[float, float, int] = (
        1.08,
        3.0,
        32,
    )  # first, last and number of squares at which a frame's end is sought
    on_frame_min: float = 0.7  # share of a side's samples that show the colour before the frame's end
    beyond_max: float = 0.3  # ... and after it
    before_end: float = 0.95  # squares up to this multiple of the ratio are on the frame,
    beyond_from: float = 1.1  # ... from this one on beyond it,
    beyond_to: float = 1.3  # ... and up to this
    ratios: tuple[float, float] = (1.2, 2.8)  # silhouette over hole that gates may have
    alike: float = 0.15  # of the frame's width: sides that differ by more are not of one frame
    sure_score: float = 0.6  # least score, and ...
    sure_px: float = 14.0  # ... least size of a gate that tells the style of the others
    retry_images: int = 10  # while no gate is surely seen, one image in so many is asked for other styles


@dataclass(frozen=True, slots=True)
class ClassicalConfig:
    """The configuration of all stages, in the order in which an image meets them."""

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

"""Selection of the gate style to detect: the expected one until another is confirmed."""

import numpy as np

from gate_racer.perception.classical.config import StyleConfig
from gate_racer.perception.classical.style import FrameStyle
from gate_racer.perception.detection import Detection


class StyleTracker:
    """Current style of the gates, tracked over images."""

    def __init__(self, expected: FrameStyle, config: StyleConfig):
        self.config = config
        self.expected = self.style = expected
        self._confirmed = False  # whether a gate of the style was seen with high confidence
        self._candidate_style: FrameStyle | None = None  # another style, seen once with high confidence since then
        self._unsure = 0  # images since a gate of the style was seen with high confidence

    def expect(self, style: FrameStyle) -> None:
        """Restart with another style, if it differs from the expected one."""
        if style != self.expected:
            self.expected = self.style = style
            self._confirmed = False

    def sure(self, found: list[Detection]) -> list[Detection]:
        """Return the detections with high confidence, by which the style of the others is decided."""
        config = self.config
        return [
            one
            for one in found
            if one.outer_px is not None
            and one.score > config.sure_score
            and np.ptp(one.corners_px, axis=0).min() > config.sure_px
        ]

    def others_due(self, found: list[Detection]) -> bool:
        """Record the detections of the present style; return whether to search the image for other styles."""
        if self.sure(found):
            self._confirm(self.style)
            return False
        self._unsure += 1
        lost = self._unsure == 1 and not found
        due = self._unsure % self.config.retry_images == 0 or lost
        return not self._confirmed or self._candidate_style is not None or due

    def adopts(self, style: FrameStyle, found: list[Detection]) -> bool:
        """Record another style seen with high confidence, where the present one gave `found`; return whether it is adopted."""
        first = not (self._confirmed or found)
        again = self._candidate_style is not None and style.like(self._candidate_style, self.config)
        if first or again:
            self._confirm(style)
        else:
            self._candidate_style = style
        return first or again

    def _confirm(self, style: FrameStyle) -> None:
        self.style, self._confirmed, self._unsure, self._candidate_style = style, True, 0, None

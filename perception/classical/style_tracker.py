"""Which style of gates is looked for: the expected one until another is surely seen, first or twice."""

import numpy as np

from perception.classical.config import StyleConfig
from perception.classical.style import FrameStyle
from perception.detection import Detection


class StyleTracker:
    """The style of the gates, from image to image."""

    def __init__(self, expected: FrameStyle, config: StyleConfig):
        self.config = config
        self.expected = self.style = expected
        self._confirmed = False  # a gate of the style was surely seen
        self._candidate_style: FrameStyle | None = None  # surely seen once since no gate of the style is
        self._unsure = 0  # images since a gate was surely seen

    def expect(self, style: FrameStyle) -> None:
        """Begin anew with another style, if it is one."""
        if style != self.expected:
            self.expected = self.style = style
            self._confirmed = False

    def sure(self, found: list[Detection]) -> list[Detection]:
        """Those that are seen so well that others must be of their style."""
        config = self.config
        return [
            one
            for one in found
            if one.outer_px is not None
            and one.score > config.sure_score
            and np.ptp(one.corners_px, axis=0).min() > config.sure_px
        ]

    def others_due(self, found: list[Detection]) -> bool:
        """Take note of what was found of the present style; whether the image should be asked for others."""
        if self.sure(found):
            self._confirm(self.style)
            return False
        self._unsure += 1
        lost = self._unsure == 1 and not found
        due = self._unsure % self.config.retry_images == 0 or lost
        return not self._confirmed or self._candidate_style is not None or due

    def adopts(self, style: FrameStyle, found: list[Detection]) -> bool:
        """Take note of a style that was surely seen where `found` is of the present one; whether it takes that one's place."""
        first = not (self._confirmed or found)
        again = self._candidate_style is not None and style.like(self._candidate_style, self.config)
        if first or again:
            self._confirm(style)
        else:
            self._candidate_style = style
        return first or again

    def _confirm(self, style: FrameStyle) -> None:
        self.style, self._confirmed, self._unsure, self._candidate_style = style, True, 0, None

"""What the gates of a course have in common, and how it is read off a picture of gates of an unknown kind."""

from dataclasses import dataclass

import cv2
import numpy as np

from perception.candidates import DRAWN, OUTER
from perception.colour import RED_DEG, on_sides
from perception.detection import Detection
from perception.squares import leans
from vehicle.camera import Camera
from vehicle.rotation import Array

SPARSE = 3  # every so many pixels tell the hues
BINS = 32  # of the histogram of hues
VIVID, VIVID_MIN = 90, 40  # of 255: least saturation and chroma of a pixel that tells its hue
FEW, FEW_SHARE = 10.0, 0.02  # fully coloured pixels of a hue worth a look, and their share of all
MOST = 2  # hues worth it
FOUND_DEG = 50.0  # a hue as near to that of a style is found in that style
ASKED = 12  # so many openings, the largest, are asked for their frame
SCALES = np.geomspace(1.08, 3.0, 32)  # of squares about an opening, at which its frame's end is looked for
ON_FRAME, BEYOND = 0.7, 0.3  # least share of a side's samples that show the colour before the end, and most after it
OUTERS = 1.2, 2.8  # that frames may have
SAME_FRAME = 0.08  # frames whose proportions differ by less have the same
ALIKE = 0.15  # of the frame's width: sides that differ by more are not of one frame


@dataclass(frozen=True)
class Style:
    """How gates are painted and built."""

    hue_deg: float = RED_DEG  # green is at 120, blue at 240
    outer: float = OUTER  # silhouette over hole, as they are seen
    paler: bool = False  # what they stand before has their hue as well, or they are too dark to shine

    @classmethod
    def of(cls, proportion: float) -> "Style":
        """Red, with a frame's side over its opening's."""
        return cls(outer=DRAWN * proportion)

    def like(self, other: "Style") -> bool:
        """Whether gates of both may be the same."""
        apart_deg = abs((self.hue_deg - other.hue_deg + 180) % 360 - 180)
        return self.paler == other.paler and apart_deg < FOUND_DEG and abs(self.outer / other.outer - 1) < SAME_FRAME


def proportion(detection: Detection, camera: Camera) -> float:
    """Silhouette over hole of a gate of which both were seen, as from straight before it."""
    assert detection.outer_px is not None
    quads = np.stack([detection.corners_px, detection.outer_px])
    size_px, depth_px = _sizes(quads), _across(leans(quads[:1], camera, np.zeros(2)))[0]
    return float(((size_px[1] - depth_px) / (size_px[0] + depth_px))[depth_px.argmin()])


def _sizes(quads: Array) -> Array:
    """(Q, 2) px from the middle of side 0 of quads (Q, 4, 2) to that of side 2, and from that of side 1 to that of side 3."""
    return np.asarray(np.linalg.norm(quads[:, :2] + quads[:, 1:3] - quads[:, 2:] - quads[:, [3, 0]], axis=-1) / 2)


def _across(lean_px: Array) -> Array:
    """(Q, 2) how far the depth of gates reaches in the same directions, for `leans`."""
    return (lean_px[:, :2] + lean_px[:, 2:]) / 2


def other_hues(image: np.ndarray, style: Style) -> list[float]:
    """Hues (deg) of which a picture (H, W, 3) BGR shows most, besides that of a style."""
    hue, saturation, value = cv2.split(cv2.cvtColor(image[::SPARSE, ::SPARSE], cv2.COLOR_BGR2HSV_FULL))
    chroma = cv2.multiply(saturation, value, scale=1 / 255)
    vivid = (saturation > VIVID) & (chroma > VIVID_MIN)
    count = np.bincount(hue[vivid] // (256 // BINS), chroma[vivid] / 255.0, BINS)
    share = count + (np.roll(count, 1) + np.roll(count, -1)) / 2
    least = max(FEW, FEW_SHARE * share.sum())
    found: list[float] = []
    for peak in np.argsort(-share, kind="stable"):
        hue_deg = float(peak + 0.5) * 360 / BINS
        known = [style.hue_deg, *found]
        if share[peak] < least or len(found) == MOST:
            break
        if all(abs((hue_deg - other + 180) % 360 - 180) > FOUND_DEG for other in known):
            found.append(hue_deg)
    return found


def frame(image: np.ndarray, quads: Array, lean_px: Array) -> float | None:
    """Silhouette over hole of the frame in the gates' colour about the first of quads (Q, 4, 2) that has one all around.

    It is read off those sides across which its depth shows less, for `leans` (Q, 4).
    """
    if not len(quads):
        return None
    asked, shown = on_sides(image, quads, SCALES)  # (Q, 4, S)
    # The farthest coloured square within which nearly all is coloured: lettering leaves gaps.
    coloured = 2 * shown > np.maximum(asked, 1)
    nearly = shown.cumsum(-1) > ON_FRAME * np.maximum(asked.cumsum(-1), 1)
    end = (np.arange(1, len(SCALES)) * (coloured & nearly)[..., :-1]).max(-1)  # (Q, 4): the one beyond
    at = SCALES[end]
    size_px, depth_px = _sizes(quads), _across(lean_px)
    both = (np.maximum(at[:, :2], at[:, 2:]) * size_px - depth_px) / (size_px + depth_px)
    middle = np.take_along_axis(both, depth_px.argmin(-1)[:, None], -1)[:, 0]
    framed = (end > 0).all(-1) & (np.ptp(at, axis=-1) < 2 * ALIKE * middle)
    for k in np.flatnonzero(framed):
        if OUTERS[0] < middle[k] < OUTERS[1]:
            first, last = np.searchsorted(SCALES, middle[k] * np.array([0.95, 1.3]))
            next_to = np.searchsorted(SCALES, 1.1 * middle[k])
            on_frame, beyond = (
                shown[k, :, part].sum() / max(asked[k, :, part].sum(), 1)
                for part in (np.s_[:first], np.s_[next_to:last])
            )
            if on_frame > ON_FRAME and beyond < BEYOND:
                return float(middle[k])
    return None

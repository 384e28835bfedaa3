"""The gates' colour: red to orange, whatever the light.

A picture is first stretched so that what is vividly red in it is as bright as the gates of the real simulator, and its
darkest part black: the thresholds below then hold in a dim hall and in haze as well.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from perception.candidates import scaled
from vehicle.rotation import Array

RED_BRIGHT = 140  # of 255: gates have 234 to 255, the corridor and the lit floor stay under 110
RED_OVER_GREEN = 25  # of 255: half of a gate washed out to pink has over 40, lamps and lettering have 0
RED_ONLY = 60  # of 255, red over green, for `redness`; unwashed gates have over 130, wood and skin under 50
REDDER = 0.6  # red over green against green over blue: gates are at 5, orange ones at 0.8, their glow under 0.5
YELLOW = 85  # of 255, green over blue: the gates' outline has as much, their glow on the floor 150 and more
RING_SIDE = 12  # samples on each side of a ring
# Squares about an opening, over its size: the frame ends at 1.8; lettering and checkers are holes within a frame that goes on.
RINGS = np.array([1.25, 1.4, 1.55, 2.15, 2.4])
ON_FRAME = 3  # so many of them lie on the frame, the others beyond it
CELL = 8  # px: so coarsely a gate's whereabouts are looked for
REDDISH = 8  # mean of red over green in a cell that may show a gate
AROUND = np.ones((5, 5), np.uint8)  # cells about it: washed out, a frame is white in part
SPARSE = 4  # every so many pixels tell the light
VIVID = 0.45  # least share of the red that the green lacks where the light is read off
VIVID_MIN, VIVID_FEW = 60, 12  # least red of such a sample, and how many tell enough
GATE, GATE_MIN = 250.0, 75.0  # red of a lit gate after the stretch, and the least before it
NEAR_ENOUGH = 0.1  # a stretch by less changes nothing


def levelled(image: np.ndarray) -> np.ndarray:
    """The picture (H, W, 3) BGR stretched to the light that the thresholds are made for."""
    red, green = image[::SPARSE, ::SPARSE, 2].astype(int), image[::SPARSE, ::SPARSE, 1].astype(int)
    vivid = np.sort(red[(red > VIVID_MIN) & (red - green > VIVID * red)])
    if len(vivid) < VIVID_FEW:
        return image
    some = np.sort(red[::2, ::2], None)
    gate, black = vivid[len(vivid) * 3 // 4], some[len(some) // 20]
    gain = GATE / max(gate - black, GATE_MIN)
    if abs(gain - 1) < NEAR_ENOUGH and black < NEAR_ENOUGH * GATE:
        return image
    return cv2.LUT(image, np.clip((np.arange(256) - black) * gain, 0, 255).astype(np.uint8))


@dataclass(frozen=True, slots=True)
class View:
    """A channel (H, W) uint8 in which gates shine."""

    holes: np.ndarray  # openings are dark in it
    frame: np.ndarray  # ... and so is what surrounds the frame
    threshold: int
    whole: bool  # whether lettering and the corridor's lines shine with the gates, or cut them


def views(image: np.ndarray) -> tuple[View, View]:
    """Two views of a picture (H, W, 3) BGR: its red; and red over green, for bright backgrounds, though a JPEG blurs it.

    Gates stand on a yellow glow of theirs, which is taken from the red before the frame's outer edge is looked for.
    """
    blue, green, red = cv2.split(image)
    yellow = cv2.subtract(cv2.subtract(green, blue), YELLOW)
    over = cv2.subtract(red, green)
    return (
        View(red, cv2.subtract(red, cv2.add(yellow, yellow)), RED_BRIGHT, True),
        View(over, over, RED_ONLY, False),
    )


def reddish(over: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """Where gates may be, for red over green (H, W): a mask of 0 and 255 and its bounding box (u, v, width, height)."""
    height, width = over.shape
    cells = cv2.resize(over, (width // CELL, height // CELL), interpolation=cv2.INTER_AREA)
    cells = cv2.dilate(cv2.threshold(cells, REDDISH, 255, cv2.THRESH_BINARY)[1], AROUND)
    mask = cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST)
    return mask, cv2.boundingRect(mask)


def coloured(image: np.ndarray, quads: Array) -> tuple[Array, Array]:
    """Shares (Q, 4) of gate-coloured samples beside each side of quads (Q, 4, 2): on the frame, and beyond where it ends.

    Samples outside the picture are not asked: near a gate the frame leaves the picture before the opening does. A side of
    which nothing is in the picture counts as coloured on the frame and free beyond.
    """
    t = np.linspace(-1.0, 1.0, RING_SIDE)
    a = scaled(quads, RINGS)[..., None, :]  # (Q, S, 4, 1, 2)
    b = a[:, :, [1, 2, 3, 0]]
    grid = (((a + b) + t[:, None] * (b - a)) / 2).astype(np.float32)  # (Q, S, 4, n, 2)
    bgr = cv2.remap(image, grid.reshape(len(quads), -1, 2), None, cv2.INTER_LINEAR)
    blue, green, red = cv2.split(bgr)
    over, yellow = cv2.subtract(red, green), cv2.subtract(green, blue)
    shows = ((red > RED_BRIGHT) & (over > RED_OVER_GREEN) & (over > REDDER * yellow)).reshape(grid.shape[:-1])
    limit = np.array([image.shape[1], image.shape[0]]) - 1
    inside = ((grid >= 0) & (grid <= limit)).all(-1)
    asked, shown = (x.sum(-1).swapaxes(1, 2) for x in (inside, shows & inside))  # (Q, 4, S)
    shares = []
    for part, nothing in ((np.s_[..., :ON_FRAME], 1.0), (np.s_[..., ON_FRAME:], 0.0)):
        n = asked[part].sum(-1)
        shares.append(np.where(n > 0, shown[part].sum(-1) / np.maximum(n, 1), nothing))
    return shares[0], shares[1]

"""The gates' colour: red to orange, whatever the light.

A picture is first stretched so that what is vividly red in it is as bright as the gates of the real simulator, and its
darkest part black: the thresholds below then hold in a dim hall and in haze as well.
"""

import cv2
import numpy as np

from perception.candidates import scaled
from vehicle.rotation import Array

RED_BRIGHT = 140  # of 255: gates have 234 to 255, the corridor and the lit floor stay under 110
RED_OVER_GREEN = 25  # of 255: half of a gate washed out to pink has over 40, lamps and lettering have 0
RED_ONLY = 60  # of 255, red over green, for `redness`; unwashed gates have over 130, wood and skin under 50
YELLOW = 85  # of 255, green over blue: the gates' outline has as much, their glow on the floor 150 and more
RING_SIDE = 12  # samples on each side of the ring
SPARSE = 4  # every so many pixels tell the light
VIVID = 0.45  # least share of the red that the green lacks where the light is read off
VIVID_MIN, VIVID_FEW = 60, 12  # least red of such a sample, and how many tell enough
GATE, GATE_MIN = 250.0, 75.0  # red of a lit gate after the stretch, and the least before it
NEAR_ENOUGH = 0.1  # a stretch by less changes nothing


def levelled(image: np.ndarray) -> np.ndarray:
    """The picture (H, W, 3) BGR stretched to the light that the thresholds are made for."""
    _, green, red = (c.astype(int) for c in cv2.split(image[::SPARSE, ::SPARSE]))
    vivid = red[(red > VIVID_MIN) & (red - green > VIVID * red)]
    if len(vivid) < VIVID_FEW:
        return image
    gate, black = np.percentile(vivid, 75), np.percentile(red, 5)
    gain = GATE / max(gate - black, GATE_MIN)
    if abs(gain - 1) < NEAR_ENOUGH and black < NEAR_ENOUGH * GATE:
        return image
    return cv2.LUT(image, np.clip((np.arange(256) - black) * gain, 0, 255).astype(np.uint8))


def redness(image: np.ndarray) -> np.ndarray:
    """Red over green (H, W) uint8: what stands out before a bright background, although a JPEG blurs it."""
    return cv2.subtract(cv2.extractChannel(image, 2), cv2.extractChannel(image, 1))


def without_glow(image: np.ndarray) -> np.ndarray:
    """The red channel (H, W) uint8 of what is not yellow: gates stand on a glow of theirs."""
    blue, green, red = cv2.split(image)
    yellow = cv2.subtract(cv2.subtract(green, blue), YELLOW)
    return cv2.subtract(red, cv2.add(yellow, yellow))


def coloured(image: np.ndarray, quads: Array, scales: tuple[float, ...], outside: float = 1.0) -> Array:
    """Share (Q, 4) of gate-coloured samples beside each side of quads (Q, 4, 2), on squares of these scales.

    Samples outside the picture are not asked: near a gate the ring leaves the picture before the opening does. A side of
    which nothing is in the picture gets `outside`.
    """
    t = np.linspace(-1.0, 1.0, RING_SIDE)
    rings = np.stack([scaled(quads, scale) for scale in scales], 1)  # (Q, S, 4, 2)
    a, b = rings[..., None, :], np.roll(rings, -1, -2)[..., None, :]
    grid = (a + b) / 2 + t[:, None] / 2 * (b - a)  # (Q, S, 4, n, 2)
    grid = np.swapaxes(grid, 1, 2).reshape(len(quads), -1, 2)
    bgr = cv2.remap(image, grid.astype(np.float32), None, cv2.INTER_LINEAR)
    green, red = bgr[..., 1].astype(int), bgr[..., 2].astype(int)
    shows = ((red > RED_BRIGHT) & (red - green > RED_OVER_GREEN)).reshape(len(quads), 4, -1)
    limit = np.array([image.shape[1], image.shape[0]]) - 1
    inside = ((grid >= 0) & (grid <= limit)).all(-1).reshape(shows.shape)
    asked = inside.sum(-1)
    return np.where(asked > 0, (shows & inside).sum(-1) / np.maximum(asked, 1), outside)

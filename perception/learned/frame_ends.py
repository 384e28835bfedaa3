"""Measure: extent of the bright frame about an opening, side by side, and sides that continue beyond their frame.

A frame is equally wide on all sides, whatever its proportion; so, scaled about the opening's centre, it ends at the same multiple
of the opening.
"""

import cv2
import numpy as np

from gate_racer.perception.common.quadrilateral import NEXT, concentric
from gate_racer.perception.common.types import Image
from gate_racer.perception.learned.config import FrameEndConfig
from gate_racer.vehicle.rotation import Array, Mask


def frame_ends(image: Image, quads: Array, config: FrameEndConfig) -> tuple[Array, Array]:
    """Find where the frames about quads (Q, 4, 2) end in a one-channel image in which they are bright.

    Returns:
        (Q, 4) multiples of the opening, infinite where the frame does not end and NaN where the image ends before it; and
        the share (Q, 4) of each side's samples in the image at which the frame is bright and the inside is not.
    """
    scales = 1 + config.first * config.growth ** np.arange(config.squares)
    places = np.linspace(*config.places)
    squares = concentric(quads, np.concatenate([config.inside, scales]))  # (Q, S, 4, 2)
    a, b = squares[..., None, :], squares[:, :, NEXT, None]
    grid = (((a + b) + places[:, None] * (b - a)) / 2).astype(np.float32)  # (Q, S, 4, P, 2)
    shape = grid.shape[:-1]
    level = cv2.remap(image, grid.reshape(len(quads), -1, 2), None, cv2.INTER_LINEAR).reshape(shape).astype(np.float32)
    inside = np.asarray(((grid >= 0) & (grid <= np.array(image.shape[::-1]) - 1)).all(-1))
    n = len(config.inside)
    within, level = level[:, :n].min(1), level[:, n:]
    frame = level[:, : config.frame_squares].max(1)  # (Q, 4, P)
    sampled = inside[:, : n + config.frame_squares].all(1)
    shines = np.where(sampled, frame > within + config.contrast, False).sum(-1) / np.maximum(sampled.sum(-1), 1)

    dark = level <= config.dark * frame[:, None]
    over = dark & np.roll(np.pad(dark, ((0, 0), (0, 1), (0, 0), (0, 0)), constant_values=True), -1, 1)[:, :-1]
    first = over.argmax(1)[:, None]  # (Q, 1, 4, P)
    before = np.maximum(first - 1, 0)
    fall = [np.take_along_axis(level, at, 1)[:, 0] for at in (before, first)]
    share = (fall[0] - config.dark * frame) / np.maximum(fall[0] - fall[1], 1.0)
    ends = (scales[before] + np.clip(share, 0.0, 1.0)[:, None] * (scales[first] - scales[before]))[:, 0]
    ends = np.where(over.any(1), np.where(first[:, 0] > 0, ends, 1.0), np.inf)
    shown = np.take_along_axis(inside[:, n:], np.where(over.any(1)[:, None], first, -1), 1)[:, 0]
    middle = np.sort(np.where(shown, ends, np.nan), -1)  # NaN last
    known = shown.sum(-1, keepdims=True)
    median = np.take_along_axis(middle, np.maximum(known - 1, 0) // 2, -1)[..., 0]
    return np.where(known[..., 0] >= len(places) // 2, median, np.nan), np.where(sampled.any(-1), shines, np.nan)


def goes_on(image: Image, quads: Array, config: FrameEndConfig) -> Mask:
    """Find sides (Q, 4) of quads (Q, 4, 2) that are part of a longer edge, which continues past the end of their own frame."""
    along, beyond = quads[:, NEXT] - quads, np.array(config.beyond)
    outward = config.beside * np.stack([along[..., 1], -along[..., 0]], -1)
    at = np.stack([-beyond, 1 + beyond])[..., None] * along[..., None, None, :] + quads[..., None, None, :]
    hands = at + outward[..., None, None, :], at - outward[..., None, None, :]
    at = np.stack(hands, -2)  # (Q, 4, 2 ends, n, 2 hands, 2)
    level = cv2.remap(image, at.reshape(len(quads), -1, 2).astype(np.float32), None, cv2.INTER_LINEAR)
    edge = level.reshape(at.shape[:-1]).astype(float) @ [1.0, -1.0] > config.contrast
    inside = ((at >= 0) & (at <= np.array(image.shape[::-1]) - 1)).all((-1, -2))
    return np.asarray(((edge & inside).mean(-1) > config.longer_share).any(-1))

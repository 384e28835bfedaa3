"""Stage 5, verify: one named predicate for each thing that a hypothesis must show to be a gate, and how sure that makes it."""

import numpy as np

from perception.classical.config import VerificationConfig
from perception.classical.evidence import Evidence
from perception.common.types import Indices, Mask
from vehicle.rotation import Array

DIRECTIONS = ([1, 3], [0, 2])  # sides that face each other


def verify(evidence: Evidence, config: VerificationConfig) -> tuple[Indices, Array]:
    """The accepted hypotheses, and the scores (R,) of all."""
    accepted = (
        corners_ok(evidence)
        & colour_ok(evidence, config)
        & background_ok(evidence, config)
        & silhouette_ok(evidence, config)
        & replaced_sides_ok(evidence, config)
        & second_view_ok(evidence)
    )
    accepted &= ~superseded(evidence, accepted)
    score = scores(evidence)
    return np.flatnonzero(accepted & (score > config.score_min)), score


def corners_ok(evidence: Evidence) -> Mask:
    """Whether (R,) any corner is seen."""
    return np.asarray(evidence.visible.any(-1))


def colour_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Whether (R,) the frame has the gates' colour beside each side that was measured or replaced, or on three sides in order."""
    least = np.where(evidence.fits, config.coloured_min_fits, config.coloured_min)
    unasked = ~(evidence.opening.measured | evidence.replaced)
    return np.asarray((evidence.on_frame > least) | unasked).all(-1) | three_sides_ok(evidence, config)


def three_sides_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Whether (R,) the silhouette contradicts at most one side and the colour is missing on at most one."""
    silhouette = (evidence.fits | ~evidence.shown).sum(-1) >= config.three_sides
    colour = (evidence.on_frame > config.coloured_min).sum(-1) >= config.three_sides
    return np.asarray(silhouette & colour)


def background_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Whether (R,) the frame ends: by its silhouette on all sides, or by what lies beyond it."""
    most = config.background_limit(evidence.first_view)
    return np.asarray(evidence.fits.all(-1) | (evidence.beyond.mean(-1) < most))


def silhouette_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Whether (R,) the silhouette stands where the opening says on one side at least, where the image shows any.

    In both directions if the opening seems whole: one whose side is a nearer gate's edge has a false proportion.
    """
    ends = evidence.fits | ((evidence.on_frame > config.full) & (evidence.beyond < config.free))
    upright, across = (ends[:, pair].any(-1) | ~evidence.shown[:, pair].any(-1) for pair in DIRECTIONS)
    of_part = evidence.fits.any(-1) | ~evidence.shown.any(-1)
    return np.where(evidence.opening.measured.all(-1), upright & across, of_part)


def replaced_sides_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Whether (R,) the silhouette shows beside each side that was replaced, unless something covers it."""
    covered = evidence.beyond > config.coloured_min
    return np.asarray((evidence.fits | ~evidence.replaced | covered).all(-1))


def second_view_ok(evidence: Evidence) -> Mask:
    """Whether (R,) the whole silhouette fits, as far as the image shows it, in the view that sees lettering as holes."""
    return np.asarray((evidence.fits | ~evidence.middle_inside).all(-1) | evidence.first_view)


def superseded(evidence: Evidence, accepted: Mask) -> Mask:
    """Which (R,) measured openings an accepted hypothesis explains better: the edge of a gate behind was taken for theirs."""
    better = accepted & evidence.fits.all(-1) & evidence.replaced.any(-1)
    superseded = np.zeros_like(accepted)
    superseded[evidence.source[better]] = True
    return superseded


def scores(evidence: Evidence) -> Array:
    """How sure (R,) a gate is, 0..1: edges and colour of the measured sides, times the sides on which the silhouette fits.

    A side that the image does not show counts half; a suspect one whose silhouette does not fit counts against it.
    """
    measured, fits = evidence.opening.measured, evidence.fits
    seen = (evidence.opening.support * evidence.on_frame * measured).sum(-1) / np.maximum(measured.sum(-1), 1)
    framed = 2 + fits.sum(-1) + (~evidence.shown & ~fits).sum(-1) / 2  # of 6
    return np.asarray(seen * framed / 6 * (1 - (evidence.suspect & ~fits).mean(-1)))

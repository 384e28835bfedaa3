"""Stage 5, verify: one predicate per criterion that a hypothesis must meet to be a gate, and its score."""

import numpy as np

from gate_racer.perception.classical.config import VerificationConfig
from gate_racer.perception.classical.evidence import Evidence
from gate_racer.vehicle.rotation import Array, Indices, Mask

DIRECTIONS = ([1, 3], [0, 2])  # opposite sides


def verify(evidence: Evidence, config: VerificationConfig) -> tuple[Indices, Array]:
    """Return the indices of the accepted hypotheses, and the scores (R,) of all."""
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
    """Check (R,) whether any corner is visible."""
    return np.asarray(evidence.visible.any(-1))


def colour_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Check (R,) whether the frame has the gates' colour beside each measured or replaced side, or `three_sides_ok`."""
    least = np.where(evidence.fits, config.coloured_min_fits, config.coloured_min)
    unasked = ~(evidence.opening.measured | evidence.replaced)
    return np.asarray((evidence.on_frame > least) | unasked).all(-1) | three_sides_ok(evidence, config)


def three_sides_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Check (R,) whether the silhouette contradicts at most one side and the colour is missing on at most one."""
    silhouette = (evidence.fits | ~evidence.shown).sum(-1) >= config.three_sides
    colour = (evidence.on_frame > config.coloured_min).sum(-1) >= config.three_sides
    return np.asarray(silhouette & colour)


def background_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Check (R,) whether the frame ends: its silhouette fits on all sides, or the colour beyond it is another."""
    most = config.background_limit(evidence.first_view)
    return np.asarray(evidence.fits.all(-1) | (evidence.beyond.mean(-1) < most))


def silhouette_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Check (R,) whether the silhouette is at its predicted position on at least one visible side.

    A whole opening needs this in both directions: one with a nearer gate's edge as a side has wrong proportions.
    """
    ends = evidence.fits | ((evidence.on_frame > config.full) & (evidence.beyond < config.free))
    upright, across = (ends[:, pair].any(-1) | ~evidence.shown[:, pair].any(-1) for pair in DIRECTIONS)
    of_part = evidence.fits.any(-1) | ~evidence.shown.any(-1)
    return np.where(evidence.opening.measured.all(-1), upright & across, of_part)


def replaced_sides_ok(evidence: Evidence, config: VerificationConfig) -> Mask:
    """Check (R,) whether the silhouette fits beside each replaced side, unless it is covered."""
    covered = evidence.beyond > config.coloured_min
    return np.asarray((evidence.fits | ~evidence.replaced | covered).all(-1))


def second_view_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the silhouette fits on all visible sides, required in the second view, where lettering forms holes."""
    return np.asarray((evidence.fits | ~evidence.middle_inside).all(-1) | evidence.first_view)


def superseded(evidence: Evidence, accepted: Mask) -> Mask:
    """Find measured openings (R,) that an accepted hypothesis explains better: one side was the edge of a gate behind."""
    better = accepted & evidence.fits.all(-1) & evidence.replaced.any(-1)
    superseded = np.zeros_like(accepted)
    superseded[evidence.source[better]] = True
    return superseded


def scores(evidence: Evidence) -> Array:
    """Return the confidence (R,) of hypotheses, 0..1: edges and colour of measured sides, times the share of fitting silhouette.

    A side outside the image counts half; a suspect one without a fitting silhouette reduces the score.
    """
    measured, fits = evidence.opening.measured, evidence.fits
    seen = (evidence.opening.support * evidence.on_frame * measured).sum(-1) / np.maximum(measured.sum(-1), 1)
    framed = 2 + fits.sum(-1) + (~evidence.shown & ~fits).sum(-1) / 2  # of 6
    return np.asarray(seen * framed / 6 * (1 - (evidence.suspect & ~fits).mean(-1)))

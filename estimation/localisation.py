"""Localisation by an image: predict to the exposure, associate, correct, and relocate displaced gates.

Detection of gates displaced far from their place on the map: a sequential likelihood-ratio test per gate (Wald 1945).

Each image with an opening that would be gate i, displaced by d_i, measures d_i = p_wb - p_fix with covariance C_i; of images that
agree, d_i is the weighted mean and C_i that of the newest, since errors common to several images (attitude, lens, edges) are not
averaged away. The errors of position and attitude displace all gates of an image together: d = (d_1, d_2, ...) has the covariance

    S_ii = C_i + C_p + usual^2,   S_ij = C_p + sigma^2 T_i T_j',   T_i = dp_fix / dtheta

with the covariance C_p of p_wb before unexplained detections have inflated it. Of the gates in view at most one is displaced, i:

    standing   d ~ N(0, S), or N(0, 2.25 S)                  ratio_i = p(d | i displaced) / p(d | standing) >= 1 / false_alarm
    displaced  d ~ N(0, S_i),  reach^2 for usual^2 in S_ii

Before the first correction nothing tells a gate off the map from a camera mounted, and a vehicle put down, with errors half as
large again as assumed: of the two densities of standing gates the greater one counts. A gate within the usual errors of a map
is taken for displaced with at most that probability, however often it is tested (Ville's inequality). Which gate an opening
is, the association decides with the wide prior; what could as well be another gate is left alone. The gate with the greatest
ratio is moved by E(d_i | d) under its hypothesis. The estimator's own gate offsets cover decimetres only.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.estimation.estimator import ExposureState, MapEstimator
from gate_racer.model.reprojection import GateSighting
from gate_racer.model.states import EYE3, P
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.perception.resting_focal import resting_focal
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import chi2_limit

FROM_PAD = 20  # newest images from the pad by which the focal length is checked (chosen)


@dataclass(frozen=True, slots=True)
class Localised:
    """Result of using an image."""

    used: int = 0  # gates used for the correction
    unexplained: int = 0  # detections associated with no gate
    sightings: list[GateSighting] = field(default_factory=list)  # of gates on the map
    at: ExposureState | None = None  # predicted state, before the correction; None if the image was not used

    @property
    def recognised(self) -> int:
        """Number of gates recognised in the image, on the map or mapped; the filter may reject some of the former."""
        return max(self.used, len(self.sightings))


def localise(
    estimator: MapEstimator, associator: Associator, stamp: float, detections: Sequence[Detection]
) -> Localised:
    """Correct an estimator by the detections of an image stamped `stamp` (s)."""
    exposure = estimator.predict(stamp)
    if exposure is None:
        return Localised()
    found = recognise(exposure, associator, detections)
    return replace(found, used=estimator.correct(exposure, found.sightings, found.unexplained))


def recognise(exposure: ExposureState, associator: Associator, detections: Sequence[Detection]) -> Localised:
    """Associate the detections of an image with gates, without correcting anything."""
    sightings, unexplained = associator.associate(exposure.state, detections, exposure.camera)
    return Localised(0, unexplained, sightings, exposure)


def refocused(estimator: MapEstimator, associator: Associator, from_pad: Sequence[Sequence[Detection]]) -> Associator:
    """Correct a focal length far from its nominal value, at the end of the rest, by the detections of the newest images.

    Returns the associator for that camera.
    """
    at, camera = estimator.state(), associator.camera
    scale = resting_focal(from_pad, associator.rims, camera, at.p_wb, at.q_wb)
    if scale is None:
        return associator
    estimator.refocus(scale)
    return associator.through(camera.zoomed(scale))


# Thresholds for taking a gate as displaced, chosen on races in which one gate was moved by 2 m.
REACH_M = 1.2  # standard deviation of a displacement, each axis
WIDE = 1.5  # largest ratio of the true standard deviations to those assumed
USUAL_M = 0.15  # standard deviation of a map's usual errors, each axis: the filter's
# Greatest probability with which a gate within the usual errors is taken for displaced. It costs little, as the gate is put
# where it was seen; with smaller values a gate whose sightings the association rejects is found too late.
FALSE_ALARM = 0.03
IMAGES_LEAST = 2  # least number that agree: a single one may be a gross error, or no gate
WITHIN_S = 0.4  # s within which they were exposed
APART = 1e-3  # share of agreeing images that are taken to disagree (chosen)
CORNERS_LEAST = 2  # least number in view: a lone corner gives no position without the prior


@dataclass(frozen=True, slots=True)
class Relocation:
    gate: int
    step_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2, of the place so found


@dataclass(frozen=True, slots=True)
class _Evidence:
    t: float  # s
    step_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2, of the corners and the attitude
    by_turn: Array  # (3, 3) m/rad, as in `GateSighting`
    cov_p: Array  # (3, 3) m^2, of the vehicle's position on the map


@dataclass(frozen=True, slots=True)
class _Suspect:
    """What agreeing images say of one gate."""

    gate: int
    images: int
    step_w: Array  # (3,) m, weighted mean
    newest: _Evidence
    cov_p: Array  # (3, 3) m^2, at the first of them


class GateRelocator:
    """Finds displaced gates among detections left unexplained by the association, and sightings that the filter may refuse."""

    def __init__(self) -> None:
        self._evidence: dict[int, deque[_Evidence]] = {}

    def look(
        self, found: Localised, detections: list[Detection], asked: Collection[int], associator: Associator
    ) -> Relocation | None:
        """Add an image to the evidence; return the displacement of one of the `asked` gates (indices on the map), or None.

        Args:
            found: the image's associated sightings, not yet used for a correction.
            associator: of the whole map as known so far.
        """
        if found.at is None or not asked:
            return None
        at = found.at.state
        explained = {sighting.detection for sighting in found.sightings}
        seen = {sighting.gate for sighting in found.sightings}
        left = [d for k, d in enumerate(detections) if k not in explained and d.visible.sum() >= CORNERS_LEAST]
        wide = at.cov.copy()
        wide[P, P] += REACH_M**2 * EYE3
        others, _ = associator.associate(replace(at, cov=wide), left, found.at.camera)
        candidates = [*found.sightings, *(other for other in others if other.gate not in seen)]
        moved = self._judge([self._add(one, at.p_wb, at.cov_p) for one in candidates], asked, at.sigma_attitude_rad)
        if moved is not None:
            del self._evidence[moved.gate]
        return moved

    def _add(self, sighting: GateSighting, p_w: Array, cov_p: Array) -> _Suspect:
        step_w = p_w - sighting.p_wb
        newest = _Evidence(sighting.t, step_w, sighting.cov, sighting.by_turn, cov_p)
        before = self._evidence.setdefault(sighting.gate, deque())
        while before and newest.t - before[0].t > WITHIN_S:
            before.popleft()
        most = chi2_limit(3, APART)
        some = [one for one in before if _distance2(one.step_w - newest.step_w, one.cov + newest.cov) < most]
        some.append(newest)
        before.append(newest)
        information = np.linalg.inv(np.array([one.cov for one in some]))
        weighted = np.einsum("kij,kj->i", information, np.array([one.step_w for one in some]))
        mean = np.linalg.solve(information.sum(0), weighted)
        return _Suspect(sighting.gate, len(some), mean, newest, some[0].cov_p)

    def _judge(self, suspects: list[_Suspect], asked: Collection[int], sigma_rad: float) -> Relocation | None:
        """Return the displacement of the gate with the greatest ratio, if that suffices and the gate is asked for."""
        if not any(one.gate in asked and one.images >= IMAGES_LEAST for one in suspects):
            return None
        d, S = np.concatenate([one.step_w for one in suspects]), _standing(suspects, sigma_rad)
        reach = REACH_M**2 * EYE3
        hypotheses = []
        for one, own in zip(suspects, _blocks(len(suspects)), strict=True):
            S_i = S.copy()
            S_i[own, own] += reach - USUAL_M**2 * EYE3
            hypotheses.append((_log_normal(d, S_i), one, own, S_i))
        likelihood, one, own, S_i = max(hypotheses, key=lambda hypothesis: hypothesis[0])
        standing = max(_log_normal(d, S), _log_normal(d, WIDE**2 * S))
        surely = likelihood - standing >= -math.log(FALSE_ALARM)
        if not surely or one.gate not in asked or one.images < IMAGES_LEAST:
            return None
        gain = reach @ np.linalg.inv(S_i)[own]
        return Relocation(one.gate, gain @ d, reach - gain[:, own] @ reach)


def _standing(suspects: list[_Suspect], sigma_rad: float) -> Array:
    """Return the covariance S (3 n, 3 n), m^2, of the displacements of n gates that stand as usual."""
    turned = sigma_rad * np.concatenate([one.newest.by_turn for one in suspects])
    common = min((one.cov_p for one in suspects), key=np.trace)
    S = np.tile(common, (len(suspects), len(suspects))) + turned @ turned.T
    for one, own in zip(suspects, _blocks(len(suspects)), strict=True):
        S[own, own] = common + one.newest.cov + USUAL_M**2 * EYE3
    return S


def _blocks(count: int) -> list[slice]:
    return [slice(3 * k, 3 * k + 3) for k in range(count)]


def _distance2(r: Array, S: Array) -> float:
    return float(r @ np.linalg.solve(S, r))


def _log_normal(r: Array, S: Array) -> float:
    """Return the log density of N(0, S) at r, up to a constant."""
    return -(_distance2(r, S) + float(np.linalg.slogdet(S)[1])) / 2


def displaced(gate: Gate, step_w: Array) -> Gate:
    """Return the gate displaced by step_w (3,) m, world NED."""
    x, y, z = (gate.p_wg + step_w).tolist()
    return replace(gate, centre_m=(x, y, z))

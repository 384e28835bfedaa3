"""Detection of gates displaced far from their place on the map: a sequential likelihood-ratio test per gate (Wald 1945).

Each image with an opening that would be this gate, displaced by d, measures d = p_wb - p_fix with covariance C. Errors common to
several images (attitude, lens, edges) are not averaged away: of images that agree, d is the weighted mean and C that of the best
image. C_p is the covariance of p_wb at the first of them, before unexplained detections have inflated it.

    standing   d ~ N(0, usual^2 + C + C_p)        ratio = p(d | displaced) / p(d | standing) >= 1 / false_alarm
    displaced  d ~ N(0, reach^2 + C + C_p)

A gate within the usual errors of a map is taken for displaced with at most that probability, however often it is tested (Ville's
inequality). On the pad, before images have corrected the camera's rotation, its error displaces all gates of an image alike, in
proportion to their range, so there the ratio must also hold for d relative to another gate in view:

    r = d - M d_other,    M = (l . l_other I - l_other l') / |l_other|^2,    l from the vehicle to each gate

Which gate an opening is, the association decides with the wide prior; what could as well be another gate is left alone. The gate
is moved by K d, K = reach^2 (reach^2 + C + C_p)^-1. The estimator's own gate offsets cover decimetres only.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from estimation.estimator import State
from estimation.localisation import Localised
from perception.association import Associator, GateSighting
from perception.detection import Detection
from tracks.gate import Gate
from vehicle.rotation import Array
from vehicle.statistics import chi2_limit

EYE3 = np.eye(3)
COMMON = 0.9  # -, share of the attitude's variance that is taken out, so that the rest stays positive definite (chosen)


@dataclass(frozen=True, slots=True)
class RelocationConfig:
    """Thresholds for taking a gate as displaced, chosen on races in which one gate was moved by 2 m."""

    reach_m: float = 1.2  # standard deviation of a displacement, each axis
    usual_m: float = 0.15  # standard deviation of a map's usual errors, each axis: the filter's
    # Greatest probability with which a gate within the usual errors is taken for displaced. It costs little, as the gate is put
    # where it was seen; with smaller values a gate whose sightings the association rejects is found too late.
    false_alarm: float = 0.03
    images: int = 2  # least number that agree: a single one may be a gross error, or no gate
    within_s: float = 0.4  # s within which they were exposed
    apart: float = 1e-3  # share of agreeing images that are taken to disagree (chosen)
    corners: int = 2  # least number in view: a lone corner gives no position without the prior


@dataclass(frozen=True, slots=True)
class Relocation:
    """Displacement of a gate from its place on the map."""

    gate: int
    step_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2, of the place so found


@dataclass(frozen=True, slots=True)
class _Evidence:
    t: float  # s
    step_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2, of the corners and the attitude
    cov_p: Array  # (3, 3) m^2, of the vehicle's position on the map
    relative: tuple[Array, Array] | None = None  # (3,) m and (3, 3) m^2, relative to another gate in view


class GateRelocator:
    """Finds displaced gates among detections left unexplained by the association, and sightings that the filter may refuse."""

    def __init__(self, config: RelocationConfig | None = None):
        self._config = config or RelocationConfig()
        self._evidence: dict[int, deque[_Evidence]] = {}

    def look(
        self,
        found: Localised,
        detections: list[Detection],
        asked: Collection[int],
        associator: Associator,
        on_pad: bool = False,
    ) -> Relocation | None:
        """Add an image to the evidence; return the first of the `asked` gates (indices on the map) found displaced, or None.

        Args:
            found: the image's associated sightings, not yet used for a correction.
            associator: of the whole map as known so far.
            on_pad: whether no image has corrected the estimate yet.
        """
        if found.at is None or not asked:
            return None
        at, config = found.at.state, self._config
        explained = {sighting.detection for sighting in found.sightings}
        seen = {sighting.gate for sighting in found.sightings}
        left = [d for k, d in enumerate(detections) if k not in explained and d.visible.sum() >= config.corners]
        wide = at.cov_p + config.reach_m**2 * EYE3
        others, _ = associator.associate(at.t, left, at.p_wb, wide, at.q_wb, at.sigma_attitude_rad, found.at.camera)
        candidates = [*found.sightings, *(other for other in others if other.gate not in seen)]
        for sighting in candidates:
            if sighting.gate not in asked:
                continue
            companions = [other for other in candidates if on_pad and other.gate != sighting.gate]
            relative = min(
                (_relative(sighting, other, at, associator) for other in companions), key=_size, default=None
            )
            evidence = _Evidence(sighting.t, at.p_wb - sighting.p_wb, sighting.cov, at.cov_p, relative)
            if (moved := self._add(sighting.gate, evidence)) is not None:
                del self._evidence[sighting.gate]
                return moved
        return None

    def _add(self, gate: int, newest: _Evidence) -> Relocation | None:
        config, before = self._config, self._evidence.setdefault(gate, deque())
        while before and newest.t - before[0].t > config.within_s:
            before.popleft()
        most = chi2_limit(3, config.apart)
        some = [one for one in before if _distance2(one.step_w - newest.step_w, one.cov + newest.cov) < most]
        some.append(newest)
        before.append(newest)
        if len(some) < config.images:
            return None
        information = [np.linalg.inv(one.cov) for one in some]
        weighted = sum(W @ one.step_w for W, one in zip(information, some, strict=True))
        mean = np.linalg.solve(np.sum(information, 0), weighted)
        cov = min((one.cov for one in some), key=lambda cov: float(np.linalg.det(cov))) + some[0].cov_p
        relative = min((one.relative for one in some if one.relative is not None), key=_size, default=None)
        if not self._displaced(mean, cov) or (relative is not None and not self._displaced(*relative)):
            return None
        reach = config.reach_m**2 * EYE3
        gain = reach @ np.linalg.inv(reach + cov)
        return Relocation(gate, gain @ mean, reach - gain @ reach)

    def _displaced(self, step_w: Array, cov: Array) -> bool:
        """Return whether a displacement (3,) m, measured with covariance (3, 3) m^2, is beyond a map's usual errors."""
        config = self._config
        ratio = _log_normal(step_w, cov + config.reach_m**2 * EYE3) - _log_normal(
            step_w, cov + config.usual_m**2 * EYE3
        )
        return ratio >= -math.log(config.false_alarm)


def _relative(sighting: GateSighting, other: GateSighting, at: State, associator: Associator) -> tuple[Array, Array]:
    """Return the displacement (3,) m of a gate relative to another in the image, and its covariance (3, 3) m^2.

    The attitude's error, which both have in common, is left out.
    """
    way, other_way = (associator.centre(one.gate) - at.p_wb for one in (sighting, other))
    M = (way @ other_way * EYE3 - np.outer(other_way, way)) / (other_way @ other_way)
    own, others = (
        one.cov - COMMON * at.sigma_attitude_rad**2 * (to @ to * EYE3 - np.outer(to, to))
        for one, to in ((sighting, way), (other, other_way))
    )
    seen_from = EYE3 - M
    cov = own + M @ others @ M.T + seen_from @ at.cov_p @ seen_from.T
    return at.p_wb - sighting.p_wb - M @ (at.p_wb - other.p_wb), cov


def _size(relative: tuple[Array, Array]) -> float:
    """Return the squared size of a relative displacement."""
    return float(relative[0] @ relative[0])


def _distance2(r: Array, S: Array) -> float:
    return float(r @ np.linalg.solve(S, r))


def _log_normal(r: Array, S: Array) -> float:
    """Return the log density of N(0, S) at r (3,), up to a constant."""
    return -(_distance2(r, S) + float(np.linalg.slogdet(S)[1])) / 2


def displaced(gate: Gate, step_w: Array) -> Gate:
    """Return the gate displaced by step_w (3,) m, world NED."""
    x, y, z = (gate.p_wg + step_w).tolist()
    return replace(gate, centre_m=(x, y, z))

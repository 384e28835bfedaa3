"""A gate that stands far from where the map has it: a sequential likelihood-ratio test (Wald 1945), gate by gate.

Each image that shows an opening which may be that gate, had it been moved by d, measures d = p_wb - p_fix with a covariance C.
Of images that agree, errors in common (attitude, lens, edges) are not averaged away: d is their weighted mean, C that of the
best of them, and C_p the doubt in p_wb at the first, before what nothing explains has shaken the estimate.

    standing   d ~ N(0, usual^2 + C + C_p)        ratio = p(d | displaced) / p(d | standing) >= 1 / false_alarm
    displaced  d ~ N(0, reach^2 + C + C_p)

However often one looks, a gate that stands as usual is taken for displaced with no more than that chance (Ville's inequality).
What the opening is, the association decides, with the wide prior: one that could as well be another gate is left alone. It is
then moved by K d, K = reach^2 (reach^2 + C + C_p)^-1. The estimator's offsets are for decimetres.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from estimation.localisation import Localised
from perception.association import Associator, GateSighting
from perception.detection import Detection
from tracks.gate import Gate
from vehicle.rotation import Array
from vehicle.statistics import chi2_limit

EYE3 = np.eye(3)


@dataclass(frozen=True, slots=True)
class RelocationConfig:
    """When a gate is taken to stand elsewhere. Set by hand on races in which one gate was moved by 2 m."""

    reach_m: float = 1.2  # standard deviation of a displacement, each axis
    usual_m: float = 0.15  # ... of what gates are off without being displaced: the filter's
    false_alarm: float = 1e-3  # greatest chance with which a gate that stands as usual is taken for displaced
    images: int = 2  # that agree: one may be a gross error, or no gate
    within_s: float = 0.4  # ... of so much time
    apart: float = 1e-3  # share of agreeing images that are taken to disagree (chosen)
    corners: int = 2  # least number in view: of a lone one only the prior tells the place


@dataclass(frozen=True, slots=True)
class Relocation:
    """A gate of the map stands so far from its place."""

    gate: int
    step_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2, of the place so found


@dataclass(frozen=True, slots=True)
class _Evidence:
    t: float  # s
    step_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2, of the corners and the attitude
    cov_p: Array  # (3, 3) m^2, of the vehicle's position on the map


class GateRelocator:
    """Looks at what the association has left over, and at what the estimator may refuse."""

    def __init__(self, config: RelocationConfig | None = None):
        self._config = config or RelocationConfig()
        self._evidence: dict[int, deque[_Evidence]] = {}

    def look(
        self, found: Localised, detections: list[Detection], asked: Collection[int], associator: Associator
    ) -> Relocation | None:
        """The first of the gates asked for (indices on the map) that an image, added to those before it, shows elsewhere.

        Args:
            associator: of the whole map, as it is known so far.
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
            if sighting.gate in asked and (moved := self._add(sighting, at.p_wb, at.cov_p)) is not None:
                del self._evidence[sighting.gate]
                return moved
        return None

    def _add(self, sighting: GateSighting, p_w: Array, cov_p: Array) -> Relocation | None:
        config, newest = self._config, _Evidence(sighting.t, p_w - sighting.p_wb, sighting.cov, cov_p)
        before = self._evidence.setdefault(sighting.gate, deque())
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
        reach = config.reach_m**2 * EYE3
        if _log_normal(mean, cov + reach) - _log_normal(mean, cov + config.usual_m**2 * EYE3) < -math.log(
            config.false_alarm
        ):
            return None
        gain = reach @ np.linalg.inv(reach + cov)
        return Relocation(sighting.gate, gain @ mean, reach - gain @ reach)


def _distance2(r: Array, S: Array) -> float:
    return float(r @ np.linalg.solve(S, r))


def _log_normal(r: Array, S: Array) -> float:
    """Log density of N(0, S) at r (3,), but for a constant."""
    return -(_distance2(r, S) + float(np.linalg.slogdet(S)[1])) / 2


def displaced(gate: Gate, step_w: Array) -> Gate:
    """The gate, elsewhere by (3,) m."""
    x, y, z = (gate.p_wg + step_w).tolist()
    return replace(gate, centre_m=(x, y, z))

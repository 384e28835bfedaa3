"""Detection of gates displaced far from their place on the map.

The association rejects a gate that stands metres off the map, as it might be another gate. An opening that is seen whole in
consecutive images, is associated with no gate, and would fit one gate of the map at a displaced position,

    d = p_wb - p_fix,    d ~ N(0, reach^2) before,    C = (mean of C_fix^-1)^-1,    K = reach^2 (reach^2 + C)^-1,    d = K mean d

is taken for that gate, moved by d; errors common to the images are not averaged away. The estimator's own gate offsets cover
decimetres only.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from estimation.localisation import Localised
from perception.association import Associator
from perception.detection import Detection
from tracks.gate import Gate
from vehicle.rotation import Array
from vehicle.statistics import chi2_limit


@dataclass(frozen=True, slots=True)
class RelocationConfig:
    """Thresholds for taking a gate as displaced, chosen on races in which one gate was moved by 2 m."""

    reach_m: float = 1.2  # standard deviation of a displacement, each axis
    images: int = 4  # in succession, that agree
    within_s: float = 0.4  # ... of so much time
    usual_m: float = 0.15  # standard deviation of what gates are off without being displaced, each axis: the filter's
    false_alarm: float = 1e-3  # share of such gates that are taken for displaced: as the association refuses them
    apart: float = 1e-3  # share of agreeing images that are taken to disagree (chosen)


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


class GateRelocator:
    """Finds displaced gates among detections that the association left unexplained."""

    def __init__(self, associator: Associator, config: RelocationConfig | None = None):
        """Use the camera and gate appearance of `associator`, which covers the whole map."""
        self._camera, self._appearance = associator.camera, associator.appearance
        self._config = config or RelocationConfig()
        self._evidence: dict[int, deque[_Evidence]] = {}

    def look(
        self, found: Localised, detections: list[Detection], gates: Iterable[tuple[int, Gate]]
    ) -> Relocation | None:
        """Add an image to the evidence; return the first of `gates` (index, gate on the map) found displaced, or None."""
        if found.at is None:
            return None
        explained = {sighting.detection for sighting in found.sightings}
        seen = {sighting.gate for sighting in found.sightings}
        left = [d for k, d in enumerate(detections) if k not in explained and d.visible.all()]
        for index, gate in gates:
            if index in seen:
                self._evidence.pop(index, None)
            elif left and (moved := self._add(index, gate, found, left)) is not None:
                del self._evidence[index]
                return moved
        return None

    def _add(self, index: int, gate: Gate, found: Localised, left: list[Detection]) -> Relocation | None:
        config, exposure = self._config, found.at
        assert exposure is not None
        at = exposure.state
        reach = config.reach_m**2 * np.eye(3)
        alone = Associator([gate], self._camera, self._appearance)
        pose = at.p_wb, at.cov_p + reach, at.q_wb, at.sigma_attitude_rad, exposure.camera
        fixes, _ = alone.associate(at.t, left, *pose)
        if not fixes:
            return None
        some = self._evidence.setdefault(index, deque(maxlen=config.images))
        some.append(_Evidence(at.t, at.p_wb - fixes[0].p_wb, fixes[0].cov, at.cov_p))
        if len(some) < config.images or at.t - some[0].t > config.within_s:
            return None
        information = [np.linalg.inv(one.cov) for one in some]
        cov = np.linalg.inv(np.sum(information, 0)) * len(some)
        mean = cov @ sum(W @ one.step_w for W, one in zip(information, some, strict=True)) / len(some)
        if any(_distance2(one.step_w - mean, one.cov) > chi2_limit(3, config.apart) for one in some):
            return None
        cov = cov + at.cov_p
        if _distance2(mean, cov + config.usual_m**2 * np.eye(3)) < chi2_limit(3, config.false_alarm):
            return None
        gain = reach @ np.linalg.inv(reach + cov)
        return Relocation(index, gain @ mean, reach - gain @ reach)


def _distance2(r: Array, S: Array) -> float:
    return float(r @ np.linalg.solve(S, r))


def displaced(gate: Gate, step_w: Array) -> Gate:
    """Return the gate displaced by step_w (3,) m, world NED."""
    x, y, z = (gate.p_wg + step_w).tolist()
    return replace(gate, centre_m=(x, y, z))

"""Swift's drift filter on the odometry of an outside VIO, such as a camera's own (T265) or OpenVINS, sent as ODOMETRY.

The world of a VIO has its own origin and heading. Its samples are turned about the vertical and shifted to where they continue
the odometry so far: on the pad, after a reset and after a loss. What a VIO drifts from there on is the drift filter's.

    p_w = R_z(yaw) p_v + shift,   yaw = argmin |R_z(yaw) R_vb - R_wb|

Strap-down integration of the IMU leads from the newest sample to the present, and goes on where samples fail to come.
"""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.estimation.drift import DriftEstimator, DriftNoise
from gate_racer.estimation.odometry import Pose
from gate_racer.link.messages import Attitude, Imu, Odometry
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import Array, conjugate, from_euler, log, matrix, normalised, product

LOST_S = 0.3  # s without a usable sample, after which the stream counts as lost (chosen)
# Differences of a sample from the strap-down integration since the one before. Beyond the first the VIO has moved its origin, a
# reset of which its counter may tell nothing; beyond the others it has diverged, and the sample is refused (chosen).
MOVED_M, DIVERGED_M_S, DIVERGED_RAD = 1.0, 5.0, 0.5
FARTHEST = 1e5  # m and m/s: beyond, a sample is a sentinel or a diverged VIO's (chosen)
# Drift of 0.316 m/s in a second, the velocity noise in Swift's released fit of its odometry (alpha 0.1), and 1 deg about each
# axis (chosen). The paper's own filter constants let the position jump at each image, and leave it lost between two gates.
NOISE, ATTITUDE_SIGMA_RAD = DriftNoise(acceleration_psd=0.1), 0.017


@dataclass(frozen=True, slots=True)
class _Alignment:
    """Place of a VIO's world in ours."""

    q_wv: Array  # (4,), a turn about the vertical
    p_wv: Array  # (3,) m, of its origin

    @classmethod
    def of(cls, seen: Pose, odometry: Pose) -> "_Alignment":
        """Return the place by which a pose in the VIO's world is that of the odometry, but for roll and pitch."""
        R = matrix(odometry.q_wb) @ matrix(seen.q_wb).T
        q_wv = from_euler(0.0, 0.0, math.atan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1]))
        return cls(q_wv, odometry.p_w - matrix(q_wv) @ seen.p_w)

    def __call__(self, seen: Pose) -> Pose:
        R_wv = matrix(self.q_wv)
        q_wb = normalised(product(self.q_wv, seen.q_wb))
        return Pose(seen.t, R_wv @ seen.p_w + self.p_wv, R_wv @ seen.v_w, q_wb, seen.omega_b)


class VioDriftEstimator(DriftEstimator):
    """`DriftEstimator` whose odometry is an outside VIO's. ATTITUDE is used on the pad, and while the VIO is lost."""

    sigma_attitude_rad = ATTITUDE_SIGMA_RAD

    def __init__(self, start: Start):
        super().__init__(start, NOISE)
        self._align: _Alignment | None = None  # None: no VIO yet, or lost
        self._newest_t, self._resets = -math.inf, 0  # s, stamp, and reset counter of the newest sample that was used

    def release(self) -> None:
        super().release()
        self.health.odometry_lost += self._align is None and self.rest_samples > 0

    def imu(self, sample: Imu) -> bool:
        used = super().imu(sample)
        if self._align is not None and self.t - self._newest_t > LOST_S:
            self._align = None
            self.health.odometry_lost += not self._at_rest
        return used

    def attitude(self, sample: Attitude) -> bool:
        return (self._at_rest or self._align is None) and super().attitude(sample)

    def odometry(self, sample: Odometry) -> bool:
        used = self._use(sample)
        self.health.odometry_used += used
        self.health.samples_refused += not used
        return used

    def _use(self, sample: Odometry) -> bool:
        p, q, v_b = (np.array(given, float) for given in (sample.p_wb, sample.q_wb, sample.v_b))
        before = self.pose_at(sample.t)
        sound = bool(np.abs([*p, *q, *v_b]).max() < FARTHEST) and abs(q @ q - 1) < 1e-2
        if before is None or not sound or sample.t <= self._newest_t:
            return False
        seen = Pose(sample.t, p, matrix(q) @ v_b, q, before.omega_b)
        align, flying = self._align, self._align is not None and not self._at_rest
        begins = align is None or self._at_rest or sample.resets != self._resets
        if align is None or begins or math.dist(align(seen).p_w, before.p_w) > MOVED_M:
            align = _Alignment.of(seen, before)
        now = align(seen)
        turn = log(product(now.q_wb, conjugate(before.q_wb)))
        if math.dist(now.v_w, before.v_w) > DIVERGED_M_S or float(np.linalg.norm(turn)) > DIVERGED_RAD:
            return False
        self.health.odometry_resets += flying and align is not self._align
        self._align, self._newest_t, self._resets = align, sample.t, sample.resets
        if not self._at_rest:
            self.rejoin(before, now)
        return True

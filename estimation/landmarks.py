"""Localisation among gates without a map: the drift filter, with the gates as unknowns beside the drift.

The position of an opening relative to the vehicle follows from its known size by IPPE (`gate_fix`). The attitude comes from gyro
and ATTITUDE and is accurate to a few milliradians; given it, localisation and mapping are linear. A gate observed at
z_w = R_wb (p_bc + R_bc p_cg) from odometry position p with drift d stands at m with

    p + z_w = m + d + R_wb (theta x z_b),   d' = d_v,   d_v' = R_wb d_a,   d_a a random walk (apparent acceleration in body
    axes by biases and attitude errors, near hover),   theta the small constant misalignment of the camera's mount,

which a Kalman filter solves for (d, d_v, d_a, theta, m_1 .. m_n) (Smith, Self and Cheeseman 1990). World NED with its origin at
the vehicle's resting place; north is that of ATTITUDE, or the vehicle's heading at rest if none is received.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.estimation.estimator import Landmark, Mapper, State
from gate_racer.estimation.odometry import InertialOdometry, Pose, estimated
from gate_racer.link.messages import Attitude
from gate_racer.model.kalman import joseph
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.association import FORBIDDEN, assign
from gate_racer.perception.detection import Detection
from gate_racer.perception.pose import GatePose, both_poses
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices, matrix
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2

SIGMA_ATTITUDE = 0.008  # rad, standard deviation of a line of sight: attitude, principal point and distortion
SIGMA_CLOCK = 0.01  # s, standard deviation of exposure times, as in the error-state filter
SIGMA_SCALE = 0.02  # -, relative standard deviation of ranges: focal length and common offset of the edges
FAR_M = 45.0  # m, greatest range of a fix: an opening beyond spans a few pixels
TILTED = 0.1  # rad, excess lean over the more upright pose beyond which a pose is discarded (chosen)


@dataclass(frozen=True, slots=True)
class GateFix:
    """Position of one opening relative to the vehicle, in world NED axes."""

    z_w: Array  # (3,) m, from the vehicle to the opening's centre
    cov: Array  # (3, 3) m^2, of z_w
    axis: Array  # (2,) horizontal unit vector through the opening, of either sign
    weight: float  # 1/m^2, of `axis` in an average


def gate_fix(
    detection: Detection, pose: Pose, camera: Camera, opening_m: float, look: GateAppearance
) -> GateFix | None:
    """Return the fix of an opening of side `opening_m` (m) from the pose at the exposure; None if it is cut or too far away."""
    if not detection.visible.all():
        return None
    hole_m = opening_m - 2 * look.outline_m
    poses = both_poses(detection.corners_px, opening_m if detection.near_face else hole_m, camera)
    if not poses or poses[0].p_cg[2] > FAR_M:
        return None
    arm_w, R_wc = camera.pose(np.zeros(3), pose.q_wb)
    p_cg = poses[0].p_cg
    if detection.near_face:  # half the frame's depth in front of the gate's centre
        through = poses[0].R_cg[:, 0]
        p_cg = p_cg + math.copysign(look.depth_m / 2, float(through @ p_cg)) * through
    z_w, range_m = arm_w + R_wc @ p_cg, float(np.linalg.norm(p_cg))
    # An offset common to all edges shifts the range, by more than independent corner errors do.
    along, turned = R_wc @ p_cg / range_m, SIGMA_CLOCK * float(np.linalg.norm(pose.omega_b))
    stretch = math.hypot(SIGMA_SCALE, 2 * look.edge_offset_px * range_m / (camera.fx_px * hole_m)) * range_m
    across = math.hypot(SIGMA_ATTITUDE, turned, detection.sigma_px / camera.fx_px) * range_m
    cov = stretch**2 * np.outer(along, along) + across**2 * np.eye(3)
    axis, sure = _upright(R_wc, poses)
    return GateFix(z_w, cov, axis, sure / range_m**2)


def _upright(R_wc: Array, poses: Sequence[GatePose]) -> tuple[Array, float]:
    """Return the horizontal direction (2,) through a gate, by the best-fitting of its upright poses, and its confidence, 0..1."""
    axes = [(R_wc @ pose.R_cg[:, 0], pose.reprojection_px) for pose in poses]
    least = min(abs(axis[2]) for axis, _ in axes)
    good = sorted(((axis, miss) for axis, miss in axes if abs(axis[2]) < least + TILTED), key=lambda one: one[1])
    sure = 1 - good[0][1] / max(good[1][1], 1e-9) if len(good) > 1 else 1.0
    axis = good[0][0][:2]
    return axis / max(float(np.linalg.norm(axis)), 1e-9), sure


DRIFT, MOUNT, FIRST = 9, slice(9, 12), 12  # layout of the state: p, v and a of the drift, theta, landmarks
ACCEL_PSD = 1e-4  # m^2/s^3, white acceleration noise
WALK_PSD = 4e-4  # m^2/s^5, random walk of the apparent acceleration by tilt errors and biases
FIRST_A = 0.05  # m/s^2, its standard deviation at the start
FIRST_MOUNT = math.radians(1.5)  # rad, standard deviation of each angle: mount as configured, and ATTITUDE's lean
APART_M = 2.0  # m, least distance between two gates
ROUGH = 0.15  # -, likewise as a share of the viewing distance; also separates two views of one gate
CONFIRMED = 4  # sightings that confirm a landmark
FORGET_S = 1.5  # s without a sighting after which an unconfirmed landmark is dropped
RECOVERY_S = 2.0  # s in which a drift beyond its covariance is assumed to have grown
LIMIT = chi2_limit(3, 1e-3)  # -, squared Mahalanobis distance beyond which a fix is of another gate


@dataclass(slots=True)
class _Track:
    """Data of a landmark beside the filter's state."""

    number: int
    first_bearing: Array  # (2,) unit, horizontal line of sight when first seen
    axis: Array  # (2,) weighted sum of the horizontal directions through it
    view_p_w: Array  # (3,) m, vehicle at the newest distinct viewpoint
    seen: int = 0  # images in which it was observed
    views: int = 1  # distinct viewpoints
    last_t: float = 0.0  # s, exposure of the newest image


class LandmarkEstimator(InertialOdometry, Mapper):
    """Linear SLAM with gates as landmarks."""

    def __init__(self, camera: Camera, opening_m: float, look: GateAppearance):
        super().__init__(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
        self._camera, self._opening_m, self._look = camera, opening_m, look
        self._has_attitude = False  # whether ATTITUDE was received
        self._x, self._P = np.zeros(FIRST), np.zeros((FIRST, FIRST))
        self._t: float | None = None  # s, of the filter's state: the last exposure
        self._tracks: list[_Track] = []
        self._numbers = 0

    def attitude(self, sample: Attitude) -> bool:
        used = super().attitude(sample)
        self._has_attitude |= used
        return used

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        """Refuse the position: its errors would enter the map."""
        return False

    def release(self) -> None:
        if not self._has_attitude and self.rest_samples:
            self.level()
        super().release()
        self._P[6:9, 6:9] = FIRST_A**2 * np.eye(3)
        self._P[MOUNT, MOUNT] = FIRST_MOUNT**2 * np.eye(3)
        self._t = self.t

    def state(self) -> State:
        return self._state(self.pose)

    def at(self, t: float) -> State | None:
        pose = self.pose_at(t)
        return None if pose is None else self._state(pose)

    @property
    def landmarks(self) -> list[Landmark]:
        found = []
        for k, track in enumerate(self._tracks):
            if track.seen >= CONFIRMED:
                at = slice(FIRST + 3 * k, FIRST + 3 * k + 3)
                yaw = math.atan2(track.axis[1], track.axis[0])
                counts = track.seen, track.views, track.last_t
                found.append(Landmark(track.number, self._x[at].copy(), self._P[at, at].copy(), yaw, *counts))
        return found

    def see(self, t: float, detections: Sequence[Detection]) -> dict[int, int]:
        pose = self.pose_at(t)
        if self._t is None or pose is None or t < self._t:
            self.health.images_late += 1
            return {}
        self._predict(t, pose)
        self._forget(t)
        found = (gate_fix(one, pose, self._camera, self._opening_m, self._look) for one in detections)
        fixes = {i: fix for i, fix in enumerate(found) if fix is not None}
        pairs = self._assigned(pose, fixes)
        self._update(pose, [(fixes[i], k) for i, k in pairs.items()])
        for i, k in pairs.items():
            self._note(t, self._tracks[k], fixes[i], pose.p_w - self._x[:3])
        for i in sorted(fixes.keys() - pairs.keys(), key=lambda i: float(fixes[i].z_w @ fixes[i].z_w)):
            seen = {k: fixes[j] for j, k in pairs.items()}
            near = [k for k in self._near(pose, fixes[i]) if not (k in seen and self._apart(fixes[i], seen[k]))]
            if not near:
                pairs[i] = self._discover(t, pose, fixes[i])
            elif not pairs and len(near) == 1 and self._tracks[near[0]].seen >= CONFIRMED:
                # Inflate the drift's covariance where a fix that can only be of this landmark misses it.
                _, off = self._innovation(pose, fixes[i], near[0])
                self._P[:3, :3] += float(off @ off) * np.eye(3)
                self._P[3:6, 3:6] += float(off @ off) / RECOVERY_S**2 * np.eye(3)
        if pairs:
            self.health.used([])
        return {i: self._tracks[k].number for i, k in pairs.items()}

    def _state(self, pose: Pose) -> State:
        F = _growth(pose.t - (pose.t if self._t is None else self._t), pose)
        d, P = F @ self._x[:DRIFT], F @ self._P[:DRIFT, :DRIFT] @ F.T
        return estimated(pose, d, P[:6, :6], SIGMA_ATTITUDE)

    def _predict(self, t: float, pose: Pose) -> None:
        assert self._t is not None
        dt, self._t = t - self._t, t
        F = np.eye(len(self._x))
        F[:DRIFT, :DRIFT] = _growth(dt, pose)
        self._x, self._P = F @ self._x, F @ self._P @ F.T
        p, v, a = (slice(i, i + 3) for i in (0, 3, 6))
        self._P[p, p] += ACCEL_PSD * dt**3 / 3 * np.eye(3)
        self._P[v, v] += ACCEL_PSD * dt * np.eye(3)
        self._P[a, a] += WALK_PSD * dt * np.eye(3)

    def _assigned(self, pose: Pose, fixes: dict[int, GateFix]) -> dict[int, int]:
        """Assign fixes to landmarks; return the landmark's place in the state for each assigned fix."""
        rows = sorted(fixes)
        if not rows or not self._tracks:
            return {}
        cost = np.full((len(rows), len(self._tracks) + len(rows)), FORBIDDEN)  # a fix may have no landmark
        for r, i in enumerate(rows):
            for k in range(len(self._tracks)):
                H, innovation = self._innovation(pose, fixes[i], k)
                S = H @ self._P @ H.T + fixes[i].cov
                d2 = mahalanobis2(innovation, S)
                if d2 < LIMIT:
                    cost[r, k] = d2 + np.linalg.slogdet(S)[1]
        return {rows[r]: int(k) for r, k in enumerate(assign(cost)) if cost[r, k] < FORBIDDEN}

    def _innovation(self, pose: Pose, fix: GateFix, k: int) -> tuple[Array, Array]:
        H = np.zeros((3, len(self._x)))
        H[:, :3], H[:, MOUNT] = np.eye(3), _turned(pose, fix.z_w)
        H[:, FIRST + 3 * k : FIRST + 3 * k + 3] = np.eye(3)
        return H, pose.p_w + fix.z_w - H @ self._x

    def _update(self, pose: Pose, pairs: list[tuple[GateFix, int]]) -> None:
        for fix, k in pairs:
            H, innovation = self._innovation(pose, fix, k)
            K, self._P = joseph(self._P, H, fix.cov)
            self._x = self._x + K @ innovation
            self.health.gates_used += 1

    @staticmethod
    def _note(t: float, track: _Track, fix: GateFix, p_w: Array) -> None:
        sign = 1.0 if fix.axis @ track.first_bearing > 0 else -1.0
        track.axis = track.axis + sign * fix.weight * fix.axis
        track.seen, track.last_t = track.seen + 1, t
        if np.linalg.norm(p_w - track.view_p_w) > ROUGH * np.linalg.norm(fix.z_w):
            track.views, track.view_p_w = track.views + 1, p_w

    def _near(self, pose: Pose, fix: GateFix) -> Indices:
        """Return the landmarks (K,) so near to a fix that it cannot be another gate."""
        reach = max(APART_M, ROUGH * float(np.linalg.norm(fix.z_w)))
        off = pose.p_w + fix.z_w - self._x[:3] - self._x[FIRST:].reshape(-1, 3)
        return np.flatnonzero(np.linalg.norm(off, axis=1) < reach)

    def _apart(self, one: GateFix, other: GateFix) -> bool:
        """Return whether two openings in one image do not overlap: they are two gates, however close."""
        near, far = sorted((one.z_w, other.z_w), key=np.linalg.norm)
        return float(np.linalg.norm(far * np.linalg.norm(near) / np.linalg.norm(far) - near)) > self._opening_m

    def _discover(self, t: float, pose: Pose, fix: GateFix) -> int:
        """Augment the state by m = p + z - d - R_wb (theta x z_b); return its place among the landmarks."""
        n = len(self._x)
        G = np.eye(n + 3, n)
        G[n:, :3], G[n:, MOUNT] = -np.eye(3), -_turned(pose, fix.z_w)
        self._x = G @ self._x
        self._x[n:] += pose.p_w + fix.z_w
        self._P = G @ self._P @ G.T
        self._P[n:, n:] += fix.cov
        bearing = fix.z_w[:2] / max(float(np.linalg.norm(fix.z_w[:2])), 1e-9)
        p_w = pose.p_w - self._x[:3]
        track = _Track(self._numbers, bearing, np.zeros(2), p_w)
        self._numbers += 1
        self._note(t, track, fix, p_w)
        self._tracks.append(track)
        return len(self._tracks) - 1

    def _forget(self, t: float) -> None:
        """Drop unconfirmed landmarks that were not seen for `FORGET_S`."""
        kept = [k for k, track in enumerate(self._tracks) if track.seen >= CONFIRMED or t - track.last_t < FORGET_S]
        if len(kept) < len(self._tracks):
            rows = [*range(FIRST), *(FIRST + 3 * k + i for k in kept for i in range(3))]
            self._x, self._P = self._x[rows], self._P[np.ix_(rows, rows)]
            self._tracks = [self._tracks[k] for k in kept]


def _turned(pose: Pose, z_w: Array) -> Array:
    """Return the Jacobian (3, 3) of a fix z_w (3,) by the mount's rotation: R_wb (theta x z_b) = -[z_w]x R_wb theta."""
    return np.cross(matrix(pose.q_wb), z_w, axisa=0, axisc=0)


def _growth(dt: float, pose: Pose) -> Array:
    """Return F (9, 9) of the drift over dt (s), with the attitude of a pose."""
    F, R_wb = np.eye(DRIFT), matrix(pose.q_wb)
    F[:3, 3:6], F[3:6, 6:9], F[:3, 6:9] = dt * np.eye(3), dt * R_wb, dt * dt / 2 * R_wb
    return F

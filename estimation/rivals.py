"""States of the other vehicles in a race: as received (`ReceivedRivals`), or tracked by camera detections (`SeenRivals`).

The tracker is one Kalman filter per rival in the world frame, with Singer's manoeuvre model (1970), per axis

    d/dt (p, v, a) = (v, a, -a / tau + w),   E[w w'] = 2 sigma_a^2 / tau

whose transition and noise come from one matrix exponential (Van Loan, 1978). Detections are assigned to tracks by least
Mahalanobis distance, or begin new ones (Bar-Shalom, Li and Kirubarajan, 2001, ch. 6 and 11.3). Range errors are correlated for
as long as the rival keeps its attitude, while the filter takes them as white: the errors of a track are up to twice as large as
its covariance states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gate_racer.estimation.estimator import State
from gate_racer.link.clock import APART_S
from gate_racer.link.messages import RivalState
from gate_racer.model.kalman import joseph
from gate_racer.perception.association import assign
from gate_racer.perception.detection import RivalDetection, RivalRanging
from gate_racer.tracks.track import MOST
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Vector
from gate_racer.vehicle.statistics import chi2_limit, greatest_sigma, mahalanobis2

ACCELERATION_S = 0.05  # s, time constant of the acceleration differentiated from received velocities (chosen)
RESTART_S = 2 * APART_S  # s by which stamps fall back in a new race only: a late one is admitted up to APART_S from now
MANOEUVRE_S = 0.3  # s, tau: a racing quadrotor reverses its thrust in about that time
MANOEUVRE_M_S2 = 20.0  # m/s^2, sigma_a, by the accelerations of plans: 15 to 25 m/s^2 rms
FIRST_V_M_S = 5.0  # m/s, standard deviation of a new track's velocity about the own one: rivals fly the same course
FALSE_ALARM = 1e-3  # -, share of true detections that a track's gate rejects
SURE = 2  # detections that confirm a track
LOST_M = 1.0  # m, standard deviation of the position beyond which a track is dropped
FIX = np.eye(3, 9)  # measurement matrix H of the position in the state (p, v, a)


@dataclass(frozen=True, slots=True)
class RivalEstimate:
    """Estimated state of a rival at t; world NED."""

    number: int  # received: its place on the start grid, from 1; seen: its track's number, 0 and below
    t: float  # s
    p_w: Array  # (3,) m
    v_w: Array  # (3,) m/s
    a_w: Array  # (3,) m/s^2
    cov: Array  # (6, 6) of position and velocity


class RivalTracker(Protocol):
    """Estimator of the rivals' states. Nothing raises."""

    def receive(self, rival: RivalState) -> None:
        """Process a rival's state as received from the simulator; by default ignore it."""
        return None

    def see(self, t: float, found: Sequence[RivalDetection], p_wb: Array, at: State) -> None:
        """Process the rivals detected in an image exposed at t (s), seen from p_wb (3,) m with the attitude of `at`; likewise."""
        return None

    def estimates(self) -> list[RivalEstimate]:
        """Return the newest estimate of each known rival."""


class ReceivedRivals(RivalTracker):
    """Rivals' states as received, taken as exact."""

    def __init__(self, place: int):
        """Ignore the states of `place`, the own one on the start grid, from 1."""
        self._place = place
        self._known: dict[int, RivalEstimate] = {}

    def receive(self, rival: RivalState) -> None:
        """Store a received state; ignore copies, states older than the known one, and places outside the start grid."""
        if rival.place == self._place or not 1 <= rival.place <= MOST:
            return
        v_w, a_w, last = np.array(rival.v_w), np.zeros(3), self._known.get(rival.place)
        if last is not None and (dt := rival.t - last.t) >= -RESTART_S:
            if dt <= 0:
                return
            a_w = last.a_w + ((v_w - last.v_w) / dt - last.a_w) * dt / (dt + ACCELERATION_S)
        self._known[rival.place] = RivalEstimate(rival.place, rival.t, np.array(rival.p_w), v_w, a_w, np.zeros((6, 6)))

    def estimates(self) -> list[RivalEstimate]:
        return list(self._known.values())


@dataclass(slots=True)
class _Track:
    """Track of one rival: its Kalman filter."""

    number: int
    t: float  # s
    x: Array  # (9,) position m, velocity m/s and acceleration m/s^2
    cov: Array  # (9, 9)
    seen: int = 1

    def advance(self, t: float) -> None:
        """Predict to a later time t (s)."""
        if t > self.t:
            transition, noise = singer(t - self.t)
            self.x, self.cov = transition @ self.x, transition @ self.cov @ transition.T + noise
            self.t = t

    def correct(self, p_w: Array, cov: Array) -> None:
        """Correct by a position (3,) m with covariance (3, 3) m^2."""
        gain, self.cov = joseph(self.cov, FIX, cov)
        self.x = self.x + gain @ (p_w - self.x[:3])
        self.seen += 1


class SeenRivals(RivalTracker):
    """Rivals tracked by camera detections; those beside or behind are out of view and stay unknown."""

    def __init__(self, camera: Camera, body_m: Vector):
        """Assume that rivals have the own body's size, `body_m`: length, width and height."""
        self._camera, self._ranging = camera, RivalRanging(camera, body_m)
        self._tracks: list[_Track] = []
        self._begun = 0
        singer(0.0)  # SciPy is slow to load, which must not be in flight

    def see(self, t: float, found: Sequence[RivalDetection], p_wb: Array, at: State) -> None:
        """Correct tracks by the detections assigned to them, and begin new tracks from the others.

        The own position error is common to p_wb and the track, and cancels where they are compared; the attitude error rotates
        detections about the camera.
        """
        p_wc, R_wc = self._camera.pose(p_wb, at.q_wb)
        fixes = []
        for detection in found:
            placed = self._ranging.place(detection)
            if placed is None:
                continue
            p_c, cov_c = placed
            cov = R_wc @ cov_c @ R_wc.T + (at.sigma_attitude_rad**2 * float(p_c @ p_c)) * np.eye(3)
            if np.isfinite(cov).all():
                fixes.append((p_wc + R_wc @ p_c, cov))
        for track in self._tracks:
            track.advance(t)
        self._tracks = [one for one in self._tracks if greatest_sigma(one.cov[:3, :3]) < LOST_M]
        for k in self._correct(fixes):
            cov = np.zeros((9, 9))
            cov[:3, :3] = fixes[k][1]
            cov[3:6, 3:6], cov[6:, 6:] = FIRST_V_M_S**2 * np.eye(3), MANOEUVRE_M_S2**2 * np.eye(3)
            self._tracks.append(_Track(-self._begun, t, np.concatenate([fixes[k][0], at.v_w, np.zeros(3)]), cov))
            self._begun += 1
        self._tracks = self._tracks[-MOST:]

    def _correct(self, fixes: Sequence[tuple[Array, Array]]) -> list[int]:
        """Correct tracks by positions with their covariances; return the indices of those assigned to no track."""
        left = set(range(len(fixes)))
        if self._tracks and fixes:
            limit = chi2_limit(3, FALSE_ALARM)
            unseen = [limit] * len(self._tracks)  # a track may have no detection
            apart = [
                [mahalanobis2(p_w - one.x[:3], one.cov[:3, :3] + cov) for p_w, cov in fixes] for one in self._tracks
            ]
            cost = np.array([[*row, *unseen] for row in apart])
            for i, k in enumerate(assign(cost).tolist()):
                if k < len(fixes):
                    self._tracks[i].correct(*fixes[k])
                    left.discard(k)
        return sorted(left)

    def estimates(self) -> list[RivalEstimate]:
        return [
            RivalEstimate(one.number, one.t, one.x[:3], one.x[3:6], one.x[6:], one.cov[:6, :6])
            for one in self._tracks
            if one.seen >= SURE
        ]


def singer(dt: float) -> tuple[Array, Array]:
    """Return the transition and the process noise (9, 9) of `_Track`'s state over dt (s)."""
    from scipy.linalg import expm

    drift = np.array([[0, 1, 0], [0, 0, 1], [0, 0, -1 / MANOEUVRE_S]])
    block = np.zeros((6, 6))
    block[:3, :3], block[3:, 3:] = -drift, drift.T
    block[2, 5] = 2 * MANOEUVRE_M_S2**2 / MANOEUVRE_S
    power = expm(block * dt)
    transition = power[3:, 3:].T
    return np.kron(transition, np.eye(3)), np.kron(transition @ power[:3, 3:], np.eye(3))

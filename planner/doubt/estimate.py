"""Predicted covariance of the state estimate of a flight by IMU and camera, along its plan.

    P <- F P F' + Q between IMU samples,   K = P H' (H P H' + R)^-1,   P <- (I - K H) P (I - K H)' + K R K' at each image

Linear covariance analysis (Geller, "Linear covariance techniques for orbital rendezvous analysis", JGCD 2006). The covariance of
the correction by an image is the reduction of the error covariance, E[dx dx'] = P- - P+ (Bry and Roy, "Rapidly-exploring random
belief trees", ICRA 2011, eq. 27); the controller reacts to these corrections.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.planner.doubt.motion import Motion
from gate_racer.planner.doubt.propagation import carried, growth, transitions
from gate_racer.planner.doubt.sightings import Sighting, Sights
from gate_racer.planner.doubt.states import B_A, B_G, GATES_KEPT, S_A, SCALE, THETA, N, P, V, cross, prior, slot
from gate_racer.planner.task import Task
from gate_racer.tracks.corridor import sigma_across
from gate_racer.vehicle.doubt import Doubt
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

IMU_HZ, IMAGE_HZ = 120.0, 30.0  # Hz, telemetry of the real builds, and VADR-TS-002 3.8
STEPS = round(IMU_HZ / IMAGE_HZ)  # IMU samples from image to image
REST_SAMPLES = 120  # IMU samples at rest on the pad
SHARED = 0.5  # -, correlation of the map offsets of neighbouring gates: a map surveyed from gate to gate (chosen)
PAD = -1  # number of the pad in the sequence of gates, the origin of the map
AHEAD = 3  # number of gates, from the next one, whose position relative to the vehicle is predicted


@dataclass(frozen=True, eq=False)
class EstimateDoubt:
    """Covariance of the estimate's error in position relative to the next gate and in velocity (6), world NED, SI."""

    cov: Array  # (M, 6, 6) at the samples of a motion
    moved: Array  # (M, 6, 6) covariance of the corrections by images at the samples
    # (M, G) m, greatest standard deviation of the position relative to each gate of the flight across its opening; inf, except
    # for the next `AHEAD` gates.
    across_m: Array


class Slots:
    """Assignment of gates to slots of the state; the least recently used slot is reassigned."""

    def __init__(self, doubt: Doubt):
        self._doubt, self._slot_of = doubt, dict[int, int]()

    def admit(self, gate: int, cov: Array) -> tuple[int, Array]:
        """Return the slot of a gate, and the covariance (N, N) with that gate in it. A new gate's offset is correlated with its
        neighbour's (a Gauss-Markov process along the course, as in `estimation.eskf.gate_offsets`)."""
        if gate in self._slot_of:
            self._slot_of[gate] = kept = self._slot_of.pop(gate)
            return kept, cov
        kept = len(self._slot_of)
        if kept == GATES_KEPT:
            kept = self._slot_of.pop(next(iter(self._slot_of)))
        (near, shared), own = self._nearest(gate), slot(kept)
        cov = cov.copy()
        for part in own:
            cov[part], cov[:, part] = 0.0, 0.0
        if near != PAD:
            offset, known = own.offset, slot(self._slot_of[near]).offset
            cov[offset], cov[:, offset] = shared * cov[known], shared * cov[:, known]
            cov[offset, offset] = shared**2 * cov[known, known]
        cov[own.offset, own.offset] += self._own_variance(shared) * np.eye(3)
        cov[own.turns, own.turns] = self._doubt.map_turn**2 * np.eye(2)
        cov[own.edge, own.edge], cov[own.depth, own.depth] = self._doubt.edge_m**2, self._doubt.wall_m**2
        self._slot_of[gate] = kept
        return kept, cov

    def relative(self, gate: int, cov: Array, from_pad: Array) -> Array:
        """Return the covariance (3, 3) m^2 of the position relative to a gate, seen or not; from_pad (3,) m, as in `_to_gate`."""
        near, shared = (gate, 1.0) if gate in self._slot_of else self._nearest(gate)
        H = np.zeros((3, N))
        H[:, P], H[:, SCALE] = np.eye(3), -from_pad[:, None]
        if near != PAD:
            H[:, slot(self._slot_of[near]).offset] = -shared * np.eye(3)
        return np.asarray(H @ cov @ H.T + self._own_variance(shared) * np.eye(3))

    def _nearest(self, gate: int) -> tuple[int, float]:
        """Return the nearest gate in the course that has a slot, or the pad, and the share of its offset."""
        near = min((PAD, *self._slot_of), key=lambda known: abs(known - gate))
        return near, SHARED ** abs(near - gate)

    def _own_variance(self, shared: float) -> float:
        """Return the variance (m^2) of a gate's offset beyond the `shared` part of another's."""
        return self._doubt.map_m**2 * (1 - shared**2) / (1 - SHARED**2)


def update(cov: Array, H: Array, R: Array) -> Array:
    """Return the covariance (N, N) after a measurement with Jacobian H (M, N) and noise R (M, M), in Joseph form."""
    K = np.linalg.solve(H @ cov @ H.T + R, H @ cov).T
    left = np.eye(len(cov)) - K @ H
    after = left @ cov @ left.T + K @ R @ K.T
    return np.asarray(0.5 * (after + after.T))


def at_rest(cov: Array, motion: Motion, task: Task) -> Array:
    """Return the covariance after alignment at rest on the pad, where gravity and zero rates measure tilt and biases jointly."""
    imu, up_b, H = task.vehicle.imu, -motion.R_wb[0].T @ [0.0, 0.0, GRAVITY], np.zeros((6, N))
    H[:3, THETA], H[:3, B_A], H[:3, S_A], H[3:, B_G] = cross(up_b), np.eye(3), np.diag(up_b), np.eye(3)
    noise = np.repeat([imu.accel_noise_m_s2, imu.gyro_noise_rad_s], 3) ** 2 / REST_SAMPLES
    return update(cov, H, np.diag(noise + 1e-10))


def in_view(motion: Motion, task: Task) -> list[list[Sighting]]:
    """Return the sightings of gates in view, by image, along a motion sampled at `IMU_HZ`."""
    sights = Sights(task.track, task.vehicle.camera)
    return [sights.at(motion, k) for k in range(0, len(motion.t), STEPS)]


def estimate_doubt(
    motion: Motion, images: Sequence[Sequence[Sighting]], flown_to: np.ndarray, task: Task, doubt: Doubt
) -> EstimateDoubt:
    """Predict the estimate's covariance along a motion of M samples.

    Args:
        motion: sampled at `IMU_HZ`.
        images: gates recognised, by image, the nearest first.
        flown_to: (M,) number in the flight of the next gate at each sample.
    """
    sights, slots = Sights(task.track, task.vehicle.camera), Slots(doubt)
    F, q = transitions(motion), growth(motion, task.vehicle.imu, doubt)
    cov = at_rest(prior(task.vehicle, doubt, motion.R_wb[0]), motion, task)
    found, moved = np.empty((len(motion.t), 6, 6)), np.zeros((len(motion.t), 6, 6))
    across_m, pad_w = np.full((len(motion.t), len(task.landmarks)), np.inf), task.track.start.p_wb
    for k in range(len(motion.t)):
        if k:
            cov = carried(cov, F[k - 1], q[k - 1])
        target = task.landmarks[flown_to[k]]
        kept, cov = slots.admit(target, cov)
        relative = _to_gate(kept, task.track.gates[target].p_wg - pad_w)
        if k % STEPS == 0 and images[k // STEPS]:
            before, rows, sigmas = relative @ cov @ relative.T, [], []
            for sighting in images[k // STEPS][:GATES_KEPT]:
                own, cov = slots.admit(sighting.landmark, cov)
                rows.append(sights.jacobian(sighting, own, motion, k))
                sigmas.append(sighting.sigmas_px(doubt))
            cov = update(cov, np.vstack(rows), np.diag(np.concatenate(sigmas) ** 2))
            kept, cov = slots.admit(target, cov)
            moved[k] = before - relative @ cov @ relative.T
        found[k] = relative @ cov @ relative.T
        for number in range(flown_to[k], min(flown_to[k] + AHEAD, len(task.landmarks))):
            mark = task.landmarks[number]
            gate = task.track.gates[mark]
            across_m[k, number] = sigma_across(gate, slots.relative(mark, cov, gate.p_wg - pad_w))
    return EstimateDoubt(found, moved, across_m)


def _to_gate(kept: int, from_pad: Array) -> Array:
    """Return the map (6, N) to the errors of position relative to the gate in a slot and of velocity; from_pad (3,) m."""
    H = np.zeros((6, N))
    H[:3, P], H[3:, V], H[:3, slot(kept).offset] = np.eye(3), np.eye(3), -np.eye(3)
    H[:3, SCALE] = -from_pad[:, None]
    return H

"""Predicted covariance of the state estimate along a plan: the filter's error model along its motion and its sightings.

    P <- F P F' + Q between IMU samples,   K = P H' (H P H' + R)^-1,   P <- (I - K H) P (I - K H)' + K R K' at each image

Linear covariance analysis (Geller, "Linear covariance techniques for orbital rendezvous analysis", JGCD 2006). The covariance of
the correction by an image is the reduction of the error covariance, E[dx dx'] = P- - P+ (Bry and Roy, "Rapidly-exploring random
belief trees", ICRA 2011, eq. 27); the controller reacts to these corrections.

States, priors, corner Jacobians and gate offsets are those of `model`. In addition each gate has the position along its frame's
walls at which its edges are seen (`DEPTH`), which the filter takes for noise. The propagation follows

    dp' = dv,   dv' = -R [f]x theta - R (b_a + diag(f) s_a) + R (df/dt) delay + n_a
    theta' = -[omega]x theta - b_g - diag(omega) s_g + n_g

(Sola, "Quaternion kinematics for the error-state Kalman filter", 2017, eq. 238), F = I + A dt + (A dt)^2 / 2. Random walks of
biases, clocks and camera are left out: a flight takes seconds. A gate is recognised some images after it has come into view, see
`RECOGNISED`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gate_racer.model import kalman, states
from gate_racer.model.gate_offsets import GateSlots, block
from gate_racer.model.imu import ImuReading
from gate_racer.model.kalman import joseph
from gate_racer.model.reprojection import NO_TURN, CameraContext, project
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import CROSS, EYE3, GATES_KEPT, MOVING, THETA, N, Noise, Nominal, P, V
from gate_racer.model.strapdown import propagated
from gate_racer.planner.models import C, W
from gate_racer.planner.models import Q as PLAN_Q
from gate_racer.planner.models import V as PLAN_V
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import sigma_across
from gate_racer.tracks.track import Track, of_obstacle
from gate_racer.vehicle.camera import LEAST_SIDE_PX, Camera
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import Vehicle

DEPTH = slice(N, N + GATES_KEPT)  # m, along the axis of each gate, beyond the states of `model`
SIZE = DEPTH.stop  # number of states
PARTS = 4  # points per interval of the plan, between which states are interpolated linearly


@dataclass(frozen=True, eq=False)
class Motion:
    t: Array  # (M,) s
    p_w: Array  # (M, 3) m
    v_w: Array  # (M, 3) m/s
    a_w: Array  # (M, 3) m/s^2, acceleration, gravity included
    thrust_w: Array  # (M, 3) m/s^2, of the rotors alone
    q_wb: Array  # (M, 4)
    R_wb: Array  # (M, 3, 3)
    omega_b: Array  # (M, 3) rad/s

    def nominal(self, k: int) -> Nominal:
        """Return the state of sample k, without errors of sensors, camera and map."""
        return Nominal.at(self.t[k], self.p_w[k], self.v_w[k], self.q_wb[k])

    @property
    def force_b(self) -> Array:
        """Specific force (M, 3), m/s^2, the reading of an ideal accelerometer."""
        return np.asarray(((self.a_w - [0.0, 0.0, GRAVITY])[:, None] @ self.R_wb)[:, 0])


def motion(plan: Plan, vehicle: Vehicle, hz: float) -> Motion:
    """Sample the motion of a plan at `hz` from its start to its end."""
    t, x, u = plan.dense(vehicle, PARTS)
    model = plan.flight_model(vehicle)
    a_w = np.array(model.derivative(list(x.T), list(u.T))[PLAN_V]).T
    thrust = x[:, C] if "c" in model.x else model.commands(x, u)[:, 3:]
    at = np.arange(plan.t[0], plan.t[-1], 1 / hz)

    def sampled(columns: Array) -> Array:
        return np.column_stack([np.interp(at, t, column) for column in columns.T])

    q = sampled(x[:, PLAN_Q])
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    R_wb = np.array([matrix(one) for one in q])
    thrust_w = -sampled(thrust) * R_wb[:, :, 2]
    return Motion(at, sampled(x[:, P]), sampled(x[:, PLAN_V]), sampled(a_w), thrust_w, q, R_wb, sampled(x[:, W]))


SHORT = 0.98  # -, fraction of a line of sight on which it may be cut: a gate's own frame is at its end


NEAR_M = 0.3  # m, depth below which a corner has no usable projection
BORDER_PX = 2.0  # px, distance to the image's border below which a corner counts as unseen
SLANT = 5.0  # -, largest ratio of the sides of an opening that is still detected
# Cases of recognition: number of images in which a gate has been in view before it is recognised, and the probability of the
# case. The first is the latency of images and commands, and the vehicle's lag behind the planned attitude; in the others images
# are lost or gates missed; simulated patterns of lost images predict no better. Fitted to flights of VQ1 in unknown worlds, see
# `benchmarks/risk_calibration.py`.
RECOGNISED = ((2, 0.6), (3, 0.25), (5, 0.15))


@dataclass(frozen=True, eq=False)
class Sighting:
    """Predicted sighting of a gate in an image."""

    landmark: int  # index of the gate in the track
    seen: np.ndarray  # (4,) bool, whether each corner is in the image
    range_m: float  # m, from the camera to the mean of the corners


class Sights:
    def __init__(self, track: Track, camera: Camera):
        self.track, self.camera = track, camera
        marks = sorted(set(track.landmarks))
        self._marks = [i for i in marks if track.gates[i].visible and not track.gates[i].is_ball]
        self._corners_w = np.array([track.gates[i].corners() for i in self._marks]).reshape(-1, 4, 3)
        frames = [gate for gate in track.gates if gate.has_frame]
        self._p_wg = np.reshape([gate.p_wg for gate in frames], (-1, 3))
        self._R_wg = np.reshape([gate.R_wg for gate in frames], (-1, 3, 3))
        self._inner_m = np.array([gate.opening_m / 2 for gate in frames])[:, None]
        self._outer_m = np.array([gate.outer_m / 2 for gate in frames])[:, None]
        self._boxes = [of_obstacle(obstacle) for obstacle in track.obstacles]

    def at(self, motion: Motion, k: int) -> list[Sighting]:
        """Return unobstructed gates with at least two corners in the image of sample k, the nearest first."""
        camera = self.camera
        p_c = ((self._corners_w - motion.p_w[k]) @ motion.R_wb[k] - camera.p_bc) @ camera.R_bc
        eye_w, high = motion.p_w[k] + motion.R_wb[k] @ camera.p_bc, np.array([camera.width_px, camera.height_px])
        found = []
        for i in np.flatnonzero((p_c[..., 2] > NEAR_M).all(axis=1)):
            px = camera.project(p_c[i])
            sides = np.linalg.norm(px - np.roll(px, -1, axis=0), axis=1)
            seen = np.asarray(((px > BORDER_PX) & (px < high - BORDER_PX)).all(axis=1))
            shown = seen.sum() >= 2 and sides.min() >= LEAST_SIDE_PX and sides.max() < SLANT * sides.min()
            if shown and not self.hides(eye_w, self._corners_w[i]):
                found.append(Sighting(self._marks[i], seen, float(np.linalg.norm(p_c[i].mean(axis=0)))))
        return sorted(found, key=lambda one: one.range_m)

    def hides(self, eye_w: Array, corners_w: Array) -> bool:
        """Return whether a corner (4, 3) m, or the middle of a side, is out of sight from eye_w (3,) m, all world NED."""
        points = np.concatenate([corners_w, (corners_w + np.roll(corners_w, -1, axis=0)) / 2])
        if any(box.meets(eye_w, points).any() for box in self._boxes):
            return True
        toward = (points - eye_w) @ self._R_wg  # (G, 8, 3)
        eye_g = (eye_w - self._p_wg)[:, None] @ self._R_wg  # (G, 1, 3)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = -eye_g[..., 0] / toward[..., 0]  # (G, 8), of the lines of sight to the frames' planes
            across = np.abs(eye_g[..., 1:] + s[..., None] * toward[..., 1:]).max(axis=-1)
        framed = (s > 0) & (s < SHORT) & (across > self._inner_m) & (across < self._outer_m)
        return bool(framed.any())

    def jacobian(self, sighting: Sighting, slot: int, motion: Motion, k: int) -> Array:
        """Return the Jacobian (M, SIZE) of the seen corners' pixels, of a gate in a slot, by the errors at sample k."""
        gate, x = self.track.gates[sighting.landmark], motion.nominal(k)
        context = CameraContext(self.camera, motion.omega_b[k], 0.0, NO_TURN, self.track.start.p_wb)
        H = np.zeros((4, 2, SIZE))
        H[..., :N] = project(x, context, np.array([slot]), gate.corners()[None])[1][0]
        H[..., DEPTH.start + slot] = -H[..., P] @ gate.R_wg[:, 0]
        return np.asarray(H[sighting.seen].reshape(-1, SIZE))


def recognised(images: Sequence[Sequence[Sighting]], late: int) -> list[list[Sighting]]:
    """Return the sightings, by image, of gates that were in view in the `late` images before as well."""
    found, streaks = [], dict[int, int]()
    for seen in images:
        streaks = {one.landmark: streaks.get(one.landmark, 0) + 1 for one in seen}
        found.append([one for one in seen if streaks[one.landmark] > late])
    return found


IMU_HZ, IMAGE_HZ = 120.0, 30.0  # Hz, telemetry of the real builds, and VADR-TS-002 3.8
STEPS = round(IMU_HZ / IMAGE_HZ)  # IMU samples from image to image
REST_SAMPLES = 120  # IMU samples at rest on the pad
AHEAD = 3  # number of gates, from the next one, whose position relative to the vehicle is predicted


def transitions(motion: Motion) -> Array:
    """Return F (M - 1, 9, n): derivatives of p, v, theta at the next sample with respect to the n errors in `MOVING`."""
    dt, R = np.diff(motion.t)[:, None, None], motion.R_wb[:-1]
    f, omega = motion.force_b, motion.omega_b[:-1]
    A = np.zeros((len(dt), MOVING.stop, MOVING.stop))
    A[:, P, V] = EYE3
    f_cross, omega_cross = ((a @ CROSS).reshape(-1, 3, 3) for a in (f[:-1], omega))
    A[:, V, THETA], A[:, V, states.B_A], A[:, V, states.S_A] = -R @ f_cross, -R, -R * f[:-1, None]
    A[:, V, states.ACCEL_DELAY] = (R @ (np.diff(f, axis=0)[:, :, None] / dt))[..., 0]
    A[:, THETA, THETA], A[:, THETA, states.B_G] = -omega_cross, -EYE3
    A[:, THETA, states.S_G] = -EYE3 * omega[:, None]
    step = A * dt
    F = np.eye(MOVING.stop) + step + 0.5 * step @ step
    return np.ascontiguousarray(F[:, : THETA.stop])


def growth(motion: Motion, noise: Noise) -> Array:
    readings = [ImuReading(t, f, w) for t, f, w in zip(motion.t, motion.force_b, motion.omega_b, strict=True)]
    q = np.zeros((len(readings) - 1, SIZE))
    q[:, :N] = [noise.growth(a, b) for a, b in pairwise(readings)]
    return q


@dataclass(frozen=True, eq=False)
class EstimateCovariance:
    """Covariance of the estimate's error in position relative to the next gate and in velocity (6), world NED, SI."""

    cov: Array  # (M, 6, 6) at the samples of a motion
    moved: Array  # (M, 6, 6) covariance of the corrections by images at the samples
    # (M, G) m, greatest standard deviation of the position relative to each gate of the flight across its opening; inf, except
    # for the next `AHEAD` gates.
    across_m: Array


class PredictedSlots(GateSlots):
    """Slots of gates in the predicted state; the least recently used one is reassigned."""

    def __init__(self, known: Doubt, pad_w: Array):
        super().__init__(known.map_m, known.map_turn, known.edge_m, pad_w)
        self._wall_m = known.wall_m

    def admit(self, gate: int, cov: Array) -> tuple[int, Array]:
        """Return the slot of a gate, and the covariance (SIZE, SIZE) with that gate in it."""
        if gate in self._slot_of:
            self._slot_of[gate] = slot = self._slot_of.pop(gate)
            return slot, cov
        slot = self._free_slot(())
        near, shared = self._nearest(gate)
        cov, depth = self._begun(slot, near, shared, self._own_variance(shared) * EYE3, cov), DEPTH.start + slot
        cov[depth], cov[:, depth] = 0.0, 0.0
        cov[depth, depth] = self._wall_m**2
        self._slot_of[gate] = slot
        return slot, cov


def on_the_pad(motion: Motion, noise: Noise, known: Doubt) -> Array:
    """Return the covariance (SIZE, SIZE) after alignment at rest: gravity and zero rates measure tilt and biases jointly."""
    x, cov = motion.nominal(0), np.zeros((SIZE, SIZE))
    cov[:N, :N] = states.prior(noise, GateAppearance(edge_offset_px=known.edge_px), x.q_wb)
    measure, R = kalman.at_rest(np.zeros(3), np.zeros(3), REST_SAMPLES, noise.imu)
    return _corrected(cov, np.pad(measure(x)[1], ((0, 0), (0, SIZE - N))), R)


def _corrected(cov: Array, H: Array, R: Array) -> Array:
    """Return the covariance after a measurement with Jacobian H (M, SIZE) and covariance R (M, M), symmetric."""
    after = joseph(cov, H, R)[1]
    return np.asarray(0.5 * (after + after.T))


def in_view(motion: Motion, task: Task) -> list[list[Sighting]]:
    """Return the sightings of gates in view, by image, along a motion sampled at `IMU_HZ`."""
    sights = Sights(task.track, task.vehicle.camera)
    return [sights.at(motion, k) for k in range(0, len(motion.t), STEPS)]


def estimate_covariance(
    motion: Motion, images: Sequence[Sequence[Sighting]], flown_to: np.ndarray, task: Task, known: Doubt
) -> EstimateCovariance:
    """Predict the estimate's covariance along a motion of M samples.

    Args:
        motion: sampled at `IMU_HZ`.
        images: gates recognised, by image, the nearest first.
        flown_to: (M,) number in the flight of the next gate at each sample.
    """
    noise, pad_w = Noise.of(task.vehicle, known), task.track.start.p_wb
    kept_walks = {name: one if name in ("v", "theta") else one._replace(walk=0.0) for name, one in noise.states.items()}
    noise = replace(noise, states=kept_walks)
    sights, slots = Sights(task.track, task.vehicle.camera), PredictedSlots(known, pad_w)
    F, q = transitions(motion), growth(motion, noise)
    cov = on_the_pad(motion, noise, known)
    found, moved = np.empty((len(motion.t), 6, 6)), np.zeros((len(motion.t), 6, 6))
    across_m = np.full((len(motion.t), len(task.landmarks)), np.inf)
    for k in range(len(motion.t)):
        if k:
            cov = propagated(F[k - 1], cov, q[k - 1])
        target = task.landmarks[flown_to[k]]
        kept, cov = slots.admit(target, cov)
        relative = _to_gate(kept, task.track.gates[target].p_wg - pad_w)
        if k % STEPS == 0 and images[k // STEPS]:
            before, rows, sigmas = relative @ cov @ relative.T, [], []
            for sighting in images[k // STEPS][:GATES_KEPT]:
                own, cov = slots.admit(sighting.landmark, cov)
                rows.append(sights.jacobian(sighting, own, motion, k))
                sigmas += [known.corner_px if sighting.seen.all() else known.cut_px] * len(rows[-1])
            cov = _corrected(cov, np.vstack(rows), np.diag(np.array(sigmas) ** 2))
            kept, cov = slots.admit(target, cov)
            moved[k] = before - relative @ cov @ relative.T
        found[k] = relative @ cov @ relative.T
        for number in range(flown_to[k], min(flown_to[k] + AHEAD, len(task.landmarks))):
            mark = task.landmarks[number]
            gate = task.track.gates[mark]
            across_m[k, number] = sigma_across(gate, slots.relative_covariance(mark, gate.p_wg, cov))
    return EstimateCovariance(found, moved, across_m)


def _to_gate(kept: int, from_pad: Array) -> Array:
    """Return the map (6, SIZE) to the errors of position relative to the gate in a slot and of velocity; from_pad (3,) m."""
    H = np.zeros((6, SIZE))
    H[:3, P], H[3:, V], H[:3, block(kept)] = EYE3, EYE3, -EYE3
    H[:3, states.SCALE] = -from_pad
    return H

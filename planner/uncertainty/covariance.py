"""Predicted covariance of the state estimate along a plan: propagation by the IMU, corrections by the gates in view.

Error states of the covariance prediction: true value minus estimate, attitude by q = q_est * exp(theta) (Sola 2017).

They are those states of `estimation.eskf`, with the same meaning, that affect a gate crossing, in a separate table, since the
prediction is independent of the filter. Only a few gates near the next one have states, in slots.

Propagation of the error covariance through strap-down integration along a motion: P <- F P F' + Q.

    dp' = dv,   dv' = -R [f]x theta - R (b_a + diag(f) s_a) + R (df/dt) delay + n_a
    theta' = -[omega]x theta - b_g - diag(omega) s_g + n_g

Sola, "Quaternion kinematics for the error-state Kalman filter" (2017), eq. 238; readings are true value + bias + scale error
times the value. F = I + A dt + (A dt)^2 / 2.

Gates visible from a pose with the nominal camera, and the Jacobian of their corner pixels with respect to the errors.

A gate is recognised some images after it has come into view, see `RECOGNISED`.

p_c = R_cb (p_b - p_bc),   p_b = R_wb' (corner - p_wb),   px = f (x_c, y_c) / z_c + centre
dpx/dp = -B R_wb',   dpx/dtheta = B [p_b]x,   dpx/ddelay = dpx/dp v + dpx/dtheta omega,   B = f / z_c (e - tangent e_z) R_cb

    P <- F P F' + Q between IMU samples,   K = P H' (H P H' + R)^-1,   P <- (I - K H) P (I - K H)' + K R K' at each image

Linear covariance analysis (Geller, "Linear covariance techniques for orbital rendezvous analysis", JGCD 2006). The covariance of
the correction by an image is the reduction of the error covariance, E[dx dx'] = P- - P+ (Bry and Roy, "Rapidly-exploring random
belief trees", ICRA 2011, eq. 27); the controller reacts to these corrections.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gate_racer.planner.task import Task
from gate_racer.planner.uncertainty.motion import Motion, Screens
from gate_racer.tracks.gate import Gate, sigma_across
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import LEAST_SIDE_PX, Camera
from gate_racer.vehicle.dynamics import GRAVITY, layout
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle

GATES_KEPT = 6  # number of slots for gates
XYZ = "x y z"
ERROR = layout(
    p=(XYZ, "m", "position, world NED"),
    v=(XYZ, "m/s", "velocity, world NED"),
    theta=(XYZ, "rad", "attitude, body FRD"),
    b_a=(XYZ, "m/s^2", "accelerometer bias, body FRD"),
    b_g=(XYZ, "rad/s", "gyro bias, body FRD"),
    s_a=(XYZ, "-", "accelerometer scale, body FRD"),
    s_g=(XYZ, "-", "gyro scale, body FRD"),
    accel_delay=("", "s", "age of the specific force at its time stamp"),
    mount=("yaw tilt roll", "rad", "rotation of the camera from its nominal mount"),
    arm=(XYZ, "m", "offset of the camera from its nominal position, body FRD"),
    focal=("", "-", "share by which the focal length exceeds its nominal value"),
    centre=("u v", "px", "offset of the principal point from its nominal position"),
    radial=("k1 k2", "-", "excess of the distortion over its nominal value"),
    delay=("", "s", "delay of the exposure after its time stamp"),
    readout=("", "s", "readout time from the first row of an image to its last"),
    edge_px=("", "px", "outward offset of all edges in images"),
    scale=("", "-", "excess of the scale of the course over its map, about the pad"),
    gates=(
        " ".join(f"{axis}{k}" for k in range(GATES_KEPT) for axis in "xyz"),
        "m",
        "offsets from the map, world NED",
    ),
    turns=(
        " ".join(f"{axis}{k}" for k in range(GATES_KEPT) for axis in ("yaw", "pitch")),
        "rad",
        "about own axes",
    ),
    edges=(" ".join(str(k) for k in range(GATES_KEPT)), "m", "outward offsets of the gates' edges from the map"),
    depths=(
        " ".join(str(k) for k in range(GATES_KEPT)),
        "m",
        "position along a frame's walls at which its edges are seen",
    ),
)
N = ERROR.size
P, V, THETA, B_A, B_G, S_A, S_G, ACCEL_DELAY, MOUNT, ARM, FOCAL, CENTRE, RADIAL, DELAY, READOUT, EDGE_PX, SCALE = (
    field.at for field in list(ERROR.values())[:-4]
)
MOVING = slice(0, ACCEL_DELAY.stop)  # p, v, theta, and the IMU errors that drive them


class Slot(NamedTuple):
    """Indices of the error states of one gate."""

    offset: slice  # 3 entries
    turns: slice  # 2 entries
    edge: slice  # 1 entry
    depth: slice  # 1 entry


def slot(k: int) -> Slot:
    """Return the indices of the gate in slot k."""
    begins = zip(("gates", "turns", "edges", "depths"), (3, 2, 1, 1), strict=True)
    return Slot(*(slice(ERROR[name].at.start + n * k, ERROR[name].at.start + n * (k + 1)) for name, n in begins))


def prior(vehicle: Vehicle, doubt: Doubt, R_wb: Array) -> Array:
    """Return the prior covariance (N, N) on the pad at attitude R_wb (3, 3), before any measurement; slots are empty."""
    known, imu, sigma = vehicle.camera.doubt, vehicle.imu, np.zeros(N)
    sigma[P], sigma[V], sigma[SCALE] = doubt.pad_m, doubt.pad_m_s, doubt.scale
    sigma[B_A] = np.hypot(imu.accel_bias_m_s2, doubt.accel_bias_m_s2)
    sigma[B_G] = np.hypot(imu.gyro_bias_rad_s, doubt.gyro_bias_rad_s)
    sigma[S_A], sigma[S_G], sigma[ACCEL_DELAY] = doubt.accel_scale, doubt.gyro_scale, doubt.accel_delay_s
    if known is None:
        sigma[MOUNT], sigma[ARM], sigma[FOCAL] = (doubt.yaw, doubt.tilt, doubt.roll), doubt.arm_m, doubt.focal
        sigma[CENTRE], sigma[RADIAL] = doubt.centre_px, doubt.radial
        sigma[DELAY], sigma[READOUT] = doubt.delay_s, doubt.readout_s
    else:
        sigma[MOUNT] = np.radians([known.yaw_deg, known.tilt_deg, known.roll_deg])
        sigma[ARM], sigma[FOCAL], sigma[CENTRE] = known.position_m, known.focal, known.centre_px
        sigma[RADIAL], sigma[DELAY], sigma[READOUT] = (known.k1, known.k2), known.delay_s, known.readout_s
    sigma[EDGE_PX] = doubt.edge_px
    cov = np.diag(sigma**2)
    turned = R_wb.T @ np.diag([doubt.pad_lean, doubt.pad_lean, doubt.pad_yaw]) ** 2 @ R_wb
    cov[THETA, THETA] = turned + doubt.misaligned**2 * np.eye(3)
    return cov


def cross(a: Array) -> Array:
    """Return the skew-symmetric matrices [a]x (..., 3, 3) of vectors (..., 3)."""
    x, y, z = np.moveaxis(np.asarray(a, float), -1, 0)
    o = np.zeros_like(x)
    return np.stack([np.stack(row, -1) for row in ((o, -z, y), (z, o, -x), (-y, x, o))], -2)


def transitions(motion: Motion) -> Array:
    """Return F (M - 1, 9, n): derivatives of p, v, theta at the next sample with respect to the n errors in `MOVING`."""
    dt, R = np.diff(motion.t)[:, None, None], motion.R_wb[:-1]
    f, omega = motion.force_b, motion.omega_b[:-1]
    A = np.zeros((len(dt), MOVING.stop, MOVING.stop))
    A[:, P, V] = np.eye(3)
    A[:, V, THETA], A[:, V, B_A], A[:, V, S_A] = -R @ cross(f[:-1]), -R, -R * f[:-1, None]
    A[:, V, ACCEL_DELAY] = R @ (np.diff(f, axis=0)[:, :, None] / dt)
    A[:, THETA, THETA], A[:, THETA, B_G] = -cross(omega), -np.eye(3)
    A[:, THETA, S_G] = -np.eye(3) * omega[:, None]
    step = A * dt
    F = np.eye(MOVING.stop) + step + 0.5 * step @ step
    return np.asarray(F[:, : THETA.stop])


def growth(motion: Motion, imu: ImuParameters, doubt: Doubt) -> Array:
    """Return the diagonals (M - 1, N) of Q: noise of the readings, and their unknown course between two samples.

    The latter is the fraction `between` of the change of specific force or rates from sample to sample.
    """
    dt, q = np.diff(motion.t), np.zeros((len(motion.t) - 1, N))
    df2 = (np.diff(motion.force_b, axis=0) ** 2).sum(axis=1, keepdims=True) / 3
    dw2 = np.diff(motion.omega_b, axis=0) ** 2
    h = dt[:, None]
    q[:, V] = h**2 * (imu.accel_noise_m_s2**2 + doubt.between**2 * df2) + h * doubt.accel_walk**2
    q[:, THETA] = h**2 * (imu.gyro_noise_rad_s**2 + doubt.between**2 * dw2) + h * doubt.gyro_walk**2
    return q


def carried(cov: Array, F: Array, q: Array) -> Array:
    """Return F P F' + Q (N, N), for the rows F (9, n) that differ from the identity and the diagonal q (N,) of Q."""
    rows, columns = F.shape
    grown, moved = cov.copy(), F @ cov[:columns]
    grown[:rows], grown[:, :rows] = moved, moved.T
    grown[:rows, :rows] = moved[:, :columns] @ F.T
    grown[np.diag_indices(N)] += q
    return grown


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

    def sigmas_px(self, doubt: Doubt) -> Array:
        """Return the standard deviations (M,), px, of the coordinates of the seen corners."""
        return np.full(2 * int(self.seen.sum()), doubt.corner_px if self.seen.all() else doubt.cut_px)


class Sights:
    """Sightings of a track's gates by a vehicle's camera."""

    def __init__(self, track: Track, camera: Camera):
        self.track, self.camera = track, camera
        marks = sorted(set(track.landmarks))
        self._marks = [i for i in marks if track.gates[i].visible and not track.gates[i].is_ball]
        self._corners_w = np.array([track.gates[i].corners() for i in self._marks]).reshape(-1, 4, 3)
        self._screens = Screens(track)

    def at(self, motion: Motion, k: int) -> list[Sighting]:
        """Return unobstructed gates with at least two corners in the image of sample k, the nearest first."""
        p_c = _in_camera(self._corners_w, motion, k, self.camera)
        eye_w = motion.p_w[k] + motion.R_wb[k] @ self.camera.p_bc
        ahead = (p_c[..., 2] > NEAR_M).all(axis=1)
        found, camera = [], self.camera
        for i in np.flatnonzero(ahead):
            px = camera.project(p_c[i])
            sides = np.linalg.norm(px - np.roll(px, -1, axis=0), axis=1)
            low, high = np.array([BORDER_PX, BORDER_PX]), np.array([camera.width_px, camera.height_px]) - BORDER_PX
            seen = np.asarray(((px > low) & (px < high)).all(axis=1))
            shown = seen.sum() >= 2 and sides.min() >= LEAST_SIDE_PX and sides.max() < SLANT * sides.min()
            if shown and not self._screens.hide(eye_w, self._corners_w[i]):
                found.append(Sighting(self._marks[i], seen, float(np.linalg.norm(p_c[i].mean(axis=0)))))
        return sorted(found, key=lambda one: one.range_m)

    def jacobian(self, sighting: Sighting, kept: int, motion: Motion, k: int) -> Array:
        """Return the Jacobian (M, N) of the seen corners' pixels, of a gate in slot `kept`, with respect to the error states."""
        gate, camera, R_wb = self.track.gates[sighting.landmark], self.camera, motion.R_wb[k]
        corners_w = gate.corners()
        p_b = (corners_w - motion.p_w[k]) @ R_wb
        p_c = (p_b - camera.p_bc) @ camera.R_bc
        tangent, z = p_c[:, :2] / p_c[:, 2:], p_c[:, 2]
        focal = np.array([camera.fx_px, camera.fy_px])
        B = focal[:, None] * (camera.R_bc.T[:2] - tangent[..., None] * camera.R_bc.T[2]) / z[:, None, None]
        H = np.zeros((4, 2, N))
        by_p = -B @ R_wb.T
        own = slot(kept)
        H[..., P], H[..., THETA], H[..., own.offset] = by_p, B @ cross(p_b), -by_p
        H[..., MOUNT] = B @ cross(p_b - camera.p_bc) @ _mount_axes(camera)
        H[..., ARM], H[..., FOCAL] = -B, (focal * tangent)[..., None]
        H[:, [0, 1], [CENTRE.start, CENTRE.start + 1]] = 1.0
        r2 = (tangent**2).sum(axis=1, keepdims=True)[..., None]
        H[..., RADIAL] = (focal * tangent)[..., None] * np.concatenate([r2, r2**2], axis=-1)
        H[..., DELAY] = (by_p @ motion.v_w[k] + H[..., THETA] @ motion.omega_b[k])[..., None]
        row = (focal[1] * tangent[:, 1] + camera.cy_px + 0.5) / camera.height_px - 0.5
        H[..., READOUT] = np.clip(row, -0.5, 0.5)[:, None, None] * H[..., DELAY]
        H[..., SCALE] = -(by_p @ (gate.p_wg - self.track.start.p_wb))[..., None]
        H[..., own.turns] = -by_p @ _swept(gate, corners_w)
        outward = _outward(focal * tangent)
        H[..., EDGE_PX] = outward[..., None]
        H[..., own.edge] = (outward * (camera.fx_px / z)[:, None])[..., None]
        H[..., own.depth] = -by_p @ gate.R_wg[:, :1]
        return np.asarray(H[sighting.seen].reshape(-1, N))


def recognised(images: Sequence[Sequence[Sighting]], late: int) -> list[list[Sighting]]:
    """Return the sightings, by image, of gates that were in view in the `late` images before as well."""
    found, streaks = [], dict[int, int]()
    for seen in images:
        streaks = {one.landmark: streaks.get(one.landmark, 0) + 1 for one in seen}
        found.append([one for one in seen if streaks[one.landmark] > late])
    return found


def _in_camera(corners_w: Array, motion: Motion, k: int, camera: Camera) -> Array:
    p_b = (corners_w - motion.p_w[k]) @ motion.R_wb[k]
    return np.asarray((p_b - camera.p_bc) @ camera.R_bc)


def _mount_axes(camera: Camera) -> Array:
    """Return (3, 3), in columns, the axes in body FRD of the mount's yaw, tilt and roll: down, right, and the optical axis."""
    return np.column_stack([(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), camera.R_bc[:, 2]])


def _swept(gate: Gate, corners_w: Array) -> Array:
    """Return the derivatives (4, 3, 2) of the corners by rotations of a gate about its vertical and horizontal axis."""
    axes = gate.R_wg[:, [2, 1]].T
    return np.moveaxis(np.cross(axes[None], (corners_w - gate.p_wg)[:, None]), -1, -2)


def _outward(px: Array) -> Array:
    """Return the displacements (4, 2) of corners that shift every edge of a square outward by one pixel."""
    middle = px - px.mean(axis=0)
    reach = np.linalg.norm(middle, axis=1).mean()
    return np.asarray(middle * (np.sqrt(2) / reach))


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
        neighbour's (a Gauss-Markov process along the course, as in `model.gate_offsets`)."""
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

"""Gates visible from a pose with the nominal camera, and the Jacobian of their corner pixels with respect to the errors.

A gate is recognised some images after it has come into view, see `RECOGNISED`.

p_c = R_cb (p_b - p_bc),   p_b = R_wb' (corner - p_wb),   px = f (x_c, y_c) / z_c + centre
dpx/dp = -B R_wb',   dpx/dtheta = B [p_b]x,   dpx/ddelay = dpx/dp v + dpx/dtheta omega,   B = f / z_c (e - tangent e_z) R_cb
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.planner.doubt.motion import Motion
from gate_racer.planner.doubt.screens import Screens
from gate_racer.planner.doubt.states import (
    ARM,
    CENTRE,
    DELAY,
    EDGE_PX,
    FOCAL,
    MOUNT,
    RADIAL,
    READOUT,
    SCALE,
    THETA,
    N,
    P,
    cross,
    slot,
)
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import LEAST_SIDE_PX, Camera
from gate_racer.vehicle.doubt import Doubt
from gate_racer.vehicle.rotation import Array

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

"""Predicted corners of gates in an image, and their Jacobian with respect to the error state.

    p_c = R_cb (p_b - p_bc - arm),  p_b = R_wb' (p_corner - p_wb),  R_cb = (Rz(yaw) Ry(tilt) R_bc Rz(roll))'
    px = (1 + focal) f (1 + k1 r^2 + k2 r^4) (x_c, y_c) / z_c + centre + (edge_px + f edge_m / z_c) * outward + later * dpx/ddelay
    dp_c/dp = -R_cb R_wb',  dp_c/dtheta = R_cb [p_b]x,  dp_c/d(yaw, tilt, roll) = R_cb [p_b - p_bc - arm]x (axis of each)

`outward` moves every edge of an opening by one pixel: drawn gates differ from ideal squares in that way, by an offset in pixels
common to all (edge_px), and by a length of each gate's own (edge_m). A gate rotates about its own vertical and horizontal axis
(turn), to first order. The pose is propagated to an exposure that is later by delta: p + delta v, q * exp(delta omega);
dpx/ddelay = dpx/dp v + dpx/dtheta omega.
A rolling shutter exposes row v of h later = readout ((v + 1/2) / h - 1/2) than the middle one. Radial distortion is Brown's
(1971), r = |(x_c, y_c)| / z_c, as of `vehicle.camera`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gate_racer.model import states
from gate_racer.model.gate_offsets import block, edge_and_turn
from gate_racer.model.states import ARM, CENTRE, DELAY, FOCAL, RADIAL, READOUT, SCALE, THETA, N, Nominal, P
from gate_racer.vehicle.camera import Camera, about_z
from gate_racer.vehicle.rotation import Array, Mask, matrix, product, turn
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2


@dataclass(frozen=True, slots=True)
class GateSighting:
    """Gate recognised in an image: its measured corners, and the position fix that they give.

    The fixes of one image have the attitude error in common; the corners and their covariances do not contain it.
    """

    t: float  # s, of exposure
    gate: int  # index into the associator's gates
    p_wb: Array  # (3,) m, position fix, world NED
    cov: Array  # (3, 3) m^2, of the fix
    by_turn: Array  # (3, 3) m/rad, derivative of the fix with respect to a rotation of the camera, about its own axes
    range_m: float  # from the fix to the gate's centre
    corners_px: Array  # (4, 2) in gate order
    cov_px: Array  # (4, 2, 2) px^2, of each corner
    visible: Mask  # (4,) corners measured; the others are known in one direction at most, see cov_px
    corners_w: Array  # (4, 3) m, world NED, of the rim that the corners show
    detection: int = -1  # index into the image's detections


FALSE_ALARM = 1e-3  # -, share of true gates that the chi-square test rejects
EACH = np.arange(4)  # corners of a gate
NO_TURN = np.zeros(3)  # rad
MOUNT = [states.YAW, states.TILT, states.ROLL]
NEAR_M = 0.2  # m, least depth of a corner with a usable projection


@dataclass(frozen=True, slots=True)
class CameraContext:
    """Camera model and motion at the exposure."""

    camera: Camera
    omega_b: Array  # (3,) rad/s
    delay: float  # s, of the exposure after its stamp, assumed for the pose
    sigma_turn: Array  # (3,) rad, standard deviation of the rotation from the pose to the uncertain time of exposure
    pad_w: Array  # (3,) m, world NED, the point about which the map is scaled


class Measured(NamedTuple):
    """Measured coordinates (M) of the usable corners of G gates, linearised at x."""

    slots: np.ndarray  # (G,) of the gates in `Nominal.gates`
    seen_px: Array  # (G, 4, 2), measured corners
    corners_w: Array  # (G, 4, 3) m, by the map
    used: np.ndarray  # (G, 4) bool, corners that are measured
    R: Array  # (M, M) px^2, block-diagonal by gate
    x: Nominal  # first point of linearisation
    r: Array  # (M,) px, measured minus predicted at x
    H: Array  # (M, N), Jacobian of the prediction at x

    def blocks(self) -> list[slice]:
        """Return the rows of each gate."""
        ends = [0, *np.cumsum(2 * self.used.sum(1)).tolist()]
        return [slice(first, last) for first, last in pairwise(ends)]

    def of(self, gates: Sequence[int]) -> "Measured":
        """Return the measurements of some of the gates, in their order."""
        blocks = self.blocks()
        rows = np.concatenate([np.arange(blocks[k].start, blocks[k].stop) for k in gates])
        return self._replace(
            slots=self.slots[gates],
            seen_px=self.seen_px[gates],
            corners_w=self.corners_w[gates],
            used=self.used[gates],
            R=self.R[np.ix_(rows, rows)],
            r=self.r[rows],
            H=self.H[rows],
        )


def project(x: Nominal, context: CameraContext, slots: np.ndarray, corners_w: Array) -> tuple[Array, Array, Array]:
    """Predict the corners of gates in the image.

    Args:
        slots: (G,) of the gates in `Nominal.gates`.
        corners_w: (G, 4, 3) m, by the map.

    Returns:
        px (G, 4, 2), its Jacobian (G, 4, 2, N) with respect to the error of x, and the depth (G, 4) m.
    """
    camera, delta, G = context.camera, x[DELAY] - context.delay, len(slots)
    R_wb = matrix(product(x.q_wb.tolist(), turn(*(delta * context.omega_b).tolist())))
    R_cb, axes = mounted(camera, x)
    middle_w = 0.25 * corners_w.sum(1)
    away = middle_w - context.pad_w
    moved = x.gates[slots] + x[SCALE] * away - x.p_wb - delta * x.v_w
    by_turn = swept(corners_w - middle_w[:, None])
    turned_w = corners_w + (by_turn @ x.turns[slots][:, None, :, None])[..., 0]
    p_b = (turned_w + moved[:, None]).reshape(-1, 3) @ R_wb
    from_camera = p_b - camera.p_bc - x[ARM]
    p_c = from_camera @ R_cb.T
    z = np.maximum(p_c[:, 2], NEAR_M)
    nominal = np.array([camera.fx_px, camera.fy_px])
    focal = (1 + x[FOCAL]) * nominal
    tangent = p_c[:, :2] / z[:, None]
    along, by_tangent, by_radial = camera.lens.with_excess(x[RADIAL]).jacobian(tangent)
    from_axis = focal * along
    ideal = (from_axis + [camera.cx_px, camera.cy_px] + x[CENTRE]).reshape(G, 4, 2)
    # The rows of d tangent/dp_c are (1, 0, -x) / z and (0, 1, -y) / z; times R_cb and the lens's Jacobian:
    by_b = (R_cb[:2] - tangent[..., None] * R_cb[2]) / z[:, None, None]
    by_b = focal[:, None] * (by_tangent @ by_b)  # (4 G, 2, 3)
    by_p = -by_b.reshape(-1, 3) @ R_wb.T
    J = np.zeros((8 * G, N))
    J[:, P] = by_p
    on_turn = -(by_p.reshape(G, 4, 2, 3) @ by_turn).reshape(G, 8, 2)
    for k, slot in enumerate(slots):
        rows = slice(8 * k, 8 * k + 8)
        J[rows, block(slot)] = -by_p[rows]
        J[rows, edge_and_turn(slot)[1]] = on_turn[k]
    J[:, SCALE] = -(by_p * np.repeat(away, 8, axis=0)).sum(1)
    J[:, THETA] = theta = (by_b @ (p_b @ states.CROSS).reshape(-1, 3, 3)).reshape(-1, 3)  # by_b times [p_b]x
    J[:, MOUNT] = (by_b @ ((from_camera @ states.CROSS).reshape(-1, 3, 3) @ axes)).reshape(-1, 3)
    J[:, ARM] = -by_b.reshape(-1, 3)
    J[:, FOCAL] = (nominal * along).ravel()
    J[0::2, CENTRE.start] = J[1::2, CENTRE.start + 1] = 1.0
    J[:, RADIAL] = (focal[:, None] * by_radial).reshape(-1, 2)
    J[:, DELAY] = by_p @ x.v_w + theta @ context.omega_b
    row = np.clip((ideal[..., 1].ravel() + 0.5) / camera.height_px - 0.5, -0.5, 0.5)
    J[:, READOUT] = np.repeat(row, 2) * J[:, DELAY]
    J[:, states.EDGE_PX] = outwards = outward(ideal).ravel()
    own, by_edge_m = np.repeat(slots, 8), outwards * np.repeat(camera.fx_px / z, 2)
    J[np.arange(8 * G), states.EDGE_M.start + own] = by_edge_m
    px = ideal + (
        x[states.EDGE_PX] * outwards + x[states.EDGE_M][own] * by_edge_m + x[READOUT] * J[:, READOUT]
    ).reshape(G, 4, 2)
    return px, J.reshape(G, 4, 2, N), p_c[:, 2].reshape(G, 4)


def mounted(camera: Camera, x: Nominal) -> tuple[Array, Array]:
    """Return R_cb (3, 3) of the camera as mounted by x, and the axes of yaw, tilt and roll as columns (3, 3), body FRD."""
    yawed, s, c = about_z(x[states.YAW]), math.sin(x[states.TILT]), math.cos(x[states.TILT])
    R_bc = yawed @ np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]]) @ camera.R_bc @ about_z(x[states.ROLL])
    return R_bc.T, np.stack([(0.0, 0.0, 1.0), yawed[:, 1], R_bc[:, 2]], axis=1)


def calibrated(camera: Camera, x: Nominal) -> Camera:
    """Return the camera with the calibration in x; with nominal distortion where the estimated one would fold the image."""
    R_cb, _ = mounted(camera, x)
    arm, (cx, cy), (k1, k2) = camera.p_bc + x[ARM], x[CENTRE], x[RADIAL]
    turned = replace(
        camera.mounted(R_cb.T),
        fx_px=(1 + x[FOCAL]) * camera.fx_px,
        fy_px=(1 + x[FOCAL]) * camera.fy_px,
        cx_px=camera.cx_px + cx,
        cy_px=camera.cy_px + cy,
        p_bc_m=tuple(arm.tolist()),
        delay_s=x[DELAY],
        readout_s=x[READOUT],
    )
    try:
        return replace(turned, k1=camera.k1 + k1, k2=camera.k2 + k2)
    except ValueError:
        return turned


def turns(camera: Camera) -> Array:
    """Return the rotation (3, N) rad, body FRD, of a ray near the optical axis by each error, to first order."""
    by = np.zeros((3, N))
    right, down, forward = camera.R_bc.T
    by[:, THETA], by[2, states.YAW], by[1, states.TILT], by[:, states.ROLL] = np.eye(3), 1.0, 1.0, forward
    by[:, CENTRE] = np.stack([-down / camera.fx_px, right / camera.fy_px], axis=1)
    return by


def swept(corners: Array) -> Array:
    """Return the Jacobian (G, 4, 3, 2) of corners (G, 4, 3) about their centre by a gate's vertical and horizontal rotation."""
    right = corners[:, 1] + corners[:, 2] - corners[:, 0] - corners[:, 3]
    down = corners[:, 2] + corners[:, 3] - corners[:, 0] - corners[:, 1]
    axes = np.stack([down, right], axis=1)
    axes /= np.sqrt((axes * axes).sum(-1, keepdims=True))
    return np.moveaxis(np.cross(axes[:, None], corners[:, :, None]), -1, -2)


def outward(px: Array) -> Array:
    """Return the displacements (..., 4, 2) of corners that move every edge of a square outward by one pixel."""
    middle = px - 0.25 * px.sum(-2, keepdims=True)
    reach = np.sqrt((middle * middle).sum(-1)).sum(-1)  # four times the corners' mean distance from their centre
    return middle * (4 * math.sqrt(2) / np.maximum(reach, 1e-9))[..., None, None]


def stack(sightings: Sequence[GateSighting], slots: np.ndarray, x: Nominal, context: CameraContext) -> Measured:
    """Stack the corners of sighted gates. One outside the image is known across an edge only, by its covariance."""
    corners_w = np.array([sighting.corners_w for sighting in sightings])
    seen = np.array([sighting.corners_px for sighting in sightings])
    cov = np.array([sighting.cov_px for sighting in sightings])
    px, J, depth = project(x, context, slots, corners_w)
    used = (depth > NEAR_M) & np.isfinite(seen).all(-1) & np.isfinite(cov).all((-2, -1))
    by_turn = J[..., THETA].reshape(-1, 8, 3) * context.sigma_turn  # a rotation moves all corners of a gate together
    of_gate = by_turn @ by_turn.swapaxes(-1, -2)
    of_gate.reshape(-1, 4, 2, 4, 2)[:, EACH, :, EACH] += cov.swapaxes(0, 1)
    R = np.zeros((8 * len(slots), 8 * len(slots)))
    for k, own in enumerate(of_gate):
        R[8 * k : 8 * k + 8, 8 * k : 8 * k + 8] = own
    if not used.all():
        kept = np.flatnonzero(np.repeat(used, 2))
        R = R[np.ix_(kept, kept)]
    return Measured(slots, seen, corners_w, used, R, x, (seen - px)[used].ravel(), J[used].reshape(-1, N))


def residual(x: Nominal, context: CameraContext, measured: Measured) -> tuple[Array, Array]:
    """Return the reprojection residual (M,) px, measured minus predicted, and the Jacobian H (M, N) of the prediction."""
    if x is measured.x:
        return measured.r, measured.H
    px, J, _ = project(x, context, measured.slots, measured.corners_w)
    return (measured.seen_px - px)[measured.used].ravel(), J[measured.used].reshape(-1, N)


def tempered(cov: Array, measured: Measured, share: float, gross_px: float) -> Measured:
    """Return the measurements with the covariance of corners that may be grossly wrong, all of a gate together.

    Errors are drawn from N(0, R), or with the probability `share` from N(0, R + gross_px^2 I). By the residual it is the latter
    with a probability g, and this mixture has the covariance R + g gross_px^2 I (Bar-Shalom, Li and Kirubarajan 2001, 1.4.16).
    Where the filter knows what it will see, g is 0 or 1; where it does not yet, no single sighting is trusted to a tenth of a
    pixel.
    """
    S, R = measured.H @ cov @ measured.H.T + measured.R, measured.R.copy()
    for rows in measured.blocks():
        r, usual, gross = measured.r[rows], S[rows, rows], gross_px**2 * np.eye(rows.stop - rows.start)
        try:
            d2, wide2 = mahalanobis2(r, usual), mahalanobis2(r, usual + gross)
        except np.linalg.LinAlgError:
            continue
        wider = np.linalg.slogdet(usual + gross)[1] - np.linalg.slogdet(usual)[1]
        odds = math.log(share / (1 - share)) - 0.5 * (wide2 + wider - d2)
        R[rows, rows] += 0.5 * (1 + math.tanh(odds / 2)) * gross
    return measured._replace(R=R)


def passing(cov: Array, measured: Measured) -> tuple[dict[int, float], int]:
    """Return the gates that pass the chi-square test, each with its NIS, and the number with a singular covariance."""
    S = measured.H @ cov @ measured.H.T + measured.R
    nis, singular = {}, 0
    for k, rows in enumerate(measured.blocks()):
        m = rows.stop - rows.start
        try:
            d2 = mahalanobis2(measured.r[rows], S[rows, rows])
        except np.linalg.LinAlgError:
            singular += 1
            continue
        if m and d2 < chi2_limit(m, FALSE_ALARM):
            nis[k] = d2 / m
    return nis, singular

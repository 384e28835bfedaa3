"""Images of gates with exact geometry, for tests: supersampled, with the distractions of the real simulator."""

import cv2
import numpy as np

from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, exp, from_euler, matrix, product

CAMERA = Camera(width_px=640, height_px=360, fx_px=320.0, fy_px=320.0, cx_px=320.0, cy_px=180.0, tilt_deg=20.0)
OVER = 4  # samples per pixel and axis
ORANGE, WHITE, CYAN = (25, 60, 245), (240, 240, 240), (255, 190, 0)  # BGR


def square_gate(x=0.0, y=0.0, z=0.0, yaw_deg=0.0, outer_m=2.7) -> Gate:
    return Gate((x, y, z), yaw_deg, 0.0, 1.5, outer_m, 0.26)


def looking_at(p_wb, gate: Gate, off_px=(0.0, 0.0), roll=0.0) -> Array:
    """q_wb at which the gate's centre stands at the image's centre plus off_px, the horizon turned by roll rad."""
    north, east, down = gate.p_wg - np.asarray(p_wb)
    q_level = from_euler(0.0, -np.arctan2(down, np.hypot(north, east)), np.arctan2(east, north))
    tilt = np.radians(CAMERA.tilt_deg)
    aim = from_euler(0.0, np.arctan2(off_px[1], CAMERA.fy_px), -np.arctan2(off_px[0], CAMERA.fx_px))
    return np.array(product(product(product(q_level, exp([roll, 0, 0])), aim), exp([0, -tilt, 0])))


def corners_px(gate: Gate, p_wb, q_wb, side_m=None) -> Array:
    R_wc = matrix(q_wb) @ CAMERA.R_bc
    return CAMERA.project((gate.corners(side_m) - np.asarray(p_wb)) @ R_wc)


class View:
    """What the camera sees from p_wb of gates, the first of which stands at its image's centre plus off_px."""

    def __init__(self, p_wb, *gates, off_px=(0.0, 0.0), roll=0.0):
        self.p_wb, self.gates = np.array(p_wb, float), gates
        self.q_wb = looking_at(self.p_wb, gates[0], off_px, roll)
        self.pose, self.R_wc = (self.p_wb, self.q_wb), matrix(self.q_wb) @ CAMERA.R_bc

    def project(self, p_w) -> Array:
        return CAMERA.project((p_w - self.p_wb) @ self.R_wc)

    def px(self, gate=None, side_m=None) -> Array:
        return self.project((gate or self.gates[0]).corners(side_m))

    def image(self, seed, **distractions):
        return render(self.gates, self.p_wb, self.q_wb, np.random.default_rng(seed), **distractions)


def render(gates, p_wb, q_wb, rng, corridor=False, quality=90, paint=ORANGE, dark=25):
    """Flat gates, the farthest first, with white lettering, noise and JPEG; `corridor` adds cyan light over the nearest."""
    image = np.full((CAMERA.height_px * OVER, CAMERA.width_px * OVER, 3), dark, np.uint8)
    gates = sorted(gates, key=lambda gate: np.linalg.norm(gate.p_wg - p_wb))
    for gate in reversed(gates):
        draw(image, gate, np.asarray(p_wb), q_wb, paint)
    if corridor:
        image = cv2.add(image, light(corners_px(gates[0], p_wb, q_wb, 1.0), image.shape))
    image = cv2.resize(image, (CAMERA.width_px, CAMERA.height_px), interpolation=cv2.INTER_AREA)
    image = np.clip(image + rng.normal(0, 4, image.shape), 0, 255).astype(np.uint8)
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def draw(image, gate, p_wb, q_wb, paint):
    """Each sample looks where its ray meets the gate's plane, so that edges have no thickness of their own."""
    low, high = (f(corners_px(gate, p_wb, q_wb, gate.outer_m), 0) for f in (np.min, np.max))
    limit = np.array([CAMERA.width_px, CAMERA.height_px])
    u0, v0 = (np.clip(np.floor(low) - 1, 0, limit) * OVER).astype(int)
    u1, v1 = (np.clip(np.ceil(high) + 2, 0, limit) * OVER).astype(int)
    u, v = np.meshgrid((np.arange(u0, u1) + 0.5) / OVER - 0.5, (np.arange(v0, v1) + 0.5) / OVER - 0.5)
    R_gc = gate.R_wg.T @ matrix(q_wb) @ CAMERA.R_bc
    ray_g = (
        np.stack([(u - CAMERA.cx_px) / CAMERA.fx_px, (v - CAMERA.cy_px) / CAMERA.fy_px, np.ones_like(u)], -1) @ R_gc.T
    )
    c_g = gate.local(p_wb)
    y, z = (c_g[k] - c_g[0] * ray_g[..., k] / ray_g[..., 0] for k in (1, 2))
    reach = np.maximum(np.abs(y), np.abs(z))
    ring = (reach >= gate.opening_m / 2) & (reach <= gate.outer_m / 2)
    letters = ring & (np.abs(reach - 1.05) < 0.15) & ((np.floor(y / 0.12) + np.floor(z / 0.12)) % 3 == 0)
    part = image[v0:v1, u0:u1]
    part[ring], part[letters] = paint, WHITE


def light(end_px, shape):
    """A translucent cyan ribbon with bright borders from the foot of the image through the opening."""
    glow = np.zeros(shape, np.uint8)
    foot = np.array([[560.0, 359.0], [80.0, 359.0]])
    band = fine(np.vstack([end_px[2], end_px[3], foot[1], foot[0]]))
    cv2.fillPoly(glow, [band], tuple(int(0.5 * c) for c in CYAN), cv2.LINE_8, 4)
    cv2.polylines(glow, [band], True, (255, 255, 230), OVER, cv2.LINE_8, 4)
    return glow


def fine(px):
    """Pixels (n, 2) in the supersampled image, as fillPoly's fixed point with 4 bits."""
    return np.round(((np.asarray(px) + 0.5) * OVER - 0.5) * 16).astype(np.int32)

"""A folder in the layout of TII-RATM, of a flight that never was: laps of an ellipse through four gates."""

import csv
import json

import cv2
import numpy as np

from gate_racer.vehicle.dynamics import GRAVITY

HZ, IMAGE_HZ, REST_S, RAMP_S = 250, 20, 1.5, 3.0
SEMI_M, TURN_RAD_S, HEIGHT_M, SIDE_M = (6.5, 4.0), 1.5, 1.5, 1.524
K = np.array([[287.0, 0, 318.6], [0, 382.5, 223.7], [0, 0, 1]])
DIST = np.array([-0.256, 0.072, -0.0001, -0.0002, -0.009])
UP_DEG, ARM_M = 30.0, (0.091, 0.025, 0.055)
D = np.array([1.0, -1.0, -1.0])
LABEL_PX = 0.7


def smooth(s):
    """Return a smooth step from 0 to 1 over s 0..1, whose first two derivatives vanish at both ends."""
    s = np.clip(s, 0, 1)
    return s**3 * (10 - 15 * s + 6 * s**2)


def flight(seconds):
    """Times (N,), positions (N, 3) and axes (N, 3, 3) of the body, specific forces and rates, in world z up and FLU."""
    n, t = round(seconds * HZ), np.arange(0, seconds + 0.1, 1 / HZ)
    angle = np.cumsum(TURN_RAD_S * smooth((t - REST_S) / RAMP_S)) / HZ
    height = HEIGHT_M * smooth((t - REST_S) / 2.0)
    p = np.column_stack([SEMI_M[0] * np.cos(angle), SEMI_M[1] * np.sin(angle), height])
    a = np.gradient(np.gradient(p, 1 / HZ, axis=0), 1 / HZ, axis=0)
    up = a + [0, 0, GRAVITY]
    z = up / np.linalg.norm(up, axis=1)[:, None]
    ahead = np.column_stack([-SEMI_M[0] * np.sin(angle), SEMI_M[1] * np.cos(angle), 0 * angle])
    y = np.cross(z, ahead)
    y /= np.linalg.norm(y, axis=1)[:, None]
    R = np.stack([np.cross(y, z), y, z], axis=-1)
    force = np.einsum("nji,nj->ni", R, up)
    dR = np.einsum("nji,njk->nik", R[:-1], R[1:]) * HZ
    omega = np.stack([dR[:, 2, 1] - dR[:, 1, 2], dR[:, 0, 2] - dR[:, 2, 0], dR[:, 1, 0] - dR[:, 0, 1]], -1) / 2
    return t[:n], p[:n], R[:n], force[:n], omega[:n]  # without the differences at the end


def gates():
    """Inner corners (4, 4, 3), m: top-left, top-right, bottom-right, bottom-left as the arriving vehicle sees them."""
    found = []
    for angle in np.radians([45, 135, 225, 315]):
        centre = np.array([SEMI_M[0] * np.cos(angle), SEMI_M[1] * np.sin(angle), HEIGHT_M])
        ahead = np.array([-SEMI_M[0] * np.sin(angle), SEMI_M[1] * np.cos(angle), 0.0])
        left = np.cross([0, 0, 1.0], ahead / np.linalg.norm(ahead))
        up = np.array([0, 0, 1.0])
        found.append([centre + SIDE_M / 2 * (a * left + b * up) for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))])
    return np.array(found)


def write(root, seconds=6.0, seed=1, gyro_signs=(1, -1, 1), without=(), skip_s=0.0, image_hz=IMAGE_HZ):
    """Write calibration and one flight, and return the flight's folder."""
    rng, name = np.random.default_rng(seed), "flight-01p-ellipse"
    calibration, folder = root / "camera_calibration", root / "data" / "piloted" / name
    labels = folder / f"labels_{name}"
    for made in (calibration, labels):
        made.mkdir(parents=True)
    s, c = np.sin(np.radians(UP_DEG)), np.cos(np.radians(UP_DEG))
    R_bc = np.array([[0, s, c], [-1, 0, 0], [0, -c, s]])
    w = np.sqrt(1 + np.trace(R_bc)) / 2
    q = [w, *(np.array([R_bc[2, 1] - R_bc[1, 2], R_bc[0, 2] - R_bc[2, 0], R_bc[1, 0] - R_bc[0, 1]]) / (4 * w))]
    lens = {"mtx": K.tolist(), "dist": [DIST.tolist()]}
    (calibration / "calib_ap-ellipse-lemniscate.json").write_text(json.dumps(lens))
    mount = {"translation": dict(zip("xyz", ARM_M, strict=True))}
    mount |= {"rotation": {"piloted": dict(zip("wxyz", q, strict=True))}}
    (calibration / "drone_to_camera.json").write_text(json.dumps(mount))
    t, p, R, force, omega = (values[round(skip_s * HZ) :] for values in flight(seconds))
    accel = force + rng.normal(0.03, 0.15, force.shape)
    gyro = (omega + rng.normal(0.002, 0.01, omega.shape)) * gyro_signs
    stamps = (1_690_000_000_000_000 + 1e6 * t).astype(np.int64)
    columns = {"elapsed_time": t, "timestamp": stamps}
    for names, values in (("accel", accel), ("gyro", gyro), ("drone", p)):
        columns |= {f"{names}_{axis}": values[:, i] for i, axis in enumerate("xyz")}
    columns |= {f"drone_rot[{k}]": R[:, k % 3, k // 3] for k in range(9)}
    for g, corners in enumerate(gates(), 1):
        for m, corner in enumerate(corners, 1):
            columns |= {f"gate{g}_marker{m}_{axis}": np.full(len(t), corner[i]) for i, axis in enumerate("xyz")}
    columns = {key: column for key, column in columns.items() if key not in without}
    with (folder / f"{name}_500hz_freq_sync.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    with (folder / f"{name}_cam_ts_sync.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["elapsed_time", "timestamp", "img_filename"])
        for k in range(0, len(t), HZ // image_hz):
            image = f"{k:05d}_{stamps[k]}"
            rows.writerow([t[k], stamps[k], f"camera_{name}/{image}.jpg"])
            lines = labelled(p[k], R[k], R_bc, rng)
            if lines:
                (labels / f"{image}.txt").write_text("\n".join(lines) + "\n")
    return folder


def labelled(p, R, R_bc, rng):
    """A line per gate of which a corner is in view."""
    lines = []
    R_wc, p_wc = R @ R_bc, p + R @ np.array(ARM_M)
    for corners in gates():
        at = (corners - p_wc) @ R_wc
        if (at[:, 2] < 0.5).any() or np.linalg.norm(at.mean(axis=0)) > 14.0:
            continue
        if (np.abs(at[:, :2] / at[:, 2:]) > 1.4).any():
            continue  # so far off the axis the lens is not calibrated
        px = cv2.projectPoints(at, np.zeros(3), np.zeros(3), K, DIST)[0][:, 0] + rng.normal(0, LABEL_PX, (4, 2))
        seen = ((px > 0) & (px < [640, 480])).all(axis=1)
        if seen.any():
            low, high = px.min(axis=0), px.max(axis=0)
            box = [*((low + high) / 2 / [640, 480]), *((high - low) / [640, 480])]
            keys = [
                value for (x, y), v in zip((px + 0.5) / [640, 480], seen, strict=True) for value in (x, y, 2 * int(v))
            ]
            lines.append(" ".join(str(value) for value in [0, *box, *keys]))
    return lines

"""One flight of TII-RATM, `Race Against the Machine` (Bosello et al., arXiv:2311.02667), in the layout of its repository.

    camera_calibration/calib_<a, p or ap>-<tracks>.json or .npz   mtx (3, 3) px, dist (5,) of OpenCV
    camera_calibration/drone_to_camera.json                       mount: translation m, rotation wxyz per track or `piloted`
    data/<autonomous or piloted>/flight-<number><a or p>-<track>/
        *hz_freq_sync.csv      500 Hz: IMU, motion capture, gates' markers
        *_cam_ts_sync.csv      time and name of each image
        labels_*/<image>.txt   a line per gate: class, box, then x, y, visible of four inner corners, over the image's size

Its body axes are x forward, y left, z up, its world is z up; both are rotated about x into FRD and NED. `drone_rot` is stored
by columns. The axes of its IMU are not published: they are identified, with their signs, by correlation with the motion
capture. Corners are undistorted with the five published coefficients.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.common.files import read_arrays, read_bytes, read_json, read_text, reading
from gate_racer.link.logs.samples import FRD, SignalError, clock_offset, indexed, xyz
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, from_matrix

SYNCHRONISED = "*hz_freq_sync.csv"  # the file that every flight has
CSV_BYTES = 512 << 20  # largest table: 124 columns at 500 Hz have 1 MB per second
IMAGE_PX = 640, 480  # image size of the data set's camera
SMOOTH_S = 0.06  # s, window over which the motion capture is differentiated
LATE_S = 5e-3  # s, offset of the motion capture's clock from which it is corrected (chosen)
LEAST_LIKENESS = 0.5  # cosine of a sensor axis and the motion capture; noise of 500 Hz differences reduces it
GATES, PER_GATE, VISIBLE = 4, 4, 2
ACCEL, GYRO, POSITION = (xyz(f"{what}_{{}}") for what in ("accel", "gyro", "drone"))
ROTATION = indexed("drone_rot", 9)
MARKERS = [name for g in range(GATES) for m in range(PER_GATE) for name in xyz(f"gate{g + 1}_marker{m + 1}_{{}}")]


@dataclass(frozen=True)
class LabelledImage:
    t: float  # s
    corners_px: tuple[Array, ...]  # per gate (4, 2), undistorted; pixel centres at integers
    visible: tuple[np.ndarray, ...]  # per gate (4,)


@dataclass(frozen=True)
class RatmFlight:
    """Signals of a flight. World NED, body FRD, times in s since the first row."""

    t: Array  # (N,)
    force_b: Array  # (N, 3) m/s^2
    omega_b: Array  # (N, 3) rad/s
    p_wb: Array  # (N, 3) m, motion capture
    R_wb: Array  # (N, 3, 3), body to world, motion capture
    markers_w: Array  # (G, 4, 3) m, inner corners of the gates, in any order
    images: tuple[LabelledImage, ...]
    camera: Camera
    truth_offset_s: float  # by which the motion capture was late, before it was corrected; NaN if unknown


def read_ratm(folder: Path) -> RatmFlight:
    """Read one flight's folder. Raises UserError if a part of the layout is missing or malformed."""
    table = _table(_only(folder, SYNCHRONISED), (*ACCEL, *GYRO, *POSITION, *ROTATION, *MARKERS))
    with reading(folder):
        t = (table["timestamp"] - table["timestamp"][0]) * 1e-6
        if len(t) < 100 or not (np.diff(t) > 0).all():
            raise SignalError(f"{folder}: holds {len(t)} rows: expected at least 100 with increasing times")
        parts = (ACCEL, GYRO, POSITION, ROTATION, MARKERS)
        accel, gyro, p_flu, by_columns, markers = (np.column_stack([table[name] for name in names]) for names in parts)
        p_wb, R_wb = p_flu * FRD, FRD[:, None] * by_columns.reshape(-1, 3, 3).transpose(0, 2, 1) * FRD
        force_b, omega_b = _moved(t, p_wb, R_wb)
        turns = _turns(omega_b, gyro, str(folder))
        offset = clock_offset(t, gyro, t, np.array([from_matrix(R) for R in R_wb]))
        if abs(offset) > LATE_S:
            late = round(offset / float(np.median(np.diff(t))))
            begin, end = max(0, -late), len(t) - max(0, late)
            t, accel, gyro = t[begin:end], accel[begin:end], gyro[begin:end]
            p_wb, R_wb = p_wb[begin + late : end + late], R_wb[begin + late : end + late]
            force_b, omega_b = _moved(t, p_wb, R_wb)
            turns = _turns(omega_b, gyro, str(folder))
        pushes = _pushes(force_b, accel, turns)
        camera, K, dist = _camera(folder)
        images = _images(folder, float(table["timestamp"][0]), K, dist)
        markers_w = np.median(markers.reshape(-1, GATES, PER_GATE, 3), axis=0) * FRD
        return RatmFlight(t, accel @ pushes.T, gyro @ turns.T, p_wb, R_wb, markers_w, images, camera, offset)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SignalError(f"{folder}: holds {len(found)} files {pattern}: expected one in a flight of TII-RATM")
    return found[0]


def _table(path: Path, wanted: Sequence[str]) -> dict[str, Array]:
    with reading(path):
        rows = csv.reader(io.TextIOWrapper(io.BytesIO(read_bytes(path, CSV_BYTES)), "utf-8-sig"))
        names = [name.strip() for name in next(rows, [])]
        missing = [name for name in ("timestamp", *wanted) if name not in names]
        if missing:
            raise SignalError(f"{path}: column {missing[0]} is missing")
        at = {name: names.index(name) for name in ("timestamp", *wanted)}
        values = np.array([[float(row[k]) for k in at.values()] for row in rows if row])
        if not np.isfinite(values).all():
            raise ValueError("a value is not a number")
        return dict(zip(at, values.reshape(-1, len(at)).T, strict=True))


def _moved(t: Array, p_wb: Array, R_wb: Array) -> tuple[Array, Array]:
    """Return specific force (N, 3) m/s^2 and rates (N, 3) rad/s, body FRD, from the motion capture."""
    from scipy.signal import savgol_filter  # slow to load, and rarely needed
    from scipy.spatial.transform import Rotation

    step = float(np.median(np.diff(t)))
    window = max(5, 2 * round(SMOOTH_S / step / 2) + 1)
    accel_w = savgol_filter(p_wb, window, 3, deriv=2, delta=step, axis=0)
    force_b = np.einsum("nji,nj->ni", R_wb, accel_w - [0.0, 0.0, GRAVITY])
    turns = Rotation.from_matrix(R_wb)
    omega = (turns[:-1].inv() * turns[1:]).as_rotvec() / step
    return force_b, savgol_filter(np.vstack([omega, omega[-1:]]), window, 1, axis=0)


def _turns(true: Array, measured: Array, where: str) -> Array:
    """Return the signed permutation (3, 3) from the gyro's axes to the body's. Raises SignalError for an uncorrelated axis."""
    from scipy.optimize import linear_sum_assignment  # slow to load

    both = _likeness(true, measured)
    body, sensor = linear_sum_assignment(-np.abs(both))
    least = float(np.abs(both[body, sensor]).min())
    if least < LEAST_LIKENESS:
        wanted = f"at least {LEAST_LIKENESS:g} is required"
        raise SignalError(f"{where}: a gyro axis correlates with the motion capture by {least:.2f}, {wanted}")
    axes = np.zeros((3, 3))
    axes[body, sensor] = np.sign(both[body, sensor])
    return axes


def _pushes(true: Array, measured: Array, turns: Array) -> Array:
    """Return the matrix (3, 3) from the accelerometer's axes to the body's: the gyro's permutation, with signs of its own.

    The thrust acts along z. Where other axes are not excited, x is taken as forward, and y completes a right-handed frame.
    """
    likeness = np.diagonal(_likeness(true, measured @ np.abs(turns).T))
    along_z = np.sign(likeness[2])
    usual = np.array([1.0, along_z, along_z])
    return np.where(np.abs(likeness) < LEAST_LIKENESS, usual, np.sign(likeness))[:, None] * np.abs(turns)


def _likeness(a: Array, b: Array) -> Array:
    """Return the cosines (3, 3) between the axes of signals (N, 3); about zero, not the mean, since steady turns count."""
    size = np.linalg.norm(a, axis=0)[:, None] * np.linalg.norm(b, axis=0)
    return np.asarray(a.T @ b / np.maximum(size, 1e-12))


def _camera(folder: Path) -> tuple[Camera, Array, Array]:
    """Return the undistorted camera, and its calibrated matrix and coefficients."""
    from scipy.spatial.transform import Rotation  # slow to load

    parts = folder.resolve().name.split("-")
    if len(parts) != 3 or parts[0] != "flight" or parts[1][-1:] not in ("a", "p"):
        raise SignalError(f"{folder}: expected the name of a TII-RATM flight: flight-<number><a or p>-<course>")
    kind, course = parts[1][-1], parts[2]
    calibration = next(filter(Path.is_dir, (up / "camera_calibration" for up in folder.resolve().parents)), None)
    if calibration is None:
        raise SignalError(f"{folder}: has no folder camera_calibration above it, as the repository of TII-RATM has")
    for path in sorted(calibration.glob("calib_*-*")):
        kinds, *courses = path.stem.removeprefix("calib_").split("-")
        if path.suffix in (".json", ".npz") and kind in kinds and course in courses:
            break
    else:
        raise SignalError(f"{calibration}: holds no calib_{kind}-{course}.json or .npz")
    values: dict[str, Any] = read_json(path) if path.suffix == ".json" else dict(read_arrays(path))
    mount_file = calibration / "drone_to_camera.json"
    mount = read_json(mount_file)
    with reading(path):
        K, dist = np.array(values["mtx"], float).reshape(3, 3), np.array(values["dist"], float).reshape(-1)
    with reading(mount_file):
        q = mount["rotation"]["piloted" if kind == "p" else course]
        R_bc = FRD[:, None] * Rotation.from_quat([q[k] for k in "wxyz"], scalar_first=True).as_matrix()
        x, y, z = (FRD * [mount["translation"][axis] for axis in "xyz"]).tolist()
    width, height = IMAGE_PX
    ideal = Camera(width, height, K[0, 0], K[1, 1], K[0, 2], K[1, 2], 0.0, (x, y, z))
    return ideal.mounted(R_bc), K, dist


def _images(folder: Path, first_us: float, K: Array, dist: Array) -> tuple[LabelledImage, ...]:
    path = _only(folder, "*_cam_ts_sync.csv")
    labels = next((one for one in sorted(folder.glob("labels_*")) if one.is_dir()), None)
    if labels is None:
        raise SignalError(f"{folder}: holds no folder labels_* with labelled corners")
    images = []
    with reading(path):
        rows = csv.DictReader(io.TextIOWrapper(io.BytesIO(read_bytes(path, CSV_BYTES)), "utf-8-sig"))
        for row in rows:
            file = labels / f"{Path(row['img_filename']).stem}.txt"
            gates = _labels(file, K, dist) if file.is_file() else []
            t = (float(row["timestamp"]) - first_us) * 1e-6
            images.append(LabelledImage(t, tuple(px for px, _ in gates), tuple(seen for _, seen in gates)))
    if any(b.t <= a.t for a, b in pairwise(images)) or not all(math.isfinite(image.t) for image in images):
        raise SignalError(f"{path}: the times of the images must increase")
    return tuple(images)


def _labels(path: Path, K: Array, dist: Array) -> list[tuple[Array, np.ndarray]]:
    """Return undistorted corners (4, 2) px and their visibility, for every gate in an image."""
    gates = []
    with reading(path):
        for line in read_text(path).splitlines():
            values = np.array(line.split()[5:], float).reshape(4, 3)
            px = np.ascontiguousarray(values[:, :2] * IMAGE_PX - 0.5)
            if not np.isfinite(px).all():
                raise ValueError("a corner is not a number")
            undistorted = cv2.undistortPoints(px[:, None], K, dist, P=K)[:, 0]
            seen = values[:, 2] >= VISIBLE
            if seen.any():
                gates.append((undistorted, seen))
    return gates

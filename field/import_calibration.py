"""`import-calibration`: take a camera's lens from a calibration file of OpenCV, Kalibr, ROS or COLMAP into a vehicle's file.

| file | told by | also taken |
|---|---|---|
| OpenCV's FileStorage (YAML, XML) | `camera_matrix`, `distortion_coefficients` | |
| ROS `camera_info` | the same, and `distortion_model` | |
| Kalibr `camchain` | `cam0` with `intrinsics`, `distortion_model` | `timeshift_cam_imu`, `line_delay` |
| COLMAP `cameras.txt` | `ID MODEL WIDTH HEIGHT parameters` | |

Coefficients are taken as they stand: the camera has the same models (`vehicle/lens.py`). The mount stays that of the vehicle.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import add_common, require_outputs, write_json
from gate_racer.common.config import read_fields
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_text, reading
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.lens import EQUIDISTANT, RADTAN
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import load_vehicle

WORK = "gate_racer.field.import_calibration"
COEFFICIENTS = {  # of each model, in OpenCV's order
    RADTAN: ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    EQUIDISTANT: ("k1", "k2", "k3", "k4"),
}
MODELS = {  # distortion by the names of ROS and Kalibr
    "plumb_bob": RADTAN,
    "rational_polynomial": RADTAN,
    "radtan": RADTAN,
    "none": RADTAN,
    "equidistant": EQUIDISTANT,
    "fisheye": EQUIDISTANT,
}
COLMAP = {  # parameters of each model: f stands for both focal lengths
    "SIMPLE_PINHOLE": "f cx cy",
    "PINHOLE": "fx fy cx cy",
    "SIMPLE_RADIAL": "f cx cy k1",
    "RADIAL": "f cx cy k1 k2",
    "OPENCV": "fx fy cx cy k1 k2 p1 p2",
    "FULL_OPENCV": "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6",
    "OPENCV_FISHEYE": "fx fy cx cy k1 k2 k3 k4",
}
LATEST_S = 1.0  # s, most of a camera's delay and readout (chosen)
MOST = 1e5  # of any number of a calibration (chosen)
GRID = 24  # pixels along each side at which the camera is compared with OpenCV


def parser() -> argparse.ArgumentParser:
    """Return the command line of `import-calibration`."""
    p = argparse.ArgumentParser(
        prog="import-calibration", description="Take a camera's lens from a calibration file into a vehicle's file."
    )
    p.add_argument(
        "file", type=Path, help="calibration of OpenCV, ROS (camera_info), Kalibr (camchain) or COLMAP (cameras.txt)"
    )
    p.add_argument("vehicle", nargs="?", default="dcl", help="vehicle of all else, the mount included (default: dcl)")
    p.add_argument("--out", type=Path, help="vehicle file to write; else the camera is only shown")
    add_common(p, "the camera and its residual")
    return p


def run(arguments: argparse.Namespace) -> int:
    """Import as the command line requests. Raises UserError for a file that is no calibration, or a lens that cannot be."""
    base = load_vehicle(arguments.vehicle)
    require_outputs((arguments.out, arguments.json), arguments.file, arguments.vehicle)
    lens = read_calibration(arguments.file)
    try:
        camera = replace(base.camera, **(dict.fromkeys(COEFFICIENTS[RADTAN], 0.0) | {"doubt": None} | lens))
    except (TypeError, ValueError) as error:
        raise UserError(f"{arguments.file}: {error}") from None
    shown = ", ".join(
        f"{name}: {value:.7g}" if isinstance(value, float) else f"{name}: {value}" for name, value in lens.items()
    )
    worst_px, covered = residual(camera)
    print(f"camera: {{{shown}}}")
    print(
        f"{np.degrees(width(camera)):.1f} deg wide; within {worst_px:.1e} px of OpenCV's over {covered:.0%} of the picture"
        + ("" if covered == 1 else ", beyond which the calibration folds it: corners there are continued in proportion")
    )
    if arguments.out:
        from gate_racer.field.files import write_vehicle

        write_vehicle(arguments.out, replace(base, name=arguments.out.stem, camera=camera))
        print(f"written: {arguments.out}, with the mount of {base.name}: tilt {camera.tilt_deg:g} deg; check it")
    write_json(arguments.json, {"camera": asdict(camera), "residual_px": worst_px, "covered": covered})
    return 0


def read_calibration(file: Path) -> dict[str, Any]:
    """Return the fields of `Camera` that a calibration file tells. Raises UserError if it is none of the known ones."""
    import cv2

    text = read_text(file)
    with reading(file, "not a calibration of OpenCV, ROS, Kalibr or COLMAP"):
        if "opencv" in text[:400] or text.startswith("%YAML:1.0"):
            try:
                return _opencv(text)
            except (cv2.error, SystemError, TypeError):
                raise ValueError("cut short, or its matrices are none") from None
        if file.suffix == ".txt":
            return _colmap(text)
        fields = read_fields(file)
        return _kalibr(fields["cam0"]) if "cam0" in fields else _ros(fields)


def _opencv(text: str) -> dict[str, Any]:
    import cv2

    storage = cv2.FileStorage(text, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)

    def first(*names: str) -> Any:
        return next((node for name in names if not (node := storage.getNode(name)).empty()), None)

    K, D = (
        first("camera_matrix", "cameraMatrix", "K", "M1"),
        first("distortion_coefficients", "dist_coeffs", "distCoeffs", "D", "D1"),
    )
    sizes = [first(f"image_{side}", f"image_{side.title()}", side) for side in ("width", "height")]
    if K is None or D is None or None in sizes:
        raise ValueError("it lacks camera_matrix, distortion_coefficients, image_width or image_height")
    k = K.mat()
    fisheye = first("fisheye_model", "fisheye")
    model = EQUIDISTANT if fisheye is not None and fisheye.real() else RADTAN
    size = [int(node.real()) for node in sizes]
    return _fields(size, (k[0, 0], k[1, 1], k[0, 2], k[1, 2]), model, D.mat().ravel())


def _ros(fields: dict[str, Any]) -> dict[str, Any]:
    def first(*names: str) -> Any:
        told = {name: fields[name] for name in names if name in fields}
        if not told:
            raise ValueError(f"it lacks {names[0]}")
        value = next(iter(told.values()))
        return value["data"] if isinstance(value, dict) else value

    k, coefficients = first("camera_matrix", "K", "k"), first("distortion_coefficients", "D", "d")
    size = [first("image_width", "width"), first("image_height", "height")]
    return _fields(size, (k[0], k[4], k[2], k[5]), _model(fields.get("distortion_model", "plumb_bob")), coefficients)


def _kalibr(cam: dict[str, Any]) -> dict[str, Any]:
    if cam.get("camera_model", "pinhole") != "pinhole":
        raise ValueError(
            f"camera_model {cam['camera_model']!r}: only pinhole, with radtan or equidistant distortion, is known"
        )
    found = _fields(cam["resolution"], cam["intrinsics"], _model(cam["distortion_model"]), cam["distortion_coeffs"])
    if "timeshift_cam_imu" in cam:
        found["delay_s"] = float(cam["timeshift_cam_imu"])
    if "line_delay" in cam:
        found["readout_s"] = float(cam["line_delay"]) * found["height_px"]
    if not (abs(found.get("delay_s", 0.0)) < LATEST_S and 0 <= found.get("readout_s", 0.0) < LATEST_S):
        raise ValueError(f"timeshift_cam_imu and line_delay must give less than {LATEST_S:g} s")
    return found


def _colmap(text: str) -> dict[str, Any]:
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(lines) != 1 or lines[0][1] not in COLMAP:
        raise ValueError(f"{len(lines)} cameras; one is expected, of {', '.join(COLMAP)}")
    _, model, width_px, height_px, *values = lines[0]
    given = dict(zip(COLMAP[model].split(), map(float, values), strict=True))
    focal = given.get("fx", given.get("f", np.nan)), given.get("fy", given.get("f", np.nan))
    lens = EQUIDISTANT if model == "OPENCV_FISHEYE" else RADTAN
    # COLMAP's pixels begin at their corners, so that its centres are at one half.
    centre = given["cx"] - 0.5, given["cy"] - 0.5
    return _fields(
        (int(width_px), int(height_px)), (*focal, *centre), lens, [given.get(name, 0.0) for name in COEFFICIENTS[lens]]
    )


def _model(name: str) -> str:
    if name not in MODELS:
        raise ValueError(f"distortion model {name!r}: must be one of {', '.join(MODELS)}")
    return MODELS[name]


def _fields(
    size: Sequence[int], intrinsics: Sequence[float], model: str, coefficients: Sequence[float] | Array
) -> dict[str, Any]:
    names = COEFFICIENTS[model]
    values = [float(value) for value in coefficients]
    if any(values[len(names) :]):
        raise ValueError(f"{len(values)} coefficients; thin prisms and tilted sensors are not modelled")
    fx, fy, cx, cy = map(float, intrinsics)
    if not (np.abs([fx, fy, cx, cy, *values]) < MOST).all() or not (
        min(size) > 0 and max(size) < MOST and min(fx, fy) > 1
    ):
        raise ValueError("a size, focal length, centre or coefficient is not one")
    found: dict[str, Any] = {"width_px": int(size[0]), "height_px": int(size[1]), "fx_px": fx, "fy_px": fy}
    return found | {"cx_px": cx, "cy_px": cy, "lens_model": model} | dict(zip(names, values, strict=False))


def residual(camera: Camera) -> tuple[float, float]:
    """Return the greatest distance, px, to OpenCV's projection, and the share of the picture that the calibration describes."""
    import cv2

    u, v = np.meshgrid(np.linspace(0, camera.width_px - 1, GRID), np.linspace(0, camera.height_px - 1, GRID))
    rays = camera.rays(np.stack([u, v], -1).reshape(-1, 2))
    inside = np.linalg.norm(rays, axis=-1) <= camera.lens.reach
    if not inside.any():
        return float("nan"), 0.0
    rays = rays[inside]
    p_c, none = np.column_stack([rays, np.ones(len(rays))]), np.zeros(3)
    k = np.array([getattr(camera, name) for name in COEFFICIENTS[camera.lens_model]])
    project = cv2.fisheye.projectPoints if camera.lens_model == EQUIDISTANT else cv2.projectPoints
    theirs = project(p_c[:, None], none, none, camera.K, k)[0]
    return float(np.abs(camera.project(p_c) - theirs[:, 0]).max()), float(inside.mean())


def width(camera: Camera) -> float:
    """Return the horizontal angle of view, rad, through the principal point."""
    rays = camera.rays([[-0.5, camera.cy_px], [camera.width_px - 0.5, camera.cy_px]])
    return float(np.ptp(np.arctan(rays[:, 0])))

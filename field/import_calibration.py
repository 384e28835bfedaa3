"""`import-calibration`: take a camera's lens from the calibration file of another program into a vehicle's file.

| file | told by | also taken |
|---|---|---|
| OpenCV's FileStorage, ROS `camera_info`, JSON | `camera_matrix`, `distortion_coefficients` or other `NAMES` | |
| ROS `ost.txt`, `.ini` | `camera matrix`, its numbers below | |
| Kalibr `camchain`, EuRoC | `intrinsics`, `distortion_model`, of `cam0` if of several | `timeshift_cam_imu`, `line_delay` |
| COLMAP `cameras.txt` | `ID MODEL WIDTH HEIGHT parameters` | |
| VINS, ORB-SLAM, Basalt, nerfstudio | names of `SCALARS` under any heading | `td`, `rolling_shutter_tr` |
| Gyroflow | `fisheye_params`, `calib_dimension` | |

Coefficients are taken as they stand: the camera has the same models (`vehicle/lens.py`). The mount stays that of the vehicle.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import add_common, remark, require_outputs, write_json
from gate_racer.common.config import ConfigError, parse_value
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_text, reading
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.lens import EQUIDISTANT, RADTAN, WIDEST
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import load_vehicle

PROGRAMS = "OpenCV, ROS, Kalibr, EuRoC, COLMAP, VINS, ORB-SLAM, Basalt, nerfstudio or Gyroflow"
WORK = "gate_racer.field.import_calibration"
COEFFICIENTS = {  # of each model, in OpenCV's order
    RADTAN: ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    EQUIDISTANT: ("k1", "k2", "k3", "k4"),
}
MODELS = {  # of every program, as `_bare` writes them
    **dict.fromkeys(("plumbbob", "rationalpolynomial", "radtan", "radialtangential", "none"), RADTAN),
    **dict.fromkeys(("pinhole", "rectified", "pinholeradtan8", "opencv", "opencvstandard"), RADTAN),
    **dict.fromkeys(("equidistant", "fisheye", "kannalabrandt", "kannalabrandt8", "kb4", "opencvfisheye"), EQUIDISTANT),
}
SCALARS = {  # of programs that name every parameter
    "fx": ("fx", "flx", "mu"),
    "fy": ("fy", "fly", "mv"),
    "cx": ("cx", "u0"),
    "cy": ("cy", "v0"),
    "width": ("imagewidth", "width", "w"),
    "height": ("imageheight", "height", "h"),
}
INI = re.compile(r"(?m)^camera matrix\s*$")
NUMBERS = re.compile(r"(?m)^([a-z ]+?)\s*\n((?:[-+.\d].*\s*)+)")  # lines of numbers below a name alone in its line
DIRECTIVE = re.compile(r"\A\s*%YAML:1\.0.*")  # of OpenCV, which is none of YAML
LISTED = ("distortioncoefficients", "distortioncoeffs", "distcoeffs", "distcoeff", "distortion", "dist", "d", "d1")
SURE_MODELS = ("modeltype", "cameratype")  # names of nothing else
BESIDE_SCALARS = {
    "model": (*SURE_MODELS, "distortionmodel", "cameramodel", "type", "model"),
    "coefficients": LISTED,
}
OTHER_CAMERA = re.compile(r"(?i)camera[2-9]\b|right\b")  # beginnings of names
CAMERA = re.compile(r"(?i)(cam\d+|camera\d*(?=\.fx))(\.fx)?")  # names of which each camera has one
NAMES = {  # of OpenCV's samples, ROS 1 and 2, ModalAI, Gyroflow and numpy, as `_bare` writes them
    "camera_matrix": ("cameramatrix", "k", "m", "m1", "mtx"),
    "distortion_coefficients": LISTED,
    "image_width": SCALARS["width"],
    "image_height": SCALARS["height"],
    "distortion_model": ("distortionmodel",),
    "fisheye_model": ("fisheyemodel", "fisheye"),
}
COLMAP = {  # parameters of each model: f stands for both focal lengths
    "SIMPLE_PINHOLE": "f cx cy",
    "PINHOLE": "fx fy cx cy",
    "SIMPLE_RADIAL": "f cx cy k1",
    "RADIAL": "f cx cy k1 k2",
    "OPENCV": "fx fy cx cy k1 k2 p1 p2",
    "FULL_OPENCV": "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6",
    "OPENCV_FISHEYE": "fx fy cx cy k1 k2 k3 k4",
    "SIMPLE_RADIAL_FISHEYE": "f cx cy k1",
    "RADIAL_FISHEYE": "f cx cy k1 k2",
}
LATEST_S = 1.0  # s, most of a camera's delay and readout (chosen)
LARGEST = 2 << 20  # bytes; OpenCV writes 1 MB with the corners of 250 views
MOST = 1e5  # of any number of a calibration (chosen)
OFF_CENTRE = 0.15  # of the picture's sides, from its middle, beyond which a centre is doubtful (chosen)
SKEW_PX = 0.01  # px, off the matrix's diagonal, which is that of square pixels as computed (chosen)
GRID = 24  # pixels along each side at which coverage is tried


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="import-calibration", description="Take a camera's lens from a calibration file into a vehicle's file."
    )
    p.add_argument("file", type=Path, help=f"calibration of {PROGRAMS}")
    p.add_argument("vehicle", nargs="?", default="dcl", help="vehicle of all else, the mount included (default: dcl)")
    p.add_argument("--out", type=Path, help="vehicle file to write; else the camera is only shown")
    add_common(p, "the camera, and the share of the picture that the calibration describes")
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
    _require_centred(camera, arguments.file)
    shown = ", ".join(f"{name}: {value if isinstance(value, str) else f'{value:.7g}'}" for name, value in lens.items())
    covered = coverage(camera)
    wide, cut = width(camera)
    far = "it lies over 87 deg off the axis, which is not modelled"
    end = far if np.isclose(camera.lens.reach, WIDEST) else "the calibration folds it"
    print(f"camera: {{{shown}}}")
    print(
        f"{'at least ' if cut else ''}{np.degrees(wide):.1f} deg wide; calibrated over {100 * covered:.3g}% of the picture"
        + ("" if covered == 1 else f", beyond which {end}: corners there are continued in proportion")
    )
    if arguments.out:
        from gate_racer.field.files import write_vehicle

        write_vehicle(arguments.out, replace(base, name=arguments.out.stem, camera=camera))
        print(f"written: {arguments.out}, with the mount of {base.name}: tilt {camera.tilt_deg:g} deg; check it")
    write_json(arguments.json, {"camera": asdict(camera), "covered": covered})
    return 0


def read_calibration(file: Path) -> dict[str, Any]:
    """Return the fields of `Camera` that a calibration file tells. Raises UserError if it is none of the known ones."""
    text = read_text(file, LARGEST)
    with reading(file, f"not a calibration of {PROGRAMS}"):
        if file.suffix == ".txt" and not INI.search(text):
            return _colmap(text)
        fields = _parsed(text, file)
        if not isinstance(fields, dict):
            raise ValueError("it has no named fields")
        found = _lens(fields)
        cameras = sorted(name.removesuffix(".fx") for name in fields if CAMERA.fullmatch(name))
        of_basalt = fields.get("value0", {}).get("intrinsics", ())
        cameras = cameras or [f"intrinsics[{k}]" for k in range(len(of_basalt))]
    if len(cameras) > 1:
        remark(f"{file}: of {len(cameras)} cameras {cameras[0]} is taken")
    return found


def _parsed(text: str, file: Path) -> Any:
    if INI.search(text):
        return _ini(text)
    if "opencv-matrix" not in text and "<opencv_storage" not in text:
        plain = DIRECTIVE.sub("", text)
        try:
            return parse_value(_first_document(plain), str(file))
        except ConfigError:
            if plain == text:
                raise  # else OpenCV may read it, such as `size:2`
    import cv2

    try:
        storage = cv2.FileStorage(text, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)  # whose nodes end with it
        return _plain(storage.root())
    except (cv2.error, SystemError, TypeError):
        raise ValueError("OpenCV cannot read it: cut short, or its matrices are none") from None


def _lens(fields: dict[str, Any]) -> dict[str, Any]:
    if "cam0" in fields:
        return _kalibr(fields["cam0"])
    if "fisheye_params" in fields:
        return _gyroflow(fields)
    if "LEFT.K" in fields:
        raise ValueError("its Camera is that of rectified images; the lens is LEFT.K and LEFT.D: give these")
    if {_bare(name) for name in fields} & {*NAMES["camera_matrix"]}:
        return _matrices(fields)
    if {"resolution", "distortion_model"} <= fields.keys() and isinstance(fields.get("intrinsics"), list):
        return _kalibr(fields)
    named = _named(fields)
    for name in SURE_MODELS:
        _model(named.get(name, "none"))
    return _scalars(named) if named.keys() & SCALARS["fx"] else _matrices(fields)


def _ini(text: str) -> dict[str, Any]:
    """Return the fields of ROS's `ost.txt` and `.ini`: a name alone in its line, numbers in those below."""
    if (count := len(INI.findall(text))) > 1:
        raise ValueError(f"{count} cameras; keep the lines of one")
    fields = {name: [*map(float, numbers.split())] for name, numbers in NUMBERS.findall(text)}
    if (count := len(fields["distortion"])) == 4:
        raise ValueError("its 4 coefficients may be those of a fisheye: give ost.yaml, which names the model")
    if count not in (5, 8):
        raise ValueError(f"distortion must have 5 or 8 coefficients, has {count}")
    return fields | {name: fields[name][0] for name in ("width", "height")}


def _gyroflow(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("digital_lens") or any(fields[name] not in (None, 0, 1) for name in fields if "stretch" in name):
        raise ValueError("its digital lens or stretch is not modelled")
    model = fields.get("distortion_model") or fields.get("distortion_model_id") or "opencv_fisheye"
    return _matrices(fields["fisheye_params"] | fields["calib_dimension"] | {"distortion_model": model})


def _plain(node: Any) -> Any:
    if node.isMap():
        return {name: _plain(node.getNode(name)) for name in node.keys()}  # noqa: SIM118
    if node.isSeq():
        return [_plain(node.at(k)) for k in range(node.size())]
    return node.string() if node.isString() else node.real()


def _first_document(text: str) -> str:
    """Return YAML up to a second document, which `ros2 topic echo` begins."""
    begun = re.search(r"(?m)^\w", text)
    end = text.find("\n---", begun.start()) if begun else -1
    return text if end < 0 else text[:end]


def _bare(name: str) -> str:
    return re.sub("[-_ ]", "", name.lower())


def _told(given: dict[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return what is given, by our names; of several aliases the first counts. A text for coefficients names their model."""
    texts = [name for name in LISTED if isinstance(given.get(name), str)]
    models = dict(("distortionmodel", given[name]) for name in texts)
    given = models | {name: value for name, value in given.items() if name not in texts}
    return {name: given[alias] for name, aliases in names.items() for alias in reversed(aliases) if alias in given}


def _matrices(fields: dict[str, Any]) -> dict[str, Any]:
    given = {_bare(name): value for name, value in fields.items()}
    told = _told(given, NAMES)
    missing = [name for name in list(NAMES)[:4] if name not in told]
    if missing:
        size_only = "; add them to the file, in px" if "image" in missing[0] else ""
        raise ValueError(f"it lacks {', '.join(missing)}{size_only}")
    matrices = told["camera_matrix"], told["distortion_coefficients"]
    K, D = (np.array(value["data"] if isinstance(value, dict) else value, float).ravel() for value in matrices)
    (fx, skew, cx), (below, fy, cy), last = K.reshape(3, 3)
    if max(abs(skew), abs(below)) > SKEW_PX or tuple(last) != (0, 0, 1):
        raise ValueError(f"camera_matrix {K.tolist()}: must be fx 0 cx, 0 fy cy, 0 0 1; skewed pixels are not modelled")
    roi = given.get("roi") or {}
    if max(given.get("binningx", 0), given.get("binningy", 0)) > 1 or any(roi.get(f"{axis}_offset") for axis in "xy"):
        raise ValueError("its images are binned or cut (binning, roi): give size and matrix of those that arrive")
    flagged = str(told.get("fisheye_model", 0)).lower() in ("1", "1.0", "true")
    model = told.get("distortion_model", "fisheye" if flagged else "plumb_bob")
    return _fields((told["image_width"], told["image_height"]), (fx, fy, cx, cy), _model(model), D)


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """Return all values by the last part of their names, without underscores; of several cameras the first."""
    named = dict[str, Any]()
    for name, value in fields.items():
        if OTHER_CAMERA.match(name):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict) and name != "frames":
            value = value[0]
        inner = _named(value) if isinstance(value, dict) else {_bare(name.rpartition(".")[2]): value}
        named = inner | named
    return named


def _scalars(named: dict[str, Any], corner: bool = False) -> dict[str, Any]:
    """Return the fields of a camera whose parameters have a name each; `corner`: pixels begin at their corners."""
    if "resolution" in named:  # Basalt: of each camera
        named |= dict(zip(("width", "height"), np.ravel(named["resolution"])[:2].tolist(), strict=True))
    given, beside = _told(named, SCALARS), _told(named, BESIDE_SCALARS)
    if missing := [name for name in SCALARS if name not in given]:
        raise ValueError(f"it lacks {', '.join(missing)}; add them to the file, in px")
    fx, fy, cx, cy, width_px, height_px = (float(given[name]) for name in SCALARS)
    if named.get("camtimeoffsetns"):
        raise ValueError("cam_time_offset_ns is not taken: set it to 0, and delay_s in the vehicle's file")
    flagged = any(str(named.get(name)).lower() in ("1", "true") for name in ("isfisheye", "fisheye"))
    model = beside.get("model", "fisheye" if flagged else "pinhole")
    lens, of_nerf = _model(model), "flx" in named
    if "radial" in named or "tangential" in named or (of_nerf and lens == RADTAN and named.get("k4")):
        raise ValueError("its distortion is not modelled: name k1, k2, p1, p2, k3 of OpenCV")
    half = 0.5 if corner or of_nerf else 0.0  # COLMAP's pixels begin at their corners, so do nerfstudio's
    first = 2 if "mu" in named else 1  # of the coefficients; VINS counts from 2 for KANNALA_BRANDT
    names = [f"k{k + first}" for k in range(4)] if lens == EQUIDISTANT else COEFFICIENTS[lens]
    listed = np.ravel(beside.get("coefficients", [named.get(name, 0.0) for name in names]))
    coefficients = [] if str(model).lower() == "rectified" else listed.astype(float).tolist()
    found = _fields((int(width_px), int(height_px)), (fx, fy, cx - half, cy - half), lens, coefficients)
    return found | _times(named.get("td"), named.get("rollingshuttertr") if named.get("rollingshutter", 1) else None)


def _kalibr(cam: dict[str, Any]) -> dict[str, Any]:
    if cam.get("camera_model", "pinhole") != "pinhole":
        raise ValueError(f"camera_model {cam['camera_model']!r}: only pinhole, radtan or equidistant, is known")
    listed = cam["distortion_coefficients" if "distortion_coefficients" in cam else "distortion_coeffs"]
    found = _fields(cam["resolution"], cam["intrinsics"], _model(cam["distortion_model"]), listed)
    readout_s = cam["line_delay"] * found["height_px"] if "line_delay" in cam else None
    return found | _times(cam.get("timeshift_cam_imu"), readout_s)


def _times(delay_s: float | None, readout_s: float | None) -> dict[str, Any]:
    given = ("delay_s", delay_s), ("readout_s", readout_s)
    found = {name: float(value) for name, value in given if value is not None}
    if not (abs(found.get("delay_s", 0.0)) < LATEST_S and 0 <= found.get("readout_s", 0.0) < LATEST_S):
        raise ValueError(f"time offset and readout must be less than {LATEST_S:g} s")
    return found


def _colmap(text: str) -> dict[str, Any]:
    cameras = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not cameras or not all(len(one) > 4 and one[0].isdigit() for one in cameras):
        raise ValueError("a .txt must have a line ID MODEL WIDTH HEIGHT parameters; of Kalibr, give the camchain")
    if len(cameras) != 1:
        raise ValueError(f"{len(cameras)} cameras; keep the line of one")
    _, model, width_px, height_px, *values = cameras[0]
    if model not in COLMAP:
        raise ValueError(f"camera model {model!r}: must be one of {', '.join(COLMAP)}")
    given = dict(zip(COLMAP[model].split(), map(float, values), strict=True))
    if "f" in given:
        given |= dict.fromkeys(("fx", "fy"), given["f"])
    lens = "fisheye" if model.endswith("FISHEYE") else "opencv"
    return _scalars({"w": int(width_px), "h": int(height_px), "model": lens} | given, corner=True)


def _model(name: str) -> str:
    plain = _bare(str(name))
    if plain not in MODELS:
        raise ValueError(f"camera or distortion model {name!r}: must be one of {', '.join(MODELS)}")
    return MODELS[plain]


def _fields(
    size: Sequence[int], intrinsics: Sequence[float], model: str, coefficients: Sequence[float] | Array
) -> dict[str, Any]:
    names, values = COEFFICIENTS[model], [float(value) for value in coefficients]
    if any(values[len(names) :]):
        raise ValueError(f"{len(values)} coefficients; thin prisms and tilted sensors are not modelled")
    fx, fy, cx, cy = map(float, intrinsics)
    if not ((np.abs([fx, fy, cx, cy, *values]) < MOST).all() and 0 < min(size) <= max(size) < MOST and min(fx, fy) > 1):
        raise ValueError("a size, focal length, centre or coefficient is not one")
    found: dict[str, Any] = {"width_px": int(size[0]), "height_px": int(size[1]), "fx_px": fx, "fy_px": fy}
    return found | {"cx_px": cx, "cy_px": cy, "lens_model": model} | dict(zip(names, values, strict=False))


def _require_centred(camera: Camera, file: Path) -> None:
    """Remark a centre far from the picture's middle. Raises UserError for one outside of the picture."""
    centre, size = np.array([camera.cx_px, camera.cy_px]), np.array([camera.width_px, camera.height_px])
    at, cure = f"({camera.cx_px:g}, {camera.cy_px:g}) px", "size and matrix must be of the same picture"
    told = f"of a picture of {size[0]} x {size[1]} px: {cure}"
    if not camera.sees(centre):
        raise UserError(f"{file}: the centre {at} lies outside {told}")
    if (np.abs(centre - (size - 1) / 2) > OFF_CENTRE * size).any():
        remark(f"{file}: the centre {at} lies far from the middle {told}")


def coverage(camera: Camera) -> float:
    """Return the share of the picture that the calibration describes."""
    u, v = np.meshgrid(np.linspace(0, camera.width_px - 1, GRID), np.linspace(0, camera.height_px - 1, GRID))
    rays = camera.rays(np.stack([u, v], -1).reshape(-1, 2))
    return float((np.linalg.norm(rays, axis=-1) <= camera.lens.reach).mean())


def width(camera: Camera) -> tuple[float, bool]:
    """Return the horizontal angle of view, rad, through the principal point, and whether it is cut to what is modelled."""
    tangents = camera.rays([[-0.5, camera.cy_px], [camera.width_px - 0.5, camera.cy_px]])[:, 0]
    cut = np.clip(tangents, -WIDEST, WIDEST)
    return float(np.ptp(np.arctan(cut))), bool((cut != tangents).any())

"""`detect-gates`: run a detector on images, without track or prior. Prints detections, and writes JSON and drawings.

Pixel centres are at integers. Images may be of any size; those that cannot be read give an empty list, and those of another size
than the camera's no distances.
"""

import argparse
import base64
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.common.command import remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_bytes, reading, require_output, write_file
from gate_racer.common.images import IMAGE_BYTES, IMAGE_SUFFIXES, decode_image
from gate_racer.common.settings import settings_of
from gate_racer.link.logs.reader import ROS, log_kind
from gate_racer.link.logs.ros import ros_images
from gate_racer.link.record import read_records
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.pose import gate_pose
from gate_racer.perception.registry import DETECTORS, open_detector
from gate_racer.perception.roi import RoiPredictor, SearchWindow
from gate_racer.pilot.detect_gates import DetectionSettings
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.vehicle import load_vehicle

LOGS = (".mcap", ".bag", ".db3")
DRAWN = "-gates.png"  # ends of the names of drawings
SHIFT = 4  # fixed-point bits of drawn coordinates
MAGNIFIED = 3  # scale of drawn images
GREEN, CYAN = (0, 255, 0), (255, 255, 0)


def run(arguments: argparse.Namespace) -> int:
    """Detect gates as the command line requests, and return the exit code. Raises UserError for unreadable input."""
    settings = settings_of(arguments, DetectionSettings)
    camera = load_vehicle(settings.vehicle).camera
    gates = load_track(settings.track).gates
    opening_m = max(gate.opening_m for gate in gates)
    files = _files(arguments.what, settings.draw)
    if arguments.json:
        card = Path(settings.detector).with_suffix(".yaml")
        require_output(arguments.json, card, *files)

    @functools.cache
    def opened(height: int, width: int) -> tuple[Detector, SearchWindow]:
        """Return a detector for images of a size, and the window that is all of them."""
        focal_px, seen = camera.fx_px * width / camera.width_px, camera
        if (width, height) != (camera.width_px, camera.height_px):
            seen = Camera(width, height, focal_px, focal_px, width / 2, height / 2, camera.tilt_deg)
        return open_detector(settings.detector, seen), RoiPredictor(gates, seen).whole_image

    found: dict[str, list[dict[str, Any]]] = {}
    unreadable = other_sizes = 0
    for name, data in images(files):
        image, detections, ranged = decode_image(data), list[Detection](), False
        if image is not None:
            detector, window = opened(*image.shape[:2])
            detections = detector.detect(image, window)
            ranged = image.shape[:2] == (camera.height_px, camera.width_px)
            other_sizes += not ranged
        unreadable += image is None
        found[name] = [record(detection, opening_m, camera if ranged else None) for detection in detections]
        print(f"{name}: {len(detections)} " + " ".join(brief(gate) for gate in found[name]))
        if settings.draw and image is not None:
            drawn = settings.draw / f"{name.replace('/', '-')}{DRAWN}"
            require_output(drawn, *files)
            draw(drawn, image, detections)
    if unreadable == len(found):
        sources = ", ".join(map(str, arguments.what))
        raise UserError(f"{sources}: {'no image inside can be read' if found else 'no images inside'}")
    if unreadable:
        remark(f"{unreadable} of {len(found)} images were skipped: not complete JPEG or PNG images")
    if other_sizes:
        size = f"{camera.width_px}x{camera.height_px}"
        remark(f"{other_sizes} of {len(found)} images are not of the camera's {size} px: without distances")
    if not any(found.values()) and settings.detector in DETECTORS:
        mend = "for other gates label some images and run train-detector (docs/real_data.md)"
        remark(f"no gates found; `{settings.detector}` knows only frames of the simulator's orange; {mend}")
    write_json(arguments.json, found)
    return 0


def images(sources: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each image; files of one name have their paths. Raises UserError for a source without images."""
    files = _files(sources)
    names = [file.stem if file.suffix in LOGS else file.name for file in files]
    shared = {name for name, count in Counter(names).items() if count > 1}
    for file, name in zip(files, names, strict=True):
        name = f"{file.parent.as_posix()}/{name}" if name in shared else name
        if file.suffix in LOGS:
            with reading(file):  # of this project's records, or of the busiest camera of ROS
                if log_kind(file) == ROS:
                    logged = (data for _, data in ros_images(file))
                else:
                    logged = (base64.b64decode(one["data"]) for _, one in read_records(file, only=["/camera"]))
                yield from ((f"{name}/{n:06d}", data) for n, data in enumerate(logged))
        else:
            yield name, read_bytes(file, IMAGE_BYTES)


def _files(sources: list[Path], drawings: Path | None = None) -> list[Path]:
    """Return the image and log files of the sources, without earlier drawings. Raises UserError for a folder without any."""
    found: list[Path] = []
    drawn = {file.resolve() for file in drawings.glob(f"*{DRAWN}")} if drawings else set()
    for source in sources:
        inside = _inside(source) if source.is_dir() else [source]
        if not inside:
            logs, suffixes = ", ".join(LOGS), ", ".join(IMAGE_SUFFIXES)
            raise UserError(f"{source}: neither logs ({logs}) nor images ({suffixes}) in this folder")
        found += [file for file in inside if file == source or file.resolve() not in drawn]
    return found


def _inside(folder: Path) -> list[Path]:
    """Return the files of a folder and its subfolders that are not hidden: of each its logs, or without logs its images."""
    shown = (file for file in sorted(folder.rglob("*")) if "/." not in f"/{file.relative_to(folder).as_posix()}")
    files = [file for file in shown if not file.is_dir()]
    of_logs = {file.parent for file in files if file.suffix in LOGS}  # in which images are plots
    return [f for f in files if f.suffix in LOGS or (f.suffix.lower() in IMAGE_SUFFIXES and f.parent not in of_logs)]


def record(detection: Detection, opening_m: float, camera: Camera | None) -> dict[str, Any]:
    """Return one gate's JSON record; the distance is null where corners or the camera are missing."""
    pose = None
    if detection.visible.all() and camera is not None:
        rng = np.random.default_rng(0)
        side_m = opening_m if detection.near_face else opening_m - 2 * GateAppearance().outline_m
        pose = gate_pose(detection.corners_px, detection.sigma_px, side_m, camera, rng)
    return {
        "corners": np.round(detection.corners_px, 3).tolist(),
        "visible": detection.visible.tolist(),
        "near_face": detection.near_face,
        "score": round(detection.score, 4),
        "distance_m": round(float(np.linalg.norm(pose.p_cg)), 3) if pose else None,
    }


def brief(gate: dict[str, Any]) -> str:
    distance = f"{gate['distance_m']:.1f} m" if gate["distance_m"] else f"{sum(gate['visible'])} corners"
    return f"[{distance}, score {gate['score']:.2f}]"


def draw(file: Path, image: np.ndarray, detections: list[Detection]) -> None:
    """Write the image, magnified, with the openings in green, frames in cyan and visible corners as dots."""
    big = cv2.resize(image, None, fx=MAGNIFIED, fy=MAGNIFIED, interpolation=cv2.INTER_NEAREST)

    def at(px: np.ndarray) -> np.ndarray:
        fixed = ((px + 0.5) * MAGNIFIED - 0.5) * (1 << SHIFT)
        return np.clip(np.round(fixed), -(1 << 24), 1 << 24).astype(np.int32)

    for detection in detections:
        cv2.polylines(big, [at(detection.corners_px)], True, GREEN, 1, cv2.LINE_AA, SHIFT)
        if detection.outer_px is not None:
            cv2.polylines(big, [at(detection.outer_px)], True, CYAN, 1, cv2.LINE_AA, SHIFT)
        for corner in at(detection.corners_px[detection.visible]):
            cv2.circle(big, corner.tolist(), 2 << SHIFT, GREEN, -1, cv2.LINE_AA, SHIFT)
    write_file(file, cv2.imencode(".png", big)[1].tobytes())

"""Labelled photographs: a folder of images, and the corners of the openings in them, as labelling tools export them.

| file | form |
|---|---|
| `*.csv` | a header, then one opening per row: `image`, and eight columns u, v of its corners in order |
| `*.json` | COCO keypoints: four per annotation (`images`, `annotations[].keypoints`) |
| `*.txt` | YOLO-pose, one file per image: `class cx cy w h` and four corners `u v [visible]`, over the image's size |
| `*.xml` | CVAT for images 1.1: polygons or points of four corners, or skeletons of four points |

Pixel centres are at integers. Corners may be given in either sense of rotation and from any first one; those that are hidden, or
outside the image, where they would be. COCO and YOLO-pose tell hidden corners (visibility 1) and unknown ones (0), such as those
of a gate that the image cuts: its other corners are learned, its place is not.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.common.errors import UserError
from gate_racer.common.files import TEXT_BYTES, read_bytes, read_csv, read_json, read_text, reading
from gate_racer.common.images import IMAGE_BYTES, IMAGE_SUFFIXES, decode_image
from gate_racer.model.quadrilateral import is_convex
from gate_racer.vehicle.rotation import Array, Mask

UNKNOWN, HIDDEN, VISIBLE = 0, 1, 2  # visibilities of a keypoint in COCO and YOLO-pose
SHARES = 3.0  # most of a coordinate over the image's size (chosen)
FARTHEST_PX = 1e5  # most of a coordinate: a corner may lie outside of the image (chosen)
Openings = dict[str, list[Array]]  # by the image's name: corners (4, 3) as labelled, px and visibility (2, 1 or 0)


@dataclass(frozen=True, slots=True)
class Photograph:
    """A labelled image."""

    name: str
    image: Image  # (H, W, 3) BGR
    corners_px: Array  # (K, 4, 2) of the openings, clockwise as seen; NaN where unknown
    visible: Mask  # (K, 4) corners that are not hidden


def read_photographs(folder: Path) -> list[Photograph]:
    """Return the labelled images of a folder and its sub-folders, in the natural order of their names (2 before 10).

    Images that the labels do not name are left out; those named without an opening show none.

    Raises:
        UserError: no folder, images or labels, labels of several forms, or what is wrong with which opening.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of labelled images")
    files = sorted(
        (f for f in folder.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES), key=lambda file: in_order(file.name)
    )
    if not files:
        raise UserError(f"{folder}: no images ({', '.join(IMAGE_SUFFIXES)}) inside")
    with ThreadPoolExecutor() as reading_ahead:
        images = dict(zip((file.name for file in files), reading_ahead.map(_read, files), strict=True))
    if len(images) < len(files):
        raise UserError(f"{folder}: {len(files) - len(images)} images have the name of another one; labels go by names")
    openings = {Path(name).name: quads for name, quads in _labels(folder, images).items()}
    unknown = sorted(openings.keys() - images.keys())
    if unknown:
        raise UserError(f"{folder}: the labels name {unknown[0]!r}, which is not in the folder ({len(unknown)} such)")
    found = []
    for name in (name for name in images if name in openings):
        points = [_clockwise(quad, f"{name}: opening {k + 1}") for k, quad in enumerate(openings[name])]
        quads = np.array(points).reshape(-1, 4, 3)
        found.append(Photograph(name, images[name], quads[..., :2], quads[..., 2] == VISIBLE))
    return found


def in_order(name: str) -> list[tuple[int, str]]:
    """Return the key of a name's natural order: numbers in it compare as such."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _read(file: Path) -> Image:
    image = decode_image(read_bytes(file, IMAGE_BYTES))
    if image is None:
        raise UserError(f"{file}: not a complete JPEG or PNG image")
    return image


def _labels(folder: Path, images: dict[str, Image]) -> Openings:
    """Read the one label file of a folder, or the text files named as the images."""
    found = [f for f in sorted(folder.rglob("*")) if f.suffix.lower() in READERS]
    texts = [f for f in sorted(folder.rglob("*.txt")) if any(Path(name).stem == f.stem for name in images)]
    if len(found) + bool(texts) != 1:
        names = ", ".join(f.name for f in found) + (", *.txt" if texts else "")
        raise UserError(
            f"{folder}: {f'labels of several files ({names}); keep one' if names else 'no labels'}"
            " (known: corners as CSV, COCO keypoints as JSON, YOLO-pose as TXT, CVAT as XML)"
        )
    if texts:
        return _yolo_pose(texts, images)
    with reading(found[0]):
        return READERS[found[0].suffix.lower()](found[0])


def _csv(file: Path) -> Openings:
    header, *rows = read_csv(file)
    if len(header) != 9 or header[0] != "image":
        raise UserError(f"{file}: the header must be `image` and eight columns of corners, not {', '.join(header)}")
    found: Openings = {}
    for number, row in enumerate(rows, 2):
        if len(row) != 9:
            raise UserError(f"{file}, row {number}: has {len(row)} fields, must have 9")
        found.setdefault(row[0], []).append(_seen(np.array(row[1:], float).reshape(4, 2)))
    return found


def _coco(file: Path) -> Openings:
    told: dict[str, Any] = read_json(file)
    names = {image["id"]: str(image["file_name"]) for image in told["images"]}
    found: Openings = {name: [] for name in names.values()}
    for annotation in told["annotations"]:
        points, where = annotation.get("keypoints", []), f"{file}: annotation {annotation.get('id')}"
        if len(points) != 12:
            raise UserError(f"{where}: has {len(points) // 3} keypoints, must have 4")
        found[names[annotation["image_id"]]].append(np.array(points, float).reshape(4, 3))
    return found


def _yolo_pose(files: list[Path], images: dict[str, Image]) -> Openings:
    names, found = {Path(name).stem: name for name in images}, Openings()
    for file in files:
        name = names[file.stem]
        height, width = images[name].shape[:2]
        found[name] = []
        for number, line in enumerate(read_text(file).splitlines(), 1):
            with reading(file):
                values = np.array(line.split(), float)
            if len(values) not in (0, 13, 17):
                raise UserError(
                    f"{file}, line {number}: has {len(values)} values, must have 13, or 17 with visibilities"
                )
            if len(values):
                points = values[5:].reshape(4, -1)
                told = points if points.shape[1] == 3 else _seen(points)
                if not (np.abs(points[:, :2]) <= SHARES).all():
                    raise UserError(
                        f"{file}, line {number}: corners must be given over the image's size, 0 to 1 inside"
                    )
                found[name].append(told * [width, height, 1] - [0.5, 0.5, 0])
    return found


def _cvat(file: Path) -> Openings:
    found: Openings = {}
    try:
        root = ElementTree.fromstring(read_bytes(file, TEXT_BYTES))
    except ElementTree.ParseError as error:
        raise UserError(f"{file}: malformed ({error})") from None
    for image in root.iter("image"):
        quads = found.setdefault(image.attrib["name"], [])
        for points in _cvat_shapes(image):
            if [len(point) for point in points] != [2] * 4:
                raise UserError(f"{file}: {image.attrib['name']}: a shape has {len(points)} points, must have 4 of u,v")
            quads.append(_seen(np.array(points) - 0.5))
    return found


def _cvat_shapes(image: ElementTree.Element) -> Iterator[list[list[float]]]:
    """Yield the points of each shape of a CVAT image, whose pixels run from corner to corner: centres are at one half."""
    for shape in image:
        texts = [
            part.attrib["points"] for part in (shape if shape.tag == "skeleton" else [shape]) if "points" in part.attrib
        ]
        if texts:
            yield [[float(x) for x in point.split(",")] for text in texts for point in text.split(";")]


def _seen(px: Array) -> Array:
    """Return corners (4, 3) that are all visible."""
    return np.column_stack([px, np.full(4, VISIBLE)])


def _clockwise(quad: Array, where: str) -> Array:
    """Return corners (4, 3) clockwise as seen, NaN for unknown ones.

    Raises:
        UserError: a position or visibility is not one, or four known ones are not those of a convex quadrilateral, in order.
    """
    if not np.isin(quad[:, 2], (UNKNOWN, HIDDEN, VISIBLE)).all():
        raise UserError(
            f"{where}: visibilities {quad[:, 2].tolist()}: each must be 0 (unknown), 1 (hidden) or 2 (visible)"
        )
    if not (np.abs(quad[quad[:, 2] > UNKNOWN]) < FARTHEST_PX).all():
        raise UserError(f"{where}: a corner is not at a finite position within {FARTHEST_PX:g} px")
    quad = np.where(quad[:, 2:] > UNKNOWN, quad, np.nan)
    if np.isnan(quad).any():
        return quad
    along = np.roll(quad, -1, 0) - quad
    turn = along[:, 0] * np.roll(along[:, 1], -1) - along[:, 1] * np.roll(along[:, 0], -1)
    quad = quad if turn.sum() > 0 else quad[::-1]
    if not is_convex(quad[None, :, :2])[0]:
        px = np.round(quad[:, :2]).astype(int).tolist()
        raise UserError(f"{where}: its corners {px} are not those of a quadrilateral in order")
    return quad


READERS = {".csv": _csv, ".json": _coco, ".xml": _cvat}

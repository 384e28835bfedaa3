"""Labelled photographs: a folder of images, and the corners of the openings in them, as labelling tools export them.

| file | form |
|---|---|
| `*.csv` | one opening per row: `image`, and eight columns u, v of its corners in order; with a header or without |
| `*.json` | COCO keypoints: four per annotation (`images`, `annotations[].keypoints`) |
| `*.txt` | YOLO-pose, one file per image: `class cx cy w h` and four corners `u v [visible]`, over the image's size |
| `*.xml` | CVAT for images 1.1: polygons or points of four corners, or skeletons of four points |

Pixel centres are at integers. Corners may be given in either sense of rotation and from any first one; those that are hidden, or
outside the image, where they would be. COCO and YOLO-pose tell hidden corners (visibility 1) and unknown ones (0), skeletons of
CVAT likewise (occluded, outside), such as those of a gate that the image cuts: its other corners are learned, its place is not.
Labels name their image; where several have that name, with the folders: those of YOLO's `labels/` are in `images/`.
"""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.compiled import Image
from gate_racer.common.errors import UserError
from gate_racer.common.files import TEXT_BYTES, read_bytes, read_csv, read_json, read_text, reading
from gate_racer.common.images import IMAGE_BYTES, IMAGE_SUFFIXES, decode_image
from gate_racer.model.quadrilateral import is_convex
from gate_racer.vehicle.rotation import Array, Mask

UNKNOWN, HIDDEN, VISIBLE = 0, 1, 2  # visibilities of a keypoint in COCO and YOLO-pose
SHARES = 3.0  # most of a coordinate over the image's size (chosen)
FARTHEST_PX = 1e5  # most of a coordinate: a corner may lie outside of the image (chosen)
SHAPES = ("polygon", "polyline", "points", "skeleton")  # those of CVAT that tell corners
Openings = dict[str, list[Array]]  # by the image's name: corners (4, 3) as labelled, px and visibility (2, 1 or 0)


@dataclass(frozen=True, slots=True)
class Photograph:
    """A labelled image."""

    name: str  # its path within the folder
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
        (f for f in folder.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES),
        key=lambda file: (in_order(file.name), file.as_posix()),
    )
    if not files:
        raise UserError(f"{folder}: no images ({', '.join(IMAGE_SUFFIXES)}) inside")
    with ThreadPoolExecutor() as reading_ahead:
        names = (file.relative_to(folder).as_posix() for file in files)
        images = dict(zip(names, reading_ahead.map(_read, files), strict=True))
    find = _finder(images, folder)
    openings: Openings = {}
    for label, marked in _labels(folder, images).items():  # which may name an image in several ways
        openings.setdefault(find(label), []).extend(marked)
    found = []
    for name in (name for name in images if name in openings):
        placed = [quad for quad in openings[name] if quad[:, 2].any()]  # others tell nothing
        points = [_clockwise(quad, f"{name}: opening {k + 1}") for k, quad in enumerate(placed)]
        quads = np.array(points).reshape(-1, 4, 3)
        found.append(Photograph(name, images[name], quads[..., :2], quads[..., 2] == VISIBLE))
    return found


def in_order(name: str) -> list[tuple[int, str]]:
    """Return the key of a name's natural order: numbers in it compare as such."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _finder(images: Iterable[str], folder: Path) -> Callable[[str], str]:
    """Return a function from a label's path to the image of that file name, among several to that in the same folders.

    Raises:
        UserError: by the function; there is none, or which of several is not clear.
    """
    of: dict[str, list[str]] = {}
    for image in images:
        of.setdefault(PurePosixPath(image).name, []).append(image)

    def find(path: str) -> str:
        named = of.get(PurePosixPath(path).name, [])
        named = [path] if path in named else [one for one in named if f"/{one}".endswith(f"/{path}")] or named
        if len(named) != 1:
            fault = f"may be {' or '.join(named[:2])}: give its folder" if named else "is not in the folder"
            raise UserError(f"{folder}: the labels name {path!r}, which {fault}")
        return named[0]

    return find


def _read(file: Path) -> Image:
    image = decode_image(read_bytes(file, IMAGE_BYTES))
    if image is None:
        raise UserError(f"{file}: not a complete JPEG or PNG image")
    return image


def _labels(folder: Path, images: dict[str, Image]) -> Openings:
    """Read the one label file of a folder, or the text files named as the images."""
    found = [f for f in sorted(folder.rglob("*")) if f.suffix.lower() in READERS]
    stems = {PurePosixPath(name).stem for name in images}
    texts = [f for f in sorted(folder.rglob("*.txt")) if f.stem in stems]
    if len(found) + bool(texts) != 1:
        names = ", ".join(f.name for f in found) + (", *.txt" if texts else "")
        raise UserError(
            f"{folder}: {f'labels of several files ({names}); keep one' if names else 'no labels'}"
            " (known: corners as CSV, COCO keypoints as JSON, YOLO-pose as TXT, CVAT as XML)"
        )
    if texts:
        return _yolo_pose(folder, texts, images)
    with reading(found[0]):
        return READERS[found[0].suffix.lower()](found[0])


def _csv(file: Path) -> Openings:
    rows = read_csv(file)
    headed = Path(rows[0][0]).suffix.lower() not in IMAGE_SUFFIXES
    if headed and (len(rows[0]) != 9 or rows[0][0] != "image"):
        raise UserError(f"{file}: the header must be `image` and eight columns of corners, not {', '.join(rows[0])}")
    found: Openings = {}
    for number, row in enumerate(rows[headed:], 1 + headed):
        if len(row) != 9:
            raise UserError(f"{file}, row {number}: has {len(row)} fields, must have 9")
        found.setdefault(row[0], []).append(_seen(np.array(row[1:], float).reshape(4, 2)))
    return found


def _coco(file: Path) -> Openings:
    told: dict[str, Any] = read_json(file)
    names = {image["id"]: str(image["file_name"]) for image in told["images"]}
    found: Openings = {name: [] for name in names.values()}
    annotations = told["annotations"]
    gates = {one.get("category_id") for one in annotations if one.get("keypoints")}
    kept = [one for one in annotations if one.get("category_id") in gates] or annotations
    if len(kept) < len(annotations):
        remark(f"{file}: annotations left out, whose categories have no keypoints: {len(annotations) - len(kept)}")
    for annotation in kept:
        points, where = annotation.get("keypoints") or [], f"{file}: annotation {annotation.get('id')}"
        if len(points) != 12:
            raise UserError(f"{where}: has {len(points) // 3} keypoints, must have 4")
        found[names[annotation["image_id"]]].append(np.array(points, float).reshape(4, 3))
    return found


def _yolo_pose(folder: Path, files: list[Path], images: dict[str, Image]) -> Openings:
    names, found = {str(PurePosixPath(name).with_suffix("")): name for name in images}, Openings()
    find = _finder(names, folder)
    for file in files:
        parts = file.relative_to(folder).with_suffix("").parts
        name = names[find("/".join("images" if part == "labels" else part for part in parts))]
        height, width = images[name].shape[:2]
        found[name] = []
        for number, line in enumerate(read_text(file).splitlines(), 1):
            where = f"{file}, line {number}"
            with reading(file):
                values = np.array(line.split(), float)
            if len(values) not in (0, 13, 17):
                raise UserError(f"{where}: has {len(values)} values, must have 13, or 17 with visibilities")
            if len(values):
                points = values[5:].reshape(4, -1)
                told = points if points.shape[1] == 3 else _seen(points)
                if not (np.abs(points[:, :2]) <= SHARES).all():
                    raise UserError(f"{where}: corners must be given over the image's size, 0 to 1 inside")
                found[name].append(told * [width, height, 1] - [0.5, 0.5, 0])
    return found


def _cvat(file: Path) -> Openings:
    found: Openings = {}
    try:
        root = ElementTree.fromstring(read_bytes(file, TEXT_BYTES))
    except ElementTree.ParseError as error:
        raise UserError(f"{file}: malformed ({error})") from None
    if root.find("image") is None:
        kind = "is CVAT for video" if root.find("track") is not None else "has no image"
        raise UserError(f"{file}: {kind}; export as 'CVAT for images 1.1'")
    for image in root.iter("image"):
        quads, where = found.setdefault(image.attrib["name"], []), f"{file}: {image.attrib['name']}"
        for shape in (shape for shape in image if shape.tag != "tag"):  # which is of the whole image
            if shape.tag not in SHAPES:
                raise UserError(f"{where}: a {shape.tag} has no corners; label by polygon, points or skeleton of four")
            points = _cvat_points(shape)
            if [len(point) for point in points] != [3] * 4:
                raise UserError(f"{where}: a shape has {len(points)} points, must have 4 of u,v")
            # Pixels of CVAT run from corner to corner: centres are at one half.
            quads.append(np.array(points) - [0.5, 0.5, 0])
    return found


def _cvat_points(shape: ElementTree.Element) -> list[list[float]]:
    """Return u, v and visibility of a shape's points, those of a skeleton by the numbers in their labels."""
    if shape.tag != "skeleton":
        return [[*map(float, point.split(",")), VISIBLE] for point in shape.attrib["points"].split(";")]
    found = []
    for part in sorted(shape.iter("points"), key=lambda part: [*map(int, re.findall(r"\d+", part.get("label", "")))]):
        seen = HIDDEN if part.get("occluded") == "1" else VISIBLE
        found.append([*map(float, part.attrib["points"].split(",")), UNKNOWN if part.get("outside") == "1" else seen])
    return found


def _seen(px: Array) -> Array:
    """Return corners (4, 3) that are all visible."""
    return np.column_stack([px, np.full(4, VISIBLE)])


def _clockwise(quad: Array, where: str) -> Array:
    """Return corners (4, 3) clockwise as seen, NaN for unknown ones.

    Raises:
        UserError: a position or visibility is not one, they are not in px, or four known ones are not those of a convex
            quadrilateral, in order.
    """
    if not np.isin(quad[:, 2], (UNKNOWN, HIDDEN, VISIBLE)).all():
        raise UserError(
            f"{where}: visibilities {quad[:, 2].tolist()}: each must be 0 (unknown), 1 (hidden) or 2 (visible)"
        )
    if not (np.abs(quad[quad[:, 2] > UNKNOWN]) < FARTHEST_PX).all():
        raise UserError(f"{where}: a corner is not at a finite position within {FARTHEST_PX:g} px")
    if (quad[:, 2] > UNKNOWN).all() and (np.abs(quad[:, :2]) <= 1).all():
        raise UserError(f"{where}: all corners lie within a pixel: they must be in px, not shares of the image's size")
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

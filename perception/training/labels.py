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
Labels name their image; where several have that name, with the folders: those of YOLO's `labels/` are in `images/`. Several
files of COCO, each in a folder of its own, are of the images in that folder, or of those in `images/` for its `labels/`.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
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
CENTRE = np.array([0.5, 0.5, 0.0])  # px, of the first pixel from its corner, at which CVAT and YOLO-pose begin
X, Y = frozenset("xu"), frozenset("yv")  # names of the axes
WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # of a column's name: `X` in `x1_px`, `left_X` and `topLeftX`
FARTHEST = 3.0  # -, greatest coordinate of a corner over the image's greater side (chosen)


@dataclass(frozen=True, slots=True)
class Photograph:
    name: str  # its path within the folder
    image: Image  # (H, W, 3) BGR
    corners_px: Array  # (K, 4, 2) of the openings, clockwise as seen; NaN where unknown
    visible: Mask  # (K, 4) corners that are not hidden


class Mark(NamedTuple):
    """One opening as labelled, or with no points the mention of an image."""

    image: str  # as the label names it
    points: Array  # (N, 2) px, or (N, 3) with visibilities
    scaled: bool = False  # whether the points are over the image's size
    home: str = ""  # beginning of the path of its image


def read_photographs(folder: Path) -> list[Photograph]:
    """Return the images of a folder that its labels name, in natural order (2 before 10). Raises UserError."""
    files = [file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES]
    if not files:
        raise UserError(f"{folder}: no such folder, or no images ({', '.join(IMAGE_SUFFIXES)}) inside")
    # In the natural order of their names: every second part is a number.
    parts = {file: re.split(r"(\d+)", file.name) for file in files}
    files.sort(key=lambda f: ([int(x) if k % 2 else x for k, x in enumerate(parts[f])], f.as_posix()))
    with ThreadPoolExecutor() as reading_ahead:
        names = (file.relative_to(folder).as_posix() for file in files)
        images = dict(zip(names, reading_ahead.map(_read, files), strict=True))
    openings: dict[str, list[Array]] = {}
    missing = dict[str, Mark]()
    for mark in _marks(folder, images):
        label = posixpath.normpath(mark.home + mark.image)
        name = _named(label, [image for image in images if image == label or image.startswith(mark.home)], folder)
        if not name:
            missing.setdefault(label, mark)
            continue
        found = openings.setdefault(name, [])
        if len(mark.points):
            found.append(_clockwise(mark, images[name], f"{folder / name}: opening {len(found) + 1}"))
    if first := next(iter(missing), ""):
        if not openings:
            named = missing[first]
            raise UserError(f"{folder / named.home}: the labels name {named.image!r}, which is not in the folder")
        remark(f"{folder}: images left out, which only the labels know: {len(missing)}, the first {first!r}")
    photographs = []
    for name in (name for name in images if name in openings):
        placed = [quad for quad in openings[name] if (quad[:, 2] > UNKNOWN).any()]  # others tell nothing
        quads = np.array(placed).reshape(-1, 4, 3)
        photographs.append(Photograph(name, images[name], quads[..., :2], quads[..., 2] == VISIBLE))
    return photographs


def _read(file: Path) -> Image:
    image = decode_image(read_bytes(file, IMAGE_BYTES))
    if image is None:
        raise UserError(f"{file}: not a complete JPEG or PNG image")
    return image


def _named(label: str, images: Iterable[str], folder: Path) -> str:
    """Return the image of a label's file name, among several that in the same folders, or "". Raises UserError if unclear."""
    named = [image for image in images if PurePosixPath(image).name == PurePosixPath(label).name]
    named = [one for one in named if one == label] or [one for one in named if one.endswith(f"/{label}")] or named
    if len(named) > 1:
        raise UserError(f"{folder}: the labels name {label!r}, which may be {' or '.join(named[:2])}: give its folder")
    return "".join(named)


def _marks(folder: Path, images: Iterable[str]) -> list[Mark]:
    """Read the one label file of a folder, the text files named as the images, or one file of COCO in each of its folders."""
    found = [f for f in sorted(folder.rglob("*")) if f.suffix.lower() in READERS]
    stems = {PurePosixPath(name).stem for name in images}
    texts = [f for f in sorted(folder.rglob("*.txt")) if f.stem in stems]
    own = {f.parent for f in found if f.suffix.lower() == ".json"} - {folder}
    split = len(own) == len(found) > 1
    if len(found) + bool(texts) != 1 and (texts or not split):
        names = [f.relative_to(folder).as_posix() for f in found] + ["*.txt"] * bool(texts)
        known = "CSV of corners, JSON of COCO keypoints, TXT of YOLO-pose or XML of CVAT"
        raise UserError(f"{folder}: needs one label file ({known}), found {' and '.join(names) or 'none'}")
    if texts:
        return [mark for file in texts for mark in _yolo_pose(file, folder, images)]
    marks = list[Mark]()
    for file in found:
        home = _home(file.relative_to(folder), images) if split else ""
        with reading(file):
            marks += (mark._replace(home=home) for mark in READERS[file.suffix.lower()](file))
    return marks


def _home(file: PurePosixPath | Path, images: Iterable[str]) -> str:
    """Return the beginning of the paths of a label file's images: its folder, or for YOLO's `labels/` its `images/`."""
    homes = f"{file.parent.as_posix()}/", f"{_of_images(file.parent)}/"
    return next((home for home in homes if any(image.startswith(home) for image in images)), homes[0])


def _of_images(labels: PurePosixPath | Path) -> str:
    return "/".join("images" if part == "labels" else part for part in labels.parts)


def _csv(file: Path) -> Iterator[Mark]:
    rows = read_csv(file)
    headed = Path(rows[0][0]).suffix.lower() not in IMAGE_SUFFIXES
    if headed and (len(rows[0]) != 9 or rows[0][0] != "image" or not _in_turn(rows[0][1:])):
        wanted = "`image` and eight columns of corners, x and y in turn"
        raise UserError(f"{file}: the header must be {wanted}, not {', '.join(rows[0])}")
    for number, row in enumerate(rows[headed:], 1 + headed):
        if len(row) != 9:
            raise UserError(f"{file}, row {number}: must have 9 fields, the image and eight of corners, has {len(row)}")
        yield Mark(row[0], np.array(row[1:], float).reshape(4, 2))


def _in_turn(names: list[str]) -> bool:
    """Return whether columns may be x and y of one point after another: none is named as the other axis."""
    axes = [(X | Y) & {word.lower() for word in WORD.findall(name)} for name in names]
    return not any((x and x <= Y) or (y and y <= X) for x, y in zip(axes[::2], axes[1::2], strict=True))


def _coco(file: Path) -> Iterator[Mark]:
    told: dict[str, Any] = read_json(file)
    if not {"images", "annotations"} <= told.keys():
        raise UserError(f"{file}: has no `images` and `annotations` of COCO; if it is of something else, take it away")
    names = {image["id"]: str(image["file_name"]) for image in told["images"]}
    yield from (Mark(name, np.empty((0, 3))) for name in names.values())
    empty = sum(not annotation.get("keypoints") for annotation in told["annotations"])
    if empty:
        remark(f"{file}: annotations left out, which have no keypoints: {empty}")
    for annotation in told["annotations"]:
        points = np.array(annotation.get("keypoints") or [], float).reshape(-1, 3)
        of_cvat = "occluded" in (annotation.get("attributes") or {})  # which writes the same numbers in every format
        yield Mark(names[annotation["image_id"]], points - CENTRE * of_cvat)


def _yolo_pose(file: Path, folder: Path, images: Iterable[str]) -> Iterator[Mark]:
    stems = {str(PurePosixPath(name).with_suffix("")): name for name in images}
    name = stems[_named(_of_images(file.relative_to(folder).with_suffix("")), stems, folder)]
    yield Mark(name, np.empty((0, 2)))
    for number, line in enumerate(read_text(file).splitlines(), 1):
        with reading(file):
            values = np.array(line.split(), float)
        if len(values) not in (0, 13, 17):
            raise UserError(f"{file}, line {number}: must have 13 values, with visibilities 17, has {len(values)}")
        if len(values):
            yield Mark(name, values[5:].reshape(4, -1), scaled=True)


def _cvat(file: Path) -> Iterator[Mark]:
    root = ElementTree.fromstring(read_bytes(file, TEXT_BYTES))  # whose ParseError is a SyntaxError
    if root.find("image") is None:
        raise UserError(f"{file}: has no image; export as 'CVAT for images 1.1', not as CVAT for video")
    for image in root.iter("image"):
        name = image.attrib["name"]
        yield Mark(name, np.empty((0, 3)))
        for shape in (shape for shape in image if shape.tag != "tag"):  # which is of the whole image
            points = list(_cvat_points(shape))
            if [len(point) for point in points] != [3] * 4:
                told = f"{shape.tag!r} with {len(points)} points"
                raise UserError(f"{file}: {name}: {told} is no polygon, points or skeleton of four corners u,v")
            yield Mark(name, np.array(points) - CENTRE)


def _cvat_points(shape: ElementTree.Element) -> Iterator[list[float]]:
    """Yield u, v and visibility of a shape's points, those of a skeleton by the numbers in their labels."""
    for point in shape.attrib["points"].split(";") if "points" in shape.attrib else ():
        yield [*map(float, point.split(",")), VISIBLE]
    for part in sorted(shape.iter("points"), key=lambda part: [*map(int, re.findall(r"\d+", part.get("label", "")))]):
        if part is not shape:
            seen = HIDDEN if part.get("occluded") == "1" else VISIBLE
            yield [*map(float, part.attrib["points"].split(",")), UNKNOWN if part.get("outside") == "1" else seen]


def _clockwise(mark: Mark, image: Image, where: str) -> Array:
    """Return clockwise corners (4, 3), px and visibility, NaN for unknown ones. Raises UserError: they are of no opening."""
    height, width = image.shape[:2]
    quad = np.column_stack([mark.points, np.full((len(mark.points), 3 - mark.points.shape[1]), VISIBLE)])
    if len(quad) != 4:
        raise UserError(f"{where}: has {len(quad)} corners, must have 4")
    if mark.scaled:
        quad = quad * [width, height, 1] - CENTRE
    known, most_px = quad[:, 2] > UNKNOWN, FARTHEST * max(width, height)
    visibilities = np.isin(quad[:, 2], (UNKNOWN, HIDDEN, VISIBLE)).all()
    if not visibilities or not (np.abs(quad[known]) < most_px).all() or (known.all() and np.ptp(quad[:, :2]) <= 1):
        raise UserError(
            f"{where}: {mark.points.tolist()} are not corners in px (YOLO-pose: over the image's size) within {FARTHEST:g}"
            " image sizes, with visibilities 0 (unknown), 1 (hidden) or 2 (visible) if any"
        )
    if not known.all():
        return np.where(known[:, None], quad, np.nan)
    along = np.roll(quad, -1, 0) - quad
    turn = along[:, 0] * np.roll(along[:, 1], -1) - along[:, 1] * np.roll(along[:, 0], -1)
    quad = quad if turn.sum() > 0 else quad[::-1]
    if not is_convex(quad[None, :, :2])[0]:
        px = np.round(quad[:, :2]).astype(int).tolist()
        raise UserError(f"{where}: its corners {px} are not those of a quadrilateral in order")
    return quad


READERS = {".csv": _csv, ".json": _coco, ".xml": _cvat}

"""Teaching of the detector: label files of every form, views that keep their labels, targets that decode to what they encode."""

import contextlib
import json

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.model.quadrilateral import overlap
from gate_racer.perception.detection import Detection
from gate_racer.perception.taught import detector as taught
from gate_racer.perception.training.labels import Photograph, read_photographs
from gate_racer.perception.training.run import corner_deviations, match
from gate_racer.perception.training.samples import CROP_PX, corner_target, draw_sample, head_target

QUAD = np.array([[10.0, 20.0], [60.0, 22.0], [58.0, 70.0], [12.0, 68.0]])


def csv(quad):
    return "corners.csv", "image,a,b,c,d,e,f,g,h\none.png," + ",".join(map(str, quad.ravel())) + "\n"


def coco(quad, visibility=(2, 2, 2, 2)):
    points = np.column_stack([quad, visibility]).ravel().tolist()
    told = {"images": [{"id": 7, "file_name": "one.png"}]}
    told["annotations"] = [{"id": 1, "image_id": 7, "keypoints": points}]
    return "labels.json", json.dumps(told)


def coco_of_cvat(quad):
    name, text = coco(quad + 0.5)
    told = json.loads(text)
    told["annotations"][0] |= {"attributes": {"occluded": False, "keyframe": False}, "iscrowd": 0}
    return name, json.dumps(told)


def yolo(quad):
    points = ((quad + 0.5) / [120, 90]).ravel()
    return "one.txt", "0 0.5 0.5 0.1 0.1 " + " ".join(map(str, points)) + "\n"


def cvat(quad, shape='<polygon label="gate" points="{}"/>'):
    points = ";".join(f"{u},{v}" for u, v in quad + 0.5)
    return "annotations.xml", f'<annotations><image id="0" name="one.png">{shape.format(points)}</image></annotations>'


def headless(quad):
    return "corners.csv", csv(quad)[1].partition("\n")[2]


def skeleton(quad, seen=("",) * 4, order=(0, 2, 1, 3), name="{}"):
    row = '<points label="{}" points="{},{}" {}/>'
    points = [row.format(name.format(k + 8), u, v, seen[k]) for k, (u, v) in enumerate(quad + 0.5)]
    return cvat(quad, f"<skeleton>{''.join(points[k] for k in order)}</skeleton><tag label='dusk'/>")


def folder_of(tmp_path, name, text):
    cv2.imwrite(str(tmp_path / "one.png"), np.zeros((90, 120, 3), np.uint8))
    (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("form", [csv, headless, coco, coco_of_cvat, yolo, cvat, skeleton])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 3, 0, 1], [3, 2, 1, 0]])
def test_every_form_gives_the_corners_clockwise(tmp_path, form, order):
    (found,) = read_photographs(folder_of(tmp_path, *form(QUAD[order])))
    (quad,) = found.corners_px
    turned = min(np.abs(np.roll(quad, k, 0) - QUAD).max() for k in range(4))
    assert turned < 1e-9 and found.visible.all() and found.image.shape == (90, 120, 3)


@pytest.mark.parametrize(
    "labels",
    [
        coco(QUAD, (2, 1, 0, 2)),
        skeleton(QUAD, ("", 'occluded="1"', 'outside="1"', 'outside="0" occluded="0"')),
        skeleton(QUAD, ("", 'occluded="1"', 'outside="1"', ""), order=range(4), name="corner"),
    ],
    ids=["COCO", "numbered points of CVAT", "named points of CVAT in order"],
)
def test_hidden_and_unknown_corners_are_told_apart(tmp_path, labels):
    (found,) = read_photographs(folder_of(tmp_path, *labels))
    assert found.visible.tolist() == [[True, False, False, True]]
    assert np.isfinite(found.corners_px[0]).all(-1).tolist() == [True, True, False, True]


def test_annotations_without_corners_are_left_out_and_counted(tmp_path, capsys):
    """Openings of which no corner is placed are none either."""
    told = json.loads(coco(QUAD)[1])
    pilot, far = {"image_id": 7, "category_id": 2, "bbox": [0, 0, 9, 9]}, {"image_id": 7, "keypoints": 12 * [0]}
    told["annotations"] += [pilot, pilot, far]
    (found,) = read_photographs(folder_of(tmp_path, "labels.json", json.dumps(told)))
    assert found.corners_px.shape == (1, 4, 2)
    assert "labels.json: annotations left out, which have no keypoints: 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pair", "taken"),
    [
        (("left{}_px", "top{}_px"), True),
        (("pixel_col{}", "pixel_row{}"), True),
        (("v{}_x", "v{}_y"), True),
        (("y{}_px", "x{}_px"), False),
    ],
)
def test_columns_may_be_named_in_any_way_that_tells_no_other_order(tmp_path, pair, taken):
    header = ",".join(name.format(number) for number in range(1, 5) for name in pair)
    folder_of(tmp_path, "corners.csv", f"image,{header}\n{headless(QUAD)[1]}")
    with contextlib.nullcontext() if taken else pytest.raises(UserError, match="x and y in turn"):
        assert len(read_photographs(tmp_path)) == 1


SPLIT = {"images/train/0.png": QUAD, "images/val/0.png": QUAD + 7, "images/val/1.png": QUAD + 9}


def split_in_folders(tmp_path):
    for name in SPLIT:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / name), np.zeros((90, 120, 3), np.uint8))


def test_an_image_keeps_all_openings_whichever_way_it_is_named(tmp_path):
    rows = "one.png,10,20,60,22,58,70,12,68\n./one.png,80,20,130,22,128,70,82,68\n"
    (found,) = read_photographs(folder_of(tmp_path, "labels.csv", rows))
    assert len(found.corners_px) == 2


@pytest.mark.parametrize("form", ["YOLO", "CSV", "COCO", "COCO in labels/", "COCO by paths"])
def test_labels_of_repeated_names_go_by_folders(tmp_path, form):
    split_in_folders(tmp_path)
    homes = {"COCO": "images", "COCO in labels/": "labels", "COCO by paths": "coco"}
    rows = []
    told = {name.rpartition("/")[0]: {"images": [], "annotations": []} for name in SPLIT}
    for number, (name, quad) in enumerate(SPLIT.items()):
        file = (tmp_path / name.replace("images", "labels")).with_suffix(".txt")
        rows.append(name.removeprefix("images/") + csv(quad)[1].partition("one.png")[2])
        home, _, file_name = name.rpartition("/")
        told[home]["images"].append({"id": number, "file_name": f"../../{name}" if "paths" in form else file_name})
        points = np.column_stack([quad, [2] * 4]).ravel().tolist()
        told[home]["annotations"].append({"image_id": number, "keypoints": points})
        if form == "YOLO":
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yolo(quad)[1])
    if form == "CSV":
        (tmp_path / "corners.csv").write_text("".join(rows))
    for home, labels in told.items() if "COCO" in form else ():
        place = tmp_path / home.replace("images", homes[form])
        place.mkdir(parents=True, exist_ok=True)
        (place / "_annotations.coco.json").write_text(json.dumps(labels))
    found = {one.name: one.corners_px[0] for one in read_photographs(tmp_path)}
    assert list(found) == list(SPLIT)
    for name, quad in SPLIT.items():
        np.testing.assert_allclose(found[name], quad, atol=1e-9)


def test_images_that_only_the_labels_know_are_left_out_and_counted(tmp_path, capsys):
    """Each once; of several files of COCO none takes the image of another folder."""
    gone = [coco(QUAD)[1].replace("one", "gone"), coco(QUAD)[1]]
    for home, text in zip("ab", gone, strict=True):
        (tmp_path / home).mkdir()
        folder_of(tmp_path / home, "labels.json", text)
    (tmp_path / "a" / "one.png").rename(tmp_path / "b" / "gone.png")
    (found,) = read_photographs(tmp_path)
    assert found.name == "b/one.png" and len(found.corners_px) == 1
    assert "images left out, which only the labels know: 1, the first 'a/gone.png'" in capsys.readouterr().err


def test_a_file_of_coco_whose_images_are_gone_or_that_is_none_is_named(tmp_path):
    split_in_folders(tmp_path)
    for home, text in (("a", coco(QUAD)[1]), ("b", coco(QUAD)[1])):
        (tmp_path / home).mkdir()
        (tmp_path / home / "told.json").write_text(text)
    with pytest.raises(UserError, match=r"a: the labels name 'one\.png', which is not in the folder"):
        read_photographs(tmp_path)
    (tmp_path / "b" / "told.json").write_text("{}")
    with pytest.raises(UserError, match=r"b.told\.json: has no `images` and `annotations` of COCO"):
        read_photographs(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("corners.csv", "image,x,y\n", "the header must be `image` and eight columns"),
        ("corners.csv", "image,x1,x2,x3,x4,y1,y2,y3,y4\n", "eight columns of corners, x and y in turn, not image, x1"),
        ("corners.csv", csv(QUAD)[1].replace("one", "two"), "the labels name 'two.png', which is not in the folder"),
        (*csv(QUAD / 400), "one.png: opening 1: .* are not corners in px"),
        (*csv(QUAD[[0, 2, 1, 3]]), "one.png: opening 1: its corners .* are not those of a quadrilateral in order"),
        ("annotations.xml", cvat(QUAD)[1].replace(",", ";"), "with 8 points is no polygon, points or skel"),
        (*coco(QUAD, (2, 3, 0, 2)), r"with visibilities 0 .unknown., 1 .hidden. or 2"),
        ("labels.json", coco(QUAD)[1].replace(", 2.0]", "]"), "malformed"),
        ("labels.json", coco(QUAD[:3], (2, 2, 2))[1], "opening 1: has 3 corners, must have 4"),
        ("one.txt", "0 0.5 0.5", "line 1: must have 13 values, .* has 3"),
        ("annotations.xml", "<annotations>", "malformed"),
        ("annotations.xml", "<annotations><track id='0'/></annotations>", "export as 'CVAT for images 1.1', not as"),
        ("notes.md", "", "needs one label file .* found none"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_a_line(tmp_path, name, text, says):
    with pytest.raises(UserError, match=says):
        read_photographs(folder_of(tmp_path, name, text))


def test_no_images_and_two_label_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="no images"):
        read_photographs(tmp_path)
    folder_of(tmp_path, *csv(QUAD))
    with pytest.raises(UserError, match=r"needs one label file .* found corners.csv and labels.json"):
        read_photographs(folder_of(tmp_path, *coco(QUAD)))
    (tmp_path / "corners.csv").unlink()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "labels.json").write_text(coco(QUAD)[1])
    with pytest.raises(UserError, match=r"found labels.json and old/labels.json"):
        read_photographs(tmp_path)


def chessboard(seed):
    """A photograph whose corners can be found again: a white square on black, with its labels."""
    rng = np.random.default_rng(seed)
    image, quad = np.zeros((300, 400, 3), np.uint8), np.array([[100.0, 80], [260, 90], [250, 230], [110, 220]])
    cv2.fillConvexPoly(image, np.round(quad * 16).astype(np.int32), (255, 255, 255), cv2.LINE_AA, 4)
    return Photograph("one", image, quad[None], np.ones((1, 4), bool)), rng


@pytest.mark.parametrize("seed", range(3))
def test_a_view_carries_its_labels_along(seed):
    """The white square is where the view's targets have the opening."""
    photograph, rng = chessboard(seed)
    image, _, *heads = draw_sample(photograph, rng)
    light = image.mean(0)
    for head, stride in zip(heads, taught.HEAD_STRIDES, strict=True):
        cells = taught.cell_centres(*head.shape[1:], stride)
        for v, u in np.argwhere(head[0] > 0):
            quad = cells[v, u] + head[2:, v, u].reshape(4, 2) * taught.OFFSET_UNIT * stride
            inside, around = (quad.mean(0) + scale * (quad - quad.mean(0)) for scale in (0.85, 1.15))
            for a, b in zip(inside.round().astype(int), around.round().astype(int), strict=True):
                if (np.array([a, b]) >= 2).all() and (np.array([a, b]) < np.array(CROP_PX) - 2).all():
                    assert light[a[1], a[0]] > light[b[1], b[0]]


@pytest.mark.parametrize("seed", range(3))
def test_the_targets_decode_to_the_openings_that_they_encode(seed):
    rng = np.random.default_rng(seed)
    quads = [rng.uniform(60, 200, 2) + size * (QUAD - QUAD.mean(0)) for size in np.exp(rng.uniform(-1.2, 1.0, 3))]
    scores, corners = [], []
    for k, stride in enumerate(taught.HEAD_STRIDES):
        target = head_target(np.array(quads), k)
        v, u = np.nonzero(target[0])
        cells = taught.cell_centres(*target.shape[1:], stride)[v, u]
        corners.append(cells[:, None] + target[2:, v, u].T.reshape(-1, 4, 2) * taught.OFFSET_UNIT * stride)
        scores.append(np.ones(len(v)))
    _, found = taught.merge(np.concatenate(scores), np.concatenate(corners))
    heat = np.clip(corner_target(np.concatenate(quads))[0], 1e-6, 1 - 1e-6)
    peaks = taught.to_image(taught.find_peaks(np.log(heat / (1 - heat))))
    for quad in quads:
        if all(overlap(quad, other) < taught.SAME_IOU for other in quads if other is not quad):
            best = min(found, key=lambda q: np.abs(q - quad).max())
            assert np.abs(best - quad).max() < 1e-3
            inside = ((quad > 4) & (quad < np.array(CROP_PX) - 5)).all(-1)
            px, near = taught.snap(best, peaks)
            assert near[inside].all() and np.abs(px - quad)[inside].max() < 0.1


def test_small_and_unplaced_openings_neither_count_nor_err():
    small = QUAD.mean(0) + 0.02 * (QUAD - QUAD.mean(0))
    unknown = np.where(np.arange(4)[:, None] == 1, np.nan, QUAD + 100)
    for quad in (small, unknown):
        for k in range(len(taught.HEAD_STRIDES)):
            target = head_target(quad[None], k)
            assert not target[0].any() and (target[1] == 0).any()


def test_matches_are_counted_as_the_published_figures_are():
    """One found well, one found twice, one missed, one false: recall 2 / 3, precision 2 / 4."""
    far, gone = QUAD + 100, QUAD + 300
    scored = (QUAD, 0.9), (far + 1, 0.8), (far, 0.7), (QUAD + 500, 0.6)
    found = [Detection.whole(quad, 1.0, score) for quad, score in scored]
    matches = match([(found, np.array([QUAD, far, gone]))])
    figures = matches.figures()
    assert figures["recall"] == pytest.approx(2 / 3) and figures["precision"] == 0.5
    assert matches.average_precision(0.5) == pytest.approx(2 / 3)
    assert matches.above(matches.best_score()).figures()["precision"] == 1.0


def test_the_deviations_of_corners_are_those_of_their_errors():
    rng, quads, found = np.random.default_rng(0), [], []
    for k in range(400):
        quad = QUAD.mean(0) + np.exp(rng.uniform(-0.5, 1.5)) * (QUAD - QUAD.mean(0)) + 400 * np.array([k % 20, k // 20])
        side = np.linalg.norm(np.roll(quad, -1, 0) - quad, axis=-1).mean()
        noise = rng.normal(0, np.hypot(0.7, 0.02 * side), (4, 2))
        hidden = np.arange(4) == rng.integers(4)
        noise[hidden] = rng.normal(0, 0.06 * side, (1, 2))
        quads.append(quad)
        found.append(Detection(quad + noise, np.tile(np.eye(2), (4, 1, 1)), ~hidden, 0.9))
    corner_px, corner_side, hidden_side = corner_deviations(match([(found, np.array(quads))]))
    assert corner_px == pytest.approx(0.7, rel=0.15) and corner_side == pytest.approx(0.02, rel=0.15)
    assert hidden_side == pytest.approx(0.06, rel=0.15)

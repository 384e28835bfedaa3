"""`detect-gates`: what is in images, folders and logs, as JSON and drawn; one clear line for what cannot be."""

import json

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.pilot.detect_gates import parser
from gate_racer.pilot.gates_in_images import run
from gate_racer.pilot.records.flight_log import FlightLog
from tests.link import log_writers


@pytest.fixture
def folder(tmp_path):
    """One image with a gate, an empty one, one of another size with a gate and one cut short."""
    image = np.full((360, 640, 3), 25, np.uint8)
    image[80:260, 200:380] = (25, 60, 245)
    image[120:220, 240:340] = 25
    for name, drawn in (("gate.jpg", image), ("empty.jpg", image * 0), ("small.png", image[40:300, 100:480])):
        cv2.imwrite(str(tmp_path / name), drawn)
    (tmp_path / "short.jpg").write_bytes((tmp_path / "gate.jpg").read_bytes()[:4000])
    return tmp_path


def test_gates_are_written_and_drawn(folder, capsys):
    out, drawn = folder / "out" / "found.json", folder / "drawn"
    assert run(parser().parse_args([str(folder), "--json", str(out), "--set", f"draw={drawn}"])) == 0
    found = json.loads(out.read_text())
    assert {name: len(gates) for name, gates in found.items()} == {
        "gate.jpg": 1, "empty.jpg": 0, "small.png": 1, "short.jpg": 0,
    }  # fmt: skip
    (gate,), (other,) = found["gate.jpg"], found["small.png"]
    truth = np.array([[239.5, 119.5], [339.5, 119.5], [339.5, 219.5], [239.5, 219.5]])
    np.testing.assert_allclose(gate["corners"], truth, atol=0.3)
    np.testing.assert_allclose(other["corners"], truth - [100, 40], atol=0.3)
    assert gate["visible"] == [True] * 4 and 0 < gate["score"] <= 1 and other["distance_m"] is None
    assert gate["distance_m"] == pytest.approx(320 * 1.48 / 100, rel=0.02 + 0.02)
    assert cv2.imread(str(drawn / "gate.jpg-gates.png")) is not None
    said = capsys.readouterr().err
    assert "1 of 4 images were skipped: not complete JPEG or PNG images" in said
    assert "1 of 4 images are not of the camera's 640x360 px: without distances" in said


@pytest.mark.parametrize("sources", [["both/left", "both/right"], ["both"]])
def test_images_of_one_name_in_two_folders_are_both_kept(folder, sources, capsys):
    for name, image in (("left", "gate.jpg"), ("right", "short.jpg")):
        (folder / "both" / name).mkdir(parents=True)
        (folder / "both" / name / "0.jpg").write_bytes((folder / image).read_bytes())
    told = [str(folder / source) for source in sources]
    assert run(parser().parse_args([*told, "--json", str(folder / "found.json")])) == 0
    found = json.loads((folder / "found.json").read_text())
    assert {name: len(gates) for name, gates in found.items()} == {
        f"{folder}/both/left/0.jpg": 1, f"{folder}/both/right/0.jpg": 0,
    }  # fmt: skip
    assert "1 of 2 images were skipped" in capsys.readouterr().err


@pytest.mark.parametrize("made", ["MCAP", "SQLite", "ROS 1"])
def test_bags_of_ros_are_found_in_a_folder(made, tmp_path):
    """That of ROS 2 is a folder itself."""

    def at(store, k):
        return (log_writers.image(store, k, "bgr8", np.full((40, 60, 3), 9, np.uint8)),)

    log_writers.write_bag(tmp_path, made, {"/camera": "sensor_msgs/msg/Image"}, at, 3)
    assert run(parser().parse_args([str(tmp_path), "--json", str(tmp_path / "found.json")])) == 0
    assert list(json.loads((tmp_path / "found.json").read_text()).values()) == [[]] * 3


def test_of_a_folder_all_is_read_but_plots_of_logs_hidden_files_and_earlier_drawings(folder):
    """A folder with the name of an image is none."""
    image = (folder / "gate.jpg").read_bytes()
    log = FlightLog(folder / "logs" / "flight.mcap")
    log.image(0.5, image)
    log.close()
    for name in ("logs/plot.jpg", ".thumbs/a.jpg", ".b.jpg", "d.png/c.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(image)
    out, drawn = folder / "found.json", folder / "drawn"
    every = {"c.jpg", "empty.jpg", "flight/000000", "gate.jpg", "short.jpg", "small.png"}
    for source, found in ((folder, every), (folder, every), (folder / "logs/flight.mcap", {"flight/000000"})):
        run(parser().parse_args([str(source), "--json", str(out), "--set", f"draw={drawn}"]))
        told = json.loads(out.read_text())
        assert {*told} == found and len(told["flight/000000"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.jpg"], "missing.jpg: cannot be read"),
        (["gate.jpg", "--detector", "gone.onnx"], "gone.onnx: no such network"),
        (["not.mcap"], "is not an MCAP file"),
        (["blind.mcap"], r"blind\.mcap: no images inside"),
        (["short.jpg"], r"short\.jpg: no image inside can be read"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments, says, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "not.mcap").write_bytes(b"no log at all")
    FlightLog(folder / "blind.mcap").close()
    with pytest.raises(UserError, match=says):
        run(parser().parse_args(arguments))

"""`train-detector` as a command: what it refuses in a line, and, where PyTorch is installed, what it learns.

PyTorch is loaded in processes of its own: in one that renders, its LLVM and that of OpenGL do not get along.
"""

import json
from importlib.util import find_spec

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.perception.registry import open_detector
from gate_racer.perception.training.cli import parser
from gate_racer.perception.training.run import run
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT
from tests.processes import python, run_here

LEARNS = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not LEARNS, reason="PyTorch is not installed (pip install gate-racer[train])")


@pytest.fixture
def folder(tmp_path):
    """Thirty images of a white ring on grey, each with one opening."""
    rng, rows = np.random.default_rng(0), ["image,a,b,c,d,e,f,g,h"]
    for k in range(30):
        image = rng.integers(60, 90, (128, 128, 3), dtype=np.uint8)
        quad = rng.uniform(50, 78, 2) + rng.uniform(14, 24) * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        ring = quad.mean(0) + 1.5 * (quad - quad.mean(0))
        for corners, colour in ((ring, (240, 240, 240)), (quad, (70, 70, 70))):
            cv2.fillConvexPoly(image, np.round(corners * 16).astype(np.int32), colour, cv2.LINE_AA, 4)
        cv2.imwrite(str(tmp_path / f"{k}.png"), image)
        rows.append(f"{k}.png," + ",".join(f"{x:.2f}" for x in quad.ravel()))
    (tmp_path / "corners.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing"], "missing: no such folder, or no images"),
        ([".", "--out", "gates.pt"], "must end in .onnx"),
        ([".", "--set", "steps=0"], "steps=0: must be at least 1"),
        ([".", "--out", "1.onnx"], "1.png: would overwrite"),
        (["few"], "few: 2 labelled openings, of which 0 in the last fifth"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(folder, monkeypatch, arguments, says):
    monkeypatch.chdir(folder)
    (folder / "few").mkdir()
    (folder / "few" / "1.png").write_bytes((folder / "1.png").read_bytes())
    (folder / "few" / "corners.csv").write_text("image,a,b,c,d,e,f,g,h\n" + 2 * "1.png,10,10,50,10,50,50,10,50\n")
    if arguments[0] == ".":
        folder = folder / "few"
    with pytest.raises(UserError, match=says):
        run(parser().parse_args(arguments))


@pytest.mark.skipif(LEARNS, reason="PyTorch is installed")
def test_without_pytorch_it_says_what_to_install(folder):
    with pytest.raises(UserError, match=r"needs PyTorch and ONNX: pip install gate-racer\[train\]"):
        run(parser().parse_args([str(folder), "--out", str(folder / "gates.onnx")]))


@needs_torch
def test_a_ring_is_learned_and_found_by_detect_gates(folder, tmp_path):
    from gate_racer.pilot import detect_gates, gates_in_images

    out, said = tmp_path / "out" / "gates.onnx", tmp_path / "figures.json"
    done = run_here("gate_racer.perception.training.cli", folder, "--out", out, "--json", said, "--set", "steps=150")
    assert done.returncode == 0, done.stderr
    figures = json.loads(said.read_text())
    assert figures["recall"] >= 0.5 and out.with_suffix(".png").is_file()
    found = tmp_path / "found.json"
    gates_in_images.run(detect_gates.parser().parse_args([str(folder), "--detector", str(out), "--json", str(found)]))
    assert sum(len(gates) for gates in json.loads(found.read_text()).values()) >= 10
    (folder / "mine.yaml").write_bytes(out.with_suffix(".yaml").read_bytes())
    (folder / "mine.onnx").write_bytes(out.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"mine\.onnx: not a network of train-detector"):
        open_detector(str(folder / "mine.onnx"), load_vehicle("dcl").camera)


UNKNOWN = {
    "oracle": "no detector 'oracle'; known: classical, learned, FILE.onnx of train-detector, or a class of your own",
    "gone.onnx": r"gone\.onnx: no such network",
    "bare.onnx": r"bare\.yaml",
}


@pytest.mark.parametrize(("name", "says"), UNKNOWN.items(), ids=UNKNOWN)
def test_what_is_no_detector_is_refused_in_a_line(tmp_path, monkeypatch, name, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.onnx").write_bytes((ROOT / "perception/taught/gates.onnx").read_bytes())
    with pytest.raises(UserError, match=says):
        open_detector(name, load_vehicle("dcl").camera)


SAME_SEED = """
import sys, torch
from pathlib import Path
from gate_racer.perception.training.fit import fit
from gate_racer.perception.training.labels import read_photographs
photographs = read_photographs(Path(sys.argv[1]))
one, other = (fit(photographs, 3, 4, 5, lambda losses: None).state_dict() for _ in range(2))
assert all(torch.equal(one[name], other[name]) for name in one)
"""
TURNED = """
import torch
from gate_racer.perception.training.fit import loss
heat, target = torch.zeros(1, 1, 32, 32), torch.randn(1, 10, 8, 8, generator=torch.Generator().manual_seed(0))
target[:, :2] = 1.0
out = (heat, torch.cat([target[:, :1], target[:, 2:].roll(2, 1)], 1))
assert abs(float(loss(out, heat, [target])[2])) < 1e-6
"""


@needs_torch
@pytest.mark.parametrize("law", [SAME_SEED, TURNED], ids=["the seed decides", "any corner may be the first"])
def test_a_law_of_the_training_holds(folder, law):
    done = python("-c", law, folder)
    assert done.returncode == 0, done.stderr

"""`train-policy` as a command: what it refuses in a line, and, where PyTorch and rsl_rl are installed, what it learns from what.

PyTorch is loaded in processes of its own: in one that renders, its LLVM and that of OpenGL do not get along.
"""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.mpc.policy.policy import FOLDER, load_policy
from gate_racer.race.training.cli import TrainingSettings, parser
from gate_racer.race.training.run import draw_curves, plants, run
from gate_racer.sim.physics.residual import ObservationModel, ResidualAcceleration, Residuals
from gate_racer.vehicle.vehicle import load_vehicle
from tests import processes

LEARNS = all(find_spec(name) for name in ("torch", "onnx", "rsl_rl"))
needs_rsl_rl = pytest.mark.skipif(not LEARNS, reason="rsl_rl is not installed (pip install gate-racer[train])")
FEW = "vehicles=4", "randomisation.thrust=0.1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere"),
        (["vq1", "--out", "one.npz"], r"one\.npz: must end in \.onnx"),
        (["vq1", "--set", "steps=0"], "steps=0: must be at least 1"),
        (["vq1", "--set", "settings=2"], "settings=2: must be one of 1, 3"),
        (["vq1", "--set", "randomisation.thrust=-1"], "must lie between 0 and 1"),
        (["vq1", "--out", "kept.onnx"], r"kept\.pt: exists already; add --set resume=true"),
        (["vq1", "--out", "kept.onnx", "--set", "origin=kept.pt"], r"kept\.pt: would overwrite"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.pt").write_bytes(b"")
    with pytest.raises(UserError, match=says):
        run(parser().parse_args(arguments))


@pytest.mark.skipif(LEARNS, reason="PyTorch and rsl_rl are installed")
def test_without_the_libraries_it_says_what_to_install(tmp_path):
    with pytest.raises(UserError, match=r"needs PyTorch and rsl_rl: pip install gate-racer\[train\] \(torch"):
        run(parser().parse_args(["vq1", "--out", str(tmp_path / "one.onnx")]))


def test_curves_are_drawn_of_figures_that_are_none(tmp_path):
    row = {"steps": 10, "return": 1.0, "gates": float("nan"), "lap_s": float("inf"), "crashes_per_lap": 0.5}
    draw_curves([row, row | {"steps": 20}], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def train(folder, name, *more):
    """Run the command in a process of its own; return what it said."""
    words = *more[1:], "--out", folder / name
    done = processes.run("gate_racer.race.training.cli", more[0], "--vehicle", "dcl", *words)
    return done.returncode, done.stdout + done.stderr


CUT = """
import sys
from gate_racer.race.training import cli, run
keep = run.keep
def once(*what):
    keep(*what)
    raise SystemExit(9)
run.KEEP_S, run.keep = -1.0, once
run.run(cli.parser().parse_args(sys.argv[1:]))
"""


@needs_rsl_rl
def test_an_interrupted_training_goes_on_to_the_same_policy_and_nothing_is_ignored(tmp_path):
    begin = "vq1", "--set", *FEW, "steps=384"
    assert train(tmp_path, "through.onnx", *begin, "--json", tmp_path / "c.json")[0] == 0
    cut = [sys.executable, "-c", CUT, *begin, "--vehicle", "dcl", "--out", str(tmp_path / "halved.onnx")]
    assert subprocess.run(cut, capture_output=True).returncode == 9
    assert load_policy(str(tmp_path / "halved.onnx")).about.steps == 128
    for wrong in ("seed=3", "steps=512"):
        code, said = train(tmp_path, "halved.onnx", *begin, "resume=true", wrong)
        assert code == 2 and f"which cannot become {wrong.partition('=')[2]}" in said
    code, said = train(tmp_path, "halved.onnx", "vq2", *begin[1:], "resume=true")
    assert code == 2 and "was begun on vq1" in said
    assert train(tmp_path, "halved.onnx", *begin, "resume=true")[0] == 0
    assert (tmp_path / "through.onnx").read_bytes() == (tmp_path / "halved.onnx").read_bytes()
    assert json.loads((tmp_path / "c.json").read_text())[-1]["steps"] == 384
    assert (tmp_path / "through.png").stat().st_size > 1000
    code, said = train(tmp_path, "halved.onnx", *begin, "resume=true")
    assert code == 2 and "has all 384 steps" in said


@needs_rsl_rl
def test_networks_go_on_to_another_course_and_to_what_flights_lacked(tmp_path, dcl, vq1):
    assert train(tmp_path, "one.onnx", "vq1", "--set", *FEW, "steps=256")[0] == 0
    rng, way = np.random.default_rng(0), np.array([gate.p_wg for gate in vq1.gates])
    x = np.zeros((30, 13))
    x[:, :3], x[:, 3] = way[rng.integers(len(way), size=30)], 1.0
    push = ResidualAcceleration(x, rng.uniform(5, 20, 30), rng.normal(size=(30, 3)))
    errors = ObservationModel.of_size(way[:1] + rng.normal(size=(6, 3)), (0.3, 0.3, 0.03), 10.0)
    Residuals(dcl.hash, False, push, errors).save(tmp_path / "errors.npz")
    begin, residual = ("--set", *FEW, "steps=256"), f"residual={tmp_path / 'errors.npz'}"
    for name, track, *more in (
        ("other", "splits_swift", f"origin={tmp_path / 'one.pt'}"),
        ("fine", "vq1", "origin=splits_swift", residual),
    ):
        code, said = train(tmp_path, f"{name}.onnx", track, *begin, *more)
        assert code == 0, said
        assert load_policy(str(tmp_path / f"{name}.onnx")).about.track == track
    (tmp_path / "none.pt").write_bytes(b"none")
    (tmp_path / "shipped.pt").write_bytes((FOLDER / "splits_swift.pt").read_bytes())
    for name, more, why in (
        ("two.onnx", f"origin={tmp_path / 'none.pt'}", "none.pt: not a checkpoint of train-policy"),
        ("two.onnx", "origin=nobody", "no policy 'nobody'"),
        ("shipped.onnx", "resume=true", "shipped.pt: has networks only"),
    ):
        code, said = train(tmp_path, name, "vq1", "--set", more)
        assert code == 2 and why in said, said


@pytest.mark.parametrize(("plant", "aerodynamic"), [("1", False), ("3", True)])
def test_a_residual_chooses_the_plant_that_it_was_fitted_to(plant, aerodynamic):
    vehicle, x = load_vehicle("swift"), np.zeros((9, 13))
    x[:, 3] = 1.0
    push = ResidualAcceleration(x, np.ones(9), np.zeros((9, 3)))
    found = Residuals(vehicle.hash, aerodynamic, push)
    assert plants(TrainingSettings(), found) == (int(plant),) and plants(TrainingSettings(), None) == (1,)
    assert plants(TrainingSettings(settings=("1", "3")), found) == (1, 3)

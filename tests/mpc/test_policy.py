"""A policy: its file is read or refused in one line, its network and its interface are what is said of them."""

from dataclasses import asdict, replace

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.mpc.control import Source
from gate_racer.mpc.policy.policy import PolicyController, load_policy, metadata, names, sealed, with_metadata
from gate_racer.tracks.observation import OBSERVATION, Scaling
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import exp, matrix
from tests.conftest import ROOT, refused
from tests.mpc.policy_files import SMALL, provenance, write_onnx


@pytest.fixture
def onnx(dcl, vq1, tmp_path):
    write_onnx(tmp_path / "mine.onnx", vq1, dcl)
    return tmp_path / "mine.onnx"


@pytest.fixture
def policy(onnx):
    return load_policy(str(onnx))


def state(rng):
    x = np.zeros(14)
    x[:3], x[3:7], x[7:10] = rng.uniform(-5, 5, 3), exp(rng.normal(size=3)), rng.normal(0, 5, 3)
    return x


def test_a_network_acts_as_its_graph_says_within_the_limits(policy):
    net = cv2.dnn.readNetFromONNX(str(SMALL))
    for size in (1.0, 1e3, np.inf, np.nan):
        seen = size * np.random.default_rng(2).normal(size=OBSERVATION.size)
        net.setInput(seen[None].astype(np.float32))
        said = np.nan_to_num(net.forward()[0], nan=0.0, posinf=1.0, neginf=-1.0)
        assert policy.act(seen) == pytest.approx(np.clip(said, -1, 1)), size


def test_metadata_are_appended_and_read_back():
    model = SMALL.read_bytes()
    entries = {"a": "", "long": 300 * "x", "name": "é"}
    assert metadata(model) == {} and metadata(with_metadata(model, entries)) == entries


def test_an_observation_in_the_vehicles_view_turns_with_it(policy, vq1):
    rng = np.random.default_rng(3)
    x, action, gate, scaling = state(rng), rng.uniform(-1, 1, 4), vq1.gates[1], policy.scaling
    seen = {name: scaling.observation(x, gate.corners(), action)[field.at] for name, field in OBSERVATION.items()}
    R_wb = matrix(x[3:7])
    corners_w = x[:3] + (seen["corner"].reshape(4, 3) * scaling.reach_m) @ R_wb.T
    assert corners_w == pytest.approx(gate.corners()) and seen["R"].reshape(3, 3) == pytest.approx(R_wb)
    assert scaling.middle_m + seen["p"] * scaling.half_m == pytest.approx(x[:3])
    assert seen["v"] * scaling.speed_m_s == pytest.approx(x[7:10]) and np.array_equal(seen["action"], action)


def test_an_action_reaches_the_limits_and_no_further(policy, dcl):
    most = [*dcl.rate_max_rad_s, dcl.thrust_max]
    assert policy.scaling.input(np.ones(4)) == pytest.approx(most)
    assert policy.scaling.input(-np.ones(4)) == pytest.approx([*-np.array(dcl.rate_max_rad_s), 0.0])
    assert policy.scaling.input(policy.scaling.hover) == pytest.approx([0, 0, 0, GRAVITY])


def test_the_last_action_is_observed_and_a_lost_state_braked(policy, dcl, vq1):
    controller, x = PolicyController(policy, dcl), state(np.random.default_rng(4))
    first, second = controller.step(0.0, x, vq1.gates[0]), controller.step(0.0, x, vq1.gates[0])
    assert first.source is Source.SOLVED and not np.array_equal(first.u, second.u)
    lost = controller.step(0.0, np.full(14, np.nan), vq1.gates[0])
    assert lost.source is Source.LEVEL and np.isfinite(lost.u).all()
    assert np.isfinite(controller.step(0.0, x, vq1.gates[0]).u).all()


def test_other_vehicles_are_refused_and_other_courses_reported(policy, dcl, vq1):
    assert policy.about == provenance(vq1, dcl) and all(map(np.array_equal, policy.scaling, Scaling.of(vq1, dcl)))
    policy.require(dcl, 60.0)
    with pytest.raises(UserError, match=r"was trained for vehicle dcl .* not for other"):
        policy.require(replace(dcl, name="other"), 60.0)
    with pytest.raises(UserError, match="at 60 Hz, the command rate of the profile is 50 Hz"):
        policy.require(dcl, 50.0)
    assert policy.warning(vq1) == "" and "not for vq2" in policy.warning(load_track("vq2"))


def changed(model, *entries):
    """Return the model with other metadata, whose digest is right."""
    return sealed(with_metadata(model, dict(entries)))


def rescaled(model, old, new):
    return changed(model, ("scaling", metadata(model)["scaling"].replace(old, new)))


DETECTOR = ROOT / "perception/taught/gates.onnx"
BROKEN = {
    "'observation' is missing": lambda model: sealed(SMALL.read_bytes()),
    "does not have its digest": lambda model: model.replace(b"onnx", b"onny"),
    "cut off": lambda model: model[:-1],
    "OpenCV cannot run it": lambda model: changed(model[len(SMALL.read_bytes()) :]),
    "its observation is .*p_x.*, must be p_x": lambda model: changed(model, ("observation", "p_x")),
    "track: missing": lambda model: changed(model, ("about", "{}")),
    "half_m is": lambda model: rescaled(model, '"half_m": [', '"half_m": [0.0, '),
    "about": lambda model: changed(model, ("about", "{")),
    "speed_m_s is -3": lambda model: rescaled(model, '"speed_m_s": 3', '"speed_m_s": -3'),
    "no ONNX model": lambda model: b"\x07" + model,
    "its output is|OpenCV": lambda model: changed(DETECTOR.read_bytes(), *metadata(model).items()),
    "": lambda model: b"",
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_model_that_is_none_is_refused_in_one_line(onnx, says):
    onnx.write_bytes(BROKEN[says](onnx.read_bytes()))
    with refused(rf"mine\.onnx.*({says})"):
        load_policy(str(onnx))


def test_names_are_those_of_the_shipped_files(dcl):
    with pytest.raises(UserError, match=r"no policy 'nothing'; known: .*or the path of an .onnx file"):
        load_policy("nothing")
    for name in names():
        about = load_policy(name).about
        assert set(asdict(about)) >= {"track", "vehicle", "steps", "seed"} and about.command_hz > 0

"""A policy: its file is read or refused in one line, its network and its interface are what is said of them."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.common.files import read_arrays, write_arrays
from gate_racer.mpc.control import Source
from gate_racer.mpc.policy.policy import Policy, PolicyController, PolicyProvenance, load_policy, names, write_policy
from gate_racer.tracks.observation import ACTION, OBSERVATION, Scaling
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import exp, matrix
from tests.conftest import refused


@pytest.fixture(scope="module")
def policy(dcl, vq1):
    """Return a policy with random weights."""
    rng = np.random.default_rng(0)
    sizes = (OBSERVATION.size, 16, 16, ACTION.size)
    layers = [
        (rng.normal(0, 0.5, (b, a)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32))
        for a, b in zip(sizes[:-1], sizes[1:], strict=True)
    ]
    return Policy(PolicyProvenance("vq1", vq1.hash, "dcl", dcl.hash, 60.0, (1, 3), 7, 0), Scaling.of(vq1, dcl), layers)


@pytest.fixture
def file(policy, tmp_path):
    write_policy(tmp_path / "mine.npz", policy)
    return tmp_path / "mine.npz"


def state(rng):
    x = np.zeros(14)
    x[:3], x[3:7], x[7:10] = rng.uniform(-5, 5, 3), exp(rng.normal(size=3)), rng.normal(0, 5, 3)
    return x


def test_a_file_gives_back_what_was_written(policy, file):
    read = load_policy(str(file))
    assert read.about == policy.about and read.scaling.middle_m == pytest.approx(policy.scaling.middle_m)
    seen = np.random.default_rng(1).normal(size=OBSERVATION.size)
    assert np.array_equal(read.act(seen), policy.act(seen))


def test_the_network_is_two_leaky_layers_and_a_tanh(policy):
    seen = np.random.default_rng(2).normal(size=OBSERVATION.size)
    h = seen
    for k, (weight, bias) in enumerate(policy.layers):
        h = np.array([sum(w * x for w, x in zip(row, h, strict=True)) for row in weight.astype(float)]) + bias
        h = np.tanh(h) if k == len(policy.layers) - 1 else np.where(h > 0, h, 0.2 * h)
    assert policy.act(seen) == pytest.approx(h, abs=1e-5)


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
    policy.require(dcl, 60.0)
    with pytest.raises(UserError, match=r"was trained for vehicle dcl .* not for other"):
        policy.require(replace(dcl, name="other"), 60.0)
    with pytest.raises(UserError, match="at 60 Hz, the command rate of the profile is 50 Hz"):
        policy.require(dcl, 50.0)
    assert policy.warning(vq1) == "" and "not for vq2" in policy.warning(load_track("vq2"))


BROKEN = {
    "about is missing": lambda arrays: arrays.pop("about"),
    "middle_m": lambda arrays: arrays.pop("middle_m"),
    "no layer": lambda arrays: [arrays.pop(name) for name in list(arrays) if name.startswith("weight")],
    "weight_1": lambda arrays: arrays.update(weight_1=arrays["weight_1"][:, 1:]),
    "bias_0": lambda arrays: arrays.pop("bias_0"),
    "not finite": lambda arrays: arrays["bias_2"].fill(np.nan),
    "float32": lambda arrays: arrays.update(weight_0=arrays["weight_0"].astype(int)),
    "half_m": lambda arrays: arrays.update(half_m=np.zeros(3)),
    "speed_m_s": lambda arrays: arrays.update(speed_m_s=np.ones(2)),
    "no JSON": lambda arrays: arrays.update(about=np.array("{")),
    "unexpected": lambda arrays: arrays.update(about=np.array(json.dumps(json.loads(str(arrays["about"])) | {"x": 1}))),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_none_is_refused_in_one_line(file, what):
    arrays = read_arrays(file)
    BROKEN[what](arrays)
    write_arrays(file, arrays)
    with refused(r"mine\.npz"):
        load_policy(str(file))


def test_names_are_those_of_the_shipped_files(dcl):
    with pytest.raises(UserError, match=r"no policy 'nothing'; known: .*or the path of an .npz file"):
        load_policy("nothing")
    for name in names():
        about = load_policy(name).about
        assert set(asdict(about)) >= {"track", "vehicle", "steps", "seed"} and about.command_hz > 0

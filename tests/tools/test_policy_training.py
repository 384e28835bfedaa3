"""Training a policy: PPO's parts are their definitions, the first expert flies, and a checkpoint goes on to the same last bit."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from gate_racer.common.errors import UserError
from gate_racer.sim.environment.racing import TRUTH, RacingEnvironment, Randomisation
from gate_racer.sim.physics.residual import ObservationModel, Residuals
from gate_racer.tracks.observation import OBSERVATION, Scaling
from tools.training import policy as command
from tools.training.expert import error, flown, moved
from tools.training.imitation import ExpertDataset
from tools.training.learner import Learner, LearningTask
from tools.training.ppo import ActorCritic, Hyperparameters, Normaliser, UpdateBatch, advantages, update

HOVER = np.array([-0.5, 0.0, 0.0, 0.0])
FEW = Hyperparameters(horizon=4, minibatch=16, epochs=2)


@pytest.fixture
def task(dcl, vq1):
    return LearningTask(vq1, dcl, 60.0, 8, (1,), Randomisation(thrust=0.1, position_m=0.1))


def test_advantages_are_their_definition():
    """Schulman et al. 2016, eq. 16: sums of discounted temporal differences up to the episode's end."""
    rng, gamma, gae = np.random.default_rng(0), 0.9, 0.8
    reward, value, after = rng.normal(size=(3, 7, 4))
    ended = rng.random((7, 4)) < 0.3
    after[ended & (rng.random((7, 4)) < 0.5)] = 0.0  # some by a crash
    found = advantages(reward, value, after, ended, gamma, gae)
    for t in range(7):
        for i in range(4):
            total = 0.0
            for k in range(t, 7):
                total += (gamma * gae) ** (k - t) * (reward[k, i] + gamma * after[k, i] - value[k, i])
                if ended[k, i]:
                    break
            assert found[t, i] == pytest.approx(total)


def test_normalised_columns_have_no_mean_and_unit_spread():
    rows = torch.as_tensor(np.random.default_rng(1).normal(3.0, 5.0, (1000, 6)), dtype=torch.float32)
    one, parts = Normaliser(6), Normaliser(6)
    one.update(rows)
    for part in rows.split(170):
        parts.update(part)
    assert one(rows).mean(0).abs().max() < 1e-3 and (one(rows).std(0) - 1).abs().max() < 1e-2
    assert torch.allclose(one.mean, parts.mean, atol=1e-4) and torch.allclose(one.spread, parts.spread, rtol=1e-4)


def batch_of(net, n, gain):
    generator = torch.Generator().manual_seed(0)
    known = torch.randn((n, OBSERVATION.size + TRUTH), generator=generator)
    seen = known[:, : OBSERVATION.size]
    with torch.no_grad():
        policy = net.policy(seen)
        action = policy.mean + policy.stddev * torch.randn((n, 4), generator=generator)
        probability = policy.log_prob(action).sum(-1)
    return UpdateBatch(seen, known, action, probability, gain(action), torch.zeros(n))


def test_better_actions_become_likelier_within_the_divergence_limit():
    torch.manual_seed(0)
    net = ActorCritic(OBSERVATION.size, TRUTH, HOVER)
    batch = batch_of(net, 512, lambda action: action[:, 1])
    by = replace(Hyperparameters(), minibatch=64, epochs=20, learning_rate=1e-3)
    before = net.mean(batch.observation).detach()
    told = update(net, torch.optim.Adam(net.parameters(), 1e-3), batch, by, torch.Generator().manual_seed(0))
    after = net.mean(batch.observation).detach()
    assert (after - before)[:, 1].mean() > 0.01 and told["divergence"] < 2 * by.divergence_most
    assert before[:, 0].numpy() == pytest.approx(np.full(512, HOVER[0]), abs=0.05), "an untrained policy hovers"


def test_a_critic_alone_leaves_the_policy_as_it_is():
    torch.manual_seed(0)
    net = ActorCritic(OBSERVATION.size, TRUTH, HOVER)
    batch = batch_of(net, 64, lambda action: action[:, 1])
    before, value = net.mean(batch.observation).detach(), net.value(batch.known).detach()
    update(net, torch.optim.Adam(net.parameters(), 1e-3), batch, FEW, torch.Generator(), actor=False)
    assert torch.equal(net.mean(batch.observation), before)
    assert net.value(batch.known).abs().mean() < value.abs().mean(), "and has learned that nothing is worth anything"


def test_the_exported_policy_acts_as_the_trained_network(task):
    learner = Learner(task, FEW, 0)
    for _ in range(3):
        learner.improve(10_000)
    seen = np.random.default_rng(2).normal(size=(20, OBSERVATION.size))
    shipped = learner.policy()
    with torch.no_grad():
        trained = learner.net.mean(torch.as_tensor(seen, dtype=torch.float32)).numpy()
    assert np.array([shipped.act(one) for one in seen]) == pytest.approx(trained, abs=1e-5)
    assert shipped.about.steps == learner.steps == 3 * 4 * 8 and shipped.about.vehicle == "dcl"


def test_a_checkpoint_goes_on_to_the_same_last_bit(task, tmp_path):
    through, halved = Learner(task, FEW, 3), Learner(task, FEW, 3)
    for _ in range(4):
        through.improve(1000)
    for _ in range(2):
        halved.improve(1000)
    torch.save(halved, tmp_path / "kept.pt")
    again = torch.load(tmp_path / "kept.pt", weights_only=False)
    for _ in range(2):
        again.improve(1000)
    for a, b in zip(through.policy().layers, again.policy().layers, strict=True):
        assert np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])
    assert again.steps == through.steps and again.tally.row().keys() == through.tally.row().keys()


def test_the_command_leaves_policy_curve_and_checkpoint_and_goes_on(tmp_path, capsys):
    out = tmp_path / "one.npz"
    line = ["vq1", "--vehicle", "dcl", "--out", str(out), "--vehicles", "4", "--settings", "1", "--horizon", "4"]
    assert command.run(command.parser().parse_args([*line, "--steps", "16"])) == 0
    assert out.exists() and out.with_suffix(".png").stat().st_size > 1000
    with pytest.raises(UserError, match=r"one.pt: exists already; add --resume"):
        command.run(command.parser().parse_args([*line, "--steps", "16"]))
    assert command.run(command.parser().parse_args([*line, "--steps", "32", "--resume"])) == 0
    assert torch.load(out.with_suffix(".pt"), weights_only=False).steps == 32
    with pytest.raises(UserError, match=r"must end in \.npz"):
        command.run(command.parser().parse_args([*line, "--out", "x.txt"]))


def test_it_is_finetuned_on_what_flights_have_seen_wrongly(tmp_path, dcl, vq1):
    out, errors = tmp_path / "one.npz", tmp_path / "errors.npz"
    way = np.array([gate.p_wg for gate in vq1.gates])
    Residuals(dcl.hash, False, None, ObservationModel.of_size(way, (0.3, 0.3, 0.03), 10.0)).save(errors)
    line = ["vq1", "--vehicle", "dcl", "--out", str(out), "--vehicles", "4", "--settings", "1", "--horizon", "4"]
    with pytest.raises(UserError, match=r"errors\.npz: needs --resume"):
        command.run(command.parser().parse_args([*line, "--steps", "16", "--residual", str(errors)]))
    command.run(command.parser().parse_args([*line, "--steps", "16"]))
    command.run(command.parser().parse_args([*line, "--steps", "32", "--resume", "--residual", str(errors)]))
    learner = torch.load(out.with_suffix(".pt"), weights_only=False)
    right, wrong = (
        task.environments(0)[0].reset()[:, :3] for task in (replace(learner.task, residuals=None), learner.task)
    )
    assert learner.steps == 32 and np.abs(right - wrong).max() > 1e-3
    Residuals("another", False, None).save(errors)
    with pytest.raises(UserError, match="was fitted to another vehicle than dcl"):
        command.run(command.parser().parse_args([*line, "--steps", "48", "--resume", "--residual", str(errors)]))


def test_moving_undoes_the_error(plan):
    rng = np.random.default_rng(5)
    reference = plan.x[rng.integers(0, len(plan.x), 10)]
    off = rng.normal(0, 0.03, (10, 13))
    assert error(moved(reference, off), reference) == pytest.approx(off, rel=1e-3, abs=1e-5)


def test_the_model_flies_the_plan_as_the_planner_does(plan, dcl):
    t, x, u = plan.dense(dcl, 4)
    ahead = np.array([flown(x[k : k + 1], u[k : k + 1], dcl, t[k + 1] - t[k])[0] for k in range(0, 200, 20)])
    assert ahead == pytest.approx(x[1:201:20], abs=1e-4)


def test_the_expert_flies_the_plan_from_off_it(plan, dcl, vq1):
    races = RacingEnvironment(dcl, vq1, 12, np.random.default_rng(0))
    school = ExpertDataset(races, plan, vq1, dcl, np.random.default_rng(0))
    torch.manual_seed(0)
    seen, asked = school.lesson(ActorCritic(OBSERVATION.size, TRUTH, Scaling.of(vq1, dcl).hover), 120, 0.0)
    assert seen.shape == (1440, OBSERVATION.size) and np.isfinite(asked).all()
    off = school._follow(school.ahead())
    assert np.median(off) < 0.3 and off.max() < 1.5

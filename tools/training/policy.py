"""Train a racing policy, as Swift's was (Kaufmann et al., Nature 620:982, 2023, Methods, "Policy training"):

python -m tools.training.policy TRACK --vehicle swift --steps 1e8 --seed 0 --out FILE.npz

FILE.npz is for `run-mpc TRACK --controller FILE.npz`, FILE.png has the curves, and from FILE.pt the same command with --resume
continues, to the same weights as without interruption. A .pt is a pickle, and so can run code: resume from your own files only.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib
import torch

from gate_racer.common.command import perform, remark
from gate_racer.common.errors import UserError
from gate_racer.common.files import drafted
from gate_racer.link.profile import load_profile
from gate_racer.mpc.policy.policy import write_policy
from gate_racer.planner.plan import read_plan
from gate_racer.sim.environment.racing import Randomisation
from gate_racer.sim.physics.plants import SETTINGS
from gate_racer.sim.physics.residual import Residuals
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tools.training.learner import Learner, LearningTask
from tools.training.ppo import Hyperparameters

matplotlib.use("Agg")
import matplotlib.pyplot as plt

REPORT_S, KEEP_S = 10.0, 60.0  # s between two lines of progress, and between two checkpoints (chosen)
CURVES = {
    "return": "return",
    "gates": "gates per episode",
    "lap_s": "lap time [s]",
    "crashes_per_lap": "crashes per lap",
}


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by = Hyperparameters()
    arguments.add_argument("track", help="name or YAML file of the track")
    arguments.add_argument("--vehicle", default="swift", help="name or YAML file of the vehicle (default: swift)")
    arguments.add_argument(
        "--profile", default="spec", help="wire profile, which sets the command rate (default: spec)"
    )
    arguments.add_argument(
        "--steps", type=float, default=1e8, help="total number of steps of all vehicles (default: 1e8, the paper's)"
    )
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--out", type=Path, required=True, metavar="FILE.npz")
    arguments.add_argument("--resume", action="store_true", help="continue from FILE.pt")
    arguments.add_argument(
        "--plan", type=Path, metavar="CSV", help="plan to imitate first (default: none, start from hover)"
    )
    arguments.add_argument(
        "--vehicles", type=int, default=256, help="number of vehicles simulated in parallel (default: 256)"
    )
    about = f"initial learning rate of Adam (default: {by.learning_rate:g}, the paper's)"
    arguments.add_argument("--learning-rate", type=float, default=by.learning_rate, help=about)
    about = f"steps of each vehicle between two updates (default: {by.horizon})"
    arguments.add_argument("--horizon", type=int, default=by.horizon, help=about)
    about = "simulation settings of Swift whose plants are used (default: 1 3)"
    arguments.add_argument("--settings", type=int, nargs="+", default=[1, 3], choices=SETTINGS, help=about)
    about = "with --resume, finetune with the residual accelerations and observation errors of a file of race-bench"
    arguments.add_argument("--residual", type=Path, metavar="FILE", help=about)
    for name, unit in (
        ("thrust", "share"),
        ("drag", "share"),
        ("position", "m"),
        ("velocity", "m/s"),
        ("attitude", "rad"),
    ):
        arguments.add_argument(
            f"--{name}", type=float, default=0.0, help=f"half width of the randomisation, {unit} (default: 0)"
        )
    arguments.set_defaults(quiet=False, json=None)
    return arguments


def run(given: argparse.Namespace) -> int:
    """Train until `--steps` are flown; return the exit code."""
    if given.out.suffix != ".npz":
        raise UserError(f"--out {given.out}: must end in .npz")
    torch.set_num_threads(1)  # networks of this size gain nothing from more
    learner, total = begun(given), int(given.steps)
    keep(learner, given.out)
    begin = reported = kept = time.monotonic()
    first = learner.steps
    while learner.steps < total:
        figures = learner.improve(total)
        now, over = time.monotonic(), learner.steps >= total
        if now - reported > REPORT_S or over:
            reported, rate = now, (learner.steps - first) / (now - begin)
            row = {"steps": learner.steps, **learner.tally.row(), **figures}
            learner.tally.clear()
            learner.curve.append(row)
            text = "  ".join(f"{name} {value:.3g}" for name, value in row.items() if name != "steps")
            left_min = (total - learner.steps) / rate / 60
            print(f"{learner.steps / 1e6:.2f} M steps, {rate:.0f}/s, {left_min:.0f} min left:  {text}", flush=True)
        if now - kept > KEEP_S or over:
            kept = now
            keep(learner, given.out)
    return 0


def begun(given: argparse.Namespace) -> Learner:
    """Return a new learner, or one resumed from its checkpoint.

    Raises:
        UserError: the options contradict each other, or a file is missing or malformed.
    """
    checkpoint = given.out.with_suffix(".pt")
    if given.resume:
        try:
            learner = torch.load(checkpoint, weights_only=False)
        except OSError as error:
            raise UserError(f"{checkpoint}: cannot be read ({error.strerror})") from None
        if not isinstance(learner, Learner):
            raise UserError(f"{checkpoint}: not a checkpoint of this command")
        if given.residual is not None:
            learner.go_on_in(replace(learner.task, residuals=_residuals(given.residual, learner.task)))
        return learner
    if given.residual is not None:
        raise UserError(f"--residual {given.residual}: needs --resume")
    if checkpoint.exists():
        raise UserError(f"{checkpoint}: exists already; add --resume to continue from it")
    track, vehicle = load_track(given.track), load_vehicle(given.vehicle)
    randomisation = Randomisation(given.thrust, given.drag, given.position, given.velocity, given.attitude)
    hz = load_profile(given.profile).command_hz
    task = LearningTask(track, vehicle, hz, given.vehicles, tuple(given.settings), randomisation)
    learner = Learner(task, Hyperparameters(learning_rate=given.learning_rate, horizon=given.horizon), given.seed)
    if given.plan is not None:
        plan = read_plan(given.plan)
        plan.require(track, vehicle)
        learner.imitate(plan, remark)
    return learner


def _residuals(path: Path, task: LearningTask) -> Residuals:
    """Load residuals for a task.

    Raises:
        UserError: the file is of another vehicle, or its acceleration of another plant than all settings.
    """
    residuals = Residuals.load(path)
    for number in task.settings:
        residuals.require(task.vehicle, SETTINGS[number], str(path))
    return residuals


def keep(learner: Learner, out: Path) -> None:
    """Write checkpoint, policy and curves."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with drafted(out.with_suffix(".pt")) as draft:
        torch.save(learner, draft)
    write_policy(out, learner.policy())
    draw_curves(learner.curve, out.with_suffix(".png"))


def draw_curves(curve: list[dict[str, float]], path: Path) -> None:
    """Plot the curves over the steps."""
    figure, axes = plt.subplots(len(CURVES), 1, figsize=(9, 11), sharex=True, layout="constrained")
    for axis, (name, label) in zip(axes, CURVES.items(), strict=True):
        axis.plot([row["steps"] / 1e6 for row in curve], [row[name] for row in curve], linewidth=1.0)
        axis.set(ylabel=label, yscale="log" if name in ("lap_s", "crashes_per_lap") else "linear")
        axis.grid(alpha=0.3)
    axes[-1].set(xlabel="steps [million]")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> None:
    """Run the training."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()

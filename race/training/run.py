"""`train-policy`: learn a racing policy from nothing, or from another one: for another course, or with residuals of flights.

The policy is for `run-mpc TRACK --controller FILE.onnx`. Beside it lie its curves (.png) and its checkpoint (.pt), from which
the same command with resume=true continues, to the same weights as without interruption. A checkpoint has the networks, which
other trainings begin with, and a pickle of the rest, which can run code: resume your own files only.
"""

import argparse
import pickle
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import drafted, write_figure, write_file
from gate_racer.common.settings import keys_of, settings_of
from gate_racer.link.profile import load_profile
from gate_racer.mpc.policy.policy import path_of
from gate_racer.race.training.cli import TrainingSettings
from gate_racer.sim.physics.registry import SETTINGS
from gate_racer.sim.physics.residual import Residuals
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

if TYPE_CHECKING:
    from gate_racer.race.training.learner import Learner

REPORT_S, KEEP_S = 10.0, 60.0  # s between two lines of progress, and between two checkpoints (chosen)
CHECKPOINT = ".pt"
CURVES = {
    "return": "return",
    "gates": "gates per episode",
    "lap_s": "lap time [s]",
    "crashes_per_lap": "crashes per lap",
}


def run(arguments: argparse.Namespace) -> int:
    """Train until `steps` are flown; return the exit code."""
    settings = settings_of(arguments, TrainingSettings)
    out, total = settings.out, int(settings.steps)
    checkpoint = out.with_suffix(CHECKPOINT)
    outputs = out, checkpoint, out.with_suffix(".png")
    require_outputs(outputs, arguments.track, settings.vehicle, origin_of(settings), settings.residual)
    track, vehicle = load_track(arguments.track), load_vehicle(settings.vehicle)
    if not settings.resume and checkpoint.exists():
        raise UserError(f"{checkpoint}: exists already; add --set resume=true, or choose another --out")
    missing = [name for name in ("torch", "onnx", "rsl_rl") if find_spec(name) is None]
    if missing:
        told = f"pip install gate-racer[train] ({' and '.join(missing)} not found)"
        raise UserError(f"train-policy needs PyTorch and rsl_rl: {told}")
    import torch

    torch.set_num_threads(1)  # networks of this size gain nothing from more
    learner = resumed(checkpoint, settings, track) if settings.resume else begun(settings, track, vehicle)
    begin = reported = kept = time.monotonic()
    first = learner.steps
    while learner.steps < total:
        learner.improve(learner.steps / total)
        now, over = time.monotonic(), learner.steps >= total
        if now - reported > REPORT_S or over:
            reported, rate = now, (learner.steps - first) / (now - begin)
            row = learner.report()
            text = ", ".join(f"{label} {row[name]:.3g}" for name, label in CURVES.items())
            left_min = max(total - learner.steps, 0) / rate / 60
            remark(f"{learner.steps / 1e6:.2f} million steps, {rate:.0f} per second, {left_min:.0f} min left: {text}")
        if now - kept > KEEP_S or over:
            kept = now
            keep(learner, settings)
    print(f"written: {out}. To fly it: run-mpc {arguments.track} --vehicle {settings.vehicle} --controller {out}")
    write_json(arguments.json, learner.curve)
    return 0


def begun(settings: TrainingSettings, track: Track, vehicle: Vehicle) -> "Learner":
    """Return a new learner. Raises UserError for an unusable file, or one of another vehicle or plant."""
    from gate_racer.race.training.learner import Learner, LearningTask

    origin = origin_of(settings)
    residuals = Residuals.load(settings.residual) if settings.residual is not None else None
    numbers, hz = plants(settings, residuals), load_profile(settings.profile).command_hz
    if residuals is not None:
        for number in numbers:
            residuals.require(vehicle, SETTINGS[number], str(settings.residual))
    task = LearningTask(track, vehicle, hz, settings.vehicles, numbers, settings.randomisation, residuals)
    return Learner(task, settings.seed, _kept(origin)["networks"] if origin is not None else None)


def origin_of(settings: TrainingSettings) -> Path | None:
    """Return the checkpoint to begin with: as given, or that beside a policy's file. Raises UserError for an unknown name."""
    origin = settings.origin
    if origin is None:
        return None
    return Path(origin) if Path(origin).suffix == CHECKPOINT else path_of(origin).with_suffix(CHECKPOINT)


def plants(settings: TrainingSettings, residuals: Residuals | None) -> tuple[int, ...]:
    """Return the numbers of the settings to fly in: as given, else that of the plant with the residual acceleration, else 1."""
    fitted = residuals is not None and residuals.acceleration is not None and residuals.aerodynamic
    return tuple(map(int, settings.settings)) or ((3,) if fitted else (1,))


def resumed(checkpoint: Path, settings: TrainingSettings, track: Track) -> "Learner":
    """Return the learner of a checkpoint. Raises UserError for another command's, or one that has all steps already."""
    kept = _kept(checkpoint)
    if "training" not in kept:
        raise UserError(f"{checkpoint}: has networks only: take it as origin of another --out")
    try:
        before, learner = pickle.loads(bytes(kept["training"].numpy()))
        pairs = list(zip(keys_of(before), keys_of(settings), strict=True))
    except Exception as error:  # whatever a pickle of other classes raises
        why = f"{checkpoint}: is of another version of train-policy ({type(error).__name__})"
        raise UserError(f"{why}: take it as origin of another --out") from None
    if track.hash != learner.task.track.hash:
        raise UserError(f"{checkpoint}: was begun on {learner.task.track.name}, not on this {track.name}")
    for then, now in pairs:
        if then.name != "resume" and then.default != now.default:
            begun_with = f"{checkpoint}: was begun with {then.name}={then.default}, which cannot become {now.default}"
            raise UserError(f"{begun_with}: take it as origin of another --out")
    if learner.steps >= settings.steps:
        raise UserError(f"{checkpoint}: has all {learner.steps} steps; take it as origin of another --out for more")
    return learner


def _kept(checkpoint: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, as `keep` writes it, without running code. Raises UserError for a file that is none."""
    import torch

    try:
        kept = torch.load(checkpoint, weights_only=True)
    except OSError as error:
        raise UserError(f"{checkpoint}: cannot be read ({error.strerror})") from None
    except Exception as error:  # whatever a pickle of something else raises
        raise UserError(f"{checkpoint}: not a checkpoint of train-policy ({type(error).__name__})") from None
    if not (isinstance(kept, dict) and "networks" in kept):
        raise UserError(f"{checkpoint}: not a checkpoint of train-policy")
    return kept


def keep(learner: "Learner", settings: TrainingSettings) -> None:
    import torch

    out = settings.out
    out.parent.mkdir(parents=True, exist_ok=True)
    training = torch.frombuffer(bytearray(pickle.dumps((settings, learner))), dtype=torch.uint8)
    with drafted(out.with_suffix(CHECKPOINT)) as draft:
        torch.save({"networks": learner.networks(), "training": training}, draft)
    write_file(out, learner.policy())
    draw_curves(learner.curve, out.with_suffix(".png"))


def draw_curves(curve: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(CURVES), 1, figsize=(9, 11), sharex=True, layout="constrained")
    for axis, (name, label) in zip(axes, CURVES.items(), strict=True):
        axis.plot([row["steps"] / 1e6 for row in curve], [row[name] for row in curve], linewidth=1.0)
        axis.set(ylabel=label, yscale="log" if name in ("lap_s", "crashes_per_lap") else "linear")
        axis.grid(alpha=0.3)
    axes[-1].set(xlabel="steps [million]")
    write_figure(path, figure)
    plt.close(figure)

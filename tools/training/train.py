"""Train the gate detector's network and write it as ONNX:

python -m tools.training.train FRAMES [--minutes 25] [--seed 1] [--rate 6e-3] [--from FILE] [--to FILE]

With --from it continues from a network written before, for which half the rate suffices.
The learning rate rises and falls within the time given, so that a run is complete on any machine.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gate_racer.perception.learned.network import CORNERS
from tools.training.net import UNet
from tools.training.samples import Samples
from tools.training.weights import export, read

BATCH = 8  # samples per step
RATE = 6e-3  # greatest learning rate of AdamW
WARM = 0.08  # share of the time in which it rises
MEASURED = 8  # batches by which normalisations are recomputed for a network that is read
DECAY = 1e-4  # weight decay of AdamW
PEAKS = 20.0  # weight of the heat maps' error where a peak is
FIELD = 1.0  # weight of the fields relative to the heat maps
ON_EDGE = 10.0  # weight of a field's error where an edge is
REPORT_S = 30.0  # s between two lines of progress
KEPT = 0.998  # decay of the averaged weights per step


def loss(maps: Tensor, wanted: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of the heat maps and the mean absolute error of the fields, weighted by corners and edges."""
    heat, field = wanted[:, :CORNERS], wanted[:, CORNERS:]
    entropy = nn.functional.binary_cross_entropy_with_logits(maps[:, :CORNERS], heat, reduction="none")
    floor = nn.functional.binary_cross_entropy(heat, heat, reduction="none")  # its lower bound
    weight = (1 + PEAKS * heat) * counts[:, None]
    miss = (maps[:, CORNERS:] - field).abs() * (1 + ON_EDGE * (field.abs() > 0)) * counts[:, None]
    return ((entropy - floor) * weight).mean(), miss.mean()


def train(frames: Path, minutes: float, seed: int, rate: float, start: Path | None, file: Path) -> None:
    """Train the detector's network on the images of a folder for some minutes and export it to `file` (ONNX)."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    samples, rng = Samples(frames), np.random.default_rng(seed)
    net = UNet()
    if start is not None:
        some = [samples.sample(k, rng)[0] for k in rng.permutation(len(samples))[: MEASURED * BATCH]]
        read(net, start, torch.from_numpy(np.stack(some)).float())
    net = net.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(KEPT), use_buffers=True
    )
    optimiser = torch.optim.AdamW(net.parameters(), rate, weight_decay=DECAY)
    begin, reported, steps, sums = time.monotonic(), time.monotonic(), 0, np.zeros(3)
    order = np.empty(0, int)
    while (done := (time.monotonic() - begin) / (60 * minutes)) < 1:
        if len(order) < BATCH:
            order = rng.permutation(len(samples))
        batch, order = order[:BATCH], order[BATCH:]
        images, maps, counts = (np.stack(part) for part in zip(*(samples.sample(k, rng) for k in batch), strict=True))
        rise, fall = done / WARM, 0.5 * (1 + np.cos(np.pi * done))
        optimiser.param_groups[0]["lr"] = rate * min(rise, fall) + 1e-5
        x = torch.from_numpy(images).float().contiguous(memory_format=torch.channels_last)
        corners, edges = loss(net(x), torch.from_numpy(maps), torch.from_numpy(counts))
        optimiser.zero_grad()
        (corners + FIELD * edges).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        average.update_parameters(net)
        steps += 1
        sums += [corners.item(), edges.item(), 1]
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            print(
                f"{reported - begin:5.0f} s {steps:6d} steps  corners {sums[0] / sums[2]:.4f}  edges {sums[1] / sums[2]:.4f}"
            )
            sums[:] = 0
            export(average.module, file)
    export(average.module, file)
    print(f"{steps} steps of {BATCH} samples; written to {file}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("frames", type=Path)
    arguments.add_argument("--minutes", type=float, default=25.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--rate", type=float, default=RATE)
    arguments.add_argument("--from", type=Path, dest="start")
    arguments.add_argument("--to", type=Path, default=Path("perception/learned/gate_net.onnx"))
    given = arguments.parse_args()
    train(given.frames, given.minutes, given.seed, given.rate, given.start, given.to)

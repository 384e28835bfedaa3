"""Training of the network on samples: loss, schedule and averaged weights, the same for the same seed and number of steps."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gate_racer.perception.training.labels import Photograph
from gate_racer.perception.training.samples import draw_sample
from gate_racer.perception.training.unet import GateUNet, stacked

# Training of the network. Chosen.
BATCH = 8  # samples per step
AHEAD = 8  # steps for which samples are drawn in advance
RATE = 6e-3  # greatest learning rate of AdamW
WARM = 0.08  # share of the steps in which it rises; it falls along a cosine
DECAY = 1e-4  # weight decay
KEPT = 0.998  # decay of the averaged weights per step
GRADIENT = 1.0  # greatest norm of the gradient
PEAKS_WEIGHT = 20.0  # weight of the corner map's error where a peak is
CORNERS_WEIGHT = 10.0  # weight of the corner map's loss
OFFSETS_WEIGHT = 0.5  # weight of the offsets' loss
NEAR_SIDES = 0.05  # sides, error at which the loss of an offset turns from square to absolute
FOCUS = 2.0  # exponent of the focal loss (Lin et al., 2017)
REPORTS = 50  # reports of the progress


@dataclass(frozen=True, slots=True)
class Losses:
    """Mean losses since the report before."""

    step: int
    elapsed_s: float
    corners: float
    gates: float
    offsets: float


def fit(photographs: list[Photograph], steps: int, seed: int, tell: Callable[[Losses], None]) -> GateUNet:
    """Return the network trained on photographs, on a GPU if there is one, else on one core beside one that draws the samples."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = GateUNet().to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    average = torch.optim.swa_utils.AveragedModel(net, avg_fn=_averaged, use_buffers=True)
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    begin, sums, reported = time.monotonic(), np.zeros(3), 0
    for step, (images, heat, *heads) in enumerate(batches(photographs, steps, seed), 1):
        done = step / steps
        optimiser.param_groups[0]["lr"] = RATE * min(done / WARM, 0.5 * (1 + math.cos(math.pi * done))) + 1e-5
        x = stacked(images.to(device)).contiguous(memory_format=torch.channels_last)
        losses = loss(net(x), heat.to(device), [head.to(device) for head in heads])
        optimiser.zero_grad()
        (CORNERS_WEIGHT * losses[0] + losses[1] + OFFSETS_WEIGHT * losses[2]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), GRADIENT)
        optimiser.step()
        average.update_parameters(net)
        sums += [float(part.detach()) for part in losses]
        if step * REPORTS // steps > (step - 1) * REPORTS // steps:
            tell(Losses(step, time.monotonic() - begin, *(sums / (step - reported))))
            sums, reported = np.zeros(3), step
    trained: GateUNet = average.module.eval().cpu()  # type: ignore[assignment]
    return trained


def _averaged(average: Tensor, now: Tensor, count: Tensor | int) -> Tensor:
    """Return the moving average of a weight; of the first steps, which differ most, it is soon free."""
    return average + (now - average) * max(1 - KEPT, 9 / (10 + float(count)))


def loss(out: tuple[Tensor, ...], heat: Tensor, targets: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of corners, gates and offsets of the network's outputs for a batch.

    The offsets of an opening may name its corners from any first one: near 45 deg of roll the top left one is ambiguous.
    """
    bce = nn.functional.binary_cross_entropy_with_logits
    floor = nn.functional.binary_cross_entropy(heat, heat, reduction="none")  # lower bound of the next
    corners = ((bce(out[0], heat, reduction="none") - floor) * (1 + PEAKS_WEIGHT * heat)).mean()
    gates = offsets = corners.new_zeros(())
    for head, target in zip(out[1:], targets, strict=True):
        wanted, weight = target[:, 0], target[:, 1]
        right = torch.where(wanted > 0, torch.sigmoid(head[:, 0]), 1 - torch.sigmoid(head[:, 0]))
        gates = gates + 0.5 * ((1 - right) ** FOCUS * bce(head[:, 0], wanted, reduction="none") * weight).sum()
        given, true = (part.permute(0, 2, 3, 1)[wanted > 0].reshape(-1, 4, 2) for part in (head[:, 1:], target[:, 2:]))
        side = (true - true.roll(1, 1)).norm(dim=-1).mean(1).clamp(min=NEAR_SIDES)[:, None, None]
        errors = [
            nn.functional.smooth_l1_loss(given / side, true.roll(k, 1) / side, reduction="none", beta=NEAR_SIDES).sum(
                (1, 2)
            )
            for k in range(4)
        ]
        offsets = offsets + torch.stack(errors).min(0).values.sum()
    reporting = sum(target[:, 0].sum() for target in targets)
    count = torch.as_tensor(reporting).clamp(min=1)
    return corners, gates / count, offsets / count


def batches(photographs: list[Photograph], steps: int, seed: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of images (B, 3, h, w), corner maps and the targets of each head, drawn ahead by another thread.

    Which image is drawn, and how, follows from the seed and the number of the sample alone.
    """
    count = len(photographs)

    def draw(step: int) -> tuple[Tensor, ...]:
        rows = []
        for number in range(step * BATCH, (step + 1) * BATCH):
            order = np.random.default_rng([seed, number // count]).permutation(count)
            sample = draw_sample(photographs[order[number % count]], np.random.default_rng([seed, number, 1]))
            rows.append((sample.image, sample.heat, *sample.heads))
        return tuple(torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))

    with ThreadPoolExecutor(1) as drawing:
        ahead = deque(drawing.submit(draw, step) for step in range(min(AHEAD, steps)))
        try:
            for step in range(steps):
                if step + AHEAD < steps:
                    ahead.append(drawing.submit(draw, step + AHEAD))
                yield ahead.popleft().result()
        finally:
            drawing.shutdown(cancel_futures=True)

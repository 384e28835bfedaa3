"""The network of the taught detector, and its training on samples, the same for the same seed and number of steps.

A U-Net (Ronneberger et al., 2015), whose decoder reports gates at three scales, and corners. The image's 2 x 2 blocks are stacked
into channels first, so that no layer runs on all pixels, and skips are added instead of stacked, both for the CPU. Batch
normalisation is folded into the filters by the export.
"""

import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gate_racer.perception.taught.detector import HEAD_STRIDES, INPUT, OUTPUTS, PART, STRIDE
from gate_racer.perception.training.labels import Photograph
from gate_racer.perception.training.samples import draw_sample

FILTERS = 8, 16, 24, 32, 48, 48  # per level; wider ones found no more in photographs, and took longer (measured)
SLOPE = 0.01  # of the LeakyReLU below zero
RARE = -4.0  # initial log-odds: corners and centres are rare


class GateUNet(nn.Module):
    """Network from blocks (B, 12, h, w), -0.5 to 0.5 (`perception.taught.detector.blocks`), to its outputs in order."""

    def __init__(self) -> None:
        super().__init__()
        levels = range(len(FILTERS) - 1)
        self.down = nn.ModuleList(_layer(*io) for io in zip((3 * STRIDE**2, *FILTERS), FILTERS, strict=False))
        self.narrow = nn.ModuleList(_layer(FILTERS[i + 1], FILTERS[i], 1) for i in levels)
        self.up = nn.ModuleList(_layer(FILTERS[i], FILTERS[i]) for i in levels)
        self.corners = nn.Conv2d(FILTERS[0], 1, 3, padding=1)
        self.heads = nn.ModuleDict(
            {str(i): nn.Sequential(_layer(FILTERS[i], FILTERS[i]), nn.Conv2d(FILTERS[i], 9, 1)) for i in HEAD_LEVELS}
        )
        with torch.no_grad():
            for last in (self.corners, *(head[-1] for head in self.heads.values())):  # type: ignore[index]
                last.bias[0] = RARE

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the corner map (B, 1, h, w) and the heads (B, 9, h / 4, w / 4), (B, 9, h / 8, w / 8), (B, 9, h / 16, w / 16)."""
        skips: list[Tensor] = []
        for i, layer in enumerate(self.down):
            x = layer(nn.functional.max_pool2d(x, 2) if i else x)
            skips.append(x)
        gates = []
        for i in reversed(range(len(self.up))):
            x = nn.functional.interpolate(self.narrow[i](x), scale_factor=2.0, mode="nearest")
            x = self.up[i](x + skips[i])
            if i in HEAD_LEVELS:
                gates.append(self.heads[str(i)](x))
        return self.corners(x), *reversed(gates)


HEAD_LEVELS = tuple((stride // STRIDE).bit_length() - 1 for stride in HEAD_STRIDES)


def stacked(images: Tensor) -> Tensor:
    """Return the network's input for images (B, 3, H, W), 0 to 255."""
    return nn.functional.pixel_unshuffle(images.float() / 255.0 - 0.5, STRIDE)


def export(net: GateUNet, file: Path) -> None:
    """Write the network as ONNX, for map sizes that are multiples of 2^5; the file is independent of the size."""
    sizes = {0: "batch", 2: "height", 3: "width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's age: the new one needs another library for the same file
        torch.onnx.export(
            net.eval().cpu(),
            (torch.zeros(1, 3 * STRIDE**2, PART, PART),),
            str(file),
            dynamo=False,
            input_names=[INPUT],
            output_names=[*OUTPUTS],
            dynamic_axes={name: sizes for name in (INPUT, *OUTPUTS)},
        )


def _layer(inputs: int, outputs: int, kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(SLOPE, inplace=True),
    )


# Training of the network. Chosen.
AHEAD = 4  # batches that each process has drawn in advance
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


def fit(photographs: list[Photograph], steps: int, batch: int, seed: int, tell: Callable[[Losses], None]) -> GateUNet:
    """Return the network trained on photographs, on a GPU if there is one, else on one core; the others draw the samples."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = GateUNet().to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=_average, use_buffers=True)
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    begin, sums, reported = time.monotonic(), torch.zeros(3, device=device), 0
    drawing = max((os.cpu_count() or 1) - 1, 1)
    samples = Samples(photographs, steps * batch, seed)
    loader = DataLoader(samples, batch, num_workers=drawing, prefetch_factor=AHEAD, worker_init_fn=_one_thread)
    for step, (images, heat, *heads) in enumerate(loader, 1):
        done = step / steps
        optimiser.param_groups[0]["lr"] = RATE * min(done / WARM, 0.5 * (1 + math.cos(math.pi * done))) + 1e-5
        x = stacked(images.to(device)).contiguous(memory_format=torch.channels_last)
        losses = loss(net(x), heat.to(device), [head.to(device) for head in heads])
        optimiser.zero_grad()
        (CORNERS_WEIGHT * losses[0] + losses[1] + OFFSETS_WEIGHT * losses[2]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), GRADIENT)
        optimiser.step()
        average.update_parameters(net)
        sums += torch.stack(losses).detach()
        if step * REPORTS // steps > (step - 1) * REPORTS // steps:
            tell(Losses(step, time.monotonic() - begin, *(sums / (step - reported)).tolist()))
            sums, reported = torch.zeros_like(sums), step
    trained: GateUNet = average.module.eval().cpu()  # type: ignore[assignment]
    return trained


def _average(averages: list[Tensor], now: list[Tensor], count: Tensor | int) -> None:
    """Move the averages of the weights towards those of now; of the first steps, which differ most, they are soon free."""
    if averages[0].is_floating_point():
        torch._foreach_lerp_(averages, now, max(1 - KEPT, 9 / (10 + float(count))))  # type: ignore[attr-defined]


def _one_thread(_: int) -> None:
    cv2.setNumThreads(1)


def loss(out: tuple[Tensor, ...], heat: Tensor, targets: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of corners, gates and offsets of a batch; the offsets of an opening may begin at any corner."""
    bce, l1 = nn.functional.binary_cross_entropy_with_logits, nn.functional.smooth_l1_loss
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
            l1(given / side, true.roll(k, 1) / side, reduction="none", beta=NEAR_SIDES).sum((1, 2)) for k in range(4)
        ]
        offsets = offsets + torch.stack(errors).min(0).values.sum()
    reporting = sum(target[:, 0].sum() for target in targets)
    count = torch.as_tensor(reporting).clamp(min=1)
    return corners, gates / count, offsets / count


class Samples(Dataset[tuple[Any, ...]]):
    """Samples by number: which image is drawn, and how, follows from the seed and the number alone."""

    def __init__(self, photographs: list[Photograph], count: int, seed: int):
        self._photographs, self._count, self._seed = photographs, count, seed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        """Return an image (3, h, w), its corner map and the targets of each head."""
        epoch, place = divmod(number, len(self._photographs))
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._photographs))
        return draw_sample(self._photographs[order[place]], np.random.default_rng([self._seed, number, 1]))

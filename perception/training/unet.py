"""Network of the taught detector: a U-Net (Ronneberger et al., 2015) whose decoder reports gates at three scales, and corners.

The image's 2 x 2 blocks are stacked into channels first, so that no layer runs on all pixels, and skips are added instead of
stacked, both for the CPU. Batch normalisation is folded into the filters by the export.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from gate_racer.perception.taught.network import HEAD_STRIDES, INPUT, OUTPUTS, PART, STRIDE

FILTERS = 8, 16, 24, 32, 48, 48  # per level; wider ones found no more in photographs, and took longer (measured)
SLOPE = 0.01  # of the LeakyReLU below zero
RARE = -4.0  # initial log-odds: corners and centres are rare


class GateUNet(nn.Module):
    """Network from blocks (B, 12, h, w), -0.5 to 0.5 (`perception.networks.blocks`), to its outputs in order."""

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

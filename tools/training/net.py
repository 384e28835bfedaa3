"""Network of Swift (Nature 2023, Methods: gate detection): a six-level U-Net with 12 outputs.

8, 16, 16, 16, 16, 16 filters of size 3, 3, 3, 5, 7, 7; LeakyReLU 0.01. Departures, all for the CPU: the image's 2 x 2
blocks are stacked into channels first, so that the net runs at half resolution on all pixels; skips are added instead of stacked;
and training uses batch normalisation, which the exported file has folded into the filters.
"""

import torch
from torch import Tensor, nn

from gate_racer.perception.learned.network import CORNERS, FIELDS, STRIDE

FILTERS = (8, 16, 16, 16, 16, 16)  # per level (Swift)
KERNELS = (3, 3, 3, 5, 7, 7)  # sides in pixels, per level (Swift)
SLOPE = 0.01  # of the LeakyReLU below zero (Swift)
RARE = -4.0  # initial log-odds of a heat map: corners are rare


class UNet(nn.Module):
    """U-Net from BGR images (B, 3, H, W), 0 to 255, H and W multiples of 64, to log-odds of corners and edge fields
    (B, 12, H / 2, W / 2)."""

    def __init__(self) -> None:
        super().__init__()
        levels = range(len(FILTERS) - 1)
        self.down = nn.ModuleList(_layer(*io) for io in zip((3 * STRIDE**2, *FILTERS), FILTERS, KERNELS, strict=False))
        self.narrow = nn.ModuleList(_layer(FILTERS[i + 1], FILTERS[i], 1) for i in levels)
        self.up = nn.ModuleList(_layer(FILTERS[i], FILTERS[i], KERNELS[i]) for i in levels)
        self.last = nn.Conv2d(FILTERS[0], CORNERS + FIELDS, 3, padding=1)
        with torch.no_grad():
            self.last.bias[:CORNERS] = RARE  # type: ignore[index]

    def forward(self, image: Tensor) -> Tensor:
        """Return the maps (B, 12, H / 2, W / 2) of images (B, 3, H, W)."""
        return self.maps(nn.functional.pixel_unshuffle(image / 255.0 - 0.5, STRIDE))

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of blocks (B, 12, H / 2, W / 2), -0.5 to 0.5 (see `perception.learned.network.blocks`), as exported."""
        skips: list[Tensor] = []
        for i, layer in enumerate(self.down):
            x = layer(nn.functional.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = nn.functional.interpolate(self.narrow[i](x), scale_factor=2.0, mode="nearest")
            x = self.up[i](x + skips[i])
        return self.last(x)  # type: ignore[no-any-return]


def _layer(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(SLOPE, inplace=True),
    )

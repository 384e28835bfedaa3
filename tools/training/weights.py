"""Weights of the network as an ONNX file: export with normalisations folded into the filters, and import for training."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from gate_racer.common.errors import UserError
from gate_racer.perception.learned.network import STRIDE
from tools.training.net import UNet


class _Maps(nn.Module):
    def __init__(self, net: UNet):
        super().__init__()
        self.net = net

    def forward(self, blocks: Tensor) -> Tensor:
        return self.net.maps(blocks)


def export(net: UNet, file: Path) -> None:
    """Write the network, for map sizes that are multiples of 2^5; the file is independent of the size."""
    blocks = torch.zeros(1, 3 * STRIDE**2, 32, 32)
    names = {"input_names": ["blocks"], "output_names": ["maps"]}
    torch.onnx.export(_Maps(net.eval()), (blocks,), str(file), dynamo=False, **names)  # type: ignore[arg-type]


def read(net: UNet, file: Path, images: Tensor) -> None:
    """Load a file's weights into a network, with normalisations recomputed by `images` (B, 3, H, W).

    A folded normalisation is lost; any mean and variance compensated by its shift and gain give the same maps. Those of images
    approximate the original ones.

    Raises:
        UserError: the file holds another network.
    """
    graph = onnx.load(str(file)).graph
    held = {tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}
    found = [[held[name] for name in node.input[1:]] for node in graph.node if node.op_type == "Conv"]
    layers = [*net.down]
    for narrow, up in zip(reversed(net.narrow), reversed(net.up), strict=True):
        layers += [narrow, up]
    convolutions = [*(layer[0] for layer in layers), net.last]  # type: ignore[index]
    if [w.shape for w, _ in found] != [c.weight.shape for c in convolutions]:
        raise UserError(f"{file}: not a network of tools/training/net.py")
    with torch.no_grad():
        for convolution, (weight, bias) in zip(convolutions, found, strict=True):
            convolution.weight.copy_(weight)
            if convolution.bias is not None:
                convolution.bias.copy_(bias)
        hooks = []
        for layer, (_, bias) in zip(layers, found, strict=False):
            norm = layer[1]  # type: ignore[index]
            norm.bias.copy_(bias)
            hooks.append(norm.register_forward_pre_hook(_measure))
        net.eval()(images)
        for hook in hooks:
            hook.remove()


def _measure(norm: nn.BatchNorm2d, inputs: tuple[Tensor]) -> None:
    """Set a normalisation to the mean and variance of its inputs, and to the shift and gain that undo them up to its bias."""
    x = inputs[0]
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.copy_(x.mean((0, 2, 3)))
    norm.running_var.copy_(x.var((0, 2, 3)))
    norm.weight.copy_((norm.running_var + norm.eps).sqrt())
    norm.bias.add_(norm.running_mean)

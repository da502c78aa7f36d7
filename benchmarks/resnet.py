"""ResNet-18 and ResNet-50 for the training benchmark, so that torch alone is enough to run it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

#: blocks in each of the four stages, and whether a block is a bottleneck of three convolutions or a pair of them
DEPTHS = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}
#: channels that a bottleneck gives out, for each that it works with
WIDER = 4


def resnet(name: str, classes: int, width: int = 64) -> nn.Module:
    """The network of that name; `width` is the channels of its first stage."""
    depths, bottleneck = DEPTHS[name]
    stem = [*_convolve(3, width, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    blocks = list(_blocks(depths, width, bottleneck))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(blocks[-1].channels, classes))


def _blocks(depths: tuple[int, ...], width: int, bottleneck: bool) -> Iterator[Block]:
    channels = width
    for stage, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            block = Block(channels, width << stage, stride, bottleneck)
            yield block
            channels = block.channels


class Block(nn.Module):
    """Convolutions with a way around them."""

    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.channels = width * WIDER if bottleneck else width
        if bottleneck:
            first, last = _convolve(channels, width, 1), _convolve(width, self.channels, 1)
            middle = [nn.ReLU(inplace=True), *_convolve(width, width, 3, stride), nn.ReLU(inplace=True)]
            layers = [*first, *middle, *last]
        else:
            layers = [*_convolve(channels, width, 3, stride), nn.ReLU(inplace=True), *_convolve(width, width, 3)]
        self.through = nn.Sequential(*layers)
        same = stride == 1 and channels == self.channels
        self.around: nn.Module = nn.Identity() if same else nn.Sequential(*_convolve(channels, self.channels, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.through(x) + self.around(x))


def _convolve(channels: int, out: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)]

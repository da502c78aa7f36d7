"""AutoAugment's learned policies (Cubuk et al., CVPR 2019), as torchvision has them.

A line is a pair of effects, applied one after the other: name, probability, and the bin of its magnitude (of ten; "-" where it
has none).
"""

from __future__ import annotations

from ..kernel.native import AugmentKind

#: what happens, how likely, and in which bin of magnitudes
Step = tuple[AugmentKind, float, int]

_IMAGENET = """
    posterize    0.4 8  +  rotate       0.6 9
    solarize     0.6 5  +  autocontrast 0.6 -
    equalize     0.8 -  +  equalize     0.6 -
    posterize    0.6 7  +  posterize    0.6 6
    equalize     0.4 -  +  solarize     0.2 4
    equalize     0.4 -  +  rotate       0.8 8
    solarize     0.6 3  +  equalize     0.6 -
    posterize    0.8 5  +  equalize     1.0 -
    rotate       0.2 3  +  solarize     0.6 8
    equalize     0.6 -  +  posterize    0.4 6
    rotate       0.8 8  +  color        0.4 0
    rotate       0.4 9  +  equalize     0.6 -
    equalize     0.0 -  +  equalize     0.8 -
    invert       0.6 -  +  equalize     1.0 -
    color        0.6 4  +  contrast     1.0 8
    rotate       0.8 8  +  color        1.0 2
    color        0.8 8  +  solarize     0.8 7
    sharpness    0.4 7  +  invert       0.6 -
    shear-x      0.6 5  +  equalize     1.0 -
    color        0.4 0  +  equalize     0.6 -
    equalize     0.4 -  +  solarize     0.2 4
    solarize     0.6 5  +  autocontrast 0.6 -
    invert       0.6 -  +  equalize     1.0 -
    color        0.6 4  +  contrast     1.0 8
    equalize     0.8 -  +  equalize     0.6 -
"""

_CIFAR10 = """
    invert       0.1 -  +  contrast     0.2 6
    rotate       0.7 2  +  translate-x  0.3 9
    sharpness    0.8 1  +  sharpness    0.9 3
    shear-y      0.5 8  +  translate-y  0.7 9
    autocontrast 0.5 -  +  equalize     0.9 -
    shear-y      0.2 7  +  posterize    0.3 7
    color        0.4 3  +  brightness   0.6 7
    sharpness    0.3 9  +  brightness   0.7 9
    equalize     0.6 -  +  equalize     0.5 -
    contrast     0.6 7  +  sharpness    0.6 5
    color        0.7 7  +  translate-x  0.5 8
    equalize     0.3 -  +  autocontrast 0.4 -
    translate-y  0.4 3  +  sharpness    0.2 6
    brightness   0.9 6  +  color        0.2 8
    solarize     0.5 2  +  invert       0.0 -
    equalize     0.2 -  +  autocontrast 0.6 -
    equalize     0.2 -  +  equalize     0.6 -
    color        0.9 9  +  equalize     0.6 -
    autocontrast 0.8 -  +  solarize     0.2 8
    brightness   0.1 3  +  color        0.7 0
    solarize     0.4 5  +  autocontrast 0.9 -
    translate-y  0.9 9  +  translate-y  0.7 9
    autocontrast 0.9 -  +  solarize     0.8 3
    equalize     0.8 -  +  invert       0.1 -
    translate-y  0.7 9  +  autocontrast 0.9 -
"""

_SVHN = """
    shear-x      0.9 4  +  invert       0.2 -
    shear-y      0.9 8  +  invert       0.7 -
    equalize     0.6 -  +  solarize     0.6 6
    invert       0.9 -  +  equalize     0.6 -
    equalize     0.6 -  +  rotate       0.9 3
    shear-x      0.9 4  +  autocontrast 0.8 -
    shear-y      0.9 8  +  invert       0.4 -
    shear-y      0.9 5  +  solarize     0.2 6
    invert       0.9 -  +  autocontrast 0.8 -
    equalize     0.6 -  +  rotate       0.9 3
    shear-x      0.9 4  +  solarize     0.3 3
    shear-y      0.8 8  +  invert       0.7 -
    equalize     0.9 -  +  translate-y  0.6 6
    invert       0.9 -  +  equalize     0.6 -
    contrast     0.3 3  +  rotate       0.8 4
    invert       0.8 -  +  translate-y  0.0 2
    shear-y      0.7 6  +  solarize     0.4 8
    invert       0.6 -  +  rotate       0.8 4
    shear-y      0.3 7  +  translate-x  0.9 3
    shear-x      0.1 6  +  invert       0.6 -
    solarize     0.7 2  +  translate-y  0.6 7
    shear-y      0.8 4  +  invert       0.8 -
    shear-x      0.7 9  +  translate-y  0.8 3
    shear-y      0.8 5  +  autocontrast 0.7 -
    shear-x      0.7 2  +  invert       0.1 -
"""


def _step(text: str) -> Step:
    name, probability, bin = text.split()
    kind = AugmentKind["AUTO_CONTRAST" if name == "autocontrast" else name.replace("-", "_").upper()]
    return kind, float(probability), 0 if bin == "-" else int(bin)


def _table(text: str) -> tuple[tuple[Step, Step], ...]:
    pairs = (line.split("+") for line in text.strip().splitlines())
    return tuple((_step(first), _step(second)) for first, second in pairs)


#: pairs of steps, by the data set they were learned on
POLICIES = {"imagenet": _table(_IMAGENET), "cifar10": _table(_CIFAR10), "svhn": _table(_SVHN)}

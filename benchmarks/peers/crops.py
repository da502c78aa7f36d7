"""torchvision's rule for RandomResizedCrop, without torch's cost of drawing single numbers."""

from __future__ import annotations

import math
import random

SIDE = 224
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """(left, top, right, bottom): 8 % to all of the area, 3:4 to 4:3; ten tries, then the middle."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(*_LOG_RATIO))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    return middle_crop(width, height)


def middle_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """The largest crop in the middle whose aspect is within 3:4 to 4:3."""
    w, h = width, height
    if width / height < 3 / 4:
        h = round(w / (3 / 4))
    elif width / height > 4 / 3:
        w = round(h * (4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h

"""The decode stage: images at full size, as NumPy arrays, Pillow images or torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SampleError
from ..image.lower import lower
from ..image.npy import in_channels
from ..image.pillow import is_image
from ..plan.columns import Step
from ..plan.nodes import Decode
from ..source.chunk import Chunk
from ..storage.scratch import Scratch
from .image import as_pixels, decode_bytes, encoded, is_encoded, note_damage, place_error
from .stage import Stage, Targets


class DecodeStage(Stage):
    """Whole images, exact pixels; a batch of them is a list unless all have one size."""

    def __init__(self, step: Step[Decode], seed: int) -> None:
        node = step.node
        self.name = f"decode({node.field!r})"
        self._node, self._column = node, step.column(node.field)
        self._program = lower(
            (),
            color=node.color,
            fast=False,
            max_pixels=node.max_pixels,
            orient=node.orient,
            lenient=node.lenient,
        )

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        column = encoded(chunk.columns[self._column])
        values: list[Any] = [None] * len(chunk)
        for row in range(len(chunk)):
            if row in chunk.failures:
                continue
            try:
                pixels = self._pixels(column[row], scratch)
                note_damage(chunk, row, scratch)
                values[row] = self._convert(pixels)
            except (SampleError, MemoryError) as error:
                chunk.fail(row, place_error(error, chunk, row))
        chunk.columns[self._column] = values
        return chunk

    def _pixels(self, value: Any, scratch: Scratch) -> NDArray[np.uint8]:
        """An image's pixels; an array of them, as shards give for `npy` fields, and an image of Pillow's are decoded already."""
        if is_image(value) or (isinstance(value, np.ndarray) and not is_encoded(value)):
            return in_channels(as_pixels(value, self._program.channels), self._program.channels)
        return decode_bytes(value, self._program, scratch)

    def _convert(self, pixels: Any) -> Any:
        """Pixels in the form asked for; floats are 0 to 1, torch has channels first, as each library's users expect."""
        gray = self._node.color == "gray"
        if self._node.format == "pil":
            from PIL import Image

            return Image.fromarray(pixels[:, :, 0] if gray else pixels)
        if self._node.out == "float32":
            pixels = pixels.astype(np.float32) / np.float32(255)
        if self._node.format == "torch":
            import torch  # that it is there was checked when the stage was written

            return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        return pixels

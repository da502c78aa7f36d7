"""Checks that a GPU gives the CPU's pixels: both decode a few made-up pictures before any of the user's.

Kernels are compiled for whatever GPU is present, by whatever compiler is present. Where a picture is decoded must not change
it, so each process checks first; it takes some hundredths of a second.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from ..errors import DeviceError
from ..kernel.native import Decoder, DecoderKind, Op, OpKind, Program, Spans
from ..kernel.render import Renderer, SpanInput, render
from ..sizes import counted
from ..storage.scratch import Scratch
from .device_decode import LEAST_BYTES, DeviceDecoding, DeviceMemory, LoadSize

#: height and width of the crops
_SIZE = (48, 56)
#: how each picture is stored: its size, and what Pillow calls quality, subsampling and optimize; without subsampling, it is gray
_STORED = (
    (160, 120, 90, 2, False),
    (97, 203, 75, 1, True),
    (133, 110, 95, 0, False),
    (310, 200, 60, 2, True),
    (75, 64, 85, None, True),
)
#: a crop of any size, some of which become larger and some smaller than half, in both directions
_CROP = Op(OpKind.RANDOM_RESIZED_CROP, 1, (*map(float, _SIZE), 0.05, 1.0, 0.5, 2.0))
_FLIPS = Op(OpKind.HFLIP, 2, (0.5,)), Op(OpKind.VFLIP, 3, (0.5,))
_PROGRAMS = (
    Program((_CROP, *_FLIPS)),
    Program((_CROP, *_FLIPS), planar=True, as_float=True, scale=(0.017, 0.018, 0.019), bias=(-2.1, -2.0, -1.8), exact=True),
)
#: crops of each picture
_CROPS = 4


def check_device(memory: DeviceMemory) -> None:
    """Compare pixels, once per process and device. Raises a DeviceError if they differ."""
    for program in _PROGRAMS:
        shape = program.shape(*_SIZE)
        decoding = DeviceDecoding(memory, "image", shape, program.dtype.name, LoadSize(LEAST_BYTES, 1))
        if decoding.driver.checked:
            return
        wrong, count = _compared(decoding, program)
        decoding.close()
        if wrong:
            raise DeviceError(
                f"of {counted(count, 'made-up picture')} that the GPU decoded for a check, {wrong} have different pixels than "
                "on the CPU, so its driver or NVRTC cannot be trusted; update them, or use decode_on='cpu', and report this"
            )
    decoding.driver.checked = True


def _compared(decoding: DeviceDecoding, program: Program) -> tuple[int, int]:
    """How many pictures differ, and how many the device decoded: one that it gives back is the CPU's in any case."""
    with closing(Scratch()) as scratch:
        images, seeks = (_spans(each * _CROPS) for each in zip(*_made_up(scratch.decoder)))
        count = len(images.starts)
        positions, shape = np.arange(count), (count, *decoding.shape)
        expected = np.empty(shape, program.dtype)
        render(scratch.decoder, program, SpanInput().tell(images, seeks), 0, positions, expected)
        host = decoding.memory.pinned(expected.nbytes).view(program.dtype).reshape(shape)
        batch = decoding.batch(count)
        assert batch is not None
        renderer = Renderer(scratch.decoder, program)
        with batch.task(0, {decoding.field: host}, scratch) as task:
            task.begin(renderer, program)
            renderer.begin(0, positions, host)
            renderer.add(SpanInput().tell(images, seeks))
            back = task.finish(renderer)
            stream = decoding.take_stream()
            with stream.work():
                stream.download(host.ctypes.data, decoding.memory.place(batch.tensor), host.nbytes)
        there = np.setdiff1d(np.flatnonzero(renderer.rows["decoder"] == DecoderKind.DEVICE), back)
        return sum(host[row].tobytes() != expected[row].tobytes() for row in there.tolist()), len(there)


def _made_up(decoder: Decoder) -> Iterator[tuple[bytes, bytes]]:
    """JPEGs and their seek indices: slopes, edges and noise."""
    from PIL import Image

    draws = np.random.default_rng(0)
    for width, height, quality, subsampling, optimize in _STORED:
        y, x = np.mgrid[:height, :width]
        slopes = np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], axis=2)
        noisy = slopes + draws.integers(-30, 31, slopes.shape) + 90 * ((x // 16 + y // 24) % 2)[..., None]
        image, file = Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), io.BytesIO()
        options = {} if subsampling is None else {"subsampling": subsampling}
        image.convert("L" if subsampling is None else "RGB").save(file, "JPEG", quality=quality, optimize=optimize, **options)
        yield file.getvalue(), decoder.seek_index(_PROGRAMS[0], file.getvalue(), 4)[0]


def _spans(strings: tuple[bytes, ...]) -> Spans:
    lengths = np.array([len(each) for each in strings])
    return Spans(np.frombuffer(b"".join(strings), np.uint8), np.cumsum(lengths) - lengths, lengths)

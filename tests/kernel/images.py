"""Images made for the tests, and the calls nearly all of them make."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stoker.kernel import native
from stoker.kernel.native import Op, OpKind, Program
from stoker.kernel.render import ImageInput, Input, SpanInput, render

KINDS: dict[str, dict[str, Any]] = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive": {"subsampling": 2, "progressive": True},
    "restarts": {"subsampling": 2, "restart_marker_blocks": 3},
    "gray": {"mode": "L"},
}


def decoded(*kinds: str) -> pytest.MarkDecorator:
    """Run a test for every kind (or those named) that the kernel decodes itself, in this build."""
    turbo = not native.build_info().startswith("no libjpeg-turbo")
    lacks = pytest.mark.skip(reason="a build without libjpeg-turbo leaves these to Pillow")
    params = [pytest.param(kind, marks=[] if turbo or kind != "progressive" else lacks) for kind in kinds or KINDS]
    return pytest.mark.parametrize("kind", params)


def picture(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Gradients, a few edges and some noise."""
    y, x = np.mgrid[:height, :width]
    bands = (x // 9 + y // 7) % 2 * 60
    smooth = np.stack([x * 180 / max(1, width - 1), y * 180 / max(1, height - 1), 90 + 90 * np.sin(x / 11 + y / 17)], -1)
    grain = np.random.default_rng(seed).normal(0, 6, (height, width, 3))
    return (smooth + bands[..., None] + grain).clip(0, 255).astype(np.uint8)


def jpeg(width: int, height: int, kind: str = "420", seed: int = 0, quality: int = 90, contrast: float = 1.0) -> bytes:
    """A JPEG of `picture`, with less contrast where no colour is to come near the limits."""
    options = dict(KINDS[kind])
    pixels = (picture(width, height, seed) * contrast + 115 * (1 - contrast)).astype(np.uint8)
    image = Image.fromarray(pixels).convert(options.pop("mode", "RGB"))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, **options)
    return out.getvalue()


def opened(data: bytes, mode: str = "RGB") -> Image.Image:
    """What Pillow makes of the same bytes."""
    return Image.open(io.BytesIO(data)).convert(mode)


def resize(height: int, width: int) -> Op:
    return Op(OpKind.RESIZE, 0, (height, width))


def resize_short(size: int) -> Op:
    return Op(OpKind.RESIZE_SHORT, 0, (size,))


def center_crop(height: int, width: int) -> Op:
    return Op(OpKind.CENTER_CROP, 0, (height, width))


def random_resized_crop(height: int, width: int, stream: int = 1) -> Op:
    return Op(OpKind.RANDOM_RESIZED_CROP, stream, (height, width, 0.08, 1.0, 3 / 4, 4 / 3))


def crop_box(relative: bool = False) -> Op:
    return Op(OpKind.CROP_BOX, 0, (float(relative),))


def hflip(probability: float = 0.5, stream: int = 2) -> Op:
    return Op(OpKind.HFLIP, stream, (probability,))


def pixel_rows(
    decoder: native.Decoder, program: Program, pixels: Any, boxes: Any, epochs: Any, positions: Any, out: Any
) -> NDArray[np.void]:
    """Render decoded images of one size; returns what became of each."""
    return _rows(decoder, program, ImageInput(native.Images(pixels)).tell(None, boxes), epochs, positions, out)


def span_rows(
    decoder: native.Decoder,
    program: Program,
    data: Any,
    starts: Any,
    lengths: Any,
    boxes: Any,
    epochs: Any,
    positions: Any,
    out: Any,
    seeks: native.Spans | None = None,
) -> NDArray[np.void]:
    """Render encoded images; returns what became of each."""
    spans = SpanInput().tell(native.Spans(data, starts, lengths), seeks, boxes)
    return _rows(decoder, program, spans, epochs, positions, out)


def _rows(decoder: native.Decoder, program: Program, images: Input, epochs: Any, positions: Any, out: Any) -> NDArray[np.void]:
    (epoch,) = {int(epoch) for epoch in epochs}
    return render(decoder, program, images, epoch, positions, out)


def run(
    program: Program, images: list[bytes], height: int, width: int, *, boxes: Any = None, first: int = 0
) -> tuple[NDArray[Any], NDArray[np.void]]:
    """Decode `images` as positions `first`, `first` + 1, ... of epoch 0."""
    lengths = np.array([len(image) for image in images], np.int64)
    out = np.zeros((len(images), *program.shape(height, width)), program.dtype)
    with native.Decoder() as decoder:
        rows = span_rows(
            decoder,
            program,
            np.frombuffer(b"".join(images), np.uint8),
            np.cumsum(lengths) - lengths,
            lengths,
            None if boxes is None else np.asarray(boxes, np.float32),
            np.zeros(len(images), np.uint32),
            np.arange(first, first + len(images), dtype=np.int64),
            out,
        )
    return out, rows


def plan_one(program: Program, width: int, height: int, box: Any = None, position: int = 0) -> np.void:
    """The geometry of one image."""
    rows = native.plan(
        program,
        np.array([width], np.int32),
        np.array([height], np.int32),
        None if box is None else np.asarray([box], np.float32),
        np.zeros(1, np.uint32),
        np.array([position], np.int64),
    )
    return rows[0]


def difference(a: Any, b: Any) -> NDArray[np.int64]:
    """How far apart two images are, sample by sample."""
    return np.abs(np.asarray(a, np.int64).squeeze() - np.asarray(b, np.int64).squeeze())

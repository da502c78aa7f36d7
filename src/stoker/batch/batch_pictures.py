"""A few pictures of a batch for display: their pixels, labels and boxes, whatever library the arrays belong to."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: fields that are taken for labels, the likeliest first
_LABELS = ("label", "labels", "cls", "class", "target", "y")
#: fields of single floats that are taken for gray pictures
_IMAGES = ("image", "images", "img", "picture", "pixels", "x")
#: sides of what is taken for a picture, in pixels
_LEAST, _MOST = 4, 16_384
#: numbers per pixel that can be shown
_CHANNELS = (1, 3, 4)
NO_BOXES: NDArray[np.float64] = np.empty((0, 4))


class BatchPicture(NamedTuple):
    """One row: uint8 pixels (height, width, 3), its label as text, and its boxes (ymin, xmin, ymax, xmax) as shares, 0 to 1."""

    pixels: NDArray[np.uint8]
    label: str
    boxes: NDArray[np.float64]


def batch_pictures(columns: Mapping[str, Any], most: int = 16) -> list[BatchPicture]:
    """The first rows, at most `most`, of the first field that holds pictures; nothing if there is none.

    Pictures are uint8 or floats, (rows, height, width, channels) or (rows, channels, height, width), or a list of single ones.
    Only these rows are fetched from a device.
    """
    for name, value in columns.items():
        if not _may_be_pictures(name, value):
            continue
        pixels = [_channels_last(np.asarray(row)) for row in _first_rows(value, most)]
        if pixels and all(row is not None for row in pixels):
            shown = _as_bytes([row for row in pixels if row is not None])
            labels, boxes = _labels(columns, len(shown)), _boxes(columns, shown)
            return [BatchPicture(*row) for row in zip(shown, labels, boxes)]
    return []


def shrunk(pixels: NDArray[np.uint8], longest: int, kind: str = "JPEG") -> tuple[bytes, int, int]:
    """A file of these pixels, made so small that the longer side has at most so many; and its width and height."""
    from PIL import Image

    image, out = Image.fromarray(np.ascontiguousarray(pixels)), io.BytesIO()
    image.thumbnail((longest, longest))
    image.save(out, kind, quality=85, compress_level=1)  # perhaps in the thread of a training loop
    return out.getvalue(), image.width, image.height


def _may_be_pictures(name: str, value: Any) -> bool:
    """By name, shape and dtype alone: nothing is fetched from a device for what cannot be a picture."""
    if isinstance(value, list):
        return bool(value) and all(_is_picture(name, row, _dims(row)) for row in value)
    return _is_picture(name, value, _dims(value) - 1)


def _is_picture(name: str, value: Any, dims: int) -> bool:
    """Whether values of so many dimensions may be pixels; floats in rows and columns are mostly something else."""
    kind = str(getattr(value, "dtype", "")).rpartition(".")[2]
    if dims == 2 and "float" in kind:
        return name.lower() in _IMAGES
    return dims in (2, 3) and (kind in ("uint8", "bool") or "float" in kind)


def _dims(value: Any) -> int:
    shape = getattr(value, "shape", None)
    return 0 if shape is None else len(shape)


def _first_rows(value: Any, most: int) -> list[Any]:
    return [_on_host(row) for row in value[:most]] if isinstance(value, list) else list(_on_host(value[:most]))


def _on_host(value: Any) -> NDArray[Any]:
    """A NumPy array, of whatever library the value is."""
    if hasattr(value, "detach"):  # torch
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value  # NumPy has no bfloat16
        return np.asarray(value.numpy())
    array = np.asarray(value)
    return array.astype(np.float32) if "float" in str(array.dtype) else array


def _channels_last(row: NDArray[Any]) -> NDArray[Any] | None:
    """A row as (height, width, channels); None where it does not look like a picture."""
    if row.ndim == 2:
        row = row[:, :, None]
    elif row.ndim == 3 and row.shape[2] not in _CHANNELS and row.shape[0] in _CHANNELS:
        row = row.transpose(1, 2, 0)
    fits = row.ndim == 3 and row.shape[2] in _CHANNELS and all(_LEAST <= side <= _MOST for side in row.shape[:2])
    return row if fits else None


def _as_bytes(rows: Sequence[NDArray[Any]]) -> list[NDArray[np.uint8]]:
    """Pixels as bytes, three for each. Floats from 0 to 1 or to 255 are taken as such; others are stretched to their range."""
    if rows[0].dtype != np.uint8:
        numbers = [np.nan_to_num(row.astype(np.float32), posinf=0.0, neginf=0.0) for row in rows]
        low, high = min(float(row.min()) for row in numbers), max(float(row.max()) for row in numbers)
        if low >= 0 and high <= 255:
            low, high = 0.0, 1.0 if high <= 1 else 255.0
        scale = 255 / (high - low) if high > low else 0.0
        rows = [((row - low) * scale).round().clip(0, 255).astype(np.uint8) for row in numbers]
    return [np.repeat(row, 3, axis=2) if row.shape[2] == 1 else row[:, :, :3] for row in rows]


def _labels(columns: Mapping[str, Any], count: int) -> list[str]:
    for name in _LABELS:
        if name in columns:
            value = columns[name]
            break
    else:
        return [""] * count
    rows = _on_host(value[:count]) if _dims(value) else value[:count] if isinstance(value, (list, tuple)) else []
    told = [_label(row) for row in rows]
    return told if len(told) == count else [""] * count


def _label(row: Any) -> str:
    """A label in a few characters; of shares of classes, as MixUp makes them, the two largest."""
    array = np.asarray(row)
    if array.ndim == 1 and array.size > 1 and array.dtype.kind == "f":
        largest = np.argsort(array)[::-1][:2]
        return ", ".join(f"{at} ({array[at]:.0%})" for at in largest.tolist() if array[at] >= 0.005)
    return str(array.item() if array.ndim == 0 else array.tolist())[:40]


def _boxes(columns: Mapping[str, Any], pictures: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.float64]]:
    """The boxes of each picture, from the first field called so that fits all of them."""
    for name, value in columns.items():
        if "box" not in name.lower() or not (_dims(value) or isinstance(value, list)):
            continue
        rows = _first_rows(value, len(pictures))
        if len(rows) == len(pictures) and all(np.asarray(row).dtype.kind in "iuf" for row in rows):
            found = boxes_as_shares(rows, [picture.shape[:2] for picture in pictures])
            if found is not None:
                return found
    return [NO_BOXES] * len(pictures)


def boxes_as_shares(rows: Sequence[Any], sizes: Sequence[Sequence[int]]) -> list[NDArray[np.float64]] | None:
    """Boxes (ymin, xmin, ymax, xmax) of pictures of these sizes as fractions of them, without those that have no area.

    They are given in pixels or, if none exceeds 1, as fractions already. None: these are not boxes, or not of these pictures.
    """
    given = [np.asarray(row, np.float64) for row in rows]
    if any(box.size and box.shape[-1:] != (4,) for box in given):
        return None
    boxes = [box.reshape(-1, 4) if box.size else NO_BOXES for box in given]
    whole = np.concatenate([NO_BOXES, *boxes])
    relative = not len(whole) or whole.max() <= 1
    shares = [box / (1 if relative else np.array([height, width, height, width])) for box, (height, width) in zip(boxes, sizes)]
    every = np.concatenate([NO_BOXES, *shares])
    if not np.isfinite(every).all() or every.min(initial=0) < -0.01 or every.max(initial=0) > 1.01:
        return None
    return [box[(box[:, 2] > box[:, 0]) & (box[:, 3] > box[:, 1])].clip(0, 1) for box in shares]

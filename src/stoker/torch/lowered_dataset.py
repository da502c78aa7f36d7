"""Known data sets of torch and torchvision as pipelines: read, decoded and transformed by the kernel instead of by Python.

A data set is lowered where the pipeline gives the same items: the same order and labels, pixels within the tolerance that
docs/reference/image.md states, and random choices of the same distribution. Only exact classes are: one that is derived from them
may do anything.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConfigError, SourceEmpty
from ..pipeline import Pipeline
from ..plan.nodes import Image
from ..registry import needed
from ..sizes import a_type, counted
from ..source.arrays import ArraysSource
from ..source.chunk import Ints
from ..source.concat import ConcatSource
from ..source.files.listed import open_listed
from ..source.files.walk import IMAGE_EXTENSIONS
from ..source.picked import PickedSource
from ..source.source import Source
from .lowered_transforms import NotLowered, Recipe, lower_transforms

__all__ = ["Lowered", "NotLowered", "lower_dataset"]

#: Pillow may know more formats, of plug-ins
_EXTENSIONS = tuple(extension.decode() for extension in IMAGE_EXTENSIONS)
#: pixels of an image where Pillow has no limit
_MOST_PIXELS = 1 << 40


@dataclass(frozen=True, slots=True)
class Lowered:
    """A data set as a pipeline of its items, in its own order, and what was made of what."""

    pipeline: Pipeline
    notes: tuple[str, ...]
    _one_channel: bool = False

    def restore(self, batch: Any) -> Any:
        """A batch of the pipeline, in torch's format, as `default_collate` would have made it of the data set's items."""
        torch = needed("torch", "torch", "stoker.torch")
        # Images of several sizes are a list here; torch fails on them, and says why.
        parts = [torch.stack(part) if isinstance(part, list) else part for part in batch]
        return [parts[0][:, :1].contiguous(), *parts[1:]] if self._one_channel else parts


def lower_dataset(dataset: Any) -> Lowered | NotLowered:
    """A torch data set as a pipeline that gives the same items; or why there is none.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> lowered = lower_dataset(TensorDataset(torch.arange(4), torch.zeros(4, 2)))
    >>> with lowered.pipeline.batch(4).loader(format="torch") as batches:
    ...     [lowered.restore(batch)[0] for batch in batches]
    [tensor([0, 1, 2, 3])]
    """
    try:
        items = _items(dataset)
    except (ConfigError, SourceEmpty) as error:
        return NotLowered(f"Stoker does not read it: {error}")
    if isinstance(items, NotLowered):
        return items
    if items.recipe is None:
        return Lowered(Pipeline(items.source), items.notes)
    recipe = items.recipe
    stage = Image("image", recipe.ops, layout="chw", out=recipe.out, fast=False, max_pixels=_pillow_limit(), as_pillow=True)
    return Lowered(Pipeline(items.source, (stage,)), (*items.notes, *recipe.notes), recipe.channels == 1)


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of a data set: where they come from, and what is done to the images among them."""

    source: Source
    recipe: Recipe | None
    notes: tuple[str, ...]


def _items(dataset: Any) -> _Items | NotLowered:
    data = needed("torch", "torch", "stoker.torch").utils.data
    kind = type(dataset)
    if kind is data.Subset:
        return _picked(dataset)
    if kind is data.ConcatDataset:
        return _joined(dataset)
    if kind is data.TensorDataset:
        return _of_tensors(dataset)
    folders = sys.modules.get("torchvision.datasets.folder")  # unless it was imported, this is not one of its data sets
    if folders is not None and kind in (folders.ImageFolder, folders.DatasetFolder):
        return _of_files(dataset, folders)
    return NotLowered(f"{kind.__name__} is not a data set that Stoker knows, so its __getitem__ is called")


def _picked(dataset: Any) -> _Items | NotLowered:
    inner = _items(dataset.dataset)
    if isinstance(inner, NotLowered):
        return inner
    indices = dataset.indices if isinstance(dataset.indices, np.ndarray) else np.array(list(map(_plain, dataset.indices)))
    if indices.size and (indices.ndim != 1 or indices.dtype.kind not in "iu"):
        return NotLowered("the indices of its Subset are not integers")
    chosen: Ints = indices.astype(np.int64)
    chosen = np.where(chosen < 0, chosen + len(inner.source), chosen)
    source = PickedSource(inner.source, chosen)
    return _Items(source, inner.recipe, (*inner.notes, f"Subset: {counted(len(source), 'item')} selected by index"))


def _plain(index: Any) -> Any:
    return index.item() if hasattr(index, "item") else index


def _joined(dataset: Any) -> _Items | NotLowered:
    parts: list[_Items] = []
    for member in dataset.datasets:
        part = _items(member)
        if isinstance(part, NotLowered):
            return part
        parts.append(part)
    first = parts[0]
    if any(part.recipe != first.recipe for part in parts):
        return NotLowered("the members of its ConcatDataset have different transforms")
    if any(dict(part.source.fields) != dict(first.source.fields) for part in parts):
        return NotLowered("the items of its ConcatDataset's members have different types or shapes")
    names = [{name: name for name in first.source.fields}] * len(parts)
    notes = (f"ConcatDataset: {counted(len(parts), 'data set')} one after the other",)
    return _Items(ConcatSource([part.source for part in parts], names), first.recipe, (*first.notes, *notes))


def _of_tensors(dataset: Any) -> _Items | NotLowered:
    torch = needed("torch", "torch", "stoker.torch")
    arrays = {}
    for number, tensor in enumerate(dataset.tensors):
        why = _why_not_an_array(torch, tensor)
        if why is not None:
            return NotLowered(f"tensor {number} of its TensorDataset {why}")
        arrays[str(number)] = tensor.numpy()
    source = ArraysSource(arrays)
    rows = counted(len(source), "row")
    copied = [name for name, array in arrays.items() if not array[:1].flags.c_contiguous]
    notes = [f"TensorDataset: {rows} of {counted(len(arrays), 'tensor')}, read where they are in memory"]
    notes += [f"tensor {name}: copied, because its rows are not contiguous" for name in copied]
    return _Items(source, None, tuple(notes))


def _why_not_an_array(torch: Any, tensor: Any) -> str | None:
    if type(tensor) is not torch.Tensor:
        return f"is {a_type(tensor)}, not a plain tensor"
    if tensor.requires_grad:
        return "requires a gradient"
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return f"is not plain memory of this machine (device {tensor.device}, layout {tensor.layout})"
    try:
        tensor.numpy()
    except (RuntimeError, TypeError):  # bfloat16, float8, quantized; lazily conjugated
        return f"cannot be read as a NumPy array ({tensor.dtype})"
    return None


def _of_files(dataset: Any, folders: Any) -> _Items | NotLowered:
    torch, name = needed("torch", "torch", "stoker.torch"), type(dataset).__name__
    if dataset.target_transform is not None:
        return NotLowered(f"its {name} has a target_transform, which is your own function")
    if not _reads_with_pillow(dataset.loader, folders):
        told = getattr(dataset.loader, "__name__", type(dataset.loader).__name__)
        return NotLowered(f"its {name} has loader={told}, which may return other pixels than torchvision's loader")
    if torch.get_default_dtype() is not torch.float32:
        return NotLowered(f"torch makes floats of {torch.get_default_dtype()}, and Stoker of torch.float32")
    recipe = lower_transforms(dataset.transform)
    if isinstance(recipe, NotLowered):
        return recipe
    paths, labels = [path for path, _ in dataset.samples], [label for _, label in dataset.samples]
    if set(map(type, labels)) - {int}:
        return NotLowered(f"the labels in the samples of its {name} are not integers")
    unknown = next((path for path in paths if not str(path).lower().endswith(_EXTENSIONS)), None)
    if unknown is not None:
        return NotLowered(f"its {name} has {unknown}, whose extension is not one of the images that Stoker reads")
    source = open_listed(paths, labels)
    return _Items(source, recipe, (f"{name}: {counted(len(source), 'file')}, read and decoded in one native call",))


def _reads_with_pillow(loader: Any, folders: Any) -> bool:
    if loader is folders.pil_loader:
        return True
    return loader is folders.default_loader and sys.modules["torchvision"].get_image_backend() == "PIL"


def _pillow_limit() -> int:
    """Pillow warns above its limit, and refuses twice that."""
    most = sys.modules["PIL.Image"].MAX_IMAGE_PIXELS
    return _MOST_PIXELS if most is None else 2 * int(most)

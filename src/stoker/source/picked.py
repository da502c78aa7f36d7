"""Some samples of another source, by number: what PyTorch calls a `Subset`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, SourceEmpty
from ..sizes import counted
from ..storage.scratch import Scratch
from .chunk import Ints
from .source import Located, Rows, Source, Targets, digest


class PickedSource(Source):
    """Samples of a source on this machine, in the order of `picked`, each as often as it is there; nothing is copied.

    >>> import numpy as np
    >>> from stoker.source.arrays import ArraysSource
    >>> PickedSource(ArraysSource({"x": np.arange(9)}), np.array([7, 2, 7])).describe()
    '3 samples of arrays(x): 9 rows'
    """

    def __init__(self, source: Source, picked: Ints) -> None:
        self._source, self._picked = source, np.ascontiguousarray(picked, np.int64)
        if not len(self._picked):
            raise SourceEmpty(f"{source.describe()}: no sample is selected")
        least, most = int(self._picked.min()), int(self._picked.max())
        if least < 0 or most >= len(source):
            wrong = least if least < 0 else most
            raise ConfigError(f"sample {wrong} does not exist: there are {counted(len(source), 'sample')}, numbered from 0")
        self.fields, self.classes = source.fields, source.classes

    def __len__(self) -> int:
        return len(self._picked)

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        return self._source.read(self._picked[indices], wanted, out, scratch)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        return self._source.why_not_located(field, box)

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        return self._source.locate(field, self._picked[indices], wanted, out, scratch, box)

    def key(self, index: int) -> str:
        return self._source.key(int(self._picked[index]))

    def origin(self, index: int) -> str:
        return self._source.origin(int(self._picked[index]))

    def seeks(self, field: str) -> int:
        return self._source.seeks(field) * len(self) // len(self._source)

    def fingerprint(self) -> str:
        return digest("picked", self._source.fingerprint(), self._picked.tobytes())

    def version(self) -> str:
        return digest("versions", self.fingerprint(), self._source.version())

    def describe(self) -> str:
        return f"{counted(len(self), 'sample')} of {self._source.describe()}"

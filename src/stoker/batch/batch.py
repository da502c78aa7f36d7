"""What users get: a `Batch`, or a single `Sample`. Both unpack like a tuple and are mappings by field name."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Fields:
    """Named values in a fixed order.

    ``a, b = fields`` unpacks the values, ``fields["label"]`` takes one, ``fields[0]`` the first; ``dict(fields)``, ``.keys()``,
    ``.values()``, ``.items()`` and ``in`` work as for a dict.
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __getitem__(self, name: str | int) -> Any:
        if isinstance(name, int):
            return list(self._values.values())[name]
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(f"no field {name!r}; the fields are {', '.join(self._values)}") from None

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def values(self) -> ValuesView[Any]:
        return self._values.values()

    def items(self) -> ItemsView[str, Any]:
        return self._values.items()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={brief(value)}' for name, value in self._values.items())})"


class Sample(Fields):
    """One sample of a pipeline without `batch`; `key_` names it."""

    __slots__ = ("key_",)

    def __init__(self, values: dict[str, Any], key: str) -> None:
        super().__init__(values)
        self.key_ = key


class Batch(Fields):
    """Rows of samples as columns.

    `keys_` names the samples, `mask` is False for rows that only pad (see `shard`), `rows` counts them.
    """

    __slots__ = ("_keys", "_mask", "rows")

    def __init__(
        self, values: dict[str, Any], rows: int, keys: Callable[[], list[str]], mask: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(values)
        self.rows = rows
        self._keys = keys
        self._mask = mask

    @property
    def keys_(self) -> list[str]:
        """The samples' keys; worked out when asked for."""
        return self._keys()

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True for real rows, False for padding."""
        if self._mask is None:
            self._mask = np.ones(self.rows, np.bool_)
        return self._mask

    def part(self, first: int, stop: int) -> Batch:
        """Rows `first` to `stop`, sharing memory."""
        keys, mask = self._keys, self._mask
        values = {name: column[first:stop] for name, column in self._values.items()}
        return Batch(values, stop - first, lambda: keys()[first:stop], None if mask is None else mask[first:stop])

    def with_values(self, values: dict[str, Any]) -> Batch:
        """The same rows, other columns."""
        return Batch(values, self.rows, self._keys, self._mask)


def brief(value: Any, most: int = 40) -> str:
    """A value in a few characters, however large it is: a batch may be printed by accident."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None and tuple(shape) != ():
        return f"{dtype}{list(shape)}"
    if isinstance(value, (list, tuple, bytes, bytearray)) and len(value) > 8:
        return f"{type(value).__name__}[{len(value)}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(brief(part) for part in value)}]"
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."

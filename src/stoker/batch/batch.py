"""What users get: a `Batch`, or a single `Sample`. Both are tuples whose values have names."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..foreign_names import unknown_attribute
from ..sizes import counted
from ..source.sample_names import KEY
from .tensors import moved, pinned

Kind = TypeVar("Kind", bound="NamedValues")


class NamedValues(tuple[Any, ...]):
    """Values in a fixed order, with names.

    ``a, b = values`` unpacks them, ``values["label"]`` and ``values[0]`` take one, ``values.label`` too where the name is not one
    of the methods here; ``dict(values)``, ``.keys()``, ``.values()``, ``.items()`` and ``in`` work by name, as for a dict.

    Frameworks take it apart and put it together like any named tuple: it has `_fields`, each tuple of names has a class of its
    own, and that class is called with the values. What goes with the values, such as keys, does not survive that;
    `to` and `pin_memory` keep it.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _kind: ClassVar[type[NamedValues]]
    #: what goes with the values: attributes that one rebuilt from its values lacks
    _beside: ClassVar[tuple[str, ...]]
    #: of these, what ``values["__key__"]`` is, as in functions: it is not among the items
    _key_name: ClassVar[str]

    def __new__(cls: type[Kind], *values: Any) -> Kind:
        if len(values) != len(cls._fields):
            raise TypeError(f"the fields {', '.join(cls._fields)} need {len(cls._fields)} values, got {len(values)}")
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls: type[Kind], values: Iterable[Any]) -> Kind:
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _replace(self: Kind, /, **changes: Any) -> Kind:
        if unknown := sorted(changes.keys() - {*self._fields}):
            raise ValueError(f"no field {unknown[0]!r}; the fields are {', '.join(self._fields)}")
        return self.with_values({**self._asdict(), **changes}.values())

    def with_values(self: Kind, values: Iterable[Any]) -> Kind:
        """Other values of the same fields, with the same keys."""
        made = tuple.__new__(type(self), values)
        made.__dict__.update(self.__dict__)
        return made

    def to(self: Kind, device: Any, non_blocking: bool = False) -> Kind:
        """The same with numbers as torch tensors on a device; text and bytes stay as they are, and keys are kept."""
        return self.with_values(moved(self, device, non_blocking))

    def pin_memory(self: Kind) -> Kind:
        """The same with tensors in pinned memory: what torch's DataLoader asks for with ``pin_memory=True``."""
        return self.with_values(pinned(self))

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            return tuple.__getitem__(self, name)
        try:
            return tuple.__getitem__(self, self._fields.index(name))
        except ValueError:
            if name == KEY:
                return getattr(self, self._key_name)
            raise KeyError(f"no field {name!r}; the fields are {', '.join(self._fields)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def keys(self) -> KeysView[str]:
        return self._asdict().keys()

    def values(self) -> ValuesView[Any]:
        return self._asdict().values()

    def items(self) -> ItemsView[str, Any]:
        return self._asdict().items()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={brief(value)}' for name, value in zip(self._fields, self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._kind, self._fields, tuple(self)), self.__dict__

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name: str) -> Any:
            if name in self._beside:
                raise AttributeError(
                    f"this {type(self).__name__} was rebuilt from its values and has no {name}: torch's, Lightning's and "
                    "Accelerate's tree functions pass on the values only; .to(device) keeps the rest"
                )
            raise unknown_attribute(self, name)


class Sample(NamedValues):
    """One sample of a pipeline without `batch`; `key` names it."""

    _beside = ("key",)
    _key_name = "key"
    _key: str

    @classmethod
    def of(cls, fields: tuple[str, ...], values: Iterable[Any], key: str) -> Sample:
        sample: Sample = tuple.__new__(class_of(cls, fields), values)
        sample._key = key
        return sample

    @property
    def key(self) -> str:
        """The sample's name, the same in every run."""
        return self._key


class Batch(NamedValues):
    """Rows of samples as columns.

    `sample_keys` names the samples, `valid` is False for padding rows (see `shard` and `on_error`), `rows` counts all rows.
    ``len(batch)`` is the number of fields.
    """

    _beside = ("rows", "sample_keys", "valid")
    _key_name = "sample_keys"
    _rows: int
    _keys: list[str] | Callable[[], list[str]]
    _valid: NDArray[np.bool_] | None

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Any],
        rows: int,
        keys: list[str] | Callable[[], list[str]],
        valid: NDArray[np.bool_] | None = None,
    ) -> Batch:
        """`keys` may be a function that makes them; `valid` None: all rows count."""
        batch: Batch = tuple.__new__(class_of(cls, tuple(columns)), columns.values())
        batch._rows, batch._keys, batch._valid = rows, keys, valid
        return batch

    @property
    def rows(self) -> int:
        """The number of rows, including padding rows."""
        return self._rows

    @property
    def sample_keys(self) -> list[str]:
        """The samples' keys, row by row; computed on first access."""
        self._keys = keys = _listed(self._keys)
        return keys

    @property
    def valid(self) -> NDArray[np.bool_]:
        """False for padding rows, True for all others."""
        if self._valid is None:
            self._valid = np.ones(self._rows, np.bool_)
        return self._valid

    def part(self, first: int, stop: int) -> Batch:
        """Rows `first` to `stop`, sharing memory."""
        batch = tuple.__new__(type(self), [column[first:stop] for column in self])
        keys, valid = self._keys, self._valid
        batch._rows, batch._keys = stop - first, lambda: _listed(keys)[first:stop]
        batch._valid = None if valid is None else valid[first:stop]
        return batch

    def _repr_html_(self) -> str:
        """Fields and pictures, for notebooks."""
        from .batch_html import batch_html

        rows = self.__dict__.get("_rows")  # one that was rebuilt from its values has none
        return batch_html("Batch" if rows is None else f"Batch of {counted(rows, 'row')}", self._asdict(), repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        if "_keys" in self.__dict__:
            self.sample_keys  # noqa: B018  a function that makes them may hold the whole source
        return super().__reduce__()


@lru_cache(maxsize=256)
def class_of(kind: type[Kind], fields: tuple[str, ...]) -> type[Kind]:
    """The class of all batches, or samples, with these fields."""
    # Any text may name a field. Those that are attributes already keep their meaning: a field "to" is batch["to"].
    names = {name: at for at, name in enumerate(fields) if not name.startswith("_") and not hasattr(kind, name)}
    shown = {name: property(itemgetter(at)) for name, at in names.items()}
    return type(kind.__name__, (kind,), {**shown, "_fields": fields, "_kind": kind, "__module__": kind.__module__})


def _listed(keys: list[str] | Callable[[], list[str]]) -> list[str]:
    return keys() if callable(keys) else keys


def _restored(kind: type[Kind], fields: tuple[str, ...], values: tuple[Any, ...]) -> Kind:
    restored: Kind = class_of(kind, fields)(*values)
    return restored


def brief(value: Any) -> str:
    """A value in a few characters, however large it is: a batch may be printed by accident."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None and tuple(shape) != ():
        return f"{dtype}{list(shape)}"
    if isinstance(value, (list, tuple, bytes, bytearray)) and len(value) > 8:
        return f"{type(value).__name__}[{len(value)}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(brief(part) for part in value)}]"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."

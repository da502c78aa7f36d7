"""Fields as a named tuple: a form that every framework can take apart, move to a device and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from .batch import brief


class NamedFields(tuple[Any, ...]):
    """Values in order, with names: ``a, b = fields`` unpacks them, ``fields["label"]`` takes one, ``fields[0]`` the first.

    Like any named tuple it has `_fields`, and is made from its values one by one; each tuple of names has a class of its own.
    Names need not be identifiers ("seg.png"), so they are not attributes: one called "to" or "pin_memory" would be taken for a
    method by those who move tensors.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *values: Any) -> NamedFields:
        if len(values) != len(cls._fields):
            raise TypeError(f"the fields {', '.join(cls._fields)} need {len(cls._fields)} values, got {len(values)}")
        return super().__new__(cls, values)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> NamedFields:
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _replace(self, **changes: Any) -> NamedFields:
        return type(self)(*{**self._asdict(), **changes}.values())

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            return super().__getitem__(name)
        try:
            return super().__getitem__(self._fields.index(name))
        except ValueError:
            raise KeyError(f"no field {name!r}; the fields are {', '.join(self._fields)}") from None

    def __reduce__(self) -> Any:
        return _rebuilt, (self._fields, tuple(self))

    def __repr__(self) -> str:
        return f"NamedFields({', '.join(f'{name}={brief(value)}' for name, value in zip(self._fields, self))})"


@lru_cache(maxsize=256)
def _class_of(names: tuple[str, ...]) -> type[NamedFields]:
    return type("NamedFields", (NamedFields,), {"__slots__": (), "_fields": names})


def named(fields: Mapping[str, Any]) -> NamedFields:
    """Values by name, in this order."""
    return _class_of(tuple(fields))(*fields.values())


def _rebuilt(names: tuple[str, ...], values: tuple[Any, ...]) -> NamedFields:
    return _class_of(names)(*values)

"""`stoker.stream`: samples from a user's iterable, numbered as they come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...errors import ConfigError
from ...sizes import a_type
from ..chunk import FieldSpec
from ..sample_names import KEY, key_text
from ..source import digest

Sample = Mapping[str, Any]


class StreamSource:
    """What a function gives each time it is called: an iterable of mappings of field names to values.

    Not indexable, of unknown length, and its fields are mostly unknown until the first sample. Nothing is called before
    `open`. For a resumed run to be exact, the function must give the same samples each time. What it raises passes
    through unchanged: after an exception a generator has ended, so there is no sample to skip.

    >>> source = StreamSource(lambda: ({"n": n} for n in range(3)))
    >>> [sample["n"] for sample in source.open()]
    [0, 1, 2]
    """

    #: what its samples hold, where that is known before they are read
    fields: Mapping[str, FieldSpec] | None = None

    def __init__(self, factory: Callable[[], Iterable[Sample]]) -> None:
        if not callable(factory):
            raise ConfigError(f"stream() got {a_type(factory)}{_hint(factory)}")
        self._factory = factory

    def open(self) -> Iterator[Sample]:
        """Call the function and give its samples, each checked to be a mapping with text for field names."""
        samples: Any = self._factory()
        if not isinstance(samples, Iterable) or isinstance(samples, Mapping):
            raise ConfigError(
                f"{self._told(samples, 'returned')}; it must return an iterable of mappings, or be a generator function"
            )
        return self._checked(samples)

    def key(self, sample: Sample, number: int) -> str:
        """The name of a sample: its ``__key__`` if it has one, else its number."""
        key = sample.get(KEY)
        return str(number) if key is None else key_text(key)

    def origin(self, sample: Sample, number: int) -> str:
        """Where a sample is stored; a function's samples are not stored, and are identified by their keys."""
        return self.key(sample, number)

    def either(self, fields: tuple[str, ...]) -> tuple[StreamSource, str]:
        """This source with samples that have under the first of these names whichever of them they have, and that name."""
        return self, fields[0]

    def fingerprint(self) -> str:
        """Changes with the function's name: nothing more can be known without calling it."""
        return digest("stream", self._name())

    @property
    def title(self) -> str:
        """What to call it in messages."""
        return f"stream({self._name()})"

    def describe(self) -> str:
        return f"{self.title}: length unknown"

    def _checked(self, samples: Iterable[Any]) -> Iterator[Sample]:
        names: Any = None  # of the sample before; samples mostly agree, so that most are not looked at one by one
        for number, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                sample = self._named(sample, number)
            if names != sample.keys():
                self._check_names(sample, number)
                names = frozenset(sample)
            yield sample

    def _named(self, sample: Any, number: int) -> Mapping[str, Any]:
        """A named tuple, such as a pipeline gives, as a mapping."""
        if not hasattr(sample, "_asdict"):
            raise ConfigError(f"{self._told(sample, f'gave as sample {number}')}; use mappings, as {{'image': ...}}")
        fields: Mapping[str, Any] = sample._asdict()
        return fields

    def _check_names(self, sample: Mapping[Any, Any], number: int) -> None:
        for name in sample:
            if not isinstance(name, str):
                raise ConfigError(f"stream({self._name()}): sample {number} has a field {name!r}; field names are str")

    def _told(self, value: Any, verb: str) -> str:
        return f"stream({self._name()}) {verb} {a_type(value)}"

    def _name(self) -> str:
        function: Any = self._factory
        while isinstance(function, functools.partial):
            function = function.func
        named = function if hasattr(function, "__qualname__") else type(function)
        return f"{named.__module__}.{named.__qualname__}"


def _hint(given: Any) -> str:
    if isinstance(given, Iterator):
        return ", which can be read only once; pass the function that makes it: stream(samples), not stream(samples())"
    if isinstance(given, Iterable):
        return "; pass a function that returns it: stream(lambda: samples)"
    return "; pass a function that returns an iterable of mappings"

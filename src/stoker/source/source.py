"""The seam every source fills: length, read by index, key, origin, fingerprint. No order, no decoding."""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel.render import Input, Renderer
from ..storage.scratch import Scratch
from ..storage.traffic import Traffic
from .chunk import Column, FieldSpec, Ints, numbers

#: memory that fixed fields may be written to
Targets = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ForesightSpan:
    """How far ahead a source wants to know the order: the next `count` samples, or with `whole` that many spread over the rest.

    `shared`: workers in other processes find what is fetched, too.
    """

    count: int
    whole: bool
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Requests:
    """The average cost of a sample for servers: a number of requests, and of bytes. `how` says it in words."""

    how: str
    count: float
    nbytes: float


class Source(ABC):
    """Samples addressed by index.

    A source is immutable after construction and may be read from many threads at once; what a worker needs for itself (an
    arena, an open file) lives in the `Scratch` it is handed.
    """

    #: what each field holds, in the order users meet them
    fields: Mapping[str, FieldSpec]
    #: whether samples come over a network
    remote: bool = False
    #: whether reading waits for it, so that more workers than cores help
    waits: bool = False
    #: what `foresee` wants to know; None: nothing
    foresight: ForesightSpan | None = None
    #: class names, label i being classes[i]; empty when labels have no names
    classes: tuple[str, ...] = ()

    @abstractmethod
    def __len__(self) -> int:
        """How many samples there are."""

    @abstractmethod
    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        """Fetch the wanted fields of some samples.

        A fixed field that is named in `out` should be written there (row i of it is sample indices[i]) and returned as that same
        array, which saves a copy; a source may ignore this. A sample that cannot be read is reported in `Rows.errors`, never
        raised, and never omitted.
        """

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        """Why `locate` cannot say where the pictures of this field are, cropped to the boxes of another; None: it can."""
        return "its samples are not stored where the kernel could read them"

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        """Where the pictures of some samples are: instead of `read`, so that reading and decoding are one native call.

        None: unknown for these samples; read them.
        """
        raise AssertionError("a source that locates pictures says how")

    @abstractmethod
    def key(self, index: int) -> str:
        """The name of a sample, printable, the same in every run."""

    def origin(self, index: int) -> str:
        """Where a sample is stored, for messages."""
        return self.key(index)

    @property
    def origins(self) -> int:
        """The number of places, such as shards, that may be slow or fast independently of each other; 0: unknown."""
        return 0

    def origins_of(self, indices: Ints) -> Ints:
        """The number of each sample's place, below `origins`."""
        raise AssertionError("a source that has origins says where its samples are")

    def origin_name(self, number: int) -> str:
        """The name of such a place."""
        raise AssertionError("a source that has origins names them")

    def ahead(self, limit: int, wanted: Collection[str], first: Callable[[int], Ints]) -> Source:
        """The same samples for one loader, with these fields fetched ahead into at most `limit` bytes of memory.

        Returns itself if that would not help; `first` returns the first samples of an epoch, as many as requested.
        """
        return self

    def traffic(self) -> Traffic:
        """What servers were asked for so far, by this process."""
        return Traffic()

    def requests(self, wanted: Collection[str], first: Callable[[int], Ints]) -> Requests | None:
        """What reading these fields asks of servers; None: nothing, or it is not known."""
        return None

    def foresee(self, indices: Ints, decoded: bool, lead: int = 0) -> None:
        """Samples that will be read, in this order; a source with `foresight` may start to fetch them.

        `decoded`: there are image stages, which use seek indices. `lead`: workers may have reached the first `lead` of them
        already.
        """

    def fetch_ahead(self, stop: threading.Event) -> None:
        """Fetch what was foreseen until `stop` is set: the work of threads that run next to the workers."""

    def either(self, fields: tuple[str, ...]) -> tuple[Source, str]:
        """This source with a field that is for each sample the first of several it has, and that field's name."""
        return self, fields[0]

    def size_of(self, field: str) -> int:
        """About how many bytes a sample's field of varying length takes, as far as that is known; 0: not known."""
        return 0

    def outsized(self, times: float, most: int) -> Ints:
        """Samples that are stored in at least so many times the usual bytes, as far as an index says so; the `most` largest."""
        return numbers(0)

    def seeks(self, field: str) -> int:
        """How many samples' pictures in this field have a seek index that can be used."""
        return 0

    @abstractmethod
    def fingerprint(self) -> str:
        """A short text that changes when the samples or their order do."""

    def version(self) -> str:
        """As `fingerprint`, and changes with the bytes of samples too, as far as that shows without reading them."""
        return self.fingerprint()

    @abstractmethod
    def describe(self) -> str:
        """One line for `explain()`."""


@dataclass(slots=True)
class Located:
    """Where the pictures of some samples are.

    The caller renders `inputs`, each to some rows of the chunk (None: to all, in order), then calls `release`, and then `finish`
    for the other columns: the same as `Source.read` returns, without the pictures. If `finish` returns None, something could not
    be read, and `read` finds out what. `waited_s` is how long it took until they were available.
    """

    inputs: Sequence[tuple[Input, Ints | None]]
    finish: Callable[[Renderer], Rows | None]
    release: Callable[[], None] | None = None
    waited_s: float = 0.0


class Rows:
    """What `Source.read` gives: columns, and the errors of the rows that could not be read (row -> error).

    Where pictures were rendered, `encoded` gives the bytes of a row, for what the kernel left to others; None: its
    picture was made of pixels.
    """

    __slots__ = ("columns", "encoded", "errors")

    def __init__(
        self,
        columns: dict[str, Column],
        errors: Mapping[int, Exception] | None = None,
        encoded: Callable[[int], bytes | None] | None = None,
    ) -> None:
        self.columns, self.encoded = columns, encoded
        self.errors = errors or {}


def why_no_boxes(spec: FieldSpec, box: str) -> str | None:
    """Why a field cannot be the boxes that pictures are cropped to, before anything is decoded; None: it can."""
    known = spec.fixed and spec.shape == (4,) and np.dtype(spec.dtype).kind in "iuf"
    return None if known else f"its boxes, {box!r}, are not four numbers of every sample"


def digest(kind: str, *parts: bytes | str | int) -> str:
    """A fingerprint: the kind and a hash over the parts."""
    sha = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return f"{kind}:{sha.hexdigest()[:16]}"

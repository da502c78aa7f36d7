"""Pipelines as values: each verb says how it is written, so that a pipeline can be made, printed as code, and interpreted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker import Pipeline

# ---- verbs: how they are written, and the functions they use -----------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A method, and what it is given."""

    name: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def on(self, pipeline: Pipeline) -> Pipeline:
        made: Pipeline = getattr(pipeline, self.name)(*self.args, **dict(self.options))
        return made

    def __str__(self) -> str:
        given = [*map(written, self.args), *(f"{name}={written(value)}" for name, value in self.options)]
        return f".{self.name}({', '.join(given)})"


def written(value: Any) -> str:
    """A value as code."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {written(inner)}' for name, inner in value.items())}}}"
    return getattr(value, "__name__", None) or repr(value)


def call(name: str, *args: Any, **options: Any) -> Call:
    return Call(name, args, tuple(options.items()))


class Verb:
    """One step of a pipeline."""

    def calls(self) -> tuple[Call, ...]:
        raise NotImplementedError

    def on(self, pipeline: Pipeline) -> Pipeline:
        for each in self.calls():
            pipeline = each.on(pipeline)
        return pipeline

    def __str__(self) -> str:
        return "".join(map(str, self.calls()))


@dataclass(frozen=True)
class Shuffle(Verb):
    seed: int
    window: int | None = None
    reshuffle: bool = True

    def calls(self) -> tuple[Call, ...]:
        return (call("shuffle", seed=self.seed, window=self.window, reshuffle=self.reshuffle),)


@dataclass(frozen=True)
class Take(Verb):
    count: int

    def calls(self) -> tuple[Call, ...]:
        return (call("take", self.count),)


@dataclass(frozen=True)
class Skip(Verb):
    count: int

    def calls(self) -> tuple[Call, ...]:
        return (call("skip", self.count),)


@dataclass(frozen=True)
class Repeat(Verb):
    """`count` None: without end. Then `take` follows, of that many samples; or, for the `enough` that it gives here, one of
    batches. A member of a mix needs neither.
    """

    count: int | None
    take: int | None = None
    enough: int = 0

    def calls(self) -> tuple[Call, ...]:
        return (call("repeat", *(() if self.count is None else (self.count,))), *([call("take", self.take)] if self.take else []))


@dataclass(frozen=True)
class Multiple:
    """Whether x is not a multiple of this."""

    of: int

    def __call__(self, sample: dict[str, Any]) -> bool:
        return bool(sample["x"] % self.of)


@dataclass(frozen=True)
class Filter(Verb):
    of: int

    def calls(self) -> tuple[Call, ...]:
        return (call("filter", Multiple(self.of)),)


@dataclass(frozen=True)
class Copies:
    """x % `of` samples in place of one; with `keyed` they have keys of their own."""

    of: int
    keyed: bool

    def __call__(self, sample: Any) -> Iterator[dict[str, Any]]:
        for part in range(int(sample["x"]) % self.of):
            key = {"__key__": f"{sample.key}/{part}"} if self.keyed else {}
            yield {**sample, "x": sample["x"] + 1000 * part, **key}


@dataclass(frozen=True)
class FlatMap(Verb):
    of: int
    keyed: bool = False

    def calls(self) -> tuple[Call, ...]:
        return (call("flat_map", Copies(self.of, self.keyed)),)


@dataclass(frozen=True)
class Widened:
    """Every field as a list of x % `of` rows."""

    of: int

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        rows = range(int(sample["x"]) % self.of)
        return {name: [value + 1000 * row if name == "x" else value for row in rows] for name, value in sample.items()}


@dataclass(frozen=True)
class Unbatch(Verb):
    of: int

    def calls(self) -> tuple[Call, ...]:
        return (call("map", Widened(self.of)), call("unbatch"))


class backwards:  # named as users name functions
    """The rows of a batch, last first."""

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        return {name: [column[row] for row in reversed(range(columns.rows))] for name, column in columns.items()}  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return "backwards()"


class without_odd(backwards):
    """The rows of a batch whose x is even, with their keys."""

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        rows = [row for row, x in enumerate(columns["x"]) if x % 2 == 0]
        keys = [columns["__key__"][row] for row in rows]
        return {"__key__": keys, **{name: [column[row] for row in rows] for name, column in columns.items()}}

    def __repr__(self) -> str:
        return "without_odd()"


@dataclass(frozen=True)
class InnerBatch(Verb):
    size: int
    drop_last: bool
    shrinks: bool = False

    def calls(self) -> tuple[Call, ...]:
        fn = without_odd() if self.shrinks else backwards()
        return (call("batch", self.size, drop_last=self.drop_last), call("map_batch", fn), call("unbatch"))


@dataclass(frozen=True)
class Plus:
    number: int

    def __call__(self, value: Any) -> Any:
        return value + self.number


@dataclass(frozen=True)
class Add(Verb):
    number: int

    def calls(self) -> tuple[Call, ...]:
        return (call("map", x=Plus(self.number)),)


@dataclass(frozen=True)
class named:
    """A sample with its key and, where that is known, its number in the source."""

    index: bool

    def __call__(self, sample: Any) -> dict[str, Any]:
        return {**sample, "k": sample.key, "i": sample.index if self.index else -1}


@dataclass(frozen=True)
class Name(Verb):
    index: bool

    def calls(self) -> tuple[Call, ...]:
        return (call("map", named(self.index)),)


def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A sample with a random number added to those it has."""
    return {**sample, "d": [*sample.get("d", ()), float(rng.random())]}


@dataclass(frozen=True)
class Draw(Verb):
    def calls(self) -> tuple[Call, ...]:
        return (call("map", drawn, rng=True),)


@dataclass(frozen=True)
class picky:
    """Fails where x leaves 3 when divided by `of`."""

    of: int

    def __call__(self, x: Any) -> Any:
        if x % self.of == 3:
            raise ValueError("a bad sample")
        return x


@dataclass(frozen=True)
class Bad(Verb):
    of: int

    def calls(self) -> tuple[Call, ...]:
        return (call("map", x=picky(self.of)), call("on_error", "skip", budget=1_000_000))


def grown(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample with a list of varying length."""
    return {**sample, "r": np.arange(int(sample["x"]) % 4)}


@dataclass(frozen=True)
class Grow(Verb):
    def calls(self) -> tuple[Call, ...]:
        return (call("map", grown),)


@dataclass(frozen=True)
class Select(Verb):
    fields: tuple[str, ...]

    def calls(self) -> tuple[Call, ...]:
        return (call("select", *self.fields),)


@dataclass(frozen=True)
class Drop(Verb):
    field: str

    def calls(self) -> tuple[Call, ...]:
        return (call("drop", self.field),)


@dataclass(frozen=True)
class Rename(Verb):
    old: str
    new: str

    def calls(self) -> tuple[Call, ...]:
        return (call("rename", **{self.new: self.old}),)


def totalled(columns: Any) -> dict[str, Any]:
    """A batch with the sum of its x, in every row."""
    return {**columns, "s": np.full(columns.rows, int(np.sum(columns["x"])))}


@dataclass(frozen=True)
class Total(Verb):
    def calls(self) -> tuple[Call, ...]:
        return (call("map_batch", totalled),)


@dataclass(frozen=True)
class Batch(Verb):
    size: int
    drop_last: bool = True
    pad: Any = None  # for the field r: a number, or list

    def calls(self) -> tuple[Call, ...]:
        pad = {} if self.pad is None else {"pad": {"r": self.pad}}
        return (call("batch", self.size, drop_last=self.drop_last, **pad),)


#: verbs that only concern the order of samples
ORDER = (Shuffle, Take, Skip, Repeat)
#: verbs that change how many samples there are
RAGGED = (Filter, FlatMap, Unbatch, InnerBatch)


# ---- pipelines ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """`n` samples of some kind of source; `shelf.open(kind, n)` and `shelf.rows(kind, n)` have them."""

    kind: str
    n: int

    def __str__(self) -> str:
        return f"shelf.open({self.kind!r}, {self.n})"


@dataclass(frozen=True)
class Mixed:
    members: tuple[Spec, ...]
    weights: tuple[int, ...]
    until: str

    def __str__(self) -> str:
        members = ", ".join(map(str, self.members))
        return f"stoker.mix([{members}], weights={list(self.weights)}, until={self.until!r})"


@dataclass(frozen=True)
class Spec:
    """A pipeline: a source, verbs over samples, and perhaps a batch with verbs over batches."""

    source: Stored | Mixed
    verbs: tuple[Verb, ...] = ()
    batch: Batch | None = None
    behind: tuple[Verb, ...] = ()

    def __str__(self) -> str:
        return "".join(map(str, (self.source, *self.verbs, *([self.batch] if self.batch else []), *self.behind)))

    @property
    def streams(self) -> bool:
        return isinstance(self.source, Stored) and self.source.kind in STREAMS

    @property
    def counted(self) -> bool:
        """Whether the number of samples is known beforehand."""
        return not self.streams and not any(isinstance(verb, RAGGED) for verb in self.verbs)

    @property
    def endless(self) -> bool:
        """Whether it repeats samples without end, and takes no number of batches of them."""
        ends = any(isinstance(verb, Take) for verb in self.behind)
        return not ends and any(isinstance(verb, Repeat) and verb.calls() == (call("repeat"),) for verb in self.verbs)

    @property
    def lenient(self) -> bool:
        return any(isinstance(verb, Bad) for verb in self.verbs)


#: kinds of sources that have no length
STREAMS = ("stream", "tar in sequence", "tar, interleaved", "tar.gz", "tfrecord.gz")

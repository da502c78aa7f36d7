"""What a pipeline is made of: one frozen value per verb. Equal nodes behave equally; printing one explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

from ..foreign_names import image_spec_advice
from ..image.batch_mixing import Mixing
from ..image.limits import MAX_PIXELS
from ..image.operation import Operation
from ..source.chunk import OBJECT, FieldSpec
from .field_effects import Effect, OpaqueVerb, Verb, blend_fields, crop_fields, decode_fields, image_fields, image_spec

Function = Callable[..., Any]

# ---- the order of samples: see order.py --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A new order every epoch, or one for all; `window` None: over the whole data set."""

    seed: int = 0
    window: int | None = None
    reshuffle: bool = True

    def epoch_of(self, epoch: int) -> int:
        """The epoch whose order this one gets."""
        return epoch if self.reshuffle else 0


@dataclass(frozen=True, slots=True)
class Take:
    """The first `count` samples (after `batch`: batches)."""

    count: int


@dataclass(frozen=True, slots=True)
class Skip:
    """All but the first `count` samples (after `batch`: batches)."""

    count: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """The data `count` times in one epoch, shuffled differently each time; None: without end."""

    count: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One of the mixed pipelines: its own order, and where its samples begin in the combined source."""

    verbs: tuple[OrderNode, ...]
    first: int
    length: int


@dataclass(frozen=True, slots=True)
class Mix:
    """Samples of several sources in fixed proportions; see mix_pattern.py. Always the first verb.

    `until` is "first" (an epoch ends when a member has no sample left) or "all" (shorter ones begin again).
    """

    members: tuple[Member, ...]
    pattern: tuple[int, ...]
    until: str = "first"


@dataclass(frozen=True, slots=True)
class Shard:
    """This rank's part of every global batch. Without rank and world they are looked up when a loader is made."""

    rank: int | None = None
    world: int | None = None
    remainder: str = "drop"


# ---- what happens to a sample --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Image(Verb):
    """Decode and transform an image field in one pass.

    With `as_pillow`, whatever the kernel does not decode is decoded as Pillow does, including damaged files and all depths.
    """

    field: str
    ops: tuple[Operation, ...]
    color: str = "rgb"
    layout: str = "hwc"
    out: str = "uint8"
    fast: bool = True
    max_pixels: int = MAX_PIXELS
    orient: bool = False
    boxes: tuple[str, ...] = ()
    relative_boxes: bool = False
    lenient: bool = False
    as_pillow: bool = False

    @property
    def effect(self) -> Effect:
        varying = () if image_spec(self).fixed else (self.field,)
        return Effect((self.field, *crop_fields(self), *self.boxes), (self.field, *self.boxes), varying)

    def made(self, specs: Mapping[str, FieldSpec]) -> Mapping[str, FieldSpec]:
        return image_fields(self, specs)


@dataclass(frozen=True, slots=True)
class Decode(Verb):
    """Decode an image field at full size."""

    field: str
    format: str = "numpy"
    color: str = "rgb"
    out: str = "uint8"
    max_pixels: int = MAX_PIXELS
    orient: bool = False
    lenient: bool = False

    @property
    def effect(self) -> Effect:
        return Effect((self.field,), (self.field,), (self.field,))

    def made(self, specs: Mapping[str, FieldSpec]) -> Mapping[str, FieldSpec]:
        return decode_fields(self, specs)

    def advice(self, name: str, known: Iterable[str]) -> str:
        return image_spec_advice(name, known)


@dataclass(frozen=True, slots=True)
class Map(OpaqueVerb):
    """A user's function over whole samples; `rng` may be the name of its random stream.

    With `seeded`, here and below, the process's random generators are seeded before each call.
    """

    fn: Function
    rng: bool | str = False
    seeded: bool = True


@dataclass(frozen=True, slots=True)
class MapFields(Verb):
    """Users' functions over single fields, applied in turn."""

    fields: tuple[tuple[str, tuple[Function, ...]], ...]
    rng: bool | str = False
    seeded: bool = True

    @property
    def effect(self) -> Effect:
        names = tuple(name for name, _ in self.fields)
        return Effect(names, names)

    def made(self, specs: Mapping[str, FieldSpec]) -> Mapping[str, FieldSpec]:
        return {name: OBJECT for name, _ in self.fields}

    def advice(self, name: str, known: Iterable[str]) -> str:
        return "; a function over whole samples, which may add fields, is passed as map(fn)"


@dataclass(frozen=True, slots=True)
class Filter(Verb):
    """Keep the samples for which `fn` is true."""

    fn: Function
    seeded: bool = True

    @property
    def effect(self) -> Effect:
        return Effect(whole=True)


@dataclass(frozen=True, slots=True)
class FlatMap(OpaqueVerb):
    """Any number of samples from one."""

    fn: Function
    seeded: bool = True


@dataclass(frozen=True, slots=True)
class Unbatch(OpaqueVerb):
    """One sample for every row of the fields' first axis."""


@dataclass(frozen=True, slots=True)
class Select(Verb):
    """Keep these fields, in this order."""

    fields: tuple[str, ...]

    @property
    def effect(self) -> Effect:
        return Effect(only=self.fields)


@dataclass(frozen=True, slots=True)
class Rename(Verb):
    """New names for fields: (old, new) pairs. Of several old names (``"jpg;png"``), the first that a sample has."""

    names: tuple[tuple[str, str], ...]

    @property
    def effect(self) -> Effect:
        return Effect(renames=tuple((tuple(old.split(";")), new) for old, new in self.names))

    def advice(self, name: str, known: Iterable[str]) -> str:
        new = dict(self.names)[name]
        swapped = new in known and ";" not in name  # written as rename(old="new")
        return f"; the new name comes first: rename({name}={new!r})" if swapped else ""


@dataclass(frozen=True, slots=True)
class Drop(Verb):
    """Remove these fields."""

    fields: tuple[str, ...]

    @property
    def effect(self) -> Effect:
        return Effect(drops=self.fields)


@dataclass(frozen=True, slots=True)
class Cached(Verb):
    """Store samples as they are at this place: in memory (`where` is ``"memory"``) or in a folder, at most `nbytes`.

    It affects nothing but speed: neither fields, nor random numbers, nor the fingerprint in a saved state.
    """

    where: str
    nbytes: int | None = None


# ---- batches ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """`size` samples become one batch; `pad` says how fields of varying shape are joined."""

    size: int
    drop_last: bool = True
    pad: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class MapBatch(OpaqueVerb):
    """A user's function over a whole batch, as a mapping of columns."""

    fn: Function
    seeded: bool = True


@dataclass(frozen=True, slots=True)
class Blend(Verb):
    """MixUp or CutMix over a whole batch: one of `ops`, chosen for each batch. `layout` None: inferred from the shape."""

    ops: tuple[Mixing, ...]
    image: str = "image"
    label: str = "label"
    layout: str | None = None
    stream: str | None = None

    @property
    def effect(self) -> Effect:
        return Effect((self.image, self.label), (self.image, self.label))

    def made(self, specs: Mapping[str, FieldSpec]) -> Mapping[str, FieldSpec]:
        return blend_fields(self, specs)


@dataclass(frozen=True, slots=True)
class Regroup(OpaqueVerb):
    """`batch`, functions over that batch, `unbatch`: made by the compiler from those three."""

    batch: Batch
    inner: tuple[MapBatch | NameNode, ...]


@dataclass(frozen=True, slots=True)
class SkipPolicy:
    """Skip bad samples, up to a budget.

    `budget` is a fraction of the samples (below 1) or a number of them (1 and more): in the epoch, or among the last `window`
    samples. `quarantine` is a file that gets one JSON line for every bad sample. `fill` None: batches become shorter; "repeat": a
    good row of the same batch replaces a bad one, and is False in `valid`.
    """

    budget: float = 0.001
    window: int | None = None
    quarantine: str | None = None
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class OnError:
    """How bad samples are handled: None raises."""

    policy: SkipPolicy | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry input and output that failed for a temporary reason, up to `times` times."""

    times: int


OrderNode = Union[Shuffle, Take, Skip, Repeat, Mix]
NameNode = Union[Select, Rename, Drop]
StageNode = Union[Image, Decode, Map, MapFields, Filter, FlatMap, Unbatch, Regroup, Cached, NameNode]
FinishNode = Union[MapBatch, Blend, NameNode]
Node = Union[OrderNode, Shard, StageNode, Batch, MapBatch, Blend, OnError, Retry]

#: stages that change the number of samples
RAGGED = (Filter, FlatMap, Unbatch, Regroup)


def describe_function(fn: Function) -> str:
    """A function's name, for fingerprints and `explain()`; the same in every process."""
    module = getattr(fn, "__module__", None) or type(fn).__module__
    module = "__main__" if module == "__mp_main__" else module  # the main script's name in a spawned process
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return f"{module}.{name}"


def describe(node: Node | Operation | Mixing) -> str:
    """A node as text that two runs agree on: functions by name, values by value. Fingerprints are made from it.

    Defaults are omitted, so that a field with a default may be added without refusing states saved earlier. A default that
    changes its meaning requires a new `cursor.VERSION`.
    """
    return f"{type(node).__name__}({', '.join(_differing(node))})"


#: nodes whose verb is not their name in lower case
_VERBS = {"Cached": "cache", "FlatMap": "flat_map", "MapBatch": "map_batch", "MapFields": "map", "OnError": "on_error"}


def written(node: Node) -> str:
    """A node as a user would write it, without defaults."""
    if isinstance(node, Regroup):
        return "".join([written(node.batch), *(f".{written(inner)}" for inner in node.inner), ".unbatch()"])
    if isinstance(node, Mix):
        counts = [node.pattern.count(member) for member in range(len(node.members))]
        orders = [".".join(map(written, member.verbs)) for member in node.members]
        inside = [f"{count} of {len(node.pattern)}{f' {order}' if order else ''}" for count, order in zip(counts, orders)]
        inside += _differing(node, ("members", "pattern"))
    elif isinstance(node, (Select, Drop)):
        inside = [repr(name) for name in node.fields]
    elif isinstance(node, Rename):
        inside = [f"{new}={old!r}" for old, new in node.names]
    elif isinstance(node, MapFields):
        inside = [f"{name}={', '.join(map(describe_function, functions))}" for name, functions in node.fields]
        inside += _differing(node, ("fields",))
    elif isinstance(node, Image):
        inside = [repr(node.field), *(_short(op) for op in node.ops), *_differing(node, ("field", "ops"))]
    elif isinstance(node, Cached):
        inside = [repr(node.where), *([] if node.nbytes is None else [f"bytes={node.nbytes}"])]
    elif isinstance(node, OnError):
        inside = ["'raise'"] if node.policy is None else ["'skip'", *_differing(node.policy, ())]
    elif isinstance(node, Blend):
        inside = [*(f"{type(op).__name__}({op.alpha:g}, {', '.join(_differing(op, ('alpha',)))})" for op in node.ops)]
        inside += _differing(node, ("ops",))
    else:
        first = [name for name in _fields(node) if name in ("fn", "size", "count", "field")]
        inside = [_value(getattr(node, name)) for name in first] + _differing(node, first)
    return f"{verb_of(node)}({', '.join(inside)})"


def verb_of(node: Node) -> str:
    """The method that made a node."""
    name = type(node).__name__
    return _VERBS.get(name, name.lower())


def _differing(node: Any, known: Sequence[str] = ()) -> list[str]:
    """Fields that are not at their default, as name=value."""
    given = []
    for name, about in node.__dataclass_fields__.items():
        value = getattr(node, name)
        if name not in known and value != about.default:
            given.append(f"{name}={_value(value)}")
    return given


def _short(op: Any) -> str:
    """An image operation without its defaults; a square size as one number, unless that has another meaning."""
    size = getattr(op, "size", None)
    square = isinstance(size, tuple) and replace(op, size=size[0]) == op  # Resize keeps a number: the shorter side's
    first = [] if size is None else [str(size[0] if square else size)]
    return f"{type(op).__name__}({', '.join(first + _differing(op, ('size',)))})"


def _fields(node: Any) -> list[str]:
    return list(getattr(node, "__dataclass_fields__", ()))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_value(part) for part in value)})"
    if hasattr(value, "__dataclass_fields__"):
        return describe(value)
    return describe_function(value) if callable(value) else repr(value)

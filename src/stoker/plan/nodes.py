"""What a pipeline is made of: one frozen value a verb. Equal nodes behave equally; printing one explains it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from ..image.batch_mixing import Mixing
from ..image.limits import MAX_PIXELS
from ..image.operation import Operation

Function = Callable[..., Any]

#: metadata of a field that a later version added: at its default `describe` omits it, so that states saved before still fit
ADDED_LATER = {"added later": True}

# ---- the order of samples: see order.py --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A new order every epoch, or one for all; `window` None: over the whole data set."""

    seed: int = 0
    window: int | None = None
    reshuffle: bool = field(default=True, metadata=ADDED_LATER)

    def epoch_of(self, epoch: int) -> int:
        """The epoch whose order this one gets."""
        return epoch if self.reshuffle else 0


@dataclass(frozen=True, slots=True)
class Take:
    """The first `count` samples (behind `batch`: batches)."""

    count: int


@dataclass(frozen=True, slots=True)
class Skip:
    """All but the first `count` samples (behind `batch`: batches)."""

    count: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """The data `count` times over in one epoch, newly shuffled each time; None: without end."""

    count: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One of the pipelines that are mixed: its own order, and where its samples begin among all of them."""

    verbs: tuple[OrderNode, ...]
    first: int
    length: int


@dataclass(frozen=True, slots=True)
class Mix:
    """Samples of several sources in fixed proportions; see mixing.py. Always the first verb.

    `until` is "first" (an epoch ends when a member has no sample left) or "all" (shorter ones begin again).
    """

    members: tuple[Member, ...]
    pattern: tuple[int, ...]
    until: str = "first"


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of every global batch is this rank's. Without rank and world: found when a loader is made."""

    rank: int | None = None
    world: int | None = None
    remainder: str = "drop"


# ---- what happens to a sample --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Image:
    """Decode and transform an image field in one pass."""

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


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode an image field at full size."""

    field: str
    as_: str = "numpy"
    color: str = "rgb"
    out: str = "uint8"
    max_pixels: int = MAX_PIXELS
    orient: bool = False
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Map:
    """A user's function over whole samples."""

    fn: Function
    rng: bool = False


@dataclass(frozen=True, slots=True)
class MapFields:
    """Users' functions over single fields, applied in turn."""

    fields: tuple[tuple[str, tuple[Function, ...]], ...]
    rng: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the samples for which `fn` is true."""

    fn: Function


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Any number of samples from one."""

    fn: Function


@dataclass(frozen=True, slots=True)
class Unbatch:
    """One sample for every row of the fields' first axis."""


@dataclass(frozen=True, slots=True)
class Select:
    """Keep these fields, in this order."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rename:
    """New names for fields: (old, new) pairs."""

    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Leave these fields out."""

    fields: tuple[str, ...]


# ---- batches ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """`size` samples become one batch; `pad` says how fields of varying shape are joined."""

    size: int
    drop_last: bool = True
    pad: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class MapBatch:
    """A user's function over a whole batch, as a mapping of columns."""

    fn: Function


@dataclass(frozen=True, slots=True)
class Blend:
    """MixUp or CutMix over a whole batch: one of `ops`, chosen for each batch. `layout` None: seen from the shape."""

    ops: tuple[Mixing, ...]
    image: str = "image"
    label: str = "label"
    layout: str | None = None


@dataclass(frozen=True, slots=True)
class Regroup:
    """`batch`, functions over that batch, `unbatch`: made by the compiler from those three."""

    batch: Batch
    inner: tuple[MapBatch | Select | Rename | Drop, ...]


@dataclass(frozen=True, slots=True)
class SkipPolicy:
    """Leave bad samples out, up to a budget; made by `stoker.skip(...)`.

    `budget` below 1 is a share of the samples seen, from 1 on a number of samples an epoch. `quarantine` is a file that gets
    one JSON line for every sample left out. With `fill` "repeat", a good row of its batch takes the place of a bad one.
    """

    budget: float = 0.001
    quarantine: str | None = None
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class OnError:
    """What a bad sample means: None raises."""

    policy: SkipPolicy | None = None


OrderNode = Union[Shuffle, Take, Skip, Repeat, Mix]
StageNode = Union[Image, Decode, Map, MapFields, Filter, FlatMap, Unbatch, Regroup, Select, Rename, Drop]
FinishNode = Union[MapBatch, Blend, Select, Rename, Drop]
Node = Union[OrderNode, Shard, StageNode, Batch, MapBatch, Blend, OnError]

#: stages that change how many samples there are
RAGGED = (Filter, FlatMap, Unbatch, Regroup)


def draws(node: Node) -> bool:
    """Whether a node takes random numbers.

    Only such nodes are counted when random streams are numbered: a `rename` in front of an augmentation does not change it.
    """
    return node.rng if isinstance(node, (Map, MapFields)) else isinstance(node, (Image, Blend))


def describe_function(fn: Function) -> str:
    """A function's name, for fingerprints and `explain()`; the same in every process."""
    module = getattr(fn, "__module__", None) or type(fn).__module__
    module = "__main__" if module == "__mp_main__" else module  # the main script's name in a spawned process
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return f"{module}.{name}"


def describe(node: Node | Operation | Mixing) -> str:
    """A node as text that two runs agree on: functions by name, values by value. Fingerprints are made of it."""
    inside = ", ".join(f"{name}={_value(getattr(node, name))}" for name in _fields(node) if not _new_and_unused(node, name))
    return f"{type(node).__name__}({inside})"


def _new_and_unused(node: Any, name: str) -> bool:
    about = node.__dataclass_fields__[name]
    return "added later" in about.metadata and getattr(node, name) == about.default


#: nodes whose verb is not their name in lower case
_VERBS = {"FlatMap": "flat_map", "MapBatch": "map_batch", "MapFields": "map", "OnError": "on_error"}


def written(node: Node) -> str:
    """A node as a user would write it, without what is the default anyway."""
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
        inside = [f"{old}={new!r}" for old, new in node.names]
    elif isinstance(node, MapFields):
        inside = [f"{name}={', '.join(map(describe_function, functions))}" for name, functions in node.fields]
    elif isinstance(node, Image):
        inside = [repr(node.field), *(_short(op) for op in node.ops), *_differing(node, ("field", "ops"))]
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


def _differing(node: Any, known: Sequence[str]) -> list[str]:
    """Fields that are not at their default, as name=value."""
    given = []
    for name, about in node.__dataclass_fields__.items():
        value = getattr(node, name)
        if name not in known and value != about.default:
            given.append(f"{name}={_value(value)}")
    return given


def _short(op: Any) -> str:
    """An image operation without its defaults; a square size as one number, unless that means something else."""
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

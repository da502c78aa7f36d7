"""Names become columns: `select`, `rename` and `drop` are resolved here, once, and are gone when a plan runs.

A column has one name from the read to the batch, that of the source's field, whatever users call it in between. A function over
whole samples needs the names valid at its place: there, columns are renamed, and keep these names from then on. After a function
that decides which fields exist, nothing can be resolved, and verbs over names remain steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar, Union

from ..errors import ConfigError, StokerError
from ..source.chunk import OBJECT, FieldSpec
from ..source.source import Source
from ..source.streams.stream import StreamSource
from .field_effects import Specs, crop_fields, image_spec
from .nodes import Cached, FinishNode, Image, StageNode, verb_of, written

AnySource = Union[Source, StreamSource]
AnyNode = Union[StageNode, FinishNode]
T = TypeVar("T")
N = TypeVar("N", bound=AnyNode, covariant=True)


class Held(NamedTuple):
    """A field at some place of a pipeline: its column, the column's type there, and the source's field while it is unchanged."""

    column: str
    spec: FieldSpec
    stored: str | None = None


#: the fields at some place, in their order; None: a function decides which they are
View = Union[Mapping[str, Held], None]
#: makes one column from several: the first that a sample has
Either = Callable[[tuple[str, ...]], str]


@dataclass(frozen=True, slots=True)
class Step(Generic[N]):
    """A verb as it runs: the fields before it, the columns it reads, by name (None: unknown), and its random streams."""

    node: N
    view: View
    columns: Mapping[str, str] | None
    streams: tuple[int, ...] = ()

    def held(self, name: str) -> Held | None:
        """A field before it, if known."""
        return None if self.view is None else self.view[name]

    def given(self, name: str) -> FieldSpec | None:
        """The type of a field before it, if known."""
        return None if self.view is None else self.view[name].spec

    def column(self, name: str) -> str:
        """The column of a field that it reads."""
        return name if self.view is None else self.view[name].column

    @property
    def reads(self) -> set[str]:
        return set((self.columns or {}).values())


AnyStep = Step[AnyNode]


@dataclass(frozen=True, slots=True)
class Work:
    """Steps, and the fields after them that are used: {name: column}; None: those that a function returned.

    With `moves`, columns must be renamed at the end; without, they already have these names.
    """

    steps: tuple[AnyStep, ...] = ()
    columns: Mapping[str, str] | None = None
    moves: bool = False


NO_WORK = Work()


def view_of(specs: Specs) -> View:
    """The fields of a source."""
    return specs if specs is None else {name: Held(name, spec, name) for name, spec in specs.items()}


def renamed(view: View) -> View:
    """The same fields when columns have the fields' own names."""
    return view if view is None else {name: held._replace(column=name) for name, held in view.items()}


def resolve(
    nodes: Iterable[AnyNode], view: View, either: Either | None = None, streams: Iterable[tuple[int, ...]] = repeat(())
) -> tuple[list[AnyStep], View]:
    """The steps that remain of some verbs, and the fields after them; raises if a verb names a field that does not exist.

    `either` is for columns as the source provides them. `streams` are the random streams of each verb; no more are taken than
    there are verbs.
    """
    steps: list[AnyStep] = []
    touched: set[str] = set()  # names that may no longer be those of the source
    for node, own in zip(nodes, streams):
        effect = node.effect
        if effect.arranges and view is not None:
            if either is not None:
                view = {name: _first(node, name, view, either) for name in view}
            view = arrange(node, view)
            continue
        if either is not None:
            for olds in [olds for olds, _ in effect.renames if len(olds) > 1 and touched.isdisjoint(olds)]:
                either(olds)
        touched |= effect.names
        steps.append(Step(node, view, _columns(node, view), own))
        view = _after(node, view)
        either = None if effect.whole else either
    return steps, view


def _columns(node: AnyNode, view: View) -> Mapping[str, str] | None:
    effect = node.effect
    if view is None:
        return None if effect.whole or effect.arranges else {name: name for name in effect.reads}
    for name in effect.reads:
        check_there(node, name, view)
    return {name: view[name].column for name in (view if effect.whole else effect.reads)}


def _after(node: AnyNode, view: View) -> View:
    """The fields after a step."""
    effect = node.effect
    if effect.only is not None:
        return {name: Held(name, OBJECT) for name in effect.only}
    if view is None or effect.opaque:
        return None
    if effect.whole:
        return renamed(view)
    made = node.made({name: held.spec for name, held in view.items()})
    return {**view, **{name: Held(view[name].column, made.get(name, view[name].spec)) for name in effect.makes}}


def _first(node: AnyNode, name: str, view: Mapping[str, Held], either: Either) -> Held:
    """A field, or, if it is the first of several alternatives, the column with the first that a sample has."""
    for olds, new in node.effect.renames:
        found = [old for old in olds if old in view]
        if len(found) > 1 and found[0] == name:
            kinds = {str(view[old].spec): old for old in found}
            if len(kinds) > 1:
                held = ", ".join(f"{old!r} holds {kind}" for kind, old in kinds.items())
                raise ConfigError(f"rename({new}={';'.join(olds)!r}): {held}; alternatives must hold the same kind of value")
            if all(view[old].stored for old in found):
                column = either(tuple(view[old].column for old in found))
                return Held(column, view[name].spec, column)
    return view[name]


def arrange(
    node: AnyNode,
    fields: Mapping[str, T],
    here: str = "the fields here are",
    kind: type[StokerError] = ConfigError,
) -> dict[str, T]:
    """The fields after a `select`, `rename` or `drop`; raises an error of type `kind` if it names one that does not exist."""
    effect = node.effect
    names, gone = dict[str, str](), set(effect.drops)  # old name -> new, and what is removed
    values = dict(fields)
    for name in (*(effect.only or ()), *effect.drops):
        check_there(node, name, fields, here, kind)
    for olds, new in effect.renames:
        found = [old for old in olds if old in fields]
        if not found:
            check_there(node, ";".join(olds), fields, here, kind)
        if twice := [old for old in found if old in names or old in gone]:
            raise kind(f"{written(node)} names the field {twice[0]!r} twice; a field gets one new name")
        place = next(name for name in fields if name in found)  # that of the first in stored order, as a stream has it
        names[place], values[place] = new, fields[found[0]]
        gone |= set(found) - {place}
    kept = effect.only or [name for name in fields if name not in gone]
    result = {names.get(name, name): values[name] for name in kept}
    if len(result) < len(kept):
        raise kind(f"{written(node)} would give two fields the same name; {here} {', '.join(fields)}")
    return result


def check_there(
    node: AnyNode,
    name: str,
    fields: Iterable[str],
    here: str = "the fields here are",
    kind: type[StokerError] = ConfigError,
) -> None:
    """Raise if a verb names a field that does not exist."""
    if name not in fields:
        names = ", ".join(fields) or ("none" if kind is ConfigError else "no fields")
        raise kind(f"{verb_of(node)} names the field {name!r}, but {here} {names}{node.advice(name, fields)}")


def work_of(steps: Sequence[AnyStep], view: View, need: set[str] | None) -> tuple[Work, set[str] | None]:
    """Steps as work after which `need` is used, and the columns that must exist before it; None: all."""
    columns = None if view is None else {name: held.column for name, held in view.items() if need is None or name in need}
    front = columns_before(steps, columns)
    last = next((step for step in reversed(steps) if _looks_at_all(step)), None)
    there = front if last is None else None if last.node.effect.opaque else last.columns  # columns that chunks then have
    moves = columns is not None and (there is None or columns != {name: name for name in there})
    return Work(tuple(steps), columns, moves), front


def columns_before(steps: Sequence[AnyStep], columns: Mapping[str, str] | None) -> set[str] | None:
    """The columns that must exist before some steps, after which these are used; None: all."""
    whole = next((at for at, step in enumerate(steps) if _looks_at_all(step)), None)
    after = columns if whole is None else steps[whole].columns
    reads = {column for step in steps[:whole] for column in step.reads}
    return None if after is None else reads | set(after.values())


def _looks_at_all(step: AnyStep) -> bool:
    return step.columns is None or step.node.effect.whole


def varying_fields(nodes: Iterable[StageNode]) -> set[str]:
    """Fields that hold images of varying size at the end, judging from the stages alone."""
    varying: set[str] = set()
    for node in nodes:
        effect = node.effect
        names = {old: new for olds, new in effect.renames for old in olds}
        varying = set() if effect.opaque else {names.get(name, name) for name in varying - set(effect.makes)}
        varying |= set(effect.varying)
    return varying


# ---- reading and decoding in one call --------------------------------------------------------------------------------------


def read_with(steps: Sequence[AnyStep], source: AnySource) -> int | None:
    """The image step that runs in the same native call as the read of its field, if there is one.

    The steps before it use other columns, so it may come first. Random numbers do not depend on that, and neither does which
    row is reported if several are bad; if a row is bad in two ways, the image's error is reported.
    """
    return next((at for at in range(len(steps)) if _hindrance(steps, at, source) is None), None)


def why_two_calls(steps: Sequence[AnyStep], at: int, source: AnySource) -> str | None:
    """Why an image step does not run in the call that reads its field; None: it does."""
    first, why = read_with(steps, source), _hindrance(steps, at, source)
    if why is None and first is not None and first < at:
        return f"only one field is decoded as it is read, and that is {steps[first].node.effect.reads[0]!r}"
    return why


def _hindrance(steps: Sequence[AnyStep], at: int, source: AnySource) -> str | None:
    """What prevents a step from running in the call that reads; None: nothing does."""
    step, node = steps[at], steps[at].node
    if not isinstance(node, Image) or step.columns is None:
        return f"{verb_of(node)}() needs what was read"
    if not isinstance(source, Source):
        return "the source is a stream"
    for before in steps[:at]:
        if before.node.effect.whole or isinstance(before.node, Cached) or before.reads & step.reads:
            return f"{verb_of(before.node)}() comes before it"
    if not image_spec(node, step.given(node.field)).fixed:
        return "its images vary in size"
    box = next(iter(crop_fields(node)), None)
    return source.why_not_located(step.columns[node.field], None if box is None else step.columns[box])

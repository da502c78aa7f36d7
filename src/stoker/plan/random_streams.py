"""Which random stream each part of a pipeline draws from, such that adding or removing one part leaves the others unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from ..image.operation import RandomOperation
from .nodes import Blend, Filter, FlatMap, Image, Map, MapBatch, MapFields, Node, Regroup, verb_of

#: what draws: its kind, and the name the user gave its stream
Drawer = tuple[str, str | None]


def drawers(node: Node) -> list[Drawer]:
    """What takes random numbers in a node, in order: operations by their class, functions and `blend` by their verb.

    A function has a stream for the process's generators, whether it draws from them or not. Before those of a node come the
    streams of the generators that its functions are given.
    """
    if isinstance(node, Image):
        return [(type(op).__name__, op.stream if isinstance(op, RandomOperation) else None) for op in node.ops]
    if isinstance(node, (Map, MapFields)):
        count = 1 if isinstance(node, Map) else sum(len(functions) for _, functions in node.fields)
        name = node.rng if isinstance(node.rng, str) else None
        return [("map", name)] * (count if node.rng else 0) + [("global map", name)] * count
    if isinstance(node, Regroup):
        return [drawer for inner in node.inner for drawer in drawers(inner)]
    if isinstance(node, (Filter, FlatMap, MapBatch)):
        return [(f"global {verb_of(node)}", None)]
    return [("blend", node.stream)] if isinstance(node, Blend) else []


def draws(node: Node) -> bool:
    """Whether a node draws random numbers, if that is known before it runs: a function may use generators of its own."""
    if isinstance(node, Image):
        return any(isinstance(op, RandomOperation) for op in node.ops)
    return isinstance(node, (Map, MapFields)) and bool(node.rng)


def streams_of(nodes: Iterable[Node]) -> tuple[tuple[int, ...], ...]:
    """The random streams of each node of a pipeline, one for each of its drawers.

    A stream is the hash of a kind and of how many of that kind came before, or of a kind and a name. So a node that is added to a
    pipeline changes the numbers of later nodes of its own kind only.
    """
    seen: Counter[str] = Counter()
    taken: dict[int, tuple[str, object]] = {}
    streams = []
    for node in nodes:
        row = []
        for kind, name in drawers(node):
            key = (kind, name or seen[kind])
            seen[kind] += name is None
            stream = int.from_bytes(blake2b(repr(key).encode(), digest_size=4).digest(), "little")
            while taken.setdefault(stream, key) != key:  # once in some hundred million pipelines
                stream = (stream + 1) % (1 << 32)
            row.append(stream)
        streams.append(tuple(row))
    return tuple(streams)

"""Opens the cache of a plan: where it is, how large it may become, and which values it may contain."""

from __future__ import annotations

from pathlib import Path

from ..engine.machine import Machine
from ..observe.run_settings import package_version
from ..plan.code_digest import node_text
from ..plan.columns import columns_before
from ..plan.nodes import Cached
from ..plan.plan import Plan
from ..plan.ranks import local_processes
from ..source.source import Source, digest
from ..storage.sample_cache import FORMAT, SampleCache

#: where the system does not say how much memory is left
_UNKNOWN = 2 << 30


def open_cache(plan: Plan, parts: int = 1) -> SampleCache | None:
    """The cache that the plan asks for; None: it asks for none. `parts` loaders in other processes do the same."""
    work = plan.works[0]
    at = next((at for at, step in enumerate(work.steps) if isinstance(step.node, Cached)), None)
    if at is None:
        return None
    node, source = work.steps[at].node, plan.source
    assert isinstance(node, Cached) and isinstance(source, Source)
    if node.where == "memory":
        return SampleCache.in_memory(len(source), node.nbytes or _memory_share(parts))
    needed = columns_before(work.steps[at + 1 :], work.columns)
    folder = digest(
        "cache",
        FORMAT,
        package_version("stoker"),  # another one may make other pixels
        source.version(),
        *plan.wanted,
        "" if needed is None else "\n".join(sorted(needed)),
        *(node_text(step.node) for step in work.steps[:at]),
    )
    return SampleCache.in_folder(str(Path(node.where) / folder.replace(":", "-")), len(source), node.nbytes)


def _memory_share(parts: int) -> int:
    """Half of the memory that is left, shared with the other processes of this run on this machine."""
    left, neighbours = Machine.read().memory_left, local_processes()
    processes = parts * (1 if neighbours is None else max(1, neighbours.count))
    return max(1 << 20, (_UNKNOWN if left is None else left) // 2 // processes)

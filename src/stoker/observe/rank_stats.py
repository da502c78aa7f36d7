"""The statistics of all ranks, gathered through the process group that training already has."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..errors import ConfigError
from .stats import Stats, merge


def gather(stats: Stats) -> Stats:
    """The statistics of all ranks as one: every rank of `torch.distributed` calls it, and gets the same.

    Without a process group there is one rank, whose statistics are returned unchanged. Ranks exchange JSON.

    >>> from stoker.observe import Stats, gather
    >>> gather(Stats(batches=3)).batches
    3
    """
    if not isinstance(stats, Stats):
        raise ConfigError(f"gather(stats): must be statistics, as returned by loader.stats(), not {type(stats).__name__}")
    torch: Any = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    if group is None or not group.is_available() or not group.is_initialized():
        return stats
    device = torch.device("cuda", torch.cuda.current_device()) if group.get_backend() == "nccl" else torch.device("cpu")
    text = torch.tensor(list(json.dumps(stats.as_dict()).encode()), dtype=torch.uint8, device=device)
    world = group.get_world_size()
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    group.all_gather(lengths, torch.tensor([len(text)], dtype=torch.int64, device=device))
    longest = int(max(lengths))
    texts = [torch.zeros(longest, dtype=torch.uint8, device=device) for _ in range(world)]
    group.all_gather(texts, torch.nn.functional.pad(text, (0, longest - len(text))))
    given = [bytes(each[: int(length)].tolist()) for each, length in zip(texts, lengths)]
    return merge(Stats.from_dict(json.loads(each)) for each in given)

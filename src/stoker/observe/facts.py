"""What a loader knows of its data and its machine besides measurements: plain data for the verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it may be unknown: then the verdict says less."""

    samples: int = 0  # of the data set; 0: not known
    stored: str = ""  # "memory", "files", "shards", "network", "stream"; "": not known
    requests: int = 0  # that servers have answered; 0: none, or it is not known
    answer_s: float = 0.0  # from such a request until its answer begins, on average
    receive_s: float = 0.0  # and from then until all of it has come
    memory_for_blocks: int = 0  # `memory=` with which records would be fetched in blocks ahead; 0: they are, or never would be
    seekless: bool = False  # crops of images are decoded, and there is no seek index
    prefix: tuple[str, ...] = ()  # the first steps, which give the same in every epoch, so that a cache may hold what they make
    memory_left: int = 0  # bytes that this process may still take; 0: not known
    disk_bytes: int | None = None  # that this process had to get from a disk since the first batch was asked for; None: not known
    idle_cores: float | None = None  # of those that this process may use, while it ran; None: not known
    machine_cores: int = 0  # of the whole machine, of which this process may use some
    budget: int = 0  # loader(memory=), as far as batches may take it
    ahead: int | None = None  # loader(ahead=)
    ahead_option: str = "ahead"  # what that option is called
    chosen: bool = False  # the user chose the number of workers
    device: bool = False  # batches are handed over to a device

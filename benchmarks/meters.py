"""What do the meters, which are always on, cost?

The same loaders with their meters and with none: clocks that stand still, and a counter that only knows what the loader needs to
work. Four pipelines, from one in which a batch takes milliseconds to one with hardly any work besides counting. Decoding runs in
threads; the others run in the thread of the loop, where nothing hides the cost of counting, and where threads that compete for
the GIL do not drown it in noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data
from measure import SEED, BenchmarkParser, Entry, Take, compare, endless, note, pull, ratio, report
from ours import image_pipeline, lead
from workloads import compute, numbers

#: what the meters may cost
ASKED = 0.99


def compute_briefly(x: Any) -> Any:
    """About 20 us of Python."""
    return x + (compute(0.02) & 1)


def records(folder: Path, batch: int) -> Any:
    """A kilobyte to copy."""
    import stoker

    x, y = data.records(20_000)
    return stoker.arrays(x=x, y=y).shuffle(seed=SEED).batch(batch)


PIPELINES = {
    "decode": lambda folder: (image_pipeline(folder, 64), 64),
    "function": lambda folder: (numbers().map(x=compute_briefly).batch(64), 64),
    "records, 256 in a batch": lambda folder: (records(folder, 256), 256),
    "records, 8 in a batch": lambda folder: (records(folder, 8), 8),
}


def without_meters() -> None:
    """Take the meters out of this process, as far as a loader works without them."""
    from stoker.batch import written_rows
    from stoker.loader import batch_units
    from stoker.observe.meters import Meters
    from stoker.stage import finish, runner
    from stoker.storage.scratch import Scratch

    still = (0.0, 0.0)
    for module in (written_rows, runner, finish, batch_units):
        module.clocks = lambda: still  # type: ignore[attr-defined]
    runner._bytes_of = lambda chunk: 0  # type: ignore[assignment]
    runner._try_lock = lambda scratch: -1.0  # type: ignore[assignment]
    Scratch.queued_s = lambda self, now=None: 0.0  # type: ignore[method-assign]
    Meters.request = lambda self: 0.0  # type: ignore[method-assign]
    for name in ("delivered", "handed_over", "task", "worked", "count"):
        setattr(Meters, name, lambda self, *args, **kwargs: None)


@contextmanager
def fed(name: str, folder: Path, metered: bool) -> Iterator[Take]:
    """A loader at work."""
    if not metered:
        without_meters()
    pipeline, rows = PIPELINES[name](folder)
    with pipeline.loader(executor="threads" if name == "decode" else "inline") as loader:
        yield pull(endless(loader), rows)


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=11)
    data.add_arguments(parser)
    parser.amount("--seconds", 1.0, 0.05, "of a round")
    return parser.parse_args()


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    found: dict[str, Any] = {}
    for name in list(PIPELINES)[-1:] if options.quick else PIPELINES:
        note(f"---- {name}")
        ready = 2 if options.quick else lead(64) if name == "decode" else 64
        entries = [
            Entry(title, fed, (name, folder, metered), 8, ready, seconds=options.seconds)
            for title, metered in (("with", True), ("without", False))
        ]
        result = compare(entries, options.rounds)
        found[name] = {"rows_per_s": result.medians(), "with_over_without": ratio(result.rates["with"], result.rates["without"])}
    report("meters", options, asked=ASKED, pipelines=found)


if __name__ == "__main__":
    main()

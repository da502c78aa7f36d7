"""Are the loader's own choices as fast as the best fixed ones?

Five pipelines, each limited by something else: decoding; shards on a server that answers late (``http``); a Python function;
handing out small records; and memory (``little-memory``: the same decoding in 40 MB). Two more are optional: ``sleeping``, a
function that waits, and ``mixed``, decoding with Python. Each runs with every fixed choice (no threads, threads, many threads, a
feeder, processes) and with nothing chosen, in turn. The first hundred batches are not measured: by then the choice must be made.

Memory in flight is compared with what `memory=` allows, in every part of every run; a run that takes more fails.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import data
from measure import BenchmarkParser, Comparison, Entry, compare, note, ratio, report, usable_cores
from ours import pack
from slow_server import serving
from workloads import AHEAD, GIVEN, PIPELINES, fed

#: of the best fixed choice's rate
ASKED = 0.95
FIRST = 100
#: as many threads as the loader would start by itself at most
MANY = 64
FIVE = ("decode-bound", "http", "python-bound", "tiny-records", "little-memory")


def choices() -> dict[str, dict[str, Any]]:
    """What a user may ask the loader for."""
    cores = usable_cores()
    return {
        "auto": {},
        "inline": {"executor": "inline"},
        "threads": {"threads": cores},
        "some threads": {"threads": 4 * cores},
        "many threads": {"threads": MANY},
        "feeder": {"processes": 1, "threads": cores},
        "processes": {"processes": cores, "threads": 1},
    }


def ready(name: str, choice: str, options: argparse.Namespace) -> int:
    """Batches that a loader may hold ready, and one."""
    return 0 if choice == "inline" else 2 if options.quick else AHEAD[name] + 1


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--pipelines", default=",".join(FIVE), help=f"which of {', '.join(PIPELINES)} (the five)")
    parser.add_argument("--choices", default=",".join(choices()), help=f"which beside auto ({','.join(choices())})")
    parser.amount("--seconds", 3.0, 0.05, "of a round")
    parser.amount("--first", FIRST, 2, "batches before anything is measured")
    parser.add_argument("--latency", type=float, default=20, metavar="MS", help="milliseconds before every answer (20)")
    return parser.parse_args()


def figures(result: Comparison) -> dict[str, Any]:
    """Samples/s of each choice, the best of the fixed ones, and how auto compares with it."""
    best = result.best(name for name in result.rates if name != "auto")
    over = ratio(result.rates["auto"], result.rates[best]) if best is not None else None
    return {"samples_per_s": result.medians(), "runs": result.rates, "best": best, "auto_over_best": over}


def shards_on_a_server(folder: Path, latency_s: float, stack: ExitStack) -> str:
    """The pictures of a folder in shards, by the address they are served at."""
    packed = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    pack(folder, packed)
    last = len(list(packed.glob("*.tar"))) - 1
    return f"{stack.enter_context(serving(packed, latency_s))}/{{000000..{last:06}}}.tar"


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    wanted, names = {"auto", *options.choices.split(",")}, options.pipelines.split(",")
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        served = shards_on_a_server(folder, options.latency / 1e3, stack) if "http" in names else ""
        for name in names:
            note(f"---- {name}")
            where = served if name == "http" else str(folder)
            entries = [
                Entry(
                    choice,
                    fed,
                    (name, where, {**GIVEN.get(name, {}), **given}, options.first),
                    1,
                    ready(name, choice, options),
                    seconds=options.seconds,
                )
                for choice, given in choices().items()
                if choice in wanted
            ]
            found[name] = figures(compare(entries, options.rounds))
    targets = {
        f"auto over the best choice, {name}": (each["auto_over_best"], ASKED, each["auto_over_best"] >= ASKED)
        for name, each in found.items()
        if each["best"] is not None
    }
    report("tuning", options, first=options.first, pipelines=found, targets=targets)


if __name__ == "__main__":
    main()

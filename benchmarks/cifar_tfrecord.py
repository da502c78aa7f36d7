"""How fast are small Examples parsed?

50,000 `tf.train.Example` records of 3 KB, as in CIFAR-10: the raw pixels of an image, and a label; in TFRecord files in the page
cache. They become batches of 512: uint8 (512, 32, 32, 3) and int64 (512). Compared with tf.data, which parses a whole batch with
one operation. ``order``: in the order of the files, so that there is nothing but reading and parsing. ``shuffled``: Stoker over
all records, tf.data in a buffer of 10,000. ``strings``: in order, images left as bytes, without `decode_raw`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import shards
import stoker
from measure import SEED, BenchmarkParser, Comparison, Entry, Take, compare, note, ratio, report, usable_cores
from ours import AHEAD_BYTES
from peers.tensorflow_data import READING, tf_examples

SIDE = 32
EXAMPLE_BYTES = SIDE * SIDE * 3
#: of tf.data's shuffle
WINDOW = 10_000
#: each with whether it is shuffled, and whether images become arrays
KINDS = {"order": (False, True), "shuffled": (True, True), "strings": (False, False)}


@contextmanager
def stoker_examples(folder: Path, batch: int, shuffled: bool, arrays: bool) -> Iterator[Take]:
    """The loader as it comes."""
    image = stoker.Feature(bytes, (SIDE, SIDE, 3), dtype="uint8") if arrays else bytes
    pipeline = stoker.tfrecord(str(folder / "*.tfrecord"), features={"image": image, "label": int})
    pipeline = pipeline.shuffle(seed=SEED) if shuffled else pipeline
    with pipeline.repeat().batch(batch).loader() as loader:
        batches = iter(loader)

        def take(count: int) -> int:
            return sum(_use(next(batches), arrays) for _ in range(count))

        yield take


def _use(batch: Any, arrays: bool) -> int:
    return shards.use_examples(batch["image"] if arrays else list(batch["image"]), batch["label"])


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    parser.amount("--records", 50_000, 2_000, "Examples")
    parser.amount("--batch", 512, 64, "Examples in a batch")
    parser.amount("--seconds", 1.0, 0.02, "of a round of one contestant")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which comparisons (default: all)")
    parser.add_argument("--peers", help="'none': Stoker alone (default: tf-data, if it is installed)")
    return parser.parse_args()


def write(folder: Path, count: int) -> None:
    """Images and labels in four files."""
    rng = np.random.default_rng(SEED)
    examples = ({"image": rng.bytes(EXAMPLE_BYTES), "label": int(rng.integers(10))} for _ in range(count))
    stoker.write_tfrecord(folder / "train-{}.tfrecord", examples, max_samples=-(-count // 4))
    shards.warm(folder)


def entries(kind: str, folder: Path, options: argparse.Namespace) -> list[Entry]:
    shuffled, arrays = KINDS[kind]
    lead = 20 if options.quick else 40 + AHEAD_BYTES // (options.batch * EXAMPLE_BYTES)
    chosen = [Entry("stoker", stoker_examples, (folder, options.batch, shuffled, arrays), 8, lead, (), options.seconds)]
    if options.peers == "none":
        return chosen
    for reading in READING:
        arguments = (folder, options.batch, WINDOW if shuffled else 0, reading, arrays)
        chosen.append(Entry(f"tf-data {reading}", tf_examples, arguments, 8, 12, ("tensorflow",), options.seconds))
    return chosen


def figures(result: Comparison) -> dict[str, Any]:
    medians = result.medians()
    best = result.best(name for name in result.rates if name != "stoker")
    return {
        "examples_per_s": medians,
        "gb_per_s": {name: rate * EXAMPLE_BYTES / 1e9 for name, rate in medians.items()},
        "best_peer": best,
        "stoker_over_best": None if best is None else ratio(result.rates["stoker"], result.rates[best]),
        "runs": result.rates,
        "peak_pss_mb": result.peaks_mb(),
        "missing": result.missing,
    }


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.records)
        found = {}
        for kind in options.kinds.split(","):
            note(f"-- {kind}")
            found[kind] = figures(compare(entries(kind, folder, options), options.rounds))
    report(
        "cifar_tfrecord",
        options,
        records=options.records,
        example_bytes=EXAMPLE_BYTES,
        batch=options.batch,
        threads=usable_cores(),
        **found,
    )


if __name__ == "__main__":
    main()

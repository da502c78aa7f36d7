"""How fast are stored records read, shuffled, as batches of bytes?

Samples of a photograph's size and of 1 KB in tar shards, TFRecord files and an LMDB, all in the page cache; nothing is decoded.
Each is compared with its usual reader: webdataset, tf.data, py-lmdb, in several settings, of which the best counts. The consumer
asks every string for its length and first byte.

The names say what it gets. ``bytes``: Python objects of its own, from all readers; the main figure. ``views``: Stoker's
`ByteStrings.views`, which show the memory that was read into, compared with tensors of tf.data that were not turned into objects;
the others have only bytes. ``global`` is a shuffle of all samples, ``window`` one of 1,000, which is all the others have, except
py-lmdb.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data
import shards
import stoker
from measure import SEED, BenchmarkParser, Comparison, Entry, Take, compare, median, missing_of, note, ratio, report, usable_cores
from ours import AHEAD_BYTES
from peers.lmdb_records import WAITING, lmdb_get, lmdb_getmulti
from peers.tensorflow_data import READING, tf_tfrecord
from peers.webdataset_tar import webdataset_tar
from stoker.source.shards.indexing import build_index
from stoker.storage.open import open_blob

PEERS = {"tar": "webdataset", "tfrecord": "tf-data", "lmdb": "py-lmdb"}
SIZES = ("110KB", "1KB")
WINDOW = 1000
WORKERS = 2
#: small batches are made together, up to so many
GROUP = 32


@contextmanager
def stoker_records(kind: str, folder: Path, batch: int, window: int | None, hand: str) -> Iterator[Take]:
    """The loader as it comes."""
    pipeline, field = _open(kind, folder)
    with pipeline.shuffle(seed=SEED, window=window).repeat().batch(batch).loader() as loader:
        if hand == "bytes":
            yield shards.consume(iter(loader), lambda batch: list(batch[field]), folder)
        else:
            yield shards.consume(iter(loader), lambda batch: batch[field].views(), folder)


def _open(kind: str, folder: Path) -> tuple[stoker.Pipeline, str]:
    if kind == "tar":
        return stoker.tar(str(folder / "*.tar")), "jpg"
    if kind == "tfrecord":
        return stoker.tfrecord(str(folder / "*.tfrecord"), features="raw"), "record"
    return (stoker.lmdb(folder / "plain.lmdb"), "value") if kind == "lmdb" else (stoker.lmdb(folder / "own.lmdb"), "jpg")


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--sizes", default=",".join(SIZES), help="which samples (default: both)")
    parser.add_argument("--formats", default=",".join(shards.FORMATS), help="which formats (default: all)")
    parser.amount("--batch", 256, 16, "samples in a batch")
    parser.add_argument("--megabytes", type=float, help="of samples in each format (400; 200 of the small ones)")
    parser.amount("--seconds", 1.5, 0.02, "of a round of one contestant")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where shards are written for the time being (default: $TMPDIR)"
    )
    parser.add_argument("--peers", help="'none': Stoker alone (default: all that are installed)")
    return parser.parse_args()


def megabytes(options: argparse.Namespace, size: str) -> float:
    if options.megabytes:
        return float(options.megabytes)
    if options.quick:
        return 4 if size == "110KB" else 0.2
    return 400 if size == "110KB" else 200


# ---- reading -----------------------------------------------------------------------------------------------------------------


def entries(kind: str, folder: Path, options: argparse.Namespace, mean: float) -> list[Entry]:
    lead = (
        3 + GROUP + int(AHEAD_BYTES / (options.batch * mean)) if mean < 20_000 else 3 + int(AHEAD_BYTES / (options.batch * mean))
    )
    lead = min(lead, 64) if options.quick else lead
    chosen = [
        Entry(f"stoker {order} {hand}", stoker_records, (kind, folder, options.batch, window, hand), 4, lead, (), options.seconds)
        for order, window in (("global", None), ("window", WINDOW))
        for hand in ("bytes", "views")
    ]
    if kind == "lmdb":
        own = ("own-lmdb", folder, options.batch, None, "bytes")
        chosen.append(Entry("stoker global bytes, with checksums", stoker_records, own, 4, lead, (), options.seconds))
    return chosen if options.peers == "none" else [*chosen, *peers(kind, folder, options)]


def peers(kind: str, folder: Path, options: argparse.Namespace) -> list[Entry]:
    batch, seconds = options.batch, options.seconds
    if kind == "tar":
        needs = (("webdataset",), ("webdataset", "torch"))
        return [
            Entry(f"webdataset {workers} workers bytes", webdataset_tar, (folder, batch, WINDOW, workers), 2, lead, need, seconds)
            for workers, lead, need in ((0, 0, needs[0]), (WORKERS, 2 * WORKERS + 1, needs[1]))
        ]
    if kind == "tfrecord":
        return [
            Entry(
                f"tf-data {reading} {hand}", tf_tfrecord, (folder, batch, WINDOW, reading, hand), 4, 12, ("tensorflow",), seconds
            )
            for reading in READING
            for hand in ("bytes", "tensors")
        ]
    return [
        Entry("py-lmdb get bytes", lmdb_get, (folder, batch, 0), 4, 0, ("lmdb",), seconds),
        Entry("py-lmdb getmulti bytes", lmdb_getmulti, (folder, batch, 0), 4, 0, ("lmdb",), seconds),
        Entry("py-lmdb get threads bytes", lmdb_get, (folder, batch, WORKERS), 4, WAITING, ("lmdb",), seconds),
    ]


def figures(kind: str, result: Comparison, mean: float) -> dict[str, Any]:
    """What came out of one format: rates, and how much faster Stoker is than the best setting of the peer."""
    medians = result.medians()
    return {
        "samples_per_s": medians,
        "gb_per_s": {name: rate * mean / 1e9 for name, rate in medians.items()},
        "against": PEERS[kind],
        "stoker_over": {hand: over(result, hand, theirs) for hand, theirs in (("bytes", "bytes"), ("views", "tensors"))},
        "runs": result.rates,
        "peak_pss_mb": result.peaks_mb(),
        "missing": result.missing,
    }


def over(result: Comparison, hand: str, theirs: str) -> dict[str, Any]:
    """Ratios to the best of the peer's settings that hands out `theirs`, or bytes where it has nothing else."""
    others = [name for name in result.rates if not name.startswith("stoker")]
    best = result.best([name for name in others if name.endswith(theirs)] or others)
    if best is None:
        return {}
    ours = {name: rates for name, rates in result.rates.items() if name.startswith("stoker") and hand in name}
    return {"best": best, **{name: ratio(rates, result.rates[best]) for name, rates in ours.items()}}


# ---- making an index ---------------------------------------------------------------------------------------------------------


def indexing(folder: Path, kinds: list[str], rounds: int) -> dict[str, Any]:
    """GB/s of one thread over one shard after the other, beside reading it alone into memory that is used again."""
    rates: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for kind in kinds[:: -1 if number % 2 else 1]:
            paths = [Path(name) for name in shards.names(folder, kind)]
            size = sum(path.stat().st_size for path in paths)
            for name, work in ((kind, _index), (f"reading {kind} alone", _read)):
                start = time.perf_counter()
                for path in paths:
                    work(path, kind)
                if number:  # the first time warms up
                    rates.setdefault(name, []).append(size / (time.perf_counter() - start) / 1e9)
    return {"gb_per_s": {name: median(values) for name, values in rates.items()}, "runs": rates, "threads": 1}


def _index(path: Path, kind: str) -> None:
    blob = open_blob(path)
    build_index(blob, kind)
    blob.close()


def _read(path: Path, kind: str) -> None:
    memory = memoryview(bytearray(1 << 21))
    with path.open("rb", buffering=0) as file:
        while file.readinto(memory):
            pass


# ---- all of it ---------------------------------------------------------------------------------------------------------------


def run(size: str, options: argparse.Namespace, formats: list[str], folder: Path) -> dict[str, Any]:
    amount = megabytes(options, size)
    payloads = shards.large(options, amount) if size == "110KB" else shards.small(amount)
    total = shards.write(payloads, folder, formats)
    shards.warm(folder)
    mean = total / payloads.count
    note(f"{payloads.count:,} samples of {mean / 1000:.1f} KB")
    found: dict[str, Any] = {"samples": payloads.count, "sample_bytes": mean, "photographs": len(payloads.photographs)}
    for kind in formats:
        note(f"-- {size} {kind}")
        found[kind] = figures(kind, compare(entries(kind, folder, options, mean), options.rounds), mean)
    if indexed := [kind for kind in formats if kind != "lmdb"]:
        found["indexing"] = indexing(folder, indexed, options.rounds)
    return found


def main() -> None:
    options = parse()
    formats = options.formats.split(",")
    if "lmdb" in formats and missing_of(["lmdb"]):
        note("LMDB: left out, lmdb cannot be imported, and nothing else writes one")
        formats.remove("lmdb")
    found = {}
    for size in options.sizes.split(","):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found[size] = run(size, options, formats, Path(folder))
    report("records", options, batch=options.batch, window=WINDOW, threads=usable_cores(), sizes=found)


if __name__ == "__main__":
    main()

"""How much of the speed of local shards is left over a network?

An epoch of JPEG images from tar shards -> RandomResizedCrop(224) -> flip -> batches of 256: shards on this machine, in the page
cache; and the same shards from a loopback server that answers every request 20 ms late: over HTTP (``http``), and as objects of
S3, from that same server (``s3-plain``) and, where it is installed, from moto (``s3``). Both shuffles, of all samples
(``global``) and of 1,000 (``window``); without a cache, with a new and empty one for every epoch (``cold``), and with a full one
(``warm``). An epoch is measured from the making of its loader to its last batch, for local shards too; shards are opened before.
``raw`` is what the server can give: all its bytes in parallel downloads, nothing done with them. `of_limit` compares with the
slower of that and local shards.

The server runs on the same cores: `work` says what it took of them, and what the loader took, per image. By that alone, and so
hardly by what else the machine does, `of_local_by_cpu` compares: the local loader's time on cores with the sum of both, and
without the server's share, as if it were elsewhere. ``--loader-cores 2`` keeps loaders to two cores, for local shards too, and
servers to the others, as if these were another machine; what the system does for a connection, it still does on either side.
With ``--server-processes`` the server is several.

Before it is measured, each loader's first batches, broken off and resumed halfway, are compared with those of local shards.

`client` compares single reads by our client with the same reads by obstore and urllib3 (clients.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import data
import shards
import stoker
from clients import compare_clients
from measure import SEED, BenchmarkParser, Comparison, Entry, available, compare, median, note, ratio, report, usable_cores
from ours import OPS
from s3_server import look_for_s3_at, serving_s3
from slow_server import BUCKET, ask_stats, serving
from stoker.storage.open import open_blob
from stoker.storage.read_ahead import BLOCKS

ORDERS = {"global": None, "window": 1000}
CACHES = ("none", "cold", "warm")
#: downloads at once, and bytes of each, of `raw`: those of the loader, for a server may take longer for other parts
DOWNLOADS, DOWNLOAD_BYTES = 16, BLOCKS[0]
#: batches at most that are compared with those of local shards
COMPARED = 16


class Epochs:
    """A `Take` that runs whole epochs; what it took, and what the server did meanwhile, goes to a file, a line each."""

    def __init__(self, source: str, window: int | None, batch: int, server: str | None, cache: str, folder: Path) -> None:
        self._source, self._window, self._batch, self._server, self._cache = source, window, batch, server, cache
        self._folder = folder
        self._numbers = itertools.count()
        self._pipeline: stoker.Pipeline | None = None
        self._kept: Path | None = None

    def ready(self) -> None:
        """Open the shards, if that was not done, or once more behind an empty cache."""
        if self._cache == "cold":
            self.close()
        if self._pipeline is not None:
            return
        cache = None
        if self._cache != "none":
            self._kept = self._folder / f"cache-{next(self._numbers)}"
            cache = stoker.Cache(self._kept, limit="50GB")
        opened = stoker.tar(self._source, cache=cache).shuffle(seed=SEED, window=self._window)
        self._pipeline = opened.image("jpg", *OPS).batch(self._batch, drop_last=False)
        if self._cache == "warm":
            self._epoch()

    def __call__(self, count: int) -> int:
        return sum(self._counted() for _ in range(count))

    def _counted(self) -> int:
        before, used_s, start = self._served(), _cpu_s(), time.perf_counter()
        rows = self._epoch()
        told = {"images": rows, "wall_s": time.perf_counter() - start, "own_cpu_s": _cpu_s() - used_s}
        after = self._served()
        told |= {name: after[name] - before[name] for name in after}
        with (self._folder / "work.jsonl").open("a") as file:
            file.write(json.dumps(told) + "\n")
        return rows

    def _served(self) -> dict[str, float]:
        return ask_stats(self._server) if self._server else {"requests": 0, "cpu_s": 0.0}

    def _epoch(self) -> int:
        assert self._pipeline is not None
        return sum(len(batch["jpg"]) for batch in self._pipeline)  # one epoch, the next one every time, and not a batch beyond

    def sums(self) -> list[int]:
        """Checksums of the first batches; half of them are of a loader that takes up the state of another."""
        assert self._pipeline is not None
        found: list[int] = []
        state = None
        for goal in (COMPARED // 2, COMPARED):
            with self._pipeline.loader() as loader:
                if state is not None:
                    loader.load_state_dict(state)
                found += [zlib.crc32(batch["jpg"]) for batch in itertools.islice(loader, goal - len(found))]
                state = loader.state_dict()
        return found

    def close(self) -> None:
        self._pipeline = None
        if self._kept is not None:
            shutil.rmtree(self._kept, ignore_errors=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def epochs(source: str, window: int | None, batch: int, server: str | None, cache: str, folder: Path) -> Iterator[Epochs]:
    folder.mkdir()
    if server is not None:
        look_for_s3_at(server)
    take = Epochs(source, window, batch, server, cache, folder)
    try:
        take.ready()
        (folder / "sums.json").write_text(json.dumps(take.sums()))
        yield take
    finally:
        take.close()


@contextmanager
def downloads(urls: list[str], images: int, server: str) -> Iterator[Any]:
    """A `Take` that downloads all shards, in as many connections as the loader has, and counts the images in them."""
    look_for_s3_at(server)
    blobs = [open_blob(url) for url in urls]
    spans = [(blob, start) for blob in blobs for start in range(0, blob.stat().size, DOWNLOAD_BYTES)]
    buffers = threading.local()

    def download(span: tuple[Any, int]) -> None:
        blob, start = span
        if not hasattr(buffers, "memory"):
            buffers.memory = memoryview(bytearray(DOWNLOAD_BYTES))
        blob.read_into(start, buffers.memory[: blob.stat().size - start])

    with ThreadPoolExecutor(DOWNLOADS) as pool:

        def take(count: int) -> int:
            for _ in range(count):
                list(pool.map(download, spans))
            return count * images

        yield take


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.amount("--samples", 4_000, 64, "images in an epoch, repeated from those there are")
    parser.add_argument(
        "--shards", type=int, default=16, help="files they are packed into (16); moto reads all of one for each part of it"
    )
    parser.amount("--batch", 256, 32, "images in a batch")
    parser.add_argument("--latency", type=float, default=20, metavar="MS", help="milliseconds before every answer (20)")
    parser.add_argument("--orders", default=",".join(ORDERS), help="which shuffles (default: both)")
    parser.add_argument("--part", choices=["all", "client", "epochs"], default="all", help="what to measure (default: all)")
    parser.add_argument("--stores", default="http,s3-plain,s3", help="from where (default: all)")
    parser.add_argument("--caches", default=",".join(CACHES), help="with which caches (default: all)")
    parser.add_argument("--loader-cores", type=int, metavar="N", help="keep loaders to N cores, servers to the others")
    parser.add_argument("--server-processes", type=int, default=1, metavar="N", help="that serve at one address (1)")
    return parser.parse_args()


def write(options: argparse.Namespace, folder: Path) -> int:
    """Pack the images, again and again, into shards; returns their bytes."""
    photographs = tuple(Path(path).read_bytes() for path in data.paths_of(data.images_of(options)))
    payloads = shards.Payloads(options.samples, photographs)
    written = stoker.write_tar(folder / "{}.tar", payloads.samples(), max_samples=-(-options.samples // options.shards))
    shards.warm(folder)
    return written.bytes


def entries(options: argparse.Namespace, folder: Path, servers: dict[str, str], private: Path) -> list[Entry]:
    last = len(shards.names(folder, "tar")) - 1
    chosen = []
    remote = {store: f"{address if store == 'http' else f's3://{BUCKET}'}/{{}}.tar" for store, address in servers.items()}
    for order in options.orders.split(","):
        window = ORDERS[order]
        local = (str(folder / "*.tar"), window, options.batch, None, "none", private / f"local-{order}")
        chosen.append(Entry(f"local {order}", epochs, local, 1))
        for store, cache in itertools.product(servers, options.caches.split(",")):
            source = remote[store].format(f"{{000000..{last:06}}}")
            arguments = (source, window, options.batch, servers[store], cache, private / f"{store}-{order}-{cache}")
            chosen.append(Entry(f"{store} {order} {cache}", epochs, arguments, 1))
    for store in servers:
        urls = [remote[store].format(f"{number:06}") for number in range(last + 1)]
        chosen.append(Entry(f"raw {store}", downloads, (urls, options.samples, servers[store]), 1))
    return chosen


def shares(result: Comparison) -> dict[str, float]:
    """The part of the local speed that each has."""
    return {
        name: ratio(rates, result.rates[f"local {name.split()[1]}"])
        for name, rates in result.rates.items()
        if not name.startswith(("local", "raw"))
    }


def shares_of_limit(result: Comparison) -> dict[str, float]:
    """The part that each has of the local speed, or of what its server can give at all, where that is less."""
    found = {}
    for name, rates in result.rates.items():
        if not name.startswith(("local", "raw")):
            store, order, _ = name.split()
            limits = zip(result.rates[f"local {order}"], result.rates[f"raw {store}"], strict=True)
            found[name] = ratio(rates, [min(both) for both in limits])
    return found


def same_as_local(private: Path) -> dict[str, bool]:
    """Whether first batches were those of local shards."""
    sums = {file.parent.name: json.loads(file.read_text()) for file in sorted(private.glob("*/sums.json"))}
    return {
        name: bool(found) and found == sums[f"local-{name.rsplit('-', 2)[1]}"]
        for name, found in sums.items()
        if not name.startswith("local")
    }


def work_of(private: Path) -> dict[str, dict[str, float]]:
    """What an epoch took, warm-up left out: requests, the server's cores, and microseconds on a core per image."""
    found = {}
    for file in sorted(private.glob("*/work.jsonl")):
        lines: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()][1:]
        found[file.parent.name] = {
            "requests_an_epoch": median(line["requests"] for line in lines),
            "server_cores": median(line["cpu_s"] / line["wall_s"] for line in lines),
            "server_us": median(line["cpu_s"] / line["images"] * 1e6 for line in lines),
            "loader_cores": median(line["own_cpu_s"] / line["wall_s"] for line in lines),
            "loader_us": median(line["own_cpu_s"] / line["images"] * 1e6 for line in lines),
        }
    return found


def shares_by_cpu(work: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The local loader's time on cores as a part of that of each, with the server's and without."""
    return {
        name: {"with_server": local / (took["loader_us"] + took["server_us"]), "without": local / took["loader_us"]}
        for name, took in work.items()
        if not name.startswith("local")
        for local in [work[f"local-{name.rsplit('-', 2)[1]}"]["loader_us"]]
    }


def measure_epochs(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder, private = Path(name) / "shards", Path(name) / "private"
        folder.mkdir()
        private.mkdir()
        size = write(options, folder)
        cores = sorted(os.sched_getaffinity(0))
        if options.loader_cores is not None:
            if not 0 < options.loader_cores < len(cores):
                raise SystemExit(f"of {len(cores)} cores, none would be left for loaders or for servers")
            os.sched_setaffinity(0, cores[options.loader_cores :])  # for servers, which are started now
        note(f"{options.samples:,} images in shards of {size / 1e6:.0f} MB together, {options.latency:g} ms before every answer")
        late_s, stores, count = options.latency / 1000, options.stores.split(","), options.server_processes
        if not available("s3", ("obstore",)):
            stores = [store for store in stores if store == "http"]
        elif "s3" in stores and not available("s3", ("moto",)):
            stores.remove("s3")
        with (
            serving(folder, late_s, count) as files,
            serving_s3(folder, late_s, count) if "s3" in stores else nullcontext("") as moto,
        ):
            os.sched_setaffinity(0, cores[: options.loader_cores])
            servers = {store: moto if store == "s3" else files for store in stores}
            result = compare(entries(options, folder, servers, private), options.rounds)
        work, same = work_of(private), same_as_local(private)
    return {
        "images": options.samples,
        "megabytes": size / 1e6,
        "latency_ms": options.latency,
        "batch": options.batch,
        "threads": usable_cores(),
        "server_processes": count,
        "cores_of_servers": len(cores) - (options.loader_cores or 0),
        "images_per_s": result.medians(),
        "of_local": shares(result),
        "of_limit": shares_of_limit(result),
        "same_as_local": same,
        "of_local_by_cpu": shares_by_cpu(work),
        "runs": result.rates,
        "work": work,
        "peak_pss_mb": result.peaks_mb(),
    }


def main() -> None:
    options = parse()
    client = compare_clients(options.rounds, options.quick) if options.part != "epochs" else None
    report("remote", options, client=client, **(measure_epochs(options) if options.part != "client" else {}))


if __name__ == "__main__":
    main()

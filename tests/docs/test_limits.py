"""The page of limits says what the code does: its numbers are compared with the constants, row by row."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import re
import resource

import pytest

from stoker import Cache, Patience, Pipeline, faults, write_tar
from stoker.cli.serve import serve
from stoker.cli.tar.tables import MAX_CELL
from stoker.device import device_decode, torch_dataset
from stoker.engine import auto_policy as policy
from stoker.engine import daemons, executor, preflight, supervisor
from stoker.engine.auto_policy import MOST_THREADS
from stoker.errors import message_of
from stoker.image import AutoAugment, RandAugment, checks, colour, limits, npy
from stoker.image import batch_mixing as mixing
from stoker.image import normalize as output
from stoker.kernel import file_reads as files
from stoker.kernel import native
from stoker.loader import build, decode_place, front, look_ahead, slow_rows, thread_count
from stoker.observe import loader_view, page_data, page_server, tensorboard_log, trace_events
from stoker.observe.meters import Meters
from stoker.pack.values import example
from stoker.pack.writers import lmdb_writer as lmdb
from stoker.pack.writers import tar_writer as tar
from stoker.plan import cursor, order
from stoker.plan.mix_pattern import MAX_PATTERN
from stoker.remote import frames, listening_port, parcel_ledger, pool_service, remote_executor
from stoker.source.files import csv_table, lines, xml
from stoker.source.shards import codecs, indexing, sidecar
from stoker.source.shards import shard_index as index
from stoker.source.shards import shard_source as shards
from stoker.source.streams import seen_keys, unpack
from stoker.source.streams import tfrecord_stream as tfrecordstream
from stoker.stage import io_retries
from stoker.storage import cache, connections, http, local, open_files, reply, sample_cache, text_files
from stoker.storage.blob import Blob
from stoker.storage.cache_blob import CachedBlob

from ..loader.runs import ROOT
from .test_docs import DOCS

PAGE = (DOCS / "reference" / "limits.md").read_text(encoding="utf-8")
NATIVE = ROOT / "native"
PATIENCE = {field.name: field.default for field in dataclasses.fields(Patience)}


def default(function: object, name: str) -> object:
    return inspect.signature(function).parameters[name].default  # type: ignore[arg-type]


ROWS = {
    "pixels of an image (`max_pixels`)": f"{limits.MAX_PIXELS:,}",
    "pixels of an image that operations make": f"{limits.MAX_PIXELS:,}",
    "scans of a JPEG": f"{limits.MAX_SCANS}",
    "side of an image operation's `size`": f"{checks.MAX_SIDE:,}",
    "longer side after `Resize(n)`": f"below {checks.MAX_SIDE + 1:,}",
    "`mean` and `std` of `Normalize`": f"-{output.MOST} to {output.MOST}; {output.LEAST_STD:f} to {output.MOST}",
    "operations in an image stage": f"{native.MAX_OPS}, ",
    "classes of `MixUp` and `CutMix`": f"{mixing._MOST_CLASSES:,}",
    "header of an `npy` image": f"{npy._MOST_HEADER:,} bytes",
    "bytes of an XML annotation": f"{xml.MAX_BYTES:,}",
    "depth of its tags": f"{xml.MAX_DEPTH}",
    "objects in it": f"{xml.MAX_OBJECTS:,}",
    "coordinate of a box": f"below {xml._FAR:g}".replace("+", ""),
    "bytes of a sample's file (`MAX_FILE_BYTES`)": f"{files.MAX_FILE_BYTES >> 30} GiB",
    "bytes of a list of files": f"{lines.MAX_BYTES >> 30} GiB",
    "bytes of a CSV table": f"{csv_table.MAX_BYTES >> 30} GiB",
    "shards of a source": f"{shards.MAX_SHARDS:,}",
    "different fields in a tar shard": f"{tar.MAX_FIELDS}",
    "name of a tar member": f"{tar.MAX_NAME >> 10} KiB",
    "array in an `npy` field": f"{codecs.MAX_ARRAY_BYTES >> 30} GiB",
    "a gzip, zlib or zstd shard unpacks to": f"{unpack.MAX_RATIO['gzip']:,} times its size "
    f"plus {unpack.FREE_BYTES['gzip'] >> 20} MiB (zstd: {unpack.MAX_RATIO['zstd']:,} times "
    f"plus {unpack.FREE_BYTES['zstd'] >> 20} MiB)",
    "a member of a tar that is read in sequence": f"{unpack.MAX_MEMBER >> 30} GiB",
    "a record of a plain TFRecord file": f"{tfrecordstream.MAX_RECORD >> 30} GiB",
    "samples of a tar whose keys are compared": f"{seen_keys.MOST:,} per shard",
    "index file without its seek indices": f"{index.MAX_BYTES >> 30} GiB, and {index._BYTES_PER_BYTE} bytes for each byte",
    "`.seek.stk` of a folder": f"{sidecar._FREE_BYTES >> 20} MiB, or {sidecar._BYTES_PER_FILE >> 10} KiB for each file",
    "header of an index file": f"{index.MAX_HEADER >> 20} MiB",
    "waiting for another process that makes the same index": f"{indexing._LOCK_S:g} s",
    "pattern of `mix`": f"{MAX_PATTERN:,} places",
    "key of an LMDB": f"{lmdb._MAX_KEY} bytes",
    "records of an LMDB": f"{lmdb._MAX_RECORDS:,}",
    "cell of a plan for `stoker tar create`": f"{MAX_CELL >> 20} MiB",
    "a read that makes no progress": f"{PATIENCE['budget_s']:g} s",
    "redirects": f"{http.MOST_REDIRECTS}",
    "headers of an answer": f"{reply.MOST_HEADER_BYTES >> 10} KiB",
    "interim answers": f"{reply.MOST_INTERIM}",
    "rest of an unneeded response": f"{reply._DRAIN_BYTES >> 10} KiB",
    "gap that is read": f"{local.LocalBlob.gap >> 10} KiB local, {CachedBlob.gap >> 10} KiB cached, {Blob.gap >> 10} KiB remote",
    "bytes of the cache": str(default(Cache.__init__, "limit")).replace("GB", " GB"),
    "damaged copies of one entry": f"{cache._MOST_DAMAGED}",
    "waiting for an entry another process fetches": f"{cache._WAIT_S:g} s",
    "pause after a cache disk failed": f"{cache._REST_S:g} s",
    "waiting for a file descriptor": f"{open_files.WAIT_S:g} s",
    "idle connections per host": f"{connections._MOST_IDLE} for {connections._IDLE_S:g} s",
    "samples in an order": f"2^{order.MAX_LENGTH.bit_length() - 1}",
    "epochs": f"2^{cursor.MOST_EPOCHS.bit_length() - 1}",
    "bad samples of a window that a state remembers": f"the latest {cursor.MOST_RECENT:,}",
    "retrying input and output": f"{io_retries._TOTAL_S:g} s; pauses of {io_retries._FIRST_S:g} to {io_retries._LONGEST_S:g} s",
    "traceback in a line": f"{faults._MOST_TRACE:,} characters",
    "quarantine file that is searched": f"{text_files._TAIL >> 20} MiB",
    "worker threads": f"{thread_count._WAITING} more for remote shards; up to {MOST_THREADS} where tasks",
    "descriptors": f"{preflight._FILES_PER_WORKER} for each worker process, and {preflight._FILES_SPARE} to spare",
    "processes and threads": f"{preflight._THREADS_BESIDE} threads besides those that work",
    "memory of a container": f"{preflight.WORKER_BYTES // 10**6} MB for each worker process",
    "threads that fetch ahead": f"{look_ahead._CACHE_THREADS} through a cache, {look_ahead._BLOCK_THREADS} into memory",
    "bytes in flight": str(default(Pipeline.loader, "memory")).replace("GB", " GB"),
    "batches in flight": f"about {build._AHEAD_BYTES >> 20} MB worth: at most {build._AHEAD_MOST} units",
    "memory of a GPU for decoding": f"{decode_place.DEVICE_MEMORY.replace('GB', ' GB')}, shared equally by six loads, "
    f"or by fewer of at least {device_decode.LEAST_BYTES // 10**6} MB each; in addition pinned memory, "
    f"an eighth of a load's share, {device_decode._LEAST_PINNED >> 20} to {device_decode._MOST_PINNED >> 20} MiB",
    "pictures that a worker sends to a GPU": f"{device_decode._PICTURES}",
    "small batches made together": f"up to {build._GROUP_BYTES >> 20} MiB and {build._GROUP_MOST} of them",
    "samples made together, without `batch`": f"{build._SAMPLES}",
    "time without any progress": f"{default(Pipeline.loader, 'watchdog_s'):g} s",
    "worker processes that one sample may end": f"{executor.POISON // executor.CRASHED}; or "
    f"{executor.POISON // executor.KILLED} that were killed",
    "remote workers": f"{remote_executor._MOST_WORKERS:,}; each owes results of at most {parcel_ledger.OWED_BYTES // 10**6} MB",
    "processes of `stoker worker`": f"{supervisor._MOST_IDLE}; before the third it waits {supervisor._PAUSE_S:g} s, then longer "
    f"each time, at most {supervisor._LONGEST_S:g} s",
    "silence of a remote worker": f"{remote_executor.BeatTimes().silent_s:g} s",
    "trainers of a pool": f"{pool_service._MOST_TRAINERS}; rows that are kept for others "
    f"{inspect.signature(serve).parameters['memory'].default.replace('GB', ' GB')}",
    "silence of a trainer": f"{pool_service._SILENT_S:g} s; at the start a pool may take {remote_executor._POOL_S:g} s",
    "time for a new connection": f"{listening_port._HANDSHAKE_MS // 1000} s",
    "a message of a remote worker": f"header {frames.MAX_HEADER >> 20} MiB, each of {frames.MAX_BUFFERS:,} buffers "
    f"{frames.MAX_BUFFER >> 20} MiB; 2^{frames.MAX_ROWS.bit_length() - 1} rows, {frames.MAX_COLUMNS} columns, "
    f"{frames.MAX_DIMENSIONS} dimensions",
    "samples of a stream pulled ahead": f"of {front.ROWS}",
    "tasks and waits kept for `trace`": f"{Meters.MOST_SPANS:,}",
    "file of `observe.trace`": str(default(trace_events.trace, "most")).replace("GB", " GB"),
    "events of it that are buffered": f"{trace_events._NOTED:,}, and {trace_events._HELD_S:g} s",
    "timeline of `observe.tensorboard`": f"{default(tensorboard_log.tensorboard, 'trace_s'):g} s, and "
    f"{tensorboard_log._MOST_TRACE >> 20} MiB",
    "connections to a page of `observe.watch` or `observe.prometheus`": (
        f"{page_server._CONNECTIONS}, silent for {page_server._SILENT_S:g} s each"
    ),
    "timeline on that page": f"the last {page_data._SECONDS:g} s, and {loader_view._TASKS} tasks",
    "workers of a torch DataLoader": f"{torch_dataset._MOST_WORKERS:,}",
}


def native_number(file: str, name: str) -> int:
    """What a constant of the kernel is, as its source says: a number, or a power of two."""
    text = (NATIVE / file).read_text(encoding="utf-8")
    found = re.search(rf"{name}(?: =)? \(?(\d+)(?: << (\d+))?\)?", text)
    assert found, f"{name} is not in {file}"
    return int(found[1]) << int(found[2] or 0)


ROWS |= {
    "columns of samples": f"{native_number('../src/stoker/device/kernels/device_picture.h', 'STK_DEVICE_COLUMNS'):,}",
    "side of a padded image": f"below {native_number('src/internal.h', 'STK_MAX_SIDE'):,}",
    "a cell of it": f"{csv.field_size_limit():,} characters",
    "PAX header": f"{native_number('include/stoker.h', 'STK_TAR_MAX_PAX') >> 20} MiB",
    "digits of a `cls`": f"{codecs.MAX_DIGITS} characters",
    "page, depth of an LMDB file": f"{native_number('src/lmdb.c', 'LEAST_PAGE')} bytes to "
    f"{native_number('src/lmdb.c', 'LARGEST_PAGE') >> 10} KiB, {native_number('src/lmdb.c', 'MOST_DEPTH')}",
    "bytes of a shard": str(default(write_tar, "max_bytes")).replace("GB", " GB"),
    "a record of Examples": f"{example._MAX_BYTES + 1 >> 30} GiB - 1",
    "rows of a state": f"2^{default(cursor._count, 'most').bit_length() - 1}",  # type: ignore[attr-defined]
    "closing, and the end of the program": f"about {daemons._EXIT_S:g} s; at the end of the program up to {daemons._BUSY_S:g} s",
    "length of a function's message": f"{default(message_of, 'limit')} characters",
}
#: what is so by the nature of the thing, or said by two rows at once, or of another library
NOT_OURS = ("label that is an integer", "window of zstd", "open shards")


def test_every_row_with_a_number_is_compared_with_the_code() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and re.search(r"\d", line.split("|")[2])]
    known = (*ROWS, *NOT_OURS)
    assert [row for row in rows if not row.startswith(tuple(f"| {name}" for name in known))] == []


@pytest.mark.parametrize("row", ROWS)
def test_a_number_on_the_page_is_the_codes(row: str) -> None:
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    assert ROWS[row] in line.split("|")[2], line


#: what the page of operations says of their ranges
RANGES = (
    f"(height, width), from 1 to {checks.MAX_SIDE:,}",
    f"`kernel_size` is odd, up to {colour.MAX_KERNEL}",
    f"factors go up to {checks.MAX_FACTOR}.",
    f"an image made more than {native_number('src/warp.c', 'MAX_STEP'):,} times smaller",
    f"up to {native.MAX_OPS} in a stage",
    f"`n` times one of {len(RandAugment().choices())} effects",
    f"one of {len(AutoAugment().choices())} learned pairs",
)


@pytest.mark.parametrize("words", RANGES)
def test_the_ranges_of_operations_on_their_page_are_the_codes(words: str) -> None:
    assert words in " ".join((DOCS / "reference" / "image.md").read_text(encoding="utf-8").split())


#: what other pages say in passing
IN_PROSE = {
    "reference/loader.md": (
        f"the loop waits for less than {policy._CALM * 100:g} % of its time",
        f"changes by a factor of {policy._CHANGED:g}",
        f"steps take at least {policy._IN_THE_WAY * 100:g} % longer",
        f"the work moves to a feeder (on {policy._FEEDER_CORES} cores or more)",
        f"it has {slow_rows._TIMES_STORED:g} times the usual bytes",
        f"as long as usual and {slow_rows._LITTLE * 1000:g} ms",
    ),
    "reference/storage.md": (
        f"fetched ahead by up to {look_ahead._CACHE_THREADS} threads",
        f"each gets {connections._LEAST_CONNECT_S:g} s while it lasts",
    ),
    "explanation/engine.md": (f"up to {look_ahead._CACHE_THREADS} threads fetch",),
    "howto/cache.md": (f"Samples smaller than {sample_cache._ALONE >> 10} kB are never dropped",),
    "howto/bad-samples.md": (
        f"grow from {io_retries._FIRST_S:g} s to {io_retries._LONGEST_S:g} s",
        f"tried for at most {io_retries._TOTAL_S:g} s in total",
        f"at most {faults._MOST_TRACE:,} characters",
    ),
    "howto/mix.md": (f"longer than {MAX_PATTERN:,} positions",),
}


@pytest.mark.parametrize("page", IN_PROSE)
def test_numbers_that_other_pages_mention_are_the_codes(page: str) -> None:
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert [words for words in IN_PROSE[page] if words not in text] == []


def test_operations_allow_what_the_kernel_allows() -> None:
    assert native_number("src/internal.h", "STK_MAX_SIDE") == checks.MAX_SIDE + 1
    assert native_number("src/colour.c", "MOST_FACTOR") == checks.MAX_FACTOR
    assert native_number("src/colour.c", "MOST_SIDE") == colour.MAX_KERNEL
    assert tuple(native_number("include/stoker.h", name) for name in ("STK_MAX_OPS", "STK_MAX_PARAMS")) == (
        native.MAX_OPS,
        native.MAX_PARAMS,
    )


def test_the_promises_of_security_are_the_codes() -> None:
    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    ratio = unpack.MAX_RATIO
    assert f"(gzip and zlib {ratio['gzip']:,} times, zstd {ratio['zstd']:,} times)" in text and ratio["gzip"] == ratio["zlib"]


def test_as_many_shards_are_open_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert f"| open shards | {open_files._most_open():,}," in PAGE
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert open_files._most_open() == 1024 // 4

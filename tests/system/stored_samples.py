"""The same few samples in every kind of source, each with the list of what it holds."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import Pipeline

from .naive_oracle import Row

#: kinds of which there is one data set, and its samples; of all other kinds any number can be had
SIZES = {
    "tar": 29,
    "tar, index made": 13,
    "tar in sequence": 21,
    "tar, interleaved": 22,
    "tar.gz": 11,
    "tfrecord": 26,
    "tfrecord.gz": 17,
    "lmdb": 19,
    "files": 8,
}
#: kinds that live in memory
IN_MEMORY = ("arrays", "table", "stream")
KINDS = (*IN_MEMORY, *SIZES)
#: samples of a shard
PER_SHARD = 8


def number_of(kind: str, at: int) -> int:
    """The x of a sample: no two sources have one in common."""
    return 200 * KINDS.index(kind) + at


def text_of(kind: str, at: int) -> str:
    return f"{kind} {at}" * (at % 3)


def bytes_of(kind: str, at: int) -> bytes:
    return f"{kind}/{at}".encode() * (at % 4)


def streamed(n: int) -> Iterator[dict[str, Any]]:
    for at in range(n):
        yield {"__key__": f"s{at}", "x": number_of("stream", at), "t": text_of("stream", at)}


class Shelf:
    """Sources by kind and number of samples; files are written to `folder` when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open = cache(self._open)
        self.rows = cache(self._rows)

    def _rows(self, kind: str, n: int) -> list[Row]:
        """What a source holds, in its order; nobody may change them."""
        order = list(range(n))
        if kind == "tar, interleaved":  # a sample of each shard in turn
            order = sorted(order, key=lambda at: (at % PER_SHARD, at // PER_SHARD))
        return [Row(self._key(kind, at), index, self._values(kind, at)) for index, at in enumerate(order)]

    def _key(self, kind: str, at: int) -> str:
        if kind in ("arrays", "table"):
            return str(at)
        if kind == "files":
            return str(self._file(at))
        if kind.startswith("tfrecord"):
            return f"{self._shard(kind, at // PER_SHARD).name}#{at % PER_SHARD}"
        return f"s{at}" if kind == "stream" else f"k{at:04d}"

    def _values(self, kind: str, at: int) -> dict[str, Any]:
        x, t, b = number_of(kind, at), text_of(kind, at), bytes_of(kind, at)
        if kind == "arrays":
            return {"x": x, "v": [x / 2, -1.0]}
        if kind == "files":
            return {"b": b, "x": x}
        return {"x": x, "t": t, "b": b} if kind.startswith("tar") else {"x": x, "t": t}

    def _open(self, kind: str, n: int) -> Pipeline:
        x = [number_of(kind, at) for at in range(n)]
        if kind == "arrays":
            return stoker.arrays(x=np.array(x), v=np.array([[value / 2, -1] for value in x], np.float32))
        if kind == "table":
            return stoker.table({"x": x, "t": [text_of(kind, at) for at in range(n)]})
        if kind == "stream":
            return stoker.stream(partial(streamed, n))
        assert n == SIZES[kind]
        if kind == "files":
            paths = [self._file(at) for at in range(n)]
            for at, path in enumerate(paths):
                path.write_bytes(bytes_of(kind, at))
            return stoker.files(paths, labels=x).rename(b="image", x="label")
        samples = [{"__key__": self._key(kind, at), **self._values(kind, at)} for at in range(n)]
        if kind == "lmdb":
            stoker.write_lmdb(self.folder / "samples.lmdb", samples)
            return stoker.lmdb(self.folder / "samples.lmdb").select("x", "t")
        return self._tar(kind, samples) if kind.startswith("tar") else self._tfrecord(kind, samples)

    def _file(self, at: int) -> Path:
        return self.folder / f"{at}.bin"

    def _shard(self, kind: str, number: int) -> Path:
        stem, ending = kind.replace(",", "").replace(" ", "-").split(".")[0], "tar" if kind.startswith("tar") else "tfrecord"
        return self.folder / f"{stem}-{number:03d}.{ending}{'.gz' if kind.endswith('.gz') else ''}"

    def _packed(self, kind: str, plain: list[Path]) -> list[Path]:
        paths = [self._shard(kind, number) for number in range(len(plain))]
        for path, unpacked in zip(paths, plain):
            path.write_bytes(gzip.compress(unpacked.read_bytes()) if kind.endswith(".gz") else unpacked.read_bytes())
        return paths

    def _tar(self, kind: str, samples: list[dict[str, Any]]) -> Pipeline:
        stored = ({"__key__": s["__key__"], "cls": s["x"], "txt": s["t"], "bin": s["b"]} for s in samples)
        written = stoker.write_tar(self.folder / f"{kind} {{:03d}}.tar", stored, max_samples=PER_SHARD)
        options = {
            "tar in sequence": {"index": "never"},
            "tar, interleaved": {"index": "never", "interleave": len(written.paths)},
        }.get(kind, {})
        # The index stays beside the shards that are only read by it; copies have none.
        paths = list(written.paths) if kind == "tar" else self._packed(kind, [Path(path) for path in written.paths])
        return stoker.tar(paths, **options).rename(x="cls", t="txt", b="bin").select("x", "t", "b")

    def _tfrecord(self, kind: str, samples: list[dict[str, Any]]) -> Pipeline:
        pattern = self.folder / ("tfrecord-{:03d}.tfrecord" if kind == "tfrecord" else "plain-{:03d}.tfrecord")
        written = stoker.write_tfrecord(pattern, [{"x": s["x"], "t": s["t"]} for s in samples], max_samples=PER_SHARD)
        paths = list(written.paths) if kind == "tfrecord" else self._packed(kind, [Path(path) for path in written.paths])
        return stoker.tfrecord(paths, features={"x": int, "t": str})

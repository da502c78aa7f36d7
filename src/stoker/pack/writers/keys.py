"""Keys for samples of any origin, such that a tar can hold them and no two are equal."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from ...source.files.filelist import FilelistSource
from ...source.files.labelled_files import LabelledFiles
from ...source.files.lines import split_number
from ...source.files.walk import is_image
from ...source.shards.lmdb_source import LmdbSource
from ...source.shards.record_source import RecordSource
from ...source.source import Source

KeyOf = Callable[[int], bytes]
#: keys between two reports of how far it is
_OFTEN = 4096


def safe_key(key: bytes) -> bytes:
    """A key that stays in its folder when unpacked, and that no reader splits at a dot; keys that are safe already do not change.

    >>> safe_key(b"cat/1"), safe_key(b"../cat//a.b"), safe_key(b"")
    (b'cat/1', b'__/cat/a_b', b'_')
    """
    parts = [b"__" if part == b".." else part for part in key.split(b"/") if part not in (b"", b".")] or [b"_"]
    parts[-1] = parts[-1].replace(b".", b"_")
    return b"/".join(parts).replace(b"\0", b"_").replace(b"\n", b"_")


def key_reader(source: Source) -> KeyOf:
    """How the samples of a source are called when they are stored elsewhere.

    A file by its path without the extension; a record by its own key; one that has none by its number.
    """
    if isinstance(source, LabelledFiles):
        return _of_files(source)
    if not isinstance(source, RecordSource) or any(index.keys is None for index in source.indexes):
        return lambda index: b"%09d" % index
    numbered = isinstance(source, LmdbSource) and _is_numbered(source)

    def key(index: int) -> bytes:
        name = source.stored_key(index)
        assert name is not None
        return name[_NUMBER:] if numbered else name

    return key


class UniqueKeys:
    """Safe keys of all samples, the later of two equal ones with a number at its end: ``a/x``, ``a/x-2``.

    Only hashes of the keys are held, and the keys that had to be changed: the others are made again when they are asked for.
    """

    def __init__(self, count: int, key: KeyOf, looking: Callable[[int], None] = lambda done: None) -> None:
        self._key = key
        hashes, self.lengths = np.empty(count, np.uint64), np.empty(count, np.int64)
        self.plain = np.ones(count, np.bool_)  # whether a key is ASCII, as short names in a tar have to be
        for index in range(count):
            if not index % _OFTEN:
                looking(index)
            name = safe_key(key(index))
            hashes[index], self.lengths[index], self.plain[index] = _hash(name), len(name), name.isascii()
        self._changed = self._settle(hashes)

    def __getitem__(self, index: int) -> bytes:
        return self._changed.get(index) or safe_key(self._key(index))

    @property
    def changed(self) -> int:
        """How many keys have a number at the end because another sample has the same."""
        return len(self._changed)

    @property
    def example(self) -> bytes:
        """One of them."""
        return next(iter(self._changed.values()))

    def _settle(self, hashes: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> dict[int, bytes]:
        order = np.sort(hashes)
        twice = np.unique(order[1:][order[1:] == order[:-1]])
        if not len(twice):
            return {}
        groups: dict[bytes, list[int]] = defaultdict(list)
        for index in np.flatnonzero(np.isin(hashes, twice)).tolist():
            groups[safe_key(self._key(index))].append(index)
        changed: dict[int, bytes] = {}
        taken: set[int] = set()
        for name, indices in groups.items():
            number = 2
            for index in indices[1:]:
                while (made := _hash(name + b"-%d" % number)) in taken or _holds(order, made):
                    number += 1
                taken.add(made)
                changed[index] = name + b"-%d" % number
        return changed


#: digits and dash that `write_lmdb` puts in front of keys that do not ascend
_NUMBER = 9


def _is_numbered(source: LmdbSource) -> bool:
    """Whether `write_lmdb` put numbers in front of the keys: it does so with all of them or with none."""
    keys = source.indexes[0].keys
    assert keys is not None
    rows = {0, len(keys) // 2, len(keys) - 1}
    return all(keys[row].startswith(b"%08d-" % row) and len(keys[row]) > _NUMBER for row in rows)


def _of_files(source: LabelledFiles) -> KeyOf:
    listed = isinstance(source, FilelistSource)

    def key(index: int) -> bytes:
        name = source.key(index).encode("utf-8", "surrogateescape")
        if listed:
            name = split_number(name)[0]
        return name[: name.rfind(b".")] if is_image(name) else name

    return key


def _hash(name: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


def _holds(order: np.ndarray[tuple[int], np.dtype[np.uint64]], value: int) -> bool:
    at = int(np.searchsorted(order, np.uint64(value)))
    return at < len(order) and int(order[at]) == value

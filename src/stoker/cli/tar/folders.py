"""A sample as the files of a folder, and the files of a folder as samples again.

No file name comes from the data unchecked. Files are called ``sample.FIELD``; in FIELD only letters, digits, ``.``, ``_`` and
``-`` are kept, and a table remembers the original.
"""
# pathlib takes no bytes, so
# ruff: noqa: PTH208

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping

from ...errors import ConfigError, FunctionError
from ...source.files.plain_file import read_plain
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ...source.streams.unpack import MAX_MEMBER

#: the placeholder for the key in names of files
BASE = b"sample"
#: holds the key itself; has no dot, so it is no field
KEY_FILE = "__key__"
_MOST = 100


def lay_out(folder: str, sample: TarSample, fields: Iterable[str]) -> dict[bytes, str]:
    """Write a sample's fields as files; returns the table of FIELD in the files' names to the fields they are."""
    table: dict[bytes, str] = {}
    _write(f"{folder}/{KEY_FILE}", sample.key)
    for field in fields:
        name = safe_name(field, table)
        table[name.encode()] = field
        _write(f"{folder}/{BASE.decode()}.{name}", sample.fields[field])
    return table


def safe_name(field: str, taken: Mapping[bytes, object]) -> str:
    """A field's name as part of a file's name, different from those that are taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", field)[:_MOST]
    name, number = plain, 1
    while name.encode() in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def collect(folder: str, sample: TarSample, table: Mapping[bytes, str]) -> list[TarSample]:
    """The samples that a folder holds.

    ``sample.FIELD`` are the fields of the sample itself, ``sampleMORE.FIELD`` those of another whose key has MORE at its end.
    Other files and folders are ignored. Fields come in the order they had, then new ones by name.
    """
    found: dict[bytes, dict[str, bytes]] = {}
    order = {field: number for number, field in enumerate(sample.fields)}
    for name in sorted(os.listdir(os.fsencode(folder))):
        base, _, part = name.partition(b".")
        if not base.startswith(BASE) or not part:
            continue
        data = _read(os.fsencode(folder) + b"/" + name, printable(name), sample)
        if data is not None:
            found.setdefault(base[len(BASE) :], {})[table.get(part) or printable(part.lower())] = data
    return [
        TarSample(sample.key + more, dict(sorted(fields.items(), key=lambda pair: (order.get(pair[0], len(order)), pair[0]))), 0)
        for more, fields in sorted(found.items())
    ]


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _read(path: bytes, shown: str, sample: TarSample) -> bytes | None:
    """The content of a plain file; None of a folder. A link might lead anywhere, so it is refused."""
    key = printable(sample.key)
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            return None
        if not stat.S_ISREG(mode):
            raise FunctionError(
                f"the sample {key}: the command made {shown}, which is not a regular file; copy its target instead", key=key
            )
        return read_plain(path, MAX_MEMBER, os.O_NOFOLLOW)
    except ConfigError as error:
        raise FunctionError(f"the sample {key}: {error}", key=key) from error
    except OSError as error:
        raise FunctionError(
            f"the sample {key}: {shown}, which the command made, cannot be read: {error.strerror}", key=key
        ) from error

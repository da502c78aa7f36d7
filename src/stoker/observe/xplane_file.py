"""A trace as TensorBoard's profile plugin reads it: an XSpace, a protocol buffer.

No package provides its messages for import, so the few fields that a timeline needs are written here: a plane for the host, a
line for every row, an event for every slice. Older versions of the plugin (2.13) read the Chrome trace itself.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from ..storage.text_files import write_whole

#: the plane whose lines the plugin shows as threads of a host
_HOST = "/host:CPU"


def write_xplane(trace: Path, path: Path) -> None:
    """Write the slices of a packed Chrome trace of ours as an XSpace; the file appears whole or not at all."""
    names: dict[tuple[int, int], str] = {}  # of rows
    rows: dict[tuple[int, int], list[bytes]] = {}
    kinds: dict[str, int] = {}
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        for line in lines:  # one for each event, so that not all of them are in memory
            if not line.startswith('{"ph"'):
                continue
            event = json.loads(line.rstrip().rstrip(","))
            row = event["pid"], event.get("tid", 0)
            if event["ph"] == "X":
                kind = kinds.setdefault(event["name"], len(kinds) + 1)
                slice_ = _number(1, kind) + _number(2, event["ts"] * 1_000_000) + _number(3, event["dur"] * 1_000_000)
                rows.setdefault(row, []).append(_message(4, slice_))
            elif event["name"] == "thread_name":
                names[row] = event["args"]["name"]
    plane = [_text(2, _HOST)]
    for number, row in enumerate(sorted(rows), 1):
        plane.append(_message(3, _number(1, number) + _text(2, names.get(row, "")) + b"".join(rows[row])))
    for name, kind in kinds.items():
        plane.append(_message(4, _number(1, kind) + _message(2, _number(1, kind) + _text(2, name))))
    write_whole(path, _message(1, b"".join(plane)))


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8", "backslashreplace"))

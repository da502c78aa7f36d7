"""`stoker tar show`: the samples of shards, as a table or as JSON."""

from __future__ import annotations

import json as json_text
import os
import shutil
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

import typer

from ...sizes import counted, show_bytes
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ..screen import AsJson, amount
from .inputs import Shards, samples_of, shard_names

#: rows that are laid out together, so that columns line up and memory stays small
_ROWS = 64
#: characters of content where the output is no terminal
_WIDTH = 120
#: bytes looked at to tell what a field holds
_LOOK = 1024
_KINDS = {
    b"\xff\xd8\xff": "JPEG image", b"\x89PNG": "PNG image", b"GIF8": "GIF image", b"RIFF": "RIFF (WebP, WAV)", b"%PDF": "PDF",
    b"\x93NUMPY": "NumPy array", b"PK\x03\x04": "zip archive", b"\x1f\x8b": "gzip data", b"\x28\xb5\x2f\xfd": "zstd data",
    b"OggS": "Ogg audio", b"fLaC": "FLAC audio",
}  # fmt: skip
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def show(
    shards: Shards = None,
    count: Annotated[int, amount("Number of samples; 0: all.", "-n", "-c", "--count", least=0)] = 10,
    json: AsJson = False,
) -> None:
    """List samples: key, fields, sizes, and the start of text.

    One row per field; the rows of a sample are adjacent. Bytes of a name that are not text are written as `\\xNN`.

    Example: `stoker tar show train-0000.tar -n 3`
    """
    samples = islice(samples_of(shard_names(shards)), count or None)
    shown = _print_json(samples) if json else print_table(samples)
    if not json and count and shown == count:
        typer.echo(f"the first {counted(shown, 'sample')}; -n 0 shows all", err=True)


def print_table(samples: Iterable[TarSample]) -> int:
    """Samples as text; returns how many."""
    shown, width = 0, _width()
    print_head = True
    samples = iter(samples)
    while rows := list(islice(samples, _ROWS)):
        shown += len(rows)
        keys = [printable(sample.key) for sample in rows]
        names = max(5, *(len(name) for sample in rows for name in sample.fields))
        key_width = max(3, *map(len, keys))
        if print_head:
            _line(f"{'key':<{key_width}}  {'field':<{names}}  {'size':>9}  content")
            print_head = False
        for key, sample in zip(keys, rows):
            for field, data in sample.fields.items():
                begin = f"{key:<{key_width}}  {field:<{names}}  {show_bytes(len(data)):>9}  "
                _line(begin + content(data, max(16, width - len(begin))))
                key = ""
    return shown


def _print_json(samples: Iterable[TarSample]) -> int:
    """One JSON object, written as the samples come."""
    sys.stdout.write('{"samples": [')
    shown = 0
    for shown, sample in enumerate(samples, 1):
        sys.stdout.write(("," if shown > 1 else "") + "\n  " + json_text.dumps(_facts(sample)))
    sys.stdout.write("\n]}\n")
    return shown


def _facts(sample: TarSample) -> dict[str, Any]:
    fields = {}
    for name, data in sample.fields.items():
        text = _text(data)
        fields[name] = {"bytes": len(data)} if text is None else {"bytes": len(data), "text": text[:200]}
    return {"key": printable(sample.key), "fields": fields}


def content(data: bytes, width: int) -> str:
    """What a field holds, in a line: the beginning of a text, or the kind of thing it is."""
    text = _text(data)
    if text is None:
        kind = next((kind for magic, kind in _KINDS.items() if data.startswith(magic)), "binary")
        return f"({kind})"
    line = "".join(_ESCAPES.get(character, character) for character in text[:width]) if text else "(empty)"
    return line if len(text) <= width and len(line) <= width else line[: width - 1] + "…"


def _text(data: bytes) -> str | None:
    """The beginning of a text; None if it is not text."""
    begin = data[:_LOOK]
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(data) <= _LOOK or error.start < _LOOK - 4:
            return None
        text = begin[: error.start].decode("utf-8")  # a character was cut
    return text if all(character.isprintable() or character in "\t\n\r" for character in text) else None


def _line(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH

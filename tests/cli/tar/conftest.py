"""`stoker tar`, as tests call it: in this process, or as the programs of a real pipe."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.main import app

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
STOKER = [sys.executable, "-m", "stoker.cli.main"]

#: key and fields, in order
Samples = list[tuple[bytes, dict[str, bytes]]]


@dataclass
class Done:
    code: int
    out: bytes
    err: str


@pytest.fixture
def tar(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run ``stoker tar ...`` in this process, bytes in and bytes out."""

    def run(*words: object, input: bytes = b"") -> Done:
        streams = [io.TextIOWrapper(io.BufferedRandom(io.BytesIO(data)), "utf-8") for data in (input, b"", b"")]  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            for name, stream in zip(("stdin", "stdout", "stderr"), streams):
                patch.setattr(sys, name, stream)
            try:
                app(["tar", *map(str, words)], prog_name="stoker")
                code: Any = 0
            except SystemExit as ended:
                code = ended.code
        out, err = (_content(stream) for stream in streams[1:])
        return Done(int(code or 0), out, err.decode())

    return run


def _content(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    stream.buffer.seek(0)
    return stream.buffer.read()


def make_tar(path: Path | None, samples: Iterable[tuple[bytes, Mapping[str, bytes]]], **options: Any) -> bytes:
    """An archive by Python's tarfile, which shares no code with ours."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", **options) as archive:
        for key, fields in samples:
            for field, data in fields.items():
                member = tarfile.TarInfo((key + b"." + field.encode()).decode("utf-8", "surrogateescape"))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    if path is not None:
        path.write_bytes(stream.getvalue())
    return stream.getvalue()


def read_tar(data: bytes | Path) -> Samples:
    """The samples of an archive, by Python's tarfile."""
    content = data.read_bytes() if isinstance(data, Path) else data
    found: Samples = []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = member.name.encode("utf-8", "surrogateescape")
            folder, slash, last = name.rpartition(b"/")
            base, _, field = last.partition(b".")
            key = folder + slash + base
            if not found or found[-1][0] != key:
                found.append((key, {}))
            file = archive.extractfile(member)
            assert file is not None
            found[-1][1][os.fsdecode(field)] = file.read()
    return found


def keys_of(data: bytes | Path) -> list[str]:
    return [os.fsdecode(key) for key, _ in read_tar(data)]


def some_samples(count: int, first: int = 0, size: int = 300) -> Samples:
    """Samples that differ: a picture's bytes, a class, a text."""
    return [
        (
            b"d/%05d" % number,
            {"jpg": bytes([number % 251]) * size, "cls": b"%d" % (number * 7 % 10), "txt": b"line\t%d\n" % number},
        )
        for number in range(first, first + count)
    ]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Four shards of ten samples."""
    paths = [tmp_path / f"in-{number:02d}.tar" for number in range(4)]
    for number, path in enumerate(paths):
        make_tar(path, some_samples(10, 10 * number))
    return paths


def pipe(*commands: list[object], input: bytes | None = None, cwd: Path | None = None) -> list[subprocess.Popen[bytes]]:
    """Start ``stoker`` programs as a pipe, without a shell; the last one's output and everybody's errors can be read."""
    started: list[subprocess.Popen[bytes]] = []
    for words in commands:
        source = started[-1].stdout if started else (subprocess.PIPE if input is not None else subprocess.DEVNULL)
        started.append(
            subprocess.Popen(
                [*STOKER, *map(str, words)] if words[0] in ("tar", "map") else [str(word) for word in words],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd=cwd,
            )
        )
        if len(started) > 1:
            stdout = started[-2].stdout
            assert stdout is not None
            stdout.close()  # so that it hears when the next one ends
    if input is not None:
        stdin = started[0].stdin
        assert stdin is not None
        with stdin:
            stdin.write(input)
    return started


def ended(programs: list[subprocess.Popen[bytes]]) -> tuple[list[int], bytes, list[str]]:
    """All exit statuses, the last one's output, everybody's errors."""
    out = programs[-1].communicate(timeout=60)
    errors = []
    for program in programs[:-1]:
        assert program.stderr is not None
        errors.append(program.stderr.read().decode())
        program.stderr.close()
        program.wait(timeout=60)
    return [program.returncode for program in programs], out[0], [*errors, out[1].decode()]

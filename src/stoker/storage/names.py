"""Names as bytes, which is what they are, and as text that breaks no log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Union
from urllib.parse import unquote_to_bytes

from ..errors import ConfigError

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL_ONLY = "a URL; only local files are read here: download it, or read shards with stoker.tar(...) or stoker.tfrecord(...)"
_ESCAPE = re.compile(rb"\\(\\|x[0-9a-f]{2})")


def printable(name: bytes) -> str:
    r"""A name as text that breaks no log and can be turned back.

    UTF-8 stays as it is. A byte that is not UTF-8, and each byte of a character that does not print (a newline, say),
    becomes ``\xNN``; a backslash is always doubled. So two names never give the same text: the file named by the four
    characters ``\xff`` and the one named by the byte 255 are told apart.

    >>> printable(b"caf\xc3\xa9.jpg"), printable(b"a\nb\xff")
    ('café.jpg', 'a\\x0ab\\xff')
    """
    text = name.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def unprintable(text: str) -> bytes:
    r"""The name that `printable` made this text of.

    >>> unprintable(printable(b"a\nb\xff")) == b"a\nb\xff"
    True
    """
    return _ESCAPE.sub(_unescaped, text.encode("utf-8", "surrogateescape"))


def spelled(text: str) -> str:
    r"""The same name as writers take it: text, in which bytes that are no text are surrogates.

    >>> spelled("seg.png"), spelled(r"\xff")
    ('seg.png', '\udcff')
    """
    return unprintable(text).decode("utf-8", "surrogateescape") if "\\" in text else text


def _unescaped(found: re.Match[bytes]) -> bytes:
    return found[1] if found[1] == b"\\" else bytes([int(found[1][1:], 16)])


def path_bytes(path: AnyPath) -> bytes:
    """A path as bytes; raises ConfigError for what cannot be one."""
    try:
        return os.fsencode(path)
    except (TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"{path!r} is not a path; use text, bytes or a pathlib.Path") from error


def file_name(path: AnyPath) -> bytes:
    """The name of a file, as bytes; raises ConfigError for what cannot be one."""
    name = path_bytes(path)
    if not name or b"\0" in name:
        raise ConfigError(f"{path!r} cannot be a file name; choose another")
    return name


def is_file_url(url: str) -> bool:
    """Whether a URL names a file on this machine."""
    return url[:7].lower() == "file://"


def file_url_path(url: str) -> bytes:
    """The path that a ``file:`` URL names, with ``%20`` and its like decoded.

    >>> file_url_path("file:///data/a%20b.tar"), file_url_path("file://localhost/a.tar")
    (b'/data/a b.tar', b'/a.tar')
    """
    host, slash, path = url[7:].partition("/")
    if not slash or host not in ("", "localhost") or "?" in path or "#" in path:
        raise ConfigError(
            f"{url}: a file: URL must be file:///absolute/path, on this machine, with '?' and '#' written as %3F and %23"
        )
    return b"/" + unquote_to_bytes(path)


def absolute(path: AnyPath) -> bytes:
    """The path from the root, so that it means the same in any working directory; links and ``..`` stay as they are.

    Text may be a ``file:`` URL; any other URL is refused.
    """
    if isinstance(path, str) and is_file_url(path):
        return file_url_path(path)
    name = path_bytes(path)
    refuse_url(path, repr(path))
    return os.fsencode(Path(os.fsdecode(name)).absolute())


def refuse_url(path: AnyPath, told: str) -> None:
    """Raise where a path is text, and a URL; `told` names it."""
    if isinstance(path, str) and _URL.match(path):
        raise ConfigError(f"{told} is {_LOCAL_ONLY}")

"""Lists the files below a folder: every name once, sorted, without one system call per file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from ...errors import ConfigError, ReadError
from ..paths import identity, printable

#: what the pattern ``**/*`` keeps, in any mixture of capitals
IMAGE_EXTENSIONS = frozenset(
    b".avif .bmp .gif .ico .j2k .jfif .jp2 .jpe .jpeg .jpg .pbm .pgm .png .pnm .ppm .tga .tif .tiff .webp".split()
)
ANY_IMAGE = "**/*"

#: (folder below the root, with a slash at its end, or empty; file names in it) -> those that are wanted
Keep = Callable[[bytes, "list[bytes]"], "list[bytes]"]


def list_files(root: bytes, keep: Keep) -> tuple[list[bytes], int]:
    """The wanted files below `root` (which ends in a slash), and how many files were looked at.

    Paths are relative to the root and sorted by their bytes. Names that begin with a dot are left out, files and
    folders alike. Symbolic links are followed, except to a folder that the link itself is in.
    """
    found: list[bytes] = []
    looked = 0
    # (path below the root, identities of the folders it is in). A stack: trees may be deeper than Python recurses.
    folders: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(b"", ())]
    while folders:
        below, above = folders.pop()
        inner, names = _entries(root + below)
        looked += len(names)
        found += [below + name for name in keep(below, names)]
        if inner:
            within = (*above, identity(root + below))
            # A link to where we are already would lead around for ever.
            new = (name for name, link in inner if not (link and identity(root + below + name) in within))
            folders += [(below + name + b"/", within) for name in new]
    found.sort()
    return found, looked


def is_image(name: bytes) -> bool:
    """Whether the name ends as images' names do."""
    return name[name.rfind(b".") :].lower() in IMAGE_EXTENSIONS


def choose_keep(pattern: str) -> Keep:
    """What to keep: images for ``**/*``, else whatever the pattern says, by pathlib's rules, capitals counting."""
    if not isinstance(pattern, str):
        raise ConfigError(f"pattern {pattern!r} must be text, like '**/*.png'")
    if pattern == ANY_IMAGE:
        return lambda below, names: [name for name in names if is_image(name)]
    matches = _compiled(pattern).fullmatch
    return lambda below, names: [name for name in names if matches(_text(below + name))]


def _entries(path: bytes) -> tuple[list[tuple[bytes, bool]], list[bytes]]:
    """The folders in a folder, each with whether it is a link, and the names of everything else in it."""
    folders: list[tuple[bytes, bool]] = []
    names: list[bytes] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name[0] == 46:  # a dot
                    continue
                if _is_folder(entry):
                    folders.append((name, entry.is_symlink()))
                else:
                    names.append(name)
    except OSError as exc:
        told = printable(path)
        raise ReadError(f"{told}: cannot be listed: {exc.strerror}; make it readable, or move it away", origin=told) from exc
    return folders, names


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads nowhere or in a circle is a file that cannot be read; reading it will say so


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _compiled(pattern: str) -> re.Pattern[str]:
    *folders, file = pattern.split("/")
    if {"", ".", ".."} & {*folders, file}:
        raise ConfigError(f"pattern {pattern!r} fits no path below the root; write it like '**/*.png' or 'train/*/*.jpg'")
    try:
        begin = ("(?:[^/]+/)*" if part == "**" else _part_regex(part) + "/" for part in folders)
        return re.compile("".join(begin) + (".+" if file == "**" else _part_regex(file)), re.DOTALL)
    except re.error as exc:
        raise ConfigError(f"pattern {pattern!r} is not a glob: {exc}; a literal [ is written [[]") from exc


def _part_regex(part: str) -> str:
    """One part of a glob as a regular expression. (`glob.translate` would do, but came with Python 3.13.)"""
    return "".join(map(_token_regex, re.findall(r"\[!?\]?[^\]]*\]|.", part, re.DOTALL)))


def _token_regex(token: str) -> str:
    if len(token) > 1:
        negated = token[1] == "!"
        body = re.sub(r"([\\\[\]^&|~])", r"\\\1", token[2 if negated else 1 : -1])
        return f"(?!/)[{'^' if negated else ''}{body}]"
    return {"*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token)

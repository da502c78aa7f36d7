"""Reads one ImageNet or PASCAL VOC annotation: object names, boxes, image size. Trusts nothing in the file.

A file is refused, before it costs anything, if it is larger than `MAX_BYTES`, nested deeper than `MAX_DEPTH`, holds more than
`MAX_OBJECTS` objects, or has a document type at all: bombs and foreign files come by way of entities, and those need one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from ...errors import AnnotationError, ConfigError
from ..paths import printable
from .plain_file import read_plain

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_OBJECTS = 10_000
_FAR = 1e30  # float32 holds little more, and a box so far away is a mistake already

_SIDES = ("ymin", "xmin", "ymax", "xmax")
_OBJECT = ["annotation", "object"]
_SIZE = ["annotation", "size"]
# Tags whose text is kept, and the tags they must stand in: PASCAL's <part> has a name and a box, not the object's.
_KEPT = {
    "name": _OBJECT,
    "height": _SIZE,
    "width": _SIZE,
    **{side: ["annotation", "object", "bndbox"] for side in _SIDES},
}

Box = tuple[float, float, float, float]


class Annotation(NamedTuple):
    """Objects' names and boxes (ymin, xmin, ymax, xmax); where there are none, the size (height, width) if told."""

    names: Sequence[str]
    boxes: Sequence[Box]
    size: tuple[float, float] | None


class _FaultError(Exception):
    """What is wrong, said while parsing; becomes an AnnotationError that names file and line."""


def read_annotation(path: bytes) -> Annotation | None:
    """The annotation in a file; None if there is no such file."""
    try:
        data = read_plain(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise _error(path, 0, f"cannot be read: {exc.strerror}") from exc
    except ConfigError as exc:
        raise AnnotationError(f"{exc}, or take its image off the list", origin=printable(path)) from exc
    return parse_annotation(data, path)


def parse_annotation(data: bytes, path: bytes) -> Annotation:
    """The annotation in some bytes; `path` is for messages."""
    if len(data) > MAX_BYTES:
        raise _error(path, 0, f"is larger than {MAX_BYTES:,} bytes, too large for an annotation")
    reader = _Reader()
    # ElementTree's own handlers would add two Python calls for each tag; expat may as well call the reader.
    parser = DefusedXMLParser(target=reader, forbid_dtd=True, forbid_entities=True, forbid_external=True)
    expat = parser.parser
    expat.StartElementHandler, expat.EndElementHandler = reader.opened, reader.closed
    expat.CharacterDataHandler = reader.texts.append
    try:
        parser.feed(data)
        parser.close()
        return reader.annotation()
    except _FaultError as fault:
        raise _error(path, expat.CurrentLineNumber, str(fault)) from None
    except ParseError as exc:
        raise _error(path, exc.position[0], f"is not well-formed XML: {exc}") from exc
    except DefusedXmlException as exc:
        raise _error(path, expat.CurrentLineNumber, "has a document type or entities, which are refused") from exc
    except (LookupError, ValueError) as exc:
        raise _error(path, 1, f"is in an encoding that cannot be read: {exc}") from exc


def _error(path: bytes, line: int, told: str) -> AnnotationError:
    name = printable(path)
    where = f"{name}, line {line}" if line else name
    return AnnotationError(f"{where}: {told}; correct the file, or take its image off the list", origin=name)


class _Reader:
    """Collects what matters while expat walks through the document."""

    __slots__ = ("_boxes", "_names", "_object", "_size", "_tags", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []  # since a tag was opened last
        self._tags: list[str] = []  # those open, outermost first
        self._object: dict[str, str] = {}
        self._size: dict[str, str] = {}
        self._names: list[str] = []
        self._boxes: list[Box] = []

    def opened(self, tag: str, attributes: Any) -> None:
        tags = self._tags
        tags.append(tag)
        self.texts.clear()
        if len(tags) > 2:
            if len(tags) > MAX_DEPTH:
                raise _FaultError(f"is nested deeper than {MAX_DEPTH} tags")
        elif len(tags) == 1:
            if tag != "annotation":
                raise _FaultError(f"the document is a <{tag[:40]}>, not an <annotation>")
        elif tag == "object":
            self._begin_object()

    def closed(self, tag: str) -> None:
        tags = self._tags
        if tags == _OBJECT:
            self._end_object()
        tags.pop()
        if tag in _KEPT and tags == _KEPT[tag]:
            self._keep(tag)

    def annotation(self) -> Annotation:
        return Annotation(self._names, self._boxes, None if self._names else self._whole())

    def _begin_object(self) -> None:
        if len(self._names) == MAX_OBJECTS:
            raise _FaultError(f"holds more than {MAX_OBJECTS:,} objects")
        self._object = {}

    def _keep(self, tag: str) -> None:
        kept = self._size if _KEPT[tag] is _SIZE else self._object
        if tag in kept:
            raise _FaultError(f"has two <{tag}> in one <{self._tags[-1]}> (object {len(self._names) + 1})")
        kept[tag] = "".join(self.texts).strip()

    def _end_object(self) -> None:
        found = self._object
        try:
            ymin, xmin, ymax, xmax = [float(found[side]) for side in _SIDES]
        except (KeyError, ValueError):
            raise self._fault() from None
        # Not a number compares false to everything, and so ends here too.
        if not (found.get("name") and -_FAR < ymin <= ymax < _FAR and -_FAR < xmin <= xmax < _FAR):
            raise self._fault()
        self._names.append(found["name"])
        self._boxes.append((ymin, xmin, ymax, xmax))

    def _fault(self) -> _FaultError:
        """What is wrong with the object that ends here."""
        found, told = self._object, f"object {len(self._names) + 1}"
        if not found.get("name"):
            return _FaultError(f"{told} has no <name>")
        for side in _SIDES:
            if side not in found:
                return _FaultError(f"{told} has no <{side}> in a <bndbox>")
            if not _is_number(found[side]):
                return _FaultError(f"{told}: <{side}> is {found[side][:40]!r}, not a finite number")
        ymin, xmin, ymax, xmax = (found[side] for side in _SIDES)
        return _FaultError(f"{told}: its <bndbox> is inverted: x from {xmin} to {xmax}, y from {ymin} to {ymax}")

    def _whole(self) -> tuple[float, float] | None:
        """The image's size; None when it is not told, or told as zero."""
        height, width = (self._size.get(side) or "0" for side in ("height", "width"))
        if not (_is_number(height) and _is_number(width) and float(height) >= 0 and float(width) >= 0):
            raise _FaultError(f"<size> is {width[:40]!r} x {height[:40]!r}, which is not a size")
        return (float(height), float(width)) if float(height) and float(width) else None


def _is_number(text: str) -> bool:
    try:
        return -_FAR < float(text) < _FAR
    except ValueError:
        return False

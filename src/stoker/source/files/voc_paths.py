"""Which image files and which annotations `stoker.voc` reads: from a list file, or from paths that a program lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...errors import ConfigError, SourceEmpty, SourceNotFound
from ...sizes import counted
from ..paths import AnyPath, absolute, inside, is_file, is_folder, joined, printable
from .lines import Lines, split_number
from .listed import current_folder, given_paths
from .walk import is_image

#: added to a path, in turn, until there is such a file
SUFFIXES = (b"", b".JPEG", b".jpg", b".jpeg", b".png")


class VocPaths:
    """Images, by the names a list has for them, and the annotation of each.

    A list file has a path per line, below `images` or absolute; an integer after it is passed over. Without `images` it is
    relative to the folder the list is in. Paths in a Python list are whole: absolute, or relative to the working directory;
    with `images`, one that does not lie below that folder so is a path below it. All may lack their extension (`SUFFIXES`
    are tried).

    An annotation is the same path below the folder `annotations`, ending in ``.xml``; of an image that is not below `images`
    it is the file of the same name there. `annotations` may be a list of paths, one for each image; all must be there. Without it
    annotations lie beside their images.
    """

    def __init__(self, listed: Any, images: AnyPath | None, annotations: Any) -> None:
        if isinstance(listed, (str, bytes, os.PathLike)) and is_folder(absolute(listed)):
            raise ConfigError(
                f"{printable(absolute(listed))}: this is a folder; voc() takes a list of image paths, or a text file with a path "
                "per line: voc(sorted(glob.glob('folder/*.jpg')), annotations='folder')"
            )
        self.lines = Lines(absolute(listed)) if isinstance(listed, (str, bytes, os.PathLike)) else None
        self.folder = None if images is None else _folder(images, "images")
        if self.lines is None:
            self.names = given_paths(listed, "voc([...])", lambda at: f"voc([...]): path {at}")
            if not self.names:
                raise SourceEmpty("voc([...]) got an empty list of paths")
            self.text, self.title = b"\n".join(self.names), f"a list of {counted(len(self.names), 'path')}"
            places = [self._whole(name) for name in self.names]
        else:
            self.names = [split_number(line)[0] for line in self.lines]
            self.text, self.title = b"\n".join(self.lines), printable(self.lines.path)
            root = self.lines.path.rpartition(b"/")[0] if self.folder is None else self.folder
            places = [joined(root, name) for name in self.names]
        self.images = list(_found(places))
        #: whether the user named each annotation, so that all of them must be there
        self.named = annotations is not None and not isinstance(annotations, (str, bytes, os.PathLike))
        self.annotations = self._annotations(places, annotations)
        #: what to do where none of the annotations is there
        self.remedy = "check annotations=..., where it must have the same relative path as its image in images=..."
        if annotations is None:
            self.remedy = "without annotations=..., annotations are expected next to their images"
        elif self.folder is None:
            self.remedy = (
                "without images=..., only the name of the image's file counts; if annotations=... has subfolders, set images=... "
                "to the folder in which images have the same relative paths"
            )

    def _whole(self, path: bytes) -> bytes:
        whole = joined(current_folder(), path)
        return whole if self.folder is None or whole.startswith(self.folder) else joined(self.folder, path)

    def _annotations(self, places: list[bytes], given: Any) -> list[bytes]:
        if given is None:
            return [_stem(place) + b".xml" for place in places]
        if isinstance(given, (str, bytes, os.PathLike)):
            folder = _folder(given, "annotations")
            found = [folder + _stem(self._below(place)) + b".xml" for place in places]
            _refuse_shared(places, found)
            return found
        paths = given_paths(given, "voc(annotations=[...])", lambda at: f"voc(annotations=[...]): path {at}")
        if len(paths) != len(places):
            raise ConfigError(
                f"voc(annotations=[...]): {counted(len(places), 'image')} and {counted(len(paths), 'annotation')}; "
                "use one for each image"
            )
        root = current_folder()
        return [joined(root, path) for path in paths]

    def _below(self, place: bytes) -> bytes:
        """An image's path below the folder of images; of one that lies elsewhere, its name."""
        below = self.folder is not None and place.startswith(self.folder)
        return place[len(self.folder or b"") :] if below else place.rpartition(b"/")[2]


def _refuse_shared(places: list[bytes], annotations: list[bytes]) -> None:
    """Images of one name in several folders would silently get each other's boxes."""
    owners: dict[bytes, bytes] = {}
    for place, annotation in zip(places, annotations):
        owner = owners.setdefault(annotation, place)
        if owner != place and _stem(owner) != _stem(place):
            raise ConfigError(
                f"{printable(owner)} and {printable(place)} would share the annotation {printable(annotation)}; pass the folder "
                "of all images as images=..., or the annotations as a list"
            )


def _stem(path: bytes) -> bytes:
    return path[: path.rfind(b".")] if is_image(path) else path


def _found(places: list[bytes]) -> Iterator[bytes]:
    """The images' files. What had to be added to the path before is tried first: mostly one look is enough."""
    suffixes = list(SUFFIXES)
    for path in places:
        found = next((suffix for suffix in suffixes if is_file(path + suffix)), None)
        if found is None:  # reading will report it
            found = b"" if is_image(path) else suffixes[0]
        elif found != suffixes[0]:
            suffixes.remove(found)
            suffixes.insert(0, found)
        yield path + found


def _folder(path: AnyPath, name: str) -> bytes:
    folder = absolute(path)
    if not is_folder(folder):
        raise SourceNotFound(f"voc({name}=...): {printable(folder)}: there is no such folder; check the spelling")
    return inside(folder)

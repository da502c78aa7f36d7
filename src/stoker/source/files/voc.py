"""`stoker.voc`: images with ImageNet or PASCAL VOC annotations, one sample per object or per image."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SKIP, ConfigError, CorruptImage, ImageError, SourceNotFound
from ...kernel import native
from ...kernel.render import Renderer
from ...sizes import counted
from ...storage.scratch import Scratch
from ..chunk import BYTES, BytesColumn, Column, FieldSpec, Ints, array_spec
from ..paths import AnyPath, parent_name, printable, stamp
from ..shards.sidecar import seek_table
from ..source import Located, Rows, Source, Targets, digest, why_no_boxes
from .labelled_files import file_input, read_column, read_error
from .labels import check_mapping, class_numbers, mapped_classes
from .typed_columns import is_list
from .voc_paths import VocPaths

#: the label of an image without objects whose folder is no class
NO_LABEL = -1

Boxes = NDArray[np.float32]
Errors = dict[int, Exception]


def open_voc(
    listed: Any,
    *,
    images: AnyPath | None = None,
    annotations: Any = None,
    labels: Any = None,
    objects: str = "each",
    seek: bool = True,
) -> VocSource:
    """One sample for every object (``"each"``), or for every image (``"together"``)."""
    if objects not in ("each", "together"):
        raise ConfigError(f"voc(objects={objects!r}): use 'each' (a sample per object) or 'together' (a sample per image)")
    kind = VocSource if objects == "each" else VocImages
    return kind(listed, images=images, annotations=annotations, labels=labels, seek=seek)


class VocSource(Source):
    """One sample for every object of the images a list names, in the order of the list, then of the annotation.

    Fields: ``image``, the file's bytes; ``label``, the object's class; ``box``, its (ymin, xmin, ymax, xmax) in pixels,
    as the annotation says, even outside the image.

    Which images and annotations these are, `voc_paths.VocPaths` says. Classes are the sorted names of all objects, or what
    `labels`, a dict of name -> int or a list of names, says.

    An image without objects, or without an annotation, is one sample: the whole image, with the class its folder's name
    is, or -1. The size is the annotation's, else it is taken from the image when that is read.

    Annotations are read here, once, and trusted in nothing (see `xml`); a bad one raises. The key is ``path#number``,
    objects counting from 1, and 0 for the whole image.

    >>> VocSource("train.txt", images="JPEGImages", annotations="Annotations")  # doctest: +SKIP
    """

    _kind = "voc"

    def __init__(
        self,
        listed: Any,
        *,
        images: AnyPath | None = None,
        annotations: Any = None,
        labels: Any = None,
        seek: bool = True,
    ) -> None:
        if not (labels is None or isinstance(labels, Mapping) or is_list(labels)):
            raise ConfigError(f"voc(labels={labels!r}): use None, a dict of object name -> int, or a list of class names")
        paths = VocPaths(listed, images, annotations)
        self._title, self._lines, self._names = paths.title, paths.lines, native.Paths(paths.names)
        self._paths = native.Paths(paths.images)
        self._seeks = seek_table(paths.images, paths.folder) if seek else None
        found = _collect(paths)
        self._labels, self.classes = found.label(labels)
        self._boxes = np.array(found.sides, np.float32).reshape(-1, 4)  # NaN: the whole image, of a size not known yet
        self._numbers = np.array(found.numbers, np.int32)
        self._without = found.without
        self._images = np.array(found.images, np.int64)  # sample -> image
        parts = (paths.text, self._labels.tobytes(), self._boxes.tobytes())
        self._fingerprint = digest(self._kind, *parts, *self.classes)
        self.fields: dict[str, FieldSpec] = {"image": BYTES, **self._object_fields()}

    def _object_fields(self) -> dict[str, FieldSpec]:
        return {"label": array_spec(np.int64), "box": array_spec(np.float32, 4)}

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        columns: dict[str, Column] = {}
        image: BytesColumn | None = None
        errors: Errors = {}
        if "image" in wanted:
            image, errors = self._read_images(indices, scratch)
            columns["image"] = image
        if "label" in wanted:
            columns["label"] = np.take(self._labels, indices, out=out.get("label"))
        if "box" in wanted:
            columns["box"], unmeasured = self._read_boxes(indices, out.get("box"), image, scratch)
            errors = {**unmeasured, **errors}
        return Rows(columns, errors)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        if field != "image":
            return f"{field!r} does not hold files"
        return None if box is None else why_no_boxes(self.fields[box], box)

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        files, others = file_input(self, self._paths, self._seeks, scratch), [name for name in wanted if name != field]
        boxes = self._boxes[indices] if "box" in others and self.fields["box"].fixed else None
        if files is None or (boxes is not None and np.isnan(boxes[:, 0]).any()):
            return None  # the whole image: its size is not known before it is read
        which = self._images[indices]
        files.tell(which, None if box is None else boxes)

        def encoded(row: int) -> bytes:
            column, failed = self._read_images(indices[row : row + 1], scratch)
            if failed:
                raise failed[0]
            return column[0]

        def finish(made: Renderer) -> Rows:
            failed = made.errnos(files) if made.bad else {}
            errors: Errors = {row: self._unread(int(indices[row]), code) for row, code in failed.items()}
            return Rows(self.read(indices, others, out, scratch).columns, errors, encoded)

        return Located([(files, None)], finish)

    def key(self, index: int) -> str:
        return f"{printable(self._names.path(int(self._images[index])))}#{self._numbers[index]}"

    def origin(self, index: int) -> str:
        return printable(self._paths.path(int(self._images[index])))

    def seeks(self, field: str) -> int:
        return int((self._seeks.lengths[self._images] > 0).sum()) if self._seeks is not None and field == "image" else 0

    def version(self) -> str:
        stamps = [stamp(self._paths.path(number)) for number in range(len(self._paths))]
        return digest("versions", self.fingerprint(), b"\n".join(stamps))

    def fingerprint(self) -> str:
        return self._fingerprint

    def describe(self) -> str:
        objects, images = counted(len(self), "object"), counted(len(self._paths), "image")
        return self._described(f"{objects} in {images}")

    def _described(self, counts: str) -> str:
        bare = f"; {counted(self._without, 'image')} without an annotation" if self._without else ""
        return f"voc({self._title}): {counts}, {counted(len(self.classes), 'class', 'classes')}{bare}"

    def _read_images(self, indices: Ints, scratch: Scratch) -> tuple[BytesColumn, Errors]:
        """The images of some samples; neighbours that share a file share its bytes, which are read once."""
        which = self._images[indices]
        first = np.ones(len(which), np.bool_)
        np.not_equal(which[1:], which[:-1], out=first[1:])
        runs = np.cumsum(first) - 1
        column, failed = read_column(self._paths, which[first], scratch, self._seeks)
        rows = np.flatnonzero(np.isin(runs, list(failed))).tolist() if failed else []
        return column.take(runs), {row: self._unread(int(indices[row]), failed[int(runs[row])]) for row in rows}

    def _read_boxes(self, indices: Ints, into: Boxes | None, image: BytesColumn | None, scratch: Scratch) -> tuple[Boxes, Errors]:
        """The boxes of some samples; whole images of unknown size are measured, on `image` if that was read anyway."""
        boxes: Boxes = np.take(self._boxes, indices, axis=0, out=into)
        whole = np.flatnonzero(np.isnan(boxes[:, 0]))
        if not len(whole):
            return boxes, {}
        images, errors = (image.take(whole), {}) if image is not None else self._read_images(indices[whole], scratch)
        for at, row in enumerate(whole.tolist()):
            try:
                boxes[row] = (0, 0, *_image_size(images, at))
            except ImageError as exc:
                boxes[row] = 0
                errors.setdefault(at, self._unmeasured(int(indices[row]), exc))
        return boxes, {int(whole[at]): error for at, error in errors.items()}

    def _unread(self, index: int, code: int) -> Exception:
        image = int(self._images[index])
        place = "" if self._lines is None else f" ({self._lines.place(image)})"
        return read_error(self._paths.path(image), code, self.key(index), place)

    def _unmeasured(self, index: int, cause: ImageError) -> Exception:
        what = f"{self.origin(index)}: its annotation has no size, and the image's own cannot be read: {cause}"
        error = type(cause)(f"{what}; take it off the list, or {SKIP}", key=self.key(index), origin=self.origin(index))
        error.__cause__ = cause
        return error


class VocImages(VocSource):
    """One sample for every image a list names, with all its objects: the same images and annotations as of `VocSource`.

    Fields: ``image``; ``label``, the k objects' classes; ``box``, their boxes (k, 4). An image without objects has k = 0. The
    key is the path as it is listed.
    """

    _kind = "voc images"

    def __init__(self, listed: Any, **options: Any) -> None:
        super().__init__(listed, **options)
        real = self._numbers > 0  # and not a whole image without objects
        self._labels, self._boxes = self._labels[real], self._boxes[real]
        self._ends = np.cumsum(np.bincount(self._images[real], minlength=len(self._paths)))
        self._images = np.arange(len(self._paths), dtype=np.int64)

    def _object_fields(self) -> dict[str, FieldSpec]:
        return {"label": array_spec(np.int64, None), "box": array_spec(np.float32, None, 4)}

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        columns: dict[str, Column] = {}
        errors: Errors = {}
        if "image" in wanted:
            columns["image"], errors = self._read_images(indices, scratch)
        for name, values in (("label", self._labels), ("box", self._boxes)):
            if name in wanted:
                columns[name] = [values[self._objects(index)].copy() for index in indices.tolist()]
        return Rows(columns, errors)

    def _objects(self, index: int) -> slice:
        return slice(int(self._ends[index - 1]) if index else 0, int(self._ends[index]))

    def key(self, index: int) -> str:
        return printable(self._names.path(index))

    def describe(self) -> str:
        images, objects = counted(len(self), "image"), counted(len(self._labels), "object")
        return self._described(f"{images} with {objects}")


class _Objects:
    """Samples while they are collected: parallel lists, for there may be a million."""

    def __init__(self) -> None:
        self.images = array("q")
        self.numbers = array("i")
        self.sides = array("f")
        self.without = 0  # images without an annotation
        self.names: list[str] = []  # of the class; where the number is 0, of the folder, which may be no class

    def add(self, line: int, number: int, name: str, box: tuple[float, float, float, float]) -> None:
        self.images.append(line)
        self.numbers.append(number)
        self.names.append(name)
        self.sides.extend(box)

    def label(self, labels: Any) -> tuple[Ints, tuple[str, ...]]:
        """Labels by sorted names, or as the user numbers them, and the names of the classes."""
        known = sorted({name for name, number in zip(self.names, self.numbers) if number})
        if labels is None:
            numbers = {name: label for label, name in enumerate(known)}
        else:
            numbers = check_mapping(labels) if isinstance(labels, Mapping) else class_numbers(labels, "voc")
            _refuse_unknown(known, numbers)
        given = (numbers.get(name, NO_LABEL) for name in self.names)
        return np.fromiter(given, np.int64, len(self.names)), mapped_classes(numbers)


def _collect(listed: VocPaths) -> _Objects:
    """Read the annotations of all the images on the list."""
    from .xml import read_annotation

    found = _Objects()
    for at, path in enumerate(listed.annotations):
        annotation = read_annotation(path)
        if annotation is None and listed.named:
            raise SourceNotFound(
                f"voc(annotations=[...]): path {at}, {printable(path)}: there is no such file; correct it, or omit the image"
            )
        found.without += annotation is None
        if annotation and annotation.names:
            for number, (name, box) in enumerate(zip(annotation.names, annotation.boxes), 1):
                found.add(at, number, name, box)
        else:
            size = annotation and annotation.size
            found.add(at, 0, os.fsdecode(parent_name(listed.names[at])), (0, 0, *size) if size else (np.nan,) * 4)
    if found.without == len(listed.images):
        raise SourceNotFound(
            f"no annotation for any of {counted(len(listed.images), 'image')}; the first looked for is "
            f"{printable(listed.annotations[0])}: {listed.remedy}"
        )
    return found


def _image_size(images: BytesColumn, row: int) -> tuple[int, int]:
    """Height and width, from the header."""
    start = int(images.starts[row])
    data = images.data[start : start + int(images.lengths[row])]
    if not len(data):
        raise CorruptImage("the file is empty")
    try:
        info = native.jpeg_header(data)
    except ImageError:
        return _other_size(data.tobytes())
    return info.height, info.width


def _other_size(data: bytes) -> tuple[int, int]:
    from ...image.pillow import open_image  # takes long to import, and most images are JPEGs

    try:
        with open_image(data) as image:
            return image.height, image.width
    except ImageError:
        raise
    except Exception as exc:  # Pillow's plugins raise all sorts on broken headers
        raise CorruptImage(f"Pillow cannot read its header: {exc}") from exc


def _refuse_unknown(names: list[str], numbers: Mapping[str, int]) -> None:
    for name in names:
        if name not in numbers:
            told = f"voc(labels=...) has no label for the object name {name!r}"
            raise ConfigError(f"{told}, only for {counted(len(numbers), 'other')}; add it")

"""`voc`: images with annotations, one sample an object or an image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import AnnotationError, ConfigError, ImageError, ReadError, SourceEmpty, SourceNotFound
from stoker.image import HorizontalFlip, Resize
from stoker.kernel import native
from stoker.source.files.voc import VocSource, open_voc
from tests.source.test_xml import thing
from tests.support import image_bytes, jpeg_bytes, read


class Set:
    """A small data set on disk."""

    def __init__(self, root: Path) -> None:
        self.root, self.lines = root, list[str]()
        (root / "images").mkdir()
        (root / "boxes").mkdir()

    def image(self, name: str, data: bytes = b"x") -> None:
        path = self.root / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def boxes(self, name: str, *objects: str, size: str = "") -> None:
        path = self.root / "boxes" / f"{name}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<annotation>{size}{''.join(objects)}</annotation>")

    def open(self, *lines: str, labels: Any = None) -> VocSource:
        (self.root / "train.txt").write_text("\n".join(lines))
        root = self.root
        return VocSource(root / "train.txt", images=root / "images", annotations=root / "boxes", labels=labels)


@pytest.fixture
def data(tmp_path: Path) -> Set:
    return Set(tmp_path)


def table(source: VocSource) -> list[tuple[str, int, list[float]]]:
    """Key, label and box of every sample."""
    columns = read(source, None, ("label", "box")).columns
    return [(source.key(n), int(columns["label"][n]), columns["box"][n].tolist()) for n in range(len(source))]


def test_every_object_is_a_sample(data: Set) -> None:
    data.image("b/1.JPEG", b"one")
    data.image("a/2.JPEG", b"two")
    data.boxes("b/1", thing("owl"), thing("cat", xmin="3.5"))
    data.boxes("a/2", thing("owl", ymax="50"))
    source = data.open("b/1 7", "a/2 9")
    assert source.classes == ("cat", "owl")
    assert table(source) == [("b/1#1", 1, [2, 1, 40, 30]), ("b/1#2", 0, [2, 3.5, 40, 30]), ("a/2#1", 1, [2, 1, 50, 30])]
    assert read(source).columns["image"].own() == [b"one", b"one", b"two"]
    assert source.origin(1) == str(data.root / "images/b/1.JPEG")
    assert "3 objects in 2 images, 2 classes" in source.describe()


def test_a_given_dict_numbers_the_classes(data: Set) -> None:
    data.image("1.jpg")
    data.boxes("1", thing("owl"), thing("cat"))
    source = data.open("1", labels={"owl": 0, "cat": 1, "dog": 2})
    assert (source.classes, [label for _, label, _ in table(source)]) == (("owl", "cat", "dog"), [0, 1])
    with pytest.raises(ConfigError, match=r"voc\(labels=\.\.\.\) has no label for the object name 'cat'"):
        data.open("1", labels={"owl": 0})
    assert data.open("1", labels=["dog", "cat", "owl"]).classes == ("dog", "cat", "owl")
    with pytest.raises(ConfigError, match=r"voc\(labels=\.\.\.\) has no label for the object name 'cat'"):
        data.open("1", labels=("owl", "dog"))
    with pytest.raises(ConfigError, match="a label must be an int"):
        data.open("1", labels={"owl": "0", "cat": 1})
    with pytest.raises(ConfigError, match=r"voc\(labels='folder'\)"):
        data.open("1", labels="folder")


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("a/1", "a/1.JPEG"),
        ("a/1", "a/1.jpg"),
        ("a/1", "a/1.jpeg"),
        ("a/1", "a/1.png"),
        ("a/1.jpg", "a/1.jpg"),
        ("a/1.PNG", "a/1.PNG"),
        ("a/1", "a/1"),
        ("a/v1.2", "a/v1.2.jpg"),
        ("a/1  -1", "a/1.jpg"),
        ("a/1 2 3", "a/1 2.jpg"),
    ],
)
def test_a_line_may_have_its_extension_or_not(data: Set, line: str, file: str) -> None:
    data.image(file, b"it")
    name = file.removesuffix(Path(file).suffix) if Path(file).suffix[1:].isalpha() else file
    data.boxes(name, thing())
    source = data.open(line)
    assert read(source).columns["image"].own() == [b"it"]
    assert source.key(0).endswith("#1")


def test_extensions_may_differ_from_line_to_line(data: Set) -> None:
    for name in ("1.jpg", "2.png", "3.jpg", "4.JPEG", "5"):
        data.image(name, name.encode())
    data.boxes("1", thing())
    source = data.open("1", "2", "3.jpg", "4", "5")
    assert read(source, None, ("image",)).columns["image"].own() == [b"1.jpg", b"2.png", b"3.jpg", b"4.JPEG", b"5"]


def test_an_image_without_objects_is_one_sample_of_its_told_size(data: Set) -> None:
    data.image("cat/1.jpg")
    data.image("sky/2.jpg")
    data.image("cat/3.jpg")
    size = "<size><width>500</width><height>375</height></size>"
    data.boxes("cat/1", size=size)
    data.boxes("sky/2", size=size)
    data.boxes("cat/3", thing("cat"))
    source = data.open("cat/1", "sky/2", "cat/3")
    assert table(source) == [
        ("cat/1#0", 0, [0, 0, 375, 500]),
        ("sky/2#0", -1, [0, 0, 375, 500]),
        ("cat/3#1", 0, [2, 1, 40, 30]),
    ]


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("wanted", [("image", "label", "box"), ("box",)])
def test_a_size_nobody_told_is_read_from_the_image(data: Set, format: str, wanted: tuple[str, ...]) -> None:
    data.image("1.jpg", jpeg_bytes(30, 20))
    data.image("2.jpg", image_bytes(70, 40, format=format))
    data.boxes("1", thing())
    source = data.open("1", "2")
    for out in ({}, {"box": np.zeros((2, 4), np.float32)}):
        rows = read(source, None, wanted, **out)
        assert not rows.errors
        assert rows.columns["box"].tolist() == [[2, 1, 40, 30], [0, 0, 40, 70]]
    assert read(source, [1, 1, 0, 1], ("box",)).columns["box"][:, 3].tolist() == [70, 70, 30, 70]


@pytest.mark.parametrize("content", [b"", b"no image at all", jpeg_bytes(30, 20)[:12]])
def test_an_image_whose_size_cannot_be_read_is_an_error_of_its_sample(data: Set, content: bytes) -> None:
    data.image("1.jpg", b"never decoded")
    data.image("2.jpg", content)
    data.boxes("1", thing())
    source = data.open("1", "2")
    for wanted in (("box",), ("image", "label", "box")):
        rows = read(source, None, wanted)
        assert list(rows.errors) == [1]
        assert isinstance(rows.errors[1], ImageError)
        assert "2.jpg: its annotation has no size" in str(rows.errors[1])
        assert rows.errors[1].key == "2#0"
        assert np.isfinite(rows.columns["box"]).all()
    assert not read(source, None, ("image", "label")).errors


def test_a_missing_image_is_reported_for_each_of_its_objects(data: Set) -> None:
    data.image("2.jpg")
    data.boxes("1", thing(), thing())
    data.boxes("2", thing())
    source = data.open("# list", "1", "2", "3")
    rows = read(source, [1, 2, 0, 3])
    assert sorted(rows.errors) == [0, 2, 3]
    assert all(isinstance(error, ReadError) for error in rows.errors.values())
    assert [rows.errors[row].key for row in (0, 2, 3)] == ["1#2", "1#1", "3#0"]
    assert "No such file or directory (line 2 of" in str(rows.errors[0])
    assert not read(source, [0, 1, 2], ("label", "box")).errors


def test_neighbours_that_share_an_image_read_it_once(data: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    plain = native.read_files

    def counting(paths: Any, which: Any, arena: Any) -> Any:
        counts.append(len(which))
        return plain(paths, which, arena)

    monkeypatch.setattr(native, "read_files", counting)
    data.image("1.jpg", b"one")
    data.image("2.jpg", b"two")
    data.boxes("1", *[thing()] * 3)
    data.boxes("2", thing())
    rows = read(data.open("1", "2"), [0, 1, 2, 3, 3, 0], ("image",))
    assert rows.columns["image"].own() == [b"one"] * 3 + [b"two"] * 2 + [b"one"]
    assert counts == [3]


def test_a_bad_annotation_is_named_when_the_source_is_made(data: Set) -> None:
    data.image("1.jpg")
    data.boxes("1", thing(xmin="100"))
    with pytest.raises(AnnotationError, match=r"boxes/1\.xml, line 1: object 1: its <bndbox> is inverted"):
        data.open("1")


def test_no_annotation_at_all_names_the_first_one_looked_for(data: Set) -> None:
    data.image("a/1.jpg")
    with pytest.raises(SourceNotFound, match=r"no annotation for any of 2 images; the first looked for is .*boxes/a/1\.xml"):
        data.open("a/1.jpg", "a/2.jpg")


def test_annotations_that_are_looked_for_elsewhere_say_where_they_are_expected(data: Set) -> None:
    data.image("a/1.jpg")
    data.boxes("a/1", thing())
    whole = [data.root / "images" / "a" / "1.jpg"]
    with pytest.raises(SourceNotFound, match=r"a/1\.xml: without annotations=\.\.\., .* next to their images"):
        open_voc(whole)
    with pytest.raises(SourceNotFound, match=r"boxes/1\.xml: without images=\.\.\., only the name .*; .* set images="):
        open_voc(whole, annotations=data.root / "boxes")


def test_annotations_without_a_single_object_are_still_samples(data: Set) -> None:
    data.image("1.jpg", jpeg_bytes(30, 20))
    data.boxes("1")
    source = data.open("1")
    assert (table(source), source.classes) == ([("1#0", -1, [0, 0, 20, 30])], ())


def test_folders_and_lists_that_are_not_there_are_named(data: Set) -> None:
    (data.root / "train.txt").write_text("1\n")
    for missing in ("images", "annotations"):
        folders = {"images": data.root / "images", "annotations": data.root / "boxes", missing: data.root / "nowhere"}
        with pytest.raises(SourceNotFound, match=rf"voc\({missing}=\.\.\.\): .*nowhere: there is no such folder"):
            VocSource(data.root / "train.txt", **folders)
    with pytest.raises(SourceNotFound, match="list cannot be read"):
        VocSource(data.root / "none.txt", images=data.root, annotations=data.root)
    with pytest.raises(SourceEmpty):
        data.open("# nothing")


def test_names_of_any_bytes_are_read(data: Set) -> None:
    name = b"caf\xe9 \x07"
    for folder, suffix, content in (
        ("images", b".jpg", b"it"),
        ("boxes", b".xml", f"<annotation>{thing()}</annotation>".encode()),
    ):
        with open(os.fsencode(data.root / folder) + b"/" + name + suffix, "wb") as file:
            file.write(content)
    (data.root / "train.txt").write_bytes(name + b"\r\n")
    source = VocSource(data.root / "train.txt", images=data.root / "images", annotations=data.root / "boxes")
    assert source.key(0) == r"caf\xe9 \x07#1"
    assert read(source).columns["image"][0] == b"it"


def test_the_fingerprint_changes_with_boxes_and_labels(data: Set) -> None:
    data.image("1.jpg")
    data.boxes("1", thing("a"))
    first = data.open("1").fingerprint()
    assert first == data.open("1").fingerprint()
    assert first != data.open("1", labels={"a": 3}).fingerprint()
    data.boxes("1", thing("a", xmin="0"))
    assert first != data.open("1").fingerprint()


# ---- lists of whole paths -----------------------------------------------------------------------------------------------


def test_a_list_of_whole_paths_needs_no_folder_of_images(data: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    data.image("1.jpg", b"one")
    data.image("sub/2.png", b"two")
    data.boxes("1", thing("owl"))
    data.boxes("2", thing("cat"))
    monkeypatch.chdir(data.root)
    source = open_voc([data.root / "images/1.jpg", "images/sub/2.png"], annotations="boxes")
    monkeypatch.chdir("/")
    assert [(key, label) for key, label, _ in table(source)] == [(f"{data.root}/images/1.jpg#1", 1), ("images/sub/2.png#1", 0)]
    assert read(source).columns["image"].own() == [b"one", b"two"]
    assert source.describe() == "voc(a list of 2 paths): 2 objects in 2 images, 2 classes"


@pytest.mark.parametrize("given", ["whole", "from the working directory", "below images"])
def test_the_annotation_of_an_image_below_images_lies_below_annotations(
    data: Set, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.image("a/1.jpg")
    data.image("b/1.jpg")
    data.boxes("a/1", thing("owl"))
    data.boxes("b/1", thing("cat"))
    monkeypatch.chdir(data.root)
    front = {"whole": f"{data.root}/images/", "from the working directory": "images/", "below images": ""}[given]
    source = open_voc([f"{front}a/1.jpg", f"{front}b/1.jpg"], images="images", annotations="boxes")
    assert [label for _, label, _ in table(source)] == [1, 0]
    assert not read(source).errors


def test_annotations_lie_beside_the_images_or_are_listed(data: Set) -> None:
    data.image("a/1.jpg")
    data.image("a/1.xml", f"<annotation>{thing('owl')}</annotation>".encode())
    data.boxes("other", thing("cat"))
    path = data.root / "images/a/1.jpg"
    assert open_voc([path]).classes == ("owl",)
    assert open_voc([path], annotations=[data.root / "boxes/other.xml"]).classes == ("cat",)
    with pytest.raises(ConfigError, match="1 image and 2 annotations; use one for each image"):
        open_voc([path], annotations=["a.xml", "b.xml"])
    with pytest.raises(SourceNotFound, match=r"voc\(annotations=\[...\]\): path 1, /none\.xml: there is no such file"):
        open_voc([path, path], annotations=[data.root / "boxes/other.xml", "/none.xml"])


@pytest.mark.parametrize("objects", ["each", "together"])
def test_how_many_images_have_no_annotation_is_said(data: Set, objects: str) -> None:
    for name in ("1", "2", "3"):
        data.image(f"{name}.jpg")
    data.boxes("2", thing("owl"))
    paths = [data.root / f"images/{name}.jpg" for name in ("1", "2", "3")]
    opened = stoker.voc(paths, annotations=data.root / "boxes", objects=objects)
    assert "1 class; 2 images without an annotation" in str(opened.explain())
    assert "without" not in open_voc(paths[1:2], annotations=data.root / "boxes").describe()


def test_lines_may_be_whole_paths_or_relative_to_their_list(data: Set) -> None:
    data.image("1.jpg", b"one")
    data.image("2.jpg", b"two")
    data.boxes("1", thing())
    data.boxes("2", thing())
    (data.root / "train.txt").write_text(f"{data.root}/images/1.jpg 5\nimages/2\n")
    source = open_voc(data.root / "train.txt", annotations=data.root / "boxes")
    assert [source.key(row) for row in range(2)] == [f"{data.root}/images/1.jpg#1", "images/2#1"]
    assert read(source).columns["image"].own() == [b"one", b"two"]


def test_images_of_one_name_do_not_share_an_annotation_unnoticed(data: Set) -> None:
    for name in ("a/1.jpg", "b/1.jpg"):
        data.image(name)
    data.boxes("1", thing())
    paths = [data.root / "images" / name for name in ("a/1.jpg", "b/1.jpg")]
    with pytest.raises(ConfigError, match=r"a/1\.jpg and .*b/1\.jpg would share the annotation .*boxes/1\.xml; pass the folder"):
        open_voc(paths, annotations=data.root / "boxes")
    assert len(open_voc([paths[0], paths[0]], annotations=data.root / "boxes")) == 2


def test_an_empty_list_and_a_wrong_choice_are_named(data: Set) -> None:
    with pytest.raises(SourceEmpty, match="empty list of paths"):
        open_voc([], annotations=data.root)
    with pytest.raises(ConfigError, match=r"voc\(objects='all'\): use 'each'"):
        open_voc(["1.jpg"], objects="all")


# ---- all objects of an image together -----------------------------------------------------------------------------------


@pytest.fixture
def street(data: Set) -> Any:
    """Opens three images, of two objects, none, and one, and another without an annotation."""
    for name in ("1", "2", "3", "4"):
        data.image(f"{name}.jpg", jpeg_bytes(60, 40, seed=int(name)))
    data.boxes("1", thing("owl"), thing("cat", xmin="3.5"))
    data.boxes("2")
    data.boxes("3", thing("cat", ymax="20"))
    (data.root / "train.txt").write_text("1\n2\n3\n4\n")
    return lambda **options: stoker.voc(
        data.root / "train.txt", images=data.root / "images", annotations=data.root / "boxes", objects="together", **options
    )


def test_an_image_is_a_sample_with_all_its_objects(street: Any) -> None:
    pipeline = street()
    assert pipeline.classes == ("cat", "owl")
    assert [(sample.key, sample["label"].tolist(), sample["box"].tolist()) for sample in pipeline] == [
        ("1", [1, 0], [[2, 1, 40, 30], [2, 3.5, 40, 30]]),
        ("2", [], []),
        ("3", [0], [[2, 1, 20, 30]]),
        ("4", [], []),
    ]
    assert {(sample["label"].dtype.name, sample["box"].dtype.name, sample["box"].shape[1]) for sample in pipeline} == {
        ("int64", "float32", 4)
    }
    assert street().fingerprint() != street(labels=["owl", "cat"]).fingerprint()
    assert "4 images with 3 objects, 2 classes" in pipeline.explain()


def test_what_a_user_does_to_boxes_changes_no_later_epoch(street: Any) -> None:
    pipeline = street()
    for sample in pipeline:
        sample["box"][...] = -1
    assert next(iter(pipeline))["box"][0].tolist() == [2, 1, 40, 30]


def test_all_boxes_of_an_image_follow_its_geometry_and_pad(street: Any) -> None:
    moved = street().image("image", Resize((20, 30)), HorizontalFlip(1), boxes="box")
    lists = next(iter(moved.batch(4, pad={"box": list, "label": list})))
    assert [boxes.tolist() for boxes in lists["box"]] == [[[1, 15, 20, 29.5], [1, 15, 20, 28.25]], [], [[1, 15, 10, 29.5]], []]
    padded = next(iter(moved.batch(4, pad={"box": 0, "label": -1})))
    assert (padded["box"].shape, padded["label"].tolist()) == ((4, 2, 4), [[1, 0], [-1, -1], [0, -1], [-1, -1]])
    empty = next(iter(moved.filter(lambda sample: not len(sample["label"])).batch(2, pad={"box": 0, "label": -1})))
    assert (empty["box"].shape, empty["box"].dtype, empty["label"].shape) == ((2, 0, 4), np.float32, (2, 0))

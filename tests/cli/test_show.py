"""`stoker show`: contents as text, JSON and pictures."""

from __future__ import annotations

import gzip
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import stoker as stoker_package
from stoker.cli.halfblocks import can_show, half_blocks, show_pictures
from stoker.cli.thumbnails import Picture

from ..conftest import CLASSES, PER_CLASS
from ..support import image_bytes, jpeg_bytes


def test_class_folders_are_told_with_their_counts(stoker: Any, image_folder: Path) -> None:
    result = stoker("show", image_folder)
    assert result.exit_code == 0
    assert all(f"{name} ({PER_CLASS})" in result.stdout for name in CLASSES)


def test_samples_are_spread_over_the_data_set(stoker_json: Any, image_folder: Path) -> None:
    told = stoker_json("show", image_folder, "-n", 6)
    assert told["samples"] == len(CLASSES) * PER_CLASS
    assert told["classes"] == dict.fromkeys(CLASSES, PER_CLASS)
    assert {sample["class_name"] for sample in told["shown"]} == set(CLASSES)
    assert all(sample["format"] == "JPEG" and sample["width"] >= 60 for sample in told["shown"])


def test_a_folder_of_images_has_no_labels(stoker_json: Any, tmp_path: Path) -> None:
    (tmp_path / "one.jpg").write_bytes(jpeg_bytes(40, 30))
    (tmp_path / "two.png").write_bytes(image_bytes(20, 25, format="PNG", mode="L"))
    told = stoker_json("show", tmp_path)
    assert told["fields"] == {"image": "bytes"}
    assert [(s["key"], s["width"], s["height"], s["format"], s["mode"], s["label"]) for s in told["shown"]] == [
        ("one.jpg", 40, 30, "JPEG", "RGB", None),
        ("two.png", 20, 25, "PNG", "L", None),
    ]


def test_a_file_url_is_the_path_it_names(stoker_json: Any, image_folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a b%20c"
    odd.symlink_to(image_folder)
    told = stoker_json("show", f"file://{tmp_path}/a%20b%2520c")
    assert told["samples"] == stoker_json("show", image_folder)["samples"]


def test_a_list_takes_labels_from_folders_or_from_its_lines(stoker_json: Any, image_folder: Path, tmp_path: Path) -> None:
    paths = [image_folder / "owl" / "owl_00.jpg", image_folder / "cat" / "cat_01.jpg"]
    plain, numbered = tmp_path / "plain.txt", tmp_path / "numbered.txt"
    plain.write_text("".join(f"{path}\n" for path in paths))
    numbered.write_text("".join(f"{path} {label}\n" for path, label in zip(paths, (7, 9))))
    assert [sample["class_name"] for sample in stoker_json("show", plain)["shown"]] == ["owl", "cat"]
    assert [sample["label"] for sample in stoker_json("show", numbered)["shown"]] == [7, 9]


@pytest.mark.parametrize(
    "name",
    ["missing", "train.py:train", "shards-{0000..0009}.tar", "x.tfrecord", "x-*.tar", "x.lmdb", "pipe:ls", "ftp://host/x.tar"],
)
def test_a_source_that_is_not_there_or_not_known_is_wrong_usage(stoker: Any, name: str) -> None:
    result = stoker("show", name)
    assert result.exit_code == 2
    assert name.partition(":")[0].partition("{")[0] in result.stderr and "Traceback" not in result.stderr


def test_a_folder_of_other_shards_says_what_is_known(stoker: Any, tmp_path: Path) -> None:
    (tmp_path / "train-0000.parquet").write_bytes(b"")
    result = stoker("show", tmp_path)
    assert result.exit_code == 2
    assert "train-0000.parquet" in result.stderr and "TFRecords" in result.stderr


def test_a_folder_of_two_kinds_of_shards_asks_which(stoker: Any, tmp_path: Path) -> None:
    for name in ("a.tar", "a.tfrecord"):
        (tmp_path / name).write_bytes(b"")
    result = stoker("show", tmp_path)
    assert result.exit_code == 2 and "*.tar" in result.stderr


def test_a_brace_bomb_is_told_not_tried(stoker: Any) -> None:
    result = stoker("show", "x-{0..999999999}-{0..999999999}.tar")
    assert result.exit_code == 2 and "at most" in result.stderr


def test_a_single_image_is_no_source(stoker: Any, image_folder: Path) -> None:
    result = stoker("show", image_folder / "cat" / "cat_00.jpg")
    assert result.exit_code == 2
    assert str(image_folder / "cat") in result.stderr


def test_an_empty_folder_is_a_data_error(stoker: Any, tmp_path: Path) -> None:
    assert stoker("show", tmp_path).exit_code == 1


def test_bad_samples_are_named_and_the_others_shown(stoker: Any, tmp_path: Path) -> None:
    good = jpeg_bytes(40, 30)
    for name, data in {"good": good, "cut": good[: len(good) // 2], "text": b"hello", "empty": b""}.items():
        (tmp_path / f"{name}.jpg").write_bytes(data)
    result = stoker("show", tmp_path, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [sample["key"] for sample in told["shown"] if not sample["problem"]] == ["good.jpg"]
    assert all(f"bad sample {name}.jpg" in result.stderr for name in ("cut", "text", "empty"))
    assert "Traceback" not in result.stderr


def test_damage_is_found_where_training_finds_it(stoker: Any, tmp_path: Path) -> None:
    data = bytearray(jpeg_bytes(80, 60))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff\0" * 20
    (tmp_path / "bent.jpg").write_bytes(data)
    result = stoker("show", tmp_path)
    assert result.exit_code == 1 and "bad sample bent.jpg" in result.stderr and "MCU" in result.stderr, "Pillow sees nothing"


def test_raw_pixels_are_bytes_and_not_bad_pictures(stoker: Any, tmp_path: Path) -> None:
    pixels = np.arange(192, dtype=np.uint8).tobytes()
    stoker_package.write_tfrecord(tmp_path / "raw.tfrecord", [{"image": pixels}] * 3)
    result = stoker("show", tmp_path / "raw.tfrecord")
    assert result.exit_code == 0 and result.stdout.count("192 B") == 3
    stoker_package.write_tfrecord(tmp_path / "some.tfrecord", [{"image": jpeg_bytes(40, 30)}, {"image": pixels}])
    result = stoker("show", tmp_path / "some.tfrecord")
    assert result.exit_code == 1 and "bad sample some.tfrecord#1" in result.stderr, "where others are pictures, it should be one"


def test_the_sheet_is_complete_in_itself_and_names_are_escaped(stoker: Any, tmp_path: Path) -> None:
    folder, sheet = tmp_path / "a & <b>", tmp_path / "sheet.html"
    folder.mkdir()
    (folder / "<script>alert('1')<\u2044script>.jpg").write_bytes(jpeg_bytes(300, 200))
    (folder / "[red]bad.jpg").write_bytes(b"<img src=x>")
    result = stoker("show", folder, "--html", sheet)
    assert result.exit_code == 1  # one is bad
    assert "[red]bad.jpg" in result.stdout
    page = sheet.read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;" in page
    assert len(pictures(page)) == 1
    assert "url(" not in page and "@import" not in page
    assert all(value.startswith("data:") for name, value in attributes(page) if name in ("src", "href", "srcset"))


# ---- the page --------------------------------------------------------------------------------------------------------------


def test_the_page_tells_sizes_classes_and_values_of_all_samples(stoker: Any, tmp_path: Path) -> None:
    stored = [
        {
            "__key__": f"k{number}",
            "jpg": jpeg_bytes(40 + number, 30),
            "cls": number % 3,
            "txt": f"<{number % 2}>",
            "npy": np.full(2, number),
        }
        for number in range(30)
    ]
    stored[3]["json"], stored[4]["json"] = [[1], [2, 3]], {"a": None}
    stoker_package.write_tar(tmp_path / "a.tar", stored)
    page = sheet_of(stoker, tmp_path, tmp_path / "a.tar", "-n", 2)
    assert len(pictures(page)) == 2 and "2 samples of 30, spread evenly" in page
    assert "30 pictures, by their headers; median 54 x 30" in page and "the largest 69 x 30" in page
    assert re.findall(r"<b>(\d)</b>", page.partition("<h2>Classes")[2]) == ["0", "1", "2"]
    assert "&lt;0&gt; (15), &lt;1&gt; (15)" in page and "0 to 29, mean 14.5" in page
    assert page.count("<svg") == 3 and all(axis in page for axis in ("width, pixels", "height, pixels", "megapixels", "bytes"))


def test_many_classes_are_the_largest_and_the_rest(stoker: Any, tmp_path: Path) -> None:
    photo = jpeg_bytes(20, 20)
    for number in range(25):
        (tmp_path / "set" / f"class{number:02d}").mkdir(parents=True)
        for copy in range(1 + number // 5):
            (tmp_path / "set" / f"class{number:02d}" / f"{copy}.jpg").write_bytes(photo)
    page = sheet_of(stoker, tmp_path, tmp_path / "set")
    assert "<b>class24</b>" in page and "5 other classes with 1 sample each" in page


def annotated_folder(tmp_path: Path) -> Path:
    """A folder as PASCAL VOC has it: two pictures with objects, and one without."""
    folder = tmp_path / "VOC"
    (folder / "JPEGImages").mkdir(parents=True)
    (folder / "Annotations").mkdir()
    objects = {"a": [("dog", 10, 20, 50, 60), ("dog", 0, 0, 40, 40)], "b": [("cat & co", 50, 25, 100, 75)], "c": []}
    for name, found in objects.items():
        (folder / "JPEGImages" / f"{name}.jpg").write_bytes(jpeg_bytes(200, 100, seed=len(found)))
        told = "".join(
            f"<object><name>{kind.replace('&', '&amp;')}</name><bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax>"
            f"<ymax>{ymax}</ymax></bndbox></object>"
            for kind, xmin, ymin, xmax, ymax in found
        )
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{told}</annotation>")
    return folder


def test_boxes_of_annotations_are_over_the_pictures(stoker: Any, tmp_path: Path) -> None:
    folder = annotated_folder(tmp_path)
    page = sheet_of(stoker, tmp_path, folder)
    figures = page.partition("<h2>")[0]
    assert figures.count("<i style=") == 3
    assert "left:25.00%;top:25.00%;width:25.00%;height:50.00%" in figures and 'title="cat &amp; co"' in figures
    assert "2 x dog" in figures and "3 images with 3 objects" in page and "objects of each class" in page
    assert page.partition("<h2>Augmentations")[2].count("<i style=") > 3, "they follow the crops"
    listed = tmp_path / "list.txt"
    listed.write_text("a\nc\n")
    page = sheet_of(stoker, tmp_path, listed, "--annotations", folder / "Annotations")
    assert page.partition("<h2>")[0].count("<i style=") == 2


def test_boxes_in_fields_are_found_by_name(stoker: Any, tmp_path: Path) -> None:
    sides = {"xmin": [0.25, 0.0], "ymin": [0.5, 0.0], "xmax": [0.75, 0.5], "ymax": [1.0, 0.25]}
    record = {"image": jpeg_bytes(80, 60), **{f"object/bbox/{side}": np.array(value) for side, value in sides.items()}}
    stoker_package.write_tfrecord(tmp_path / "a.tfrecord", [record])
    page = sheet_of(stoker, tmp_path, tmp_path / "a.tfrecord")
    assert "left:25.00%;top:50.00%;width:50.00%;height:50.00%" in page
    none = {**record, **{f"object/bbox/{side}": np.empty(0) for side in sides}, "box": np.empty(0)}
    stoker_package.write_tfrecord(tmp_path / "none.tfrecord", [none, record])
    assert sheet_of(stoker, tmp_path, tmp_path / "none.tfrecord").partition("<h2>")[0].count("<i style=") == 2
    far = {**record, "box": np.array([10.0, 900.0, 20.0, 1000.0])}
    for side in sides:
        del far[f"object/bbox/{side}"]
    stoker_package.write_tfrecord(tmp_path / "b.tfrecord", [far])
    assert "<i style=" not in sheet_of(stoker, tmp_path, tmp_path / "b.tfrecord"), "not a box of this picture"


def test_a_pipeline_of_the_user_shows_what_it_does_epoch_after_epoch(
    stoker: Any, tmp_path: Path, image_folder: Path, module: Path
) -> None:
    page = sheet_of(stoker, tmp_path, image_folder, "--augment", f"{module}:train")
    rows = page.partition("<h2>Augmentations")[2].partition("<section")[0]
    assert "RandomResizedCrop(32)" in rows and "user_pipelines.py:train" in rows
    made = re.findall(r"data:image/png;base64,[^\"]+", rows)
    assert len(made) == 3 * 8 and len(set(made)) > 20, "each epoch has other crops"
    assert rows.count("data:image/jpeg;base64,") == 3, "as they are stored, in front"


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [("number", "is of type int"), ("ragged", "cannot be counted"), ("stored", "its samples have no picture field")],
)
def test_a_pipeline_that_shows_nothing_says_why(
    stoker: Any, tmp_path: Path, image_folder: Path, module: Path, pipeline: str, why: str
) -> None:
    with module.open("a") as file:
        file.write(f"stored = stoker.files({str(image_folder)!r})\nragged = stored.filter(bool)\n")
    result = stoker("show", image_folder, "--html", tmp_path / "x.html", "--augment", f"{module}:{pipeline}")
    assert result.exit_code == 2 and why in result.stderr and not (tmp_path / "x.html").exists()
    assert "--html" in stoker("show", image_folder, "--augment", f"{module}:train").stderr


def sheet_of(stoker: Any, folder: Path, *words: object) -> str:
    """The page of a source, after a look at whether it is whole and fetches nothing."""
    result = stoker("show", *words, "--html", folder / "sheet.html")
    assert result.exit_code == 0, result.stderr
    page = (folder / "sheet.html").read_text(encoding="utf-8")
    assert "<script" not in page and "url(" not in page
    assert all(value.startswith("data:") for name, value in attributes(page) if name in ("src", "href", "srcset"))
    return page


# ---- records ----------------------------------------------------------------------------------------------------------------


def samples() -> list[dict[str, Any]]:
    return [
        {
            "__key__": f"k{number}",
            "jpg": jpeg_bytes(40 + number, 30, seed=number),
            "cls": number,
            "txt": f"a text, {'very ' * 30}long",
            "json": {"name": "<b>", "n": number},
            "npy": np.zeros((2, 3), np.float32),
        }
        for number in range(5)
    ]


@pytest.fixture
def shards(tmp_path: Path) -> dict[str, Path]:
    """The same samples in every format, also under names that say nothing."""
    pytest.importorskip("lmdb")
    folder = tmp_path / "kinds"
    folder.mkdir()
    packed = [{**sample, "npy": b"raw", "json": b"{}"} for sample in samples()]
    stoker_package.write_tar(folder / "a.tar", samples())
    stoker_package.write_tfrecord(folder / "a.tfrecord", packed)
    stoker_package.write_lmdb(folder / "a.lmdb", samples())
    (folder / "db").mkdir()
    (folder / "db" / "data.mdb").write_bytes((folder / "a.lmdb").read_bytes())
    paths = {path.name: path for path in folder.iterdir()}
    for name in ("a.tar", "a.tfrecord", "a.lmdb"):
        paths[f"plain {name}"] = folder / f"plain-{name[2:]}-00000-of-00001"
        paths[f"plain {name}"].write_bytes((folder / name).read_bytes())
    for name in ("a.tar", "a.tfrecord"):
        paths[f"{name}.gz"] = folder / f"{name}.gz"
        paths[f"{name}.gz"].write_bytes(gzip.compress((folder / name).read_bytes()))
    return paths


KINDS = ["a.tar", "a.tfrecord", "a.lmdb", "db", "plain a.tar", "plain a.tfrecord", "plain a.lmdb", "a.tar.gz", "a.tfrecord.gz"]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_every_kind_are_shown(stoker_json: Any, stoker: Any, shards: dict[str, Path], kind: str) -> None:
    told = stoker_json("show", shards[kind], "-n", 3)
    assert told["samples"] == (None if kind.endswith(".gz") else 5)
    assert set(told["fields"]) == {"jpg", "cls", "txt", "json", "npy"}
    first = told["shown"][0]["fields"]
    assert (first["jpg"]["width"], first["jpg"]["format"], first["cls"]["value"]) == (40, "JPEG", "0")
    result = stoker("show", shards[kind], "-n", 3)
    assert result.exit_code == 0 and "40 x 30 JPEG RGB" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 250


def test_braces_globs_and_folders_of_shards_are_read(stoker_json: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "s-{:02d}.tar", samples(), max_samples=2)
    for name in (tmp_path, tmp_path / "s-*.tar", tmp_path / "s-{00..02}.tar", f"{tmp_path}/s-00.tar::{tmp_path}/s-{{01,02}}.tar"):
        assert stoker_json("show", name)["samples"] == 5


@pytest.mark.parametrize("name", ["train-{}-of-02", "train.tfrecord-{}-of-02"])
def test_a_folder_of_shards_without_an_ending_is_looked_into(stoker_json: Any, tmp_path: Path, name: str) -> None:
    for number in ("00", "01"):
        stoker_package.write_tfrecord(tmp_path / name.format(number), [{"n": number}])
    assert stoker_json("show", tmp_path)["samples"] == 2


def test_pickles_stay_closed_and_missing_fields_are_dashes(stoker: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(
        tmp_path / "a.tar", [{"__key__": "a", "pkl": b"cos\nsystem\n(S'false'\ntR."}, {"__key__": "b", "txt": "x"}]
    )
    result = stoker("show", tmp_path / "a.tar")
    assert result.exit_code == 0 and "—" in result.stdout


def test_a_field_that_cannot_be_decoded_makes_the_sample_bad(stoker: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(
        tmp_path / "a.tar", [{"__key__": "a", "cls": b"x", "jpg": b"y"}, {"__key__": "b", "cls": 1, "jpg": b"y"}]
    )
    result = stoker("show", tmp_path / "a.tar")
    assert result.exit_code == 1 and "bad sample a" in result.stderr and "bad sample b" in result.stderr


@pytest.mark.parametrize("data", [b"", b"<!DOCTYPE html>", b"\x1f\x8b\x08\0"])
def test_a_tar_that_is_none_is_a_data_error(stoker: Any, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    result = stoker("show", tmp_path / "a.tar")
    assert result.exit_code == 1 and "a.tar" in result.stderr and "Traceback" not in result.stderr


def test_the_sheet_has_the_pictures_of_any_field_and_the_other_values(
    stoker: Any, shards: dict[str, Path], tmp_path: Path
) -> None:
    assert stoker("show", shards["a.lmdb"], "--html", tmp_path / "sheet.html").exit_code == 0
    page = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    assert len(pictures(page)) == 5
    assert "float32[2, 3]" in page and "&lt;b&gt;" in page and "a text, very" in page


def test_records_without_pictures_have_a_sheet_too(stoker: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "a.tar", [{"__key__": "a", "txt": "only text"}])
    assert stoker("show", tmp_path / "a.tar", "--html", tmp_path / "sheet.html").exit_code == 0
    page = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    assert "only text" in page and "all 1 sample" in page and 'class="frame' not in page, "no empty frame"


def test_pictures_are_counted_and_not_samples(stoker: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "a.tar", [{"__key__": "a", "txt": "only text"}])
    assert stoker("show", tmp_path / "a.tar", "--html", tmp_path / "sheet.html").stdout.endswith("sheet.html: 0 pictures\n")


def test_no_two_rows_of_augmentations_have_the_same_crops(stoker: Any, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jpg").write_bytes(jpeg_bytes(64, 48))
    made = re.findall(r'alt="augmented" src="([^"]+)"', sheet_of(stoker, tmp_path, tmp_path))
    assert len(made) == 16 and made[:8] != made[8:]


def test_pictures_are_drawn_where_there_are_colours(shards: dict[str, Path], stoker: Any) -> None:
    assert "not a terminal" in stoker("show", shards["a.tar"], "-p").stderr
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80)
    assert can_show(console) and not can_show(Console(file=io.StringIO()))
    pictures = [Picture(number, f"k{number}", number, None, 9, thumbnail=jpeg_bytes(72, 40), field="jpg") for number in range(3)]
    show_pictures(console, [*pictures, Picture(3, "bad", None, None, 9, "it is bad", field="jpg")])
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "▀" in drawn and "\x1b[38;2;" in drawn and "k2" in drawn and "it is bad" in drawn
    assert half_blocks(jpeg_bytes(72, 40)).plain.count("\n") == 9


def pictures(page: str) -> list[str]:
    """The pictures of a sheet, those of augmentations left out."""
    return re.findall(r"<figure>(?:(?!</figure>).)*data:image/jpeg;base64,", page, re.DOTALL)


def attributes(page: str) -> list[tuple[str, str]]:
    """All attributes of all tags of a page."""
    found: list[tuple[str, str]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.extend((name, value or "") for name, value in attrs)  # type: ignore[method-assign]
    parser.feed(page)
    return found


def test_a_narrow_terminal_gets_blocks_and_a_pipe_gets_lines(
    stoker: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = stoker("show", image_folder, "-n", 2).stdout
    assert "cat/cat_00.jpg" in wide and wide.splitlines()[-1].count("  ") > 3
    monkeypatch.setenv("COLUMNS", "40")
    lines = stoker("show", image_folder, "-n", 2).stdout.splitlines()
    assert "key     cat/cat_00.jpg" in map(str.rstrip, lines) and "…" not in "".join(lines)
    assert all(len(line) <= 40 for line in lines[4:])


def test_a_long_key_is_one_line_in_a_pipe(stoker: Any, tmp_path: Path) -> None:
    name = "x" * 180 + ".jpg"
    (tmp_path / name).write_bytes(jpeg_bytes(40, 30))
    assert name in stoker("show", tmp_path).stdout

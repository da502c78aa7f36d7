"""`stoker show`: contents as text, JSON and pictures."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

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


def test_a_list_takes_labels_from_folders_or_from_its_lines(stoker_json: Any, image_folder: Path, tmp_path: Path) -> None:
    paths = [image_folder / "owl" / "owl_00.jpg", image_folder / "cat" / "cat_01.jpg"]
    plain, numbered = tmp_path / "plain.txt", tmp_path / "numbered.txt"
    plain.write_text("".join(f"{path}\n" for path in paths))
    numbered.write_text("".join(f"{path} {label}\n" for path, label in zip(paths, (7, 9))))
    assert [sample["class_name"] for sample in stoker_json("show", plain)["shown"]] == ["owl", "cat"]
    assert [sample["label"] for sample in stoker_json("show", numbered)["shown"]] == [7, 9]


@pytest.mark.parametrize("name", ["missing", "shards-{0000..0009}.tar", "x.tfrecord", "s3://bucket/x.tar"])
def test_a_source_that_is_not_there_or_not_known_is_wrong_usage(stoker: Any, name: str) -> None:
    result = stoker("show", name)
    assert result.exit_code == 2
    assert name in result.stderr and "Traceback" not in result.stderr


def test_a_folder_of_shards_says_what_is_known(stoker: Any, tmp_path: Path) -> None:
    (tmp_path / "train-0000.tar").write_bytes(b"")
    result = stoker("show", tmp_path)
    assert result.exit_code == 2
    assert "train-0000.tar" in result.stderr and "class folders" in result.stderr


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
    assert page.count("data:image/jpeg;base64,") == 1
    assert "url(" not in page and "@import" not in page
    assert all(value.startswith("data:") for name, value in attributes(page) if name in ("src", "href", "srcset"))


def attributes(page: str) -> list[tuple[str, str]]:
    """All attributes of all tags of a page."""
    found: list[tuple[str, str]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.extend((name, value or "") for name, value in attrs)  # type: ignore[method-assign]
    parser.feed(page)
    return found

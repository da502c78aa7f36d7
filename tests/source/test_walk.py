"""Listing a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from stoker.errors import ConfigError, ReadError
from stoker.image.pillow import FORMATS
from stoker.source.files.walk import IMAGE_EXTENSIONS, choose_keep, list_files
from tests.source.test_paths import NAMES

TREE = [
    "top.jpg",
    "top.txt",
    "a/1.jpg",
    "a/2.JPG",
    "a/[x].jpg",
    "a/b/3.jpg",
    "a/b/c/4.jpg",
    "a/b/c/5.png",
    "a-b/6.jpg",
    "z/äé.jpg",
    "z/^7.jpg",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def listed(root: Path, pattern: str = "**/*") -> list[str]:
    found, _ = list_files(os.fsencode(root) + b"/", choose_keep(pattern))
    return [os.fsdecode(name) for name in found]


GLOBS = [
    *["*", "*.jpg", "*/*.jpg", "**/*.jpg", "**/*.JPG", "a/**/*.jpg", "a/**/c/*", "**/b/**/*.png", "a*/*", "none/*"],
    *["a/?.jpg", "a/b/c/[45].*", "a/[!1]*", "a/[[]x].jpg", "**/[0-9].jpg", "a/[x", "a/]*"],
    *["z/??.jpg", "z/[!a].jpg", "z/[^a]*", "z/[\\^]*"],
]


@pytest.mark.parametrize("pattern", GLOBS)
def test_a_pattern_matches_what_pathlib_matches(tree: Path, pattern: str) -> None:
    expected = sorted(os.fsencode(path.relative_to(tree)) for path in tree.glob(pattern) if path.is_file())
    assert listed(tree, pattern) == [os.fsdecode(name) for name in expected]


def test_two_stars_at_the_end_match_every_file(tree: Path) -> None:
    assert listed(tree, "a/**") == sorted(name for name in TREE if name.startswith("a/"))


@pytest.mark.parametrize("pattern", ["", "/abs/*.jpg", "../*.jpg", "a//b", "a/./b", "a/", "[z-a]"])
def test_a_pattern_that_can_match_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        choose_keep(pattern)


def test_the_default_keeps_images_in_capitals_or_not(tmp_path: Path) -> None:
    images = [f"1{extension.decode()}" for extension in IMAGE_EXTENSIONS] + ["2.JPEG", "3.Png", "a.b.jpg", "jpg.jpg"]
    for name in [*images, "notes.txt", "jpg", "x.jpg.txt", "x.jpg~", "Thumbs.db", "noext"]:
        (tmp_path / name).touch()
    assert listed(tmp_path) == sorted(images)


def test_every_format_that_is_decoded_has_an_extension_here() -> None:
    formats = Image.registered_extensions()  # older ones know no AVIF
    assert {formats.get(extension.decode(), "AVIF") for extension in IMAGE_EXTENSIONS} == set(FORMATS)


def test_paths_are_sorted_by_their_bytes(tree: Path) -> None:
    names = listed(tree, "**/*")
    assert names == sorted(names, key=os.fsencode)
    assert names.index("a-b/6.jpg") < names.index("a/1.jpg")  # "-" comes before "/"


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    for name in (".cache/1.jpg", ".2.jpg", "3.jpg"):
        (tmp_path / name).touch()
    assert listed(tmp_path) == listed(tmp_path, "**") == ["3.jpg"]


def test_what_was_looked_at_is_counted(tree: Path) -> None:
    assert list_files(os.fsencode(tree) + b"/", choose_keep("*.nothing")) == ([], len(TREE))


def test_a_folder_with_an_image_extension_is_still_a_folder(tmp_path: Path) -> None:
    (tmp_path / "odd.jpg").mkdir()
    (tmp_path / "odd.jpg" / "1.jpg").touch()
    assert listed(tmp_path) == ["odd.jpg/1.jpg"]


def test_links_to_folders_are_followed_and_may_share_a_target(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "1.jpg").touch()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").symlink_to(tmp_path / "pool")
    (tmp_path / "set" / "b").symlink_to(tmp_path / "pool")
    assert listed(tmp_path / "set") == ["a/1.jpg", "b/1.jpg"]


def test_links_that_lead_around_end(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").touch()
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    (tmp_path / "x" / "self").symlink_to(".")
    (tmp_path / "x" / "other").symlink_to("../y")
    (tmp_path / "y" / "other").symlink_to("../x")
    assert listed(tmp_path) == ["x/1.jpg", "x/other/1.jpg", "y/1.jpg", "y/other/1.jpg"]


def test_a_root_that_is_a_link_is_guarded_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.jpg").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "back").symlink_to(tmp_path / "link")
    assert listed(tmp_path / "link") == ["1.jpg"]


def test_links_to_nowhere_are_files(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    (tmp_path / "circle.jpg").symlink_to("circle.jpg")
    assert listed(tmp_path) == ["circle.jpg", "gone.jpg"]


def test_names_of_any_bytes_are_listed(tmp_path: Path) -> None:
    for name in NAMES:
        with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
            pass
    found, _ = list_files(os.fsencode(tmp_path) + b"/", choose_keep("**/*"))
    globbed, _ = list_files(os.fsencode(tmp_path) + b"/", choose_keep("*.jp?"))
    assert found == globbed == sorted(NAMES)


def test_a_question_mark_is_one_character_however_many_bytes(tmp_path: Path) -> None:
    for name in (b"\xc3\xa4.jpg", b"\xff.jpg", b"ab.jpg"):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
            pass
    found, _ = list_files(os.fsencode(tmp_path) + b"/", choose_keep("?.jpg"))
    assert found == [b"\xc3\xa4.jpg", b"\xff.jpg"]


def test_a_tree_deeper_than_python_recurses_is_listed(tmp_path: Path) -> None:
    depth = 1200
    folders = [os.path.join(tmp_path, *["d"] * level) for level in range(1, depth + 1)]
    for folder in folders:
        os.mkdir(folder)
    last = os.path.join(folders[-1], "1.jpg")
    Path(last).touch()
    try:
        assert listed(tmp_path) == ["d/" * depth + "1.jpg"]
    finally:
        os.unlink(last)
        for folder in reversed(folders):
            os.rmdir(folder)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"missing/: cannot be listed: No such file"):
        listed(tmp_path / "missing")

"""What a spec of shards stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import ConfigError, SourceEmpty, SourceNotFound
from stoker.source.shards.shard_source import MAX_SHARDS, braces, expand

ENDINGS = (".tar", ".tgz")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{0..2}.tar", ["a-0.tar", "a-1.tar", "a-2.tar"]),
        ("a-{008..010}.tar", ["a-008.tar", "a-009.tar", "a-010.tar"]),
        ("a-{2..0}.tar", ["a-2.tar", "a-1.tar", "a-0.tar"]),
        ("{0..9..4}", ["0", "4", "8"]),
        ("{a..c}x", ["ax", "bx", "cx"]),
        ("{train,val}-{0..1}", ["train-0", "train-1", "val-0", "val-1"]),
        ("{a,b{0..1}}", ["a", "b0", "b1"]),
        ("{,x}y", ["y", "xy"]),
        ("{}", ["{}"]),
        ("{one}", ["{one}"]),
        ("a{0..1", ["a{0..1"]),
        ("{-1..1}", ["-1", "0", "1"]),
    ],
)
def test_braces_stand_for_what_a_shell_makes_of_them(text: str, names: list[str]) -> None:
    assert braces(text) == names


@pytest.mark.parametrize("bomb", ["{0..999999999}", "{0..9999}{0..9999}", "{a,b}" * 40, "{0..1000000}"])
def test_a_brace_bomb_is_told_before_it_is_expanded(bomb: str) -> None:
    with pytest.raises(ConfigError, match=rf"at most {MAX_SHARDS:,} are allowed"):
        braces(bomb)


def test_globs_are_sorted_and_leave_indexes_out(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "a.tar.stk"):
        (tmp_path / name).touch()
    assert expand(str(tmp_path / "*"), "tar", ENDINGS) == [str(tmp_path / "a.tar"), str(tmp_path / "b.tar")]


def test_a_folder_stands_for_its_shards(tmp_path: Path) -> None:
    for name in ("b.tgz", "a.tar", "readme.txt", ".hidden.tar"):
        (tmp_path / name).touch()
    assert [Path(name).name for name in expand(tmp_path, "tar", ENDINGS)] == ["a.tar", "b.tgz"]


def test_lists_and_double_colons_follow_each_other() -> None:
    assert expand(["b.tar", "a{0..1}.tar::c.tar"], "tar", ENDINGS) == ["b.tar", "a0.tar", "a1.tar", "c.tar"]


def test_a_file_whose_name_holds_braces_is_itself(tmp_path: Path) -> None:
    odd = tmp_path / "a{0..1}[x].tar"
    odd.touch()
    assert expand(str(odd), "tar", ENDINGS) == [str(odd)]


def test_what_cannot_be_found_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="no file matches"):
        expand(str(tmp_path / "*.tar"), "tar", ENDINGS)
    with pytest.raises(SourceEmpty, match=r"ends in \.tar or \.tgz"):
        expand(tmp_path, "tar", ENDINGS)
    with pytest.raises(ConfigError, match="empty list"):
        expand([], "tar", ENDINGS)
    with pytest.raises(ConfigError, match="takes paths and URLs, got int in the list"):
        expand([3], "tar", ENDINGS)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"^tar\(\) takes paths and URLs, got bytearray$"):
        expand(bytearray(b"a.tar"), "tar", ENDINGS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="remote folders cannot be listed"):
        expand("s3://bucket/*.tar", "tar", ENDINGS)


def test_a_url_keeps_its_query() -> None:
    assert expand("https://host/a-{0..1}.tar?x=1", "tar", ENDINGS) == ["https://host/a-0.tar?x=1", "https://host/a-1.tar?x=1"]


def test_a_file_whose_name_holds_colons_is_itself(tmp_path: Path) -> None:
    odd = tmp_path / "a::b.tar"
    odd.touch()
    assert expand([odd, "x.tar::y.tar"], "tar", ENDINGS) == [str(odd), "x.tar", "y.tar"]


def test_file_urls_are_paths_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a b.tar").touch()
    for url in (f"file://{tmp_path}/a%20b.tar", f"file://localhost{tmp_path}/a%20b.tar", f"file://{tmp_path}/a b.tar"):
        assert expand(url, "tar", ENDINGS) == [str(tmp_path / "a b.tar")]
    assert expand(f"file://{tmp_path}/s-{{0..1}}.tar", "tar", ENDINGS) == [str(tmp_path / f"s-{n}.tar") for n in range(2)]
    for url in ("file://elsewhere/a.tar", "file://a.tar"):
        with pytest.raises(ConfigError, match="on this machine"):
            expand(url, "tar", ENDINGS)


@pytest.mark.parametrize("name", ["x" * 5000, "{a,b}" * 1000, "a\0b", "{0..9" * 2000, "{" * 3000, "{}" * 3000])
def test_names_no_file_can_have_do_no_harm(name: str) -> None:
    try:
        assert expand(name, "tar", ENDINGS) == [name]
    except ConfigError as error:
        assert "at most" in str(error)

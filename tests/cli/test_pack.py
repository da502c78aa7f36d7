"""`stoker pack`: whole shards, the same every time, whatever happens on the way."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker as stoker_package
from stoker.cli.classes import classes_file, read_classes
from stoker.cli.pack import choose_dest
from stoker.errors import ConfigError

from ..conftest import CLASSES
from ..support import image_bytes, jpeg_bytes, until

TOTAL = 24


def shards(folder: Path, ending: str = "tar") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"*.{ending}"))}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough pictures, and large enough, that packing them takes a moment."""
    folder = tmp_path_factory.mktemp("photos")
    pictures = [jpeg_bytes(640, 480, seed=seed) for seed in range(4)]
    for number in range(64):
        (folder / f"{number:03d}.jpg").write_bytes(pictures[number % 4])
    return folder


# ---- results ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["tar", "tfrecord", "lmdb"])
def test_a_folder_becomes_shards_that_read_back(stoker_json: Any, image_folder: Path, tmp_path: Path, format: str) -> None:
    if format == "lmdb":
        pytest.importorskip("lmdb")
    limit = [] if format == "lmdb" else ["--max-samples", 10]
    told = stoker_json("pack", image_folder, tmp_path / "out", "--format", format, *limit)
    assert (told["samples"], told["shards"], told["made"], told["kept"], told["bad"]) == (
        TOTAL,
        1 if format == "lmdb" else 3,
        1 if format == "lmdb" else 3,
        0,
        [],
    )
    shown = stoker_json("show", tmp_path / "out", "-n", 3)
    assert shown["samples"] == TOTAL
    image, label = ("jpg", "cls") if format == "tar" else ("image", "label")
    assert shown["fields"][image] == "bytes" and shown["fields"][label] == "int64[]"
    assert shown["shown"][0]["fields"][image]["picture"] == "jpg"
    checked = stoker_json("verify", tmp_path / "out", "--decode")
    assert (checked["samples"], checked["bad"]) == (TOTAL, 0)


def test_class_names_lie_beside_the_shards_and_are_shown(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    assert stoker("pack", image_folder, tmp_path / "train-{:04d}.tar").exit_code == 0
    assert json.loads((tmp_path / "train-classes.json").read_text()) == list(CLASSES)
    assert "2 owl" in stoker("show", tmp_path / "train-0000.tar").stdout


def test_the_text_says_what_was_made(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    result = stoker("pack", image_folder, tmp_path / "out", "--max-samples", 10)
    assert result.exit_code == 0 and result.stderr == ""
    assert "3 shards: 24 samples" in result.stdout and "jpg, cls" in result.stdout and "000002.tar" in result.stdout
    again = stoker("pack", image_folder, tmp_path / "out", "--max-samples", 10)
    assert "3 of them made before" in again.stdout


def test_the_number_of_threads_changes_nothing(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    options = ("--max-samples", 5, "--shuffle", "--seed", 4, "--resize-max", 80)
    for jobs in (1, 5):
        assert stoker("pack", image_folder, tmp_path / str(jobs), *options, "-j", jobs).exit_code == 0
    assert shards(tmp_path / "1") == shards(tmp_path / "5") and len(shards(tmp_path / "1")) == 5


def test_pictures_are_made_smaller(stoker_json: Any, photos: Path, tmp_path: Path) -> None:
    told = stoker_json("pack", photos, tmp_path / "o.tar", "--resize-max", 64, "--quality", 70)
    assert told["bytes"] < 1_000_000
    assert {
        (s["fields"]["jpg"]["width"], s["fields"]["jpg"]["height"]) for s in stoker_json("show", tmp_path / "o.tar")["shown"]
    } == {(64, 48)}


def test_mixed_formats_and_equal_keys_are_noted(stoker: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, format in (("a.jpg", "JPEG"), ("a.png", "PNG"), ("b.jpg", "JPEG")):
        (tmp_path / "in" / name).write_bytes(image_bytes(20, 20, format=format))
    result = stoker("pack", tmp_path / "in", tmp_path / "out")
    assert "a-2" in result.stdout and "1 png" in result.stdout and result.exit_code == 0


def test_packed_shards_and_pipes_are_read_in_sequence(
    stoker: Any, start: Callable[..., Any], image_folder: Path, tmp_path: Path
) -> None:
    stoker("pack", image_folder, tmp_path / "a.tar")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes(), 1))
    result = stoker("pack", tmp_path / "a.tar.gz", tmp_path / "gz-{}.tar", "--max-samples", 9)
    assert result.exit_code == 0 and "in sequence" in result.stderr
    assert [path.name for path in sorted(tmp_path.glob("gz-*.tar"))] == ["gz-000000.tar", "gz-000001.tar", "gz-000002.tar"]
    stoker("pack", tmp_path / "a.tar", tmp_path / "a.tfrecord")
    (tmp_path / "a.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "a.tfrecord").read_bytes(), 1))
    assert stoker("pack", tmp_path / "a.tfrecord.gz", tmp_path / "b.tfrecord").exit_code == 0
    assert (tmp_path / "b.tfrecord").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()
    command = [sys.executable, "-m", "stoker.cli.main", "pack", "-", str(tmp_path / "piped.tar"), "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(command, input=(tmp_path / "a.tar").read_bytes(), capture_output=True, env=environment, timeout=60)
    assert json.loads(done.stdout)["samples"] == TOTAL
    direct, piped = (stoker_package.tar(tmp_path / name) for name in ("a.tar", "piped.tar"))
    assert all(dict(direct.sample(row)) == dict(piped.sample(row)) for row in range(TOTAL))


# ---- stopped and started again ----------------------------------------------------------------------------------------------


def test_killed_and_started_again_it_gives_the_same_bytes(
    stoker: Any, start: Callable[..., Any], photos: Path, tmp_path: Path
) -> None:
    options = ("--max-samples", 4, "--resize-max", 300, "--shuffle", "-j", 2)
    assert stoker("pack", photos, tmp_path / "once", *options).exit_code == 0
    killed = 0
    for more in (2, 8):
        process = start("pack", photos, tmp_path / "often", *options)
        until(lambda more=more: len(list((tmp_path / "often").glob("*.tar"))) >= more or process.poll() is not None)
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed
    there = len(shards(tmp_path / "often"))
    result = stoker("pack", photos, tmp_path / "often", *options, "--json")
    assert json.loads(result.stdout)["kept"] == there > 0
    assert shards(tmp_path / "often") == shards(tmp_path / "once") and len(shards(tmp_path / "once")) == 16
    assert sorted(path.name for path in (tmp_path / "often").iterdir()) == sorted(
        path.name for path in (tmp_path / "once").iterdir()
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_whole_shards_and_nothing_else(
    start: Callable[..., Any], photos: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("pack", photos, tmp_path / "out", "--max-samples", 4, "--resize-max", 300, "-j", 2)
    until(lambda: len(list((tmp_path / "out").glob("*.tar"))) >= 2 or process.poll() is not None)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 143), err
    assert "Traceback" not in err and out == ""
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {name for shard in shards(tmp_path / "out") for name in (shard, f"{shard}.stk")}


def test_what_is_in_the_way_is_left_alone(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "000000.tar").write_bytes(b"mine")
    result = stoker("pack", image_folder, tmp_path / "out")
    assert result.exit_code == 74 and "000000.tar" in result.stderr and "--overwrite" in result.stderr
    assert (tmp_path / "out" / "000000.tar").read_bytes() == b"mine"
    assert stoker("pack", image_folder, tmp_path / "out", "--overwrite").exit_code == 0
    assert len(stoker_package.tar(tmp_path / "out")) == TOTAL


# ---- what goes wrong --------------------------------------------------------------------------------------------------------


def test_bad_samples_are_named_and_the_other_shards_made(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(image_folder, tmp_path / "in")
    (tmp_path / "in" / "cat" / "cat_03.jpg").write_bytes(jpeg_bytes(300, 300)[:-900])
    words = ("pack", tmp_path / "in", tmp_path / "out", "--max-samples", 8, "--resize-max", 100)
    result = stoker(*words)
    assert result.exit_code == 1
    assert "bad sample cat/cat_03.jpg" in result.stderr and "--skip-bad" in result.stderr
    assert sorted(shards(tmp_path / "out")) == ["000001.tar", "000002.tar"]
    skipped = stoker(*words, "--skip-bad", "--json")
    assert skipped.exit_code == 0 and "1 bad sample skipped" in skipped.stderr
    told = json.loads(skipped.stdout)
    assert (told["samples"], told["kept"], [bad["key"] for bad in told["bad"]]) == (TOTAL - 1, 2, ["cat/cat_03.jpg"])
    again = json.loads(stoker(*words, "--json").stdout)
    assert again["kept"] == 3 and [bad["key"] for bad in again["bad"]] == ["cat/cat_03.jpg"]


def test_a_full_disk_leaves_whole_shards(start: Callable[..., Any], photos: Path, tmp_path: Path) -> None:
    def limit() -> None:  # as a full disk would, but only for this process
        resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    (tmp_path / "in").mkdir()
    for number, size in enumerate((100, 100, 900)):
        (tmp_path / "in" / f"{number}.jpg").write_bytes(jpeg_bytes(size, size, seed=number))
    command = [
        sys.executable,
        "-m",
        "stoker.cli.main",
        "pack",
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        "--max-samples",
        "1",
        "-j",
        "1",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=limit, timeout=60)
    assert done.returncode == 74 and "cannot be written" in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "000000.tar",
        "000000.tar.stk",
        "000001.tar",
        "000001.tar.stk",
    ]


def test_a_folder_that_cannot_be_written_to_is_told(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for dest in ("out", "out-{}.tar"):
        result = stoker("pack", image_folder, tmp_path / "file" / dest)
        assert result.exit_code == 74 and "cannot be made" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["-"], ["s3://bucket/out"], ["out-{:06d}.zip"], ["a-{}-{}.tar"], ["out-{}.lmdb"],
        ["out.tar", "--format", "lmdb"], ["out.lmdb", "--max-samples", "3"], ["out", "--max-bytes", "much"],
        ["out", "--quality", "0"], ["out.tar", "--fields", "nonsense"], ["out.tar", "--max-samples", "3"],
    ],
)  # fmt: skip
def test_wrong_usage_is_status_2_and_writes_nothing(
    stoker: Any, image_folder: Path, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = stoker("pack", image_folder, *words)
    assert result.exit_code == 2 and "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("*.tar*"))


@pytest.mark.parametrize("name", ["train-{:06d}.tar", "one.tar", "one.tfrecord"])
def test_folders_are_made_for_shards_of_any_name(stoker: Any, image_folder: Path, tmp_path: Path, name: str) -> None:
    assert stoker("pack", image_folder, tmp_path / "new" / "deep" / name).exit_code == 0
    assert len(list((tmp_path / "new" / "deep").glob("*.stk"))) == 1


def test_an_empty_name_is_wrong_usage_and_not_this_folder(stoker: Any, image_folder: Path) -> None:
    for words in ((image_folder, ""), ("", "out/")):
        result = stoker("pack", *words)
        assert result.exit_code == 2 and "is empty" in result.stderr


def test_where_shards_go_is_read_from_dest(tmp_path: Path) -> None:
    assert choose_dest(f"{tmp_path}/x", None)[:2] == ("tar", f"{tmp_path}/x/{{:06d}}.tar")
    assert choose_dest(f"{tmp_path}/x", "lmdb")[:2] == ("lmdb", f"{tmp_path}/x/data.mdb")
    assert choose_dest(f"{tmp_path}/x-%03d.tfrecords", None)[:2] == ("tfrecord", f"{tmp_path}/x-%03d.tfrecords")
    assert choose_dest(str(tmp_path), "tfrecord")[1] == f"{tmp_path}/{{:06d}}.tfrecord"
    with pytest.raises(ConfigError):
        choose_dest(f"{tmp_path}/x.tar", "tfrecord")


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.parquet", "x.7z", "x-{:04d}.zip"])
def test_a_file_that_cannot_be_written_is_wrong_usage_and_makes_no_folder(
    stoker: Any, image_folder: Path, tmp_path: Path, name: str
) -> None:
    result = stoker("pack", image_folder, tmp_path / "out" / name)
    assert result.exit_code == 2 and all(ending in result.stderr for ending in (".tar", ".tfrecord", ".lmdb"))
    assert not (tmp_path / "out").exists()


def test_a_folder_may_have_a_dot_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "there.d").mkdir()
    for name in ("v1.2", "v1.0rc1", ".hidden", "new.d/", "there.d"):
        dest = f"{tmp_path}/{name}"
        assert choose_dest(dest, None)[1] == os.path.join(dest, "{:06d}.tar")


def test_a_list_of_classes_that_is_none_is_passed_over(tmp_path: Path) -> None:
    for text in ("", "{}", "[1]", "[" * 100_000):
        classes_file(f"{tmp_path}/a-0.tar").write_text(text)
        assert read_classes(f"{tmp_path}/a-0.tar") == ()


def test_progress_is_told_only_when_asked_for(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    assert stoker("pack", image_folder, tmp_path / "a.tar").stderr == ""
    told = stoker("pack", image_folder, tmp_path / "b.tar", "--progress").stderr
    assert "packing: 24 of 24 samples" in told and "/s" in told

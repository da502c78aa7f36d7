"""`stoker verify`: bad samples listed, exit status 1."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stoker as stoker_package

from ..support import jpeg_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "shards"
    path.mkdir()
    samples = [{"__key__": f"k{number:02d}", "jpg": jpeg_bytes(60, 40, seed=number), "cls": number} for number in range(12)]
    stoker_package.write_tar(path / "t-{}.tar", samples, max_samples=4)
    return path


def damage(path: Path, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[whole.index(data) + len(data) // 2] ^= 1
    path.write_bytes(whole)


def test_a_good_data_set_is_told_with_counts(stoker: Any, stoker_json: Any, folder: Path) -> None:
    result = stoker("verify", folder)
    assert result.exit_code == 0 and "12 samples in 3 shards" in result.stdout and "all good" in result.stdout
    told = stoker_json("verify", folder, "--decode", "-j", 3)
    assert (told["samples"], told["bad"], told["problems"], told["shards"]) == (12, 0, [], 3) and told["bytes_per_s"] > 0


def test_bad_samples_are_listed_with_key_shard_byte_and_reason(stoker: Any, folder: Path) -> None:
    damage(folder / "t-000001.tar", jpeg_bytes(60, 40, seed=6))
    damage(folder / "t-000002.tar", jpeg_bytes(60, 40, seed=9))
    result = stoker("verify", folder)
    assert result.exit_code == 1 and "2 problems" in result.stderr and "Traceback" not in result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("  bad")]
    assert ["k06" in lines[0], "t-000001.tar, byte" in lines[0], "k09" in lines[1], "checksum" in lines[1]] == [True] * 4
    told = json.loads(stoker("verify", folder, "--json").stdout)
    assert [problem["key"] for problem in told["problems"]] == ["k06", "k09"] and told["samples"] == 12


def test_a_shard_that_is_no_tar_does_not_stop_the_others(stoker: Any, folder: Path) -> None:
    (folder / "t-000003.tar").write_bytes(b"<!DOCTYPE html><html>not found</html>")
    (folder / "t-000004.tar").write_bytes(b"")
    result = stoker("verify", folder, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1 and told["samples"] == 12
    assert [Path(problem["shard"]).name for problem in told["problems"]] == ["t-000003.tar", "t-000004.tar"]
    assert "web page" in told["problems"][0]["reason"]


def test_a_key_split_between_shards_is_told(stoker_json: Any, stoker: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "a.tar", [{"__key__": "1", "txt": "x", "cls": 1}, {"__key__": "2", "txt": "y"}])
    stoker_package.write_tar(tmp_path / "b.tar", [{"__key__": "2", "cls": 1}])
    result = stoker("verify", tmp_path, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1 and [problem["key"] for problem in told["problems"]] == ["2", "2"]
    assert told["repeated_keys"] == {"2": [str(tmp_path / "a.tar"), str(tmp_path / "b.tar")]}


def test_keys_that_repeat_whole_are_only_noted(stoker: Any, tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        stoker_package.write_tar(tmp_path / name, [{"__key__": "1", "txt": name}])
    result = stoker("verify", tmp_path)
    assert result.exit_code == 0 and "1 key in several shards" in result.stdout


def test_shards_without_an_index_are_noted(stoker: Any, folder: Path) -> None:
    (folder / "t-000000.tar.stk").unlink()
    result = stoker("verify", folder)
    assert result.exit_code == 0 and "1 shard without checksums" in result.stdout and "stoker index" in result.stdout


def test_packed_shards_are_checked_in_sequence(stoker: Any, folder: Path) -> None:
    packed = folder.parent / "a.tgz"
    packed.write_bytes(gzip.compress((folder / "t-000000.tar").read_bytes()))
    result = stoker("verify", packed)
    assert result.exit_code == 0 and "4 samples" in result.stdout and "stoker index" not in result.stdout
    stoker_package.write_tfrecord(folder / "r.tfrecord", stoker_package.tar(folder / "t-000000.tar"))
    records = folder / "r.tfrecord"
    packed = folder.parent / "r.tfrecord.gz"
    packed.write_bytes(gzip.compress(records.read_bytes()))
    result = stoker("verify", packed, "--decode")
    assert result.exit_code == 0 and "4 samples" in result.stdout and "all good" in result.stdout
    damage(records, jpeg_bytes(60, 40, seed=2))
    packed.write_bytes(gzip.compress(records.read_bytes()[:-3]))
    result = stoker("verify", packed)
    assert result.exit_code == 1 and "r.tfrecord.gz#2" in result.stdout and "2 problems" in result.stderr


def test_images_are_checked_too(stoker: Any, image_folder: Path, tmp_path: Path) -> None:
    assert stoker("verify", image_folder, "--decode").exit_code == 0
    (tmp_path / "a.jpg").write_bytes(jpeg_bytes(50, 50))
    (tmp_path / "b.jpg").write_bytes(jpeg_bytes(200, 200)[:-700])
    assert stoker("verify", tmp_path).exit_code == 0
    result = stoker("verify", tmp_path, "--decode")
    assert result.exit_code == 1 and "b.jpg" in result.stdout


@pytest.mark.parametrize("name", ["missing.tar", "t-{0..999999999}.tar", "x.parquet"])
def test_a_source_that_is_not_there_is_wrong_usage(stoker: Any, name: str) -> None:
    result = stoker("verify", name)
    assert result.exit_code == 2 and "Traceback" not in result.stderr


def test_a_pipe_can_be_checked(folder: Path) -> None:
    command = [sys.executable, "-m", "stoker.cli.main", "verify", "-", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    data = (folder / "t-000000.tar").read_bytes()
    good = subprocess.run(command, input=data, capture_output=True, env=environment, timeout=60)
    assert good.returncode == 0 and json.loads(good.stdout)["samples"] == 4
    cut = subprocess.run(command, input=data[:3000], capture_output=True, env=environment, timeout=60)
    assert cut.returncode == 1 and "standard input" in json.loads(cut.stdout)["problems"][0]["reason"]


def test_interrupted_it_stops_at_once(folder: Path) -> None:
    command = [sys.executable, "-m", "stoker.cli.main", "verify", "-"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        header = (folder / "t-000000.tar").read_bytes()[:512]
        size = b"%011o\0" % (1 << 30)
        about = header[:124] + size + header[136:148] + b" " * 8 + header[156:]
        about = about[:148] + b"%06o\0 " % sum(about) + about[156:]
        process.stdin.write(about + bytes(1 << 20))  # more than a pipe holds: when it is out, the command is reading
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.returncode == 130 and process.stdout.read() == b"" and b"Traceback" not in process.stderr.read()


TRAIN = """
import stoker
from stoker.image import Resize

def picky(label):
    print(f"looking at {label}")
    if label % 5 == 3:
        raise ValueError(f"{label} is bad")
    return label

photos = stoker.tar("shards/t-*.tar").shuffle(seed=2)
train = photos.image("jpg", Resize((16, 16))).map(cls=picky).batch(4).on_error("skip", budget=9, quarantine="bad.jsonl")
fixed = photos.image("jpg", Resize((16, 16))).batch(4)
"""


@pytest.fixture
def listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of three bad samples: two that a function refuses, and a picture that is cut off."""
    samples = [{"__key__": "cut", "jpg": jpeg_bytes(60, 40, seed=6)[:500], "cls": 1}]
    stoker_package.write_tar(folder / "t-000003.tar", samples)
    monkeypatch.chdir(folder.parent)
    Path("train.py").write_text(TRAIN)
    run = subprocess.run(
        [sys.executable, "-c", "import train; [batch for batch in train.train]"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert sorted(json.loads(line)["key"] for line in Path("bad.jsonl").read_text().splitlines()) == ["cut", "k03", "k08"]
    return folder.parent / "bad.jsonl"


def test_listed_samples_run_again_through_their_pipeline_with_the_full_traceback(stoker: Any, listed: Path) -> None:
    result = stoker("verify", "--replay", listed, "train.py:train")
    assert result.exit_code == 1 and "3 samples: 3 still bad" in result.stdout
    assert result.stderr.count("Traceback (most recent call last)") == 2 and 'train.py", line 8, in picky' in result.stderr
    assert "looking at 3\n" in result.stdout, "in this process and thread"
    told = json.loads(stoker("verify", "--replay", listed, "train.py:fixed", "--json").stdout)
    assert (told["replayed"], told["bad"]) == (3, 1)
    assert {each["key"]: each["error"] for each in told["samples"]} == {"k03": None, "k08": None, "cut": "TruncatedImage"}


def test_one_listed_sample_is_chosen_by_line_or_key(stoker: Any, stoker_json: Any, listed: Path) -> None:
    assert stoker_json("verify", "--replay", listed, "--key", "k03", "train.py:fixed")["replayed"] == 1
    keys = [json.loads(line)["key"] for line in listed.read_text().splitlines()]
    number = 1 + keys.index("cut")
    result = stoker("verify", "--replay", listed, "--line", number, "shards")
    assert result.exit_code == 1 and f"line {number}: cut" in result.stdout and "1 sample: 1 still bad" in result.stdout
    for choice in (("--line", 9), ("--key", "k99")):
        result = stoker("verify", "--replay", listed, *choice, "shards")
        assert result.exit_code == 2 and "has no line with" in result.stderr


def test_a_source_is_read_and_decoded_where_it_is_listed_and_other_data_are_told_from_it(
    stoker: Any, listed: Path, tmp_path: Path
) -> None:
    result = stoker("verify", "--replay", listed, "shards")
    assert result.exit_code == 1 and "3 samples: 1 still bad" in result.stdout and "cut" in result.stdout
    Path("shards/t-000003.tar").unlink()
    Path("shards/t-000003.tar.index").unlink(missing_ok=True)
    stoker_package.write_tar(tmp_path / "shards" / "t-000003.tar", [{"__key__": "cut", "jpg": jpeg_bytes(60, 40), "cls": 1}])
    result = stoker("verify", "--replay", listed, "shards")
    assert result.exit_code == 0 and "all good now" in result.stdout and "the data have changed" in result.stdout
    Path("shards/t-000000.tar").unlink()
    result = stoker("verify", "--replay", listed, "shards")
    assert result.exit_code == 1 and "it is not in these data" in result.stdout
    stoker_package.write_tar(tmp_path / "other.tar", [{"__key__": "a", "cls": 1}])
    result = stoker("verify", "--replay", listed, "other.tar")
    assert result.exit_code == 2 and "lists other data (tar:" in result.stderr and "none of their keys" in result.stderr


def test_lines_and_keys_are_those_of_a_file(stoker: Any, folder: Path) -> None:
    result = stoker("verify", folder, "--line", 1)
    assert result.exit_code == 2 and "add --replay FILE" in result.stderr

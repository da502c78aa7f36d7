"""`stoker bench`: rates, costs, and other loaders."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import stoker as stoker_package
from stoker.cli import peers
from stoker.cli.peers import PEERS, random_crop


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.cli.bench._WARM_S", 0.02)


QUICK = ("--seconds", 0.1, "--size", 32, "--batch", 8, "--threads", 2)


def test_rates_and_costs_are_told(stoker_json: Any, image_folder: Path) -> None:
    told = stoker_json("bench", image_folder, *QUICK, "--against", "none")
    assert told["images"] == 24 and told["peers"] == {}
    assert told["serial"]["images_per_s"] > 0 and len(told["parallel"]["rounds"]) == 5
    assert told["stage_us"]["read"] > 0


def test_text_says_what_was_measured(stoker: Any, image_folder: Path) -> None:
    result = stoker("bench", image_folder, *QUICK, "--against", "none", "--samples", 10)
    assert result.exit_code == 0
    assert "10 images" in result.stdout and "2 threads" in result.stdout and "us/sample" in result.stdout


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "lmdb"])
def test_pictures_in_records_are_found_and_measured(
    stoker: Any, stoker_json: Any, image_folder: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "lmdb":
        pytest.importorskip("lmdb")
    stoker("pack", image_folder, tmp_path / "out", "--format", kind)
    told = stoker_json("bench", tmp_path / "out", *QUICK, "--against", "none", "--samples", 20)
    assert told["images"] == 20 and told["parallel"]["images_per_s"] > 0


def test_records_without_pictures_cannot_be_measured(stoker: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "a.tar", [{"__key__": "a", "txt": "x"}])
    result = stoker("bench", tmp_path / "a.tar", *QUICK)
    assert result.exit_code == 2 and "txt" in result.stderr


def test_a_bad_image_is_named(stoker: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"hello")
    result = stoker("bench", tmp_path, *QUICK, "--against", "none")
    assert result.exit_code == 1
    assert "bad.jpg" in result.stderr and "Traceback" not in result.stderr


def test_torch_is_measured_in_the_same_run(start: Any, image_folder: Path) -> None:
    pytest.importorskip("torch")
    process = start("bench", image_folder, *QUICK, "--against", "torch", "--json")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    told = json.loads(out)["peers"]["torch"]
    assert "failure" not in told
    assert told["images_per_s"] > 0 and 0 < told["ratio_least"] <= told["stoker_ratio"] <= told["ratio_most"]


@pytest.mark.parametrize("name", PEERS)
def test_peers_give_pixels_of_the_size_asked_for(name: str, image_folder: Path) -> None:
    for module in PEERS[name].modules:
        pytest.importorskip(module)
    dataset = PEERS[name].dataset(sorted(map(str, image_folder.glob("*/*.jpg"))), 48)
    pixels = dataset[5].numpy()
    assert pixels.shape == (48, 48, 3) and pixels.dtype == "uint8" and pixels.std() > 5
    assert len(dataset) == 24


@pytest.mark.parametrize("name", PEERS)
def test_peers_do_not_wait_for_a_pipe(name: str, tmp_path: Path) -> None:
    for module in PEERS[name].modules:
        pytest.importorskip(module)
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(OSError, match="not a plain file but a pipe"):
        PEERS[name].dataset([str(tmp_path / "a.jpg")], 16)[0]


def test_a_peer_that_is_not_installed_is_told_but_no_error(
    stoker: Any, stoker_json: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = peers.Peer("nobody's loader", ("no_such_package",), "pip install no-such-package", peers.PillowImages)
    monkeypatch.setattr(peers, "PEERS", {"nobody": lonely})
    told = stoker_json("bench", image_folder, *QUICK)
    assert told["not_installed"] == {"nobody": "pip install no-such-package"}
    named = stoker("bench", image_folder, *QUICK, "--against", "nobody")
    assert named.exit_code == 2 and "pip install no-such-package" in named.stderr


def test_an_unknown_peer_is_wrong_usage(stoker: Any, image_folder: Path) -> None:
    result = stoker("bench", image_folder, "--against", "torch,nonsense")
    assert result.exit_code == 2 and "nonsense" in result.stderr


def test_the_peers_crops_stay_inside_the_image() -> None:
    random.seed(1)
    for width, height in ((100, 80), (7, 500), (500, 7), (1, 1)):
        for _ in range(50):
            left, top, right, bottom = random_crop(width, height)
            assert 0 <= left < right <= width and 0 <= top < bottom <= height

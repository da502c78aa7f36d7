"""`stoker bench`: rates, costs, other forms of the samples, and other loaders."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker as stoker_package
from stoker.cli import peers
from stoker.cli.contenders import Contender
from stoker.cli.peers import PEERS, OpenCvImages, PeerWork, PillowImages, random_crop

from ..storage.server import Server
from ..support import until

QUICK = ("--seconds", 0.1, "--size", 32, "--batch", 8, "--threads", 2)
ALONE = (*QUICK, "--against", "none", "--strategies", "none")


def test_rates_costs_and_the_ceiling_are_measured(stoker_json: Any, image_folder: Path) -> None:
    found = stoker_json("bench", image_folder, *ALONE)
    assert found["samples"] == 24 and found["pictures"] == "image" and found["peers"] == found["strategies"] == {}
    assert found["serial"]["samples_per_s"] > 0 and len(found["parallel"]["rounds"]) == 5
    assert [step["name"] for step in found["steps"]["serial"]] == ["read", "image('image')"]
    assert found["steps"]["parallel"][1]["cpu_us"] > 0
    ceiling = found["ceiling"]
    assert ceiling["samples_per_s"] == pytest.approx(ceiling["cores"] / ceiling["cpu_s"])
    assert ceiling["reached"] == pytest.approx(found["parallel"]["samples_per_s"] / ceiling["samples_per_s"])
    assert found["verdict"]


def test_other_forms_are_measured_and_nothing_of_them_stays(
    stoker: Any, stoker_json: Any, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "made"))
    forms = stoker_json("bench", image_folder, *QUICK, "--against", "none", "--strategies", "files,tar,seek,no_seek")[
        "strategies"
    ]
    assert set(forms) == {"tar", "seek"}, "the source is files, without seek indices"
    assert all(form["samples_per_s"] > 0 and form["ratio"] > 0 for form in forms.values())
    stoker("pack", image_folder, tmp_path / "out.tar")
    forms = stoker_json("bench", tmp_path / "out.tar", *QUICK, "--against", "none", "--strategies", "files,tar,seek,no_seek")
    assert set(forms["strategies"]) == {"files", "no_seek"}, "the source is a tar with seek indices"
    assert not list((tmp_path / "made").iterdir())


def test_an_unknown_form_is_wrong_usage(stoker: Any, image_folder: Path) -> None:
    result = stoker("bench", image_folder, "--strategies", "tar,nonsense")
    assert result.exit_code == 2 and "nonsense" in result.stderr and "seek" in result.stderr


def test_without_room_for_copies_the_source_is_measured_alone(
    stoker_json: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.cli.bench_samples.shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1})())
    found = stoker_json("bench", image_folder, *QUICK, "--strategies", "tar", "--against", "all")
    assert found["strategies"] == found["peers"] == {} and "fewer --samples" in found["notes"][0]


def test_ctrl_c_removes_the_copies(start: Any, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = start("bench", image_folder, *QUICK[2:], "--seconds", 600, "--against", "none", "--strategies", "tar")
    until(lambda: list(tmp_path.glob("stoker-bench-*/*.tar")))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


def test_text_says_what_was_measured(stoker: Any, image_folder: Path) -> None:
    result = stoker("bench", image_folder, *QUICK, "--against", "none", "--samples", 10, "--strategies", "tar")
    assert result.exit_code == 0
    for words in ("10 images", "2 threads", "  tar shards", "x one thread", "ceiling of this machine", "on a core", "verdict"):
        assert words in result.stdout


def test_the_table_fits_into_80_columns(stoker: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gives(work: PeerWork) -> Any:
        while True:
            time.sleep(0.001)
            yield np.zeros((work.batch, 1))

    quick = {name: replace(peer, modules=(), batches=gives) for name, peer in PEERS.items()}
    monkeypatch.setattr(peers, "PEERS", {**quick, "bad": replace(quick["torch"], batches=lambda work: iter(()))})
    monkeypatch.setenv("COLUMNS", "80")
    # The rates of a busy machine could be as far apart as to need more columns.
    monkeypatch.setattr(Contender, "rates", property(lambda self: (21_000.0, 23_500.0, 24_900.0) if self._rounds else ()))
    shown = stoker("bench", image_folder, *QUICK, "--strategies", "tar,seek,cache", "--against", ",".join([*PEERS, "bad"])).stdout
    assert re.search(r"loader +images/s +slow, fast +times as fast", shown), shown
    for peer in PEERS.values():
        assert re.search(rf"{re.escape(peer.title)} +[\d,]+ +[\d,]+–[\d,]+ +stoker [\d.,]+x \([\d.,]+–[\d.,]+\)", shown)
    assert "torch + Pillow failed: " in shown


@pytest.mark.parametrize("kind", ["tfrecord", "lmdb"])
def test_pictures_in_records_are_found_and_measured(
    stoker: Any, stoker_json: Any, image_folder: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "lmdb":
        pytest.importorskip("lmdb")
    stoker("pack", image_folder, tmp_path / "out", "--format", kind)
    found = stoker_json("bench", tmp_path / "out", *ALONE, "--samples", 20)
    assert found["samples"] == 20 and found["parallel"]["samples_per_s"] > 0


def test_what_is_far_away_is_also_measured_as_a_copy_here(
    stoker: Any, stoker_json: Any, image_folder: Path, tmp_path: Path
) -> None:
    stoker("pack", image_folder, tmp_path / "a.tar")
    with Server() as server:
        url = server.put("/a.tar", (tmp_path / "a.tar").read_bytes())
        found = stoker_json("bench", url, *QUICK, "--against", "none", "--strategies", "tar", "--samples", 12)
    assert found["remote"] and found["samples"] == 12 and found["strategies"]["tar"]["samples_per_s"] > 0


def test_records_without_pictures_are_read_and_joined(stoker: Any, stoker_json: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "a.tar", [{"__key__": f"{at}", "txt": "x" * at, "cls": at} for at in range(20)])
    found = stoker_json("bench", tmp_path / "a.tar", *QUICK)
    assert found["pictures"] is None and found["parallel"]["samples_per_s"] > 0
    assert set(found["strategies"]) == {"cache"}
    assert found["peers"] == {} and "no pictures" in found["notes"][0]
    assert "samples/s" in stoker("bench", tmp_path / "a.tar", *ALONE).stdout


def test_a_bad_image_is_named(stoker: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"hello")
    result = stoker("bench", tmp_path, *ALONE)
    assert result.exit_code == 1
    assert "bad.jpg" in result.stderr and "Traceback" not in result.stderr


def test_a_few_bad_images_are_left_out_for_all_loaders(
    stoker: Any, stoker_json: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def looks(work: PeerWork) -> Any:
        assert not [path for path in work.paths if Path(path).name.startswith("bad")]
        while True:
            yield np.zeros((work.batch, 1))

    folder = tmp_path / "photos"
    shutil.copytree(image_folder, folder)
    whole = next(folder.glob("*/*.jpg"))
    whole.with_name("bad-text.jpg").write_bytes(b"hello")
    whole.with_name("bad-cut.jpg").write_bytes(whole.read_bytes()[:900])
    monkeypatch.setattr(peers, "PEERS", {"peer": peers.Peer("peer", (), "", looks)})
    found = stoker_json("bench", folder, *QUICK, "--strategies", "tar")
    assert found["samples"] == 24 and found["parallel"]["samples_per_s"] > 0
    assert "failure" not in found["peers"]["peer"] and "failure" not in found["strategies"]["tar"]
    assert "2 images that cannot be decoded" in found["notes"][0] and "bad-cut.jpg" in found["notes"][0]
    assert "2 images that cannot be decoded" in stoker("bench", folder, *QUICK, "--compare").stdout


def test_others_are_measured_in_the_same_run(start: Any, image_folder: Path) -> None:
    name = next((name for name in ("webdataset", "torch") if PEERS[name].installed), None)
    if name is None:
        pytest.skip("no other loader is installed")
    process = start("bench", image_folder, *QUICK, "--against", name, "--strategies", "none", "--json")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    peer = json.loads(out)["peers"][name]
    assert "failure" not in peer
    assert peer["samples_per_s"] > 0 and 0 < peer["ratio_least"] <= peer["stoker_ratio"] <= peer["ratio_most"]


@pytest.mark.parametrize(("name", "dataset"), [("torch", PillowImages), ("opencv", OpenCvImages)])
def test_peers_give_pixels_of_the_size_asked_for(name: str, dataset: Any, image_folder: Path) -> None:
    for module in PEERS[name].modules:
        pytest.importorskip(module)
    images = dataset(sorted(map(str, image_folder.glob("*/*.jpg"))), 48)
    pixels = images[5].numpy()
    assert pixels.shape == (48, 48, 3) and pixels.dtype == "uint8" and pixels.std() > 5
    assert len(images) == 24


@pytest.mark.parametrize(("name", "dataset"), [("torch", PillowImages), ("opencv", OpenCvImages)])
def test_peers_do_not_wait_for_a_pipe(name: str, dataset: Any, tmp_path: Path) -> None:
    for module in PEERS[name].modules:
        pytest.importorskip(module)
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(OSError, match="not a plain file but a pipe"):
        dataset([str(tmp_path / "a.jpg")], 16)[0]


def test_a_peer_that_fails_is_named_and_the_others_go_on(
    stoker_json: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(work: PeerWork) -> Any:
        assert len(work.paths) == 24 and work.workers == 2
        raise RuntimeError("no such luck")
        yield

    monkeypatch.setattr(peers, "PEERS", {"bad": peers.Peer("bad loader", (), "", fails)})
    found = stoker_json("bench", image_folder, *QUICK, "--strategies", "none")
    assert found["peers"]["bad"]["failure"] == "RuntimeError: no such luck" and found["parallel"]["samples_per_s"] > 0


def test_a_peer_that_is_not_installed_is_named_but_not_an_error(
    stoker: Any, stoker_json: Any, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = peers.Peer("nobody's loader", ("no_such_package",), "pip install no-such-package", peers.webdataset_batches)
    monkeypatch.setattr(peers, "PEERS", {"nobody": lonely})
    found = stoker_json("bench", image_folder, *QUICK, "--strategies", "none")
    assert found["not_installed"] == {"nobody": "pip install no-such-package"}
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

"""The examples run as a reader would run them, and do what they say."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import stoker
from stoker.image import CropBox

from ..support import jpeg_bytes

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: object) -> str:
    return run_python(EXAMPLES / name, *arguments)


def run_python(*words: object) -> str:
    """What Python prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # torch's threads spin where other tests have the cores
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_to_call_it(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if "import torch" in path.read_text():
        pytest.importorskip("torch")
    monkeypatch.syspath_prepend(EXAMPLES)
    for words, status in (["--help"], 0), (["--nonsense"], 2):
        monkeypatch.setattr(sys, "argv", [path.name, *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        assert ended.value.code == status
    shown = capsys.readouterr()
    assert shown.out.startswith(f"usage: {path.name}") and "usage" in shown.err


def test_a_folder_in_ten_lines(image_folder: Path) -> None:
    lines = run("folder.py", image_folder).splitlines()
    assert len(lines) == 2  # 24 images in batches of 16, the last one shorter
    assert lines[0].startswith("(16, 64, 64, 3) uint8")
    assert lines[1].startswith("(8, 64, 64, 3) uint8")
    code = [
        line
        for line in (EXAMPLES / "folder.py").read_text().splitlines()
        if line and not line.startswith(('"""', "import", "from"))
    ]
    assert len(code) <= 10


@pytest.fixture
def annotated(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "boxes").mkdir()
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / f"{name}.JPEG").write_bytes(jpeg_bytes(100, 80, seed=number))
        objects = "".join(
            f"<object><name>{name}</name><bndbox><xmin>{10 * k}</xmin><ymin>5</ymin>"
            f"<xmax>{10 * k + 40}</xmax><ymax>60</ymax></bndbox></object>"
            for k in range(number + 1)
        )
        xml = f"<annotation><size><width>100</width><height>80</height></size>{objects}</annotation>"
        (tmp_path / "boxes" / f"{name}.xml").write_text(xml)
    (tmp_path / "train.txt").write_text("cat\ndog\n")
    return tmp_path


def test_boxes_are_cut_out_and_the_two_timelines_are_one_picture(annotated: Path, tmp_path: Path) -> None:
    given = annotated / "train.txt", annotated / "images", annotated / "boxes"
    out = run("boxes.py", *given, "--batch", 3, "--step", 0, "--seconds", 0.1, "--picture", tmp_path / "two.html")
    rows = re.findall(r"^(cat|dog) +\[5.0, (\d+).0, 60.0, (\d+).0\] -> \(224, 224, 3\)$", out, re.MULTILINE)
    assert sorted(rows) == [("cat", "0", "40"), ("dog", "0", "40"), ("dog", "10", "50")]
    assert re.findall(r"^(serial|parallel) +[\d,]+ +[\d,]+ +\d+%$", out, re.MULTILINE) == ["serial", "parallel"]
    page = (tmp_path / "two.html").read_text()
    assert "color-scheme" in page, "its text is light where the browser is dark, so the page has to be dark there too"
    picture = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    texts = [text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert [text.split(":")[0] for text in texts if "images/s" in text] == ["serial", "parallel"]
    assert texts.count("loop") == 2


def test_cifar_gives_the_stall_of_every_epoch_serial_and_parallel(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace = tmp_path / "cifar.json"
    made = runpy.run_path(str(EXAMPLES / "small_data.py"))["make_cifar"](tmp_path, train=200, test=50)
    words = (made / "train.tfrecord", made / "test.tfrecord", "--epochs", 2, "--batch", 20, "--trace", trace)
    out = run("cifar_tfrecord.py", *words)
    rows = re.findall(r"^(serial|parallel) +(\d+) +[\d.]+ s +[\d.]+ s +[\d,]+ +([\d.]+)%$", out, re.MULTILINE)
    assert [row[:2] for row in rows] == [("serial", "0"), ("serial", "1"), ("parallel", "0"), ("parallel", "1")]
    assert [row[2] for row in rows[:2]] == [row[2] for row in rows[2:]]  # the same batches: the same model
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) >= 20  # the steps of the loop, at least


def test_lmdb_is_timed_step_by_step_and_validated_exactly(image_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    database = tmp_path / "photos.lmdb"
    out = run("lmdb_speed.py", image_folder, "--lmdb", database, "--seconds", 0.1, "--batch", 8)
    assert f"24 photographs in {database}" in out
    rows = re.findall(r"^([a-z ]+?) +[\d,]+ +[\d,]+ +[\d,]+ +[\d,.]+$", out, re.MULTILINE)
    assert rows == ["read", "shuffle in a window", "decode and resize", "random crop and flip", "the same in parallel"]
    assert out.endswith("validation on 3 ranks: 24 of 24 samples seen exactly once\n")


def test_small_data_are_what_the_examples_read(tmp_path: Path) -> None:
    make = runpy.run_path(str(EXAMPLES / "small_data.py"))
    photos = stoker.files(make["make_photos"](tmp_path / "photos", 8))
    assert len(photos) == 8 and len(photos.classes) == 4
    voc = make["make_voc"](tmp_path / "voc", 3)
    objects = stoker.voc(voc / "train.txt", images=voc / "images", annotations=voc / "annotations")
    assert len(objects) == 6 and len(list(objects.image("image", CropBox("box")))) == 6
    cifar = make["make_cifar"](tmp_path / "cifar", 8, 4)
    assert [len(stoker.tfrecord(cifar / f"{name}.tfrecord")) for name in ("train", "test")] == [8, 4]

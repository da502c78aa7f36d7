"""Figures that are said twice are the same: those of the README and of "Why switch" are those of benchmarks/README.md."""

from __future__ import annotations

import re

import pytest

from .test_docs import DOCS, ROOT

BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
WHY = (DOCS / "explanation" / "why-switch.md").read_text(encoding="utf-8")


def rows(text: str, head: str) -> dict[str, list[str]]:
    """The rows of the table whose first line begins with ``head``, by their first cell, without marks and links."""
    table = text[text.index(f"\n{head}") + 1 :].partition("\n\n")[0].splitlines()[2:]
    cells = [
        [re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip() for cell in line.strip("|").split("|")] for line in table
    ]
    return {name: rest for name, *rest in cells}


#: a loader: (images/s, Stoker from files is faster by, from shards with index by, peak memory in MB)
MEASURED = rows(BENCHMARKS, "| | images/s | Stoker from files is faster by |")

IN_README = {
    "Stoker, 2 threads": "Stoker, files",
    "Stoker, shards with seek index": "Stoker, tar with seek index",
    "tf.data, decode_and_crop_jpeg": "tf.data, decode_and_crop_jpeg",
    "torch DataLoader, simplejpeg + OpenCV, 2 workers": "torch DataLoader, simplejpeg and OpenCV",
    "DALI on the CPU": "DALI on the CPU, random-crop decoder",
    "torch DataLoader, Pillow, 2 workers": "torch DataLoader, Pillow",
}
IN_WHY_SWITCH = {
    "torch DataLoader, Pillow": "torch DataLoader, Pillow",
    "torch DataLoader, simplejpeg + OpenCV": "torch DataLoader, simplejpeg and OpenCV",
    "tf.data": "tf.data, decode_and_crop_jpeg",
    "DALI on the CPU": "DALI on the CPU, random-crop decoder",
    "FFCV, stored JPEG": "FFCV, stored JPEG",
    "FFCV, stored pixels (no decoding)": "FFCV, stored pixels (decodes nothing)",
    "SPDL": "SPDL",
}
#: a loader: (Stoker from files is faster by, smallest and largest, rounds, peak memory in MB)
ELSEWHERE = rows(BENCHMARKS, "| loader | Stoker from files is faster by |")
ON_ANOTHER_MACHINE = {
    "Grain": "Grain, worker processes",
    "MosaicML Streaming": "MosaicML Streaming, MDS shards",
    "LitData": "LitData, its own chunks",
    "Ray Data": "Ray Data, 2 cores",
    "tensorpack": "tensorpack, worker processes",
}


@pytest.mark.parametrize("name", ON_ANOTHER_MACHINE)
def test_loaders_that_were_measured_elsewhere_have_the_benchmarks_ratios(name: str) -> None:
    assert rows(WHY, "| loader |")[name][0] == f"{ELSEWHERE[ON_ANOTHER_MACHINE[name]][0]} x"


@pytest.mark.parametrize("name", IN_README)
def test_the_table_of_the_readme_is_that_of_the_benchmarks(name: str) -> None:
    rate, ratio, memory = rows(README, "| loader |")[name]
    measured = MEASURED[IN_README[name]]
    assert rate == measured[0] and memory == f"{measured[3]} MB"
    assert not ratio or abs(float(ratio.removesuffix(" x")) - float(measured[1])) <= 0.0501


def test_the_row_of_ffcv_in_the_readme_is_two_rows_of_the_benchmarks() -> None:
    cells = [cell.split(" / ") for cell in rows(README, "| loader |")["FFCV, JPEG / stored pixels"]]
    for n, name in enumerate(("FFCV, stored JPEG", "FFCV, stored pixels (decodes nothing)")):
        measured = MEASURED[name]
        assert cells[0][n] == measured[0] and cells[2][n].removesuffix(" MB") == measured[3]
        assert abs(float(cells[1][n].removesuffix(" x")) - float(measured[1])) <= 0.0501


@pytest.mark.parametrize("name", IN_WHY_SWITCH)
def test_the_table_of_why_switch_is_that_of_the_benchmarks(name: str) -> None:
    assert rows(WHY, "| loader |")[name][0] == f"{MEASURED[IN_WHY_SWITCH[name]][1]} x"


def test_loaders_without_a_measurement_have_no_figure() -> None:
    for name, cells in rows(WHY, "| loader |").items():
        assert name in IN_WHY_SWITCH | ON_ANOTHER_MACHINE or cells[0] in ("", "–"), name


def test_every_other_ratio_of_why_switch_is_in_the_benchmarks() -> None:
    text = WHY.partition("\n## ")[2]
    ratios = set(re.findall(r"\b(\d+(?:\.\d+)?) x\b", text))
    assert len(ratios) > 8
    missing = [ratio for ratio in ratios if not re.search(rf"(?<![\d.,]){re.escape(ratio)}(?![\d,]|\.\d)", BENCHMARKS)]
    assert not missing


def test_what_the_readme_says_of_torchvision_is_the_benchmarks_figure() -> None:
    [said] = re.findall(r"Stoker is (\d+) times as fast as torchvision", README)
    table = rows(BENCHMARKS.partition("### Augmentation of photographs")[2], "| | images/s |")
    assert said == str(int(float(table["torch DataLoader, torchvision on Pillow images, 2 workers"][1])))

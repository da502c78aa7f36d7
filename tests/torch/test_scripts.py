"""Training scripts as people write them, with one line changed: the same batches with any workers, and after resumes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
NOT_SCRIPTS = {"training_log.py", "run_scripts.py"}
ALONE = sorted(path.name for path in SCRIPTS.glob("*.py") if path.name not in {*NOT_SCRIPTS, "distributed.py"})
#: of these `make test` plays a part: one of worker processes, and one that Stoker reads itself
FEW = ("collate_mixup.py", "image_folder.py")
DEADLINE_S = 1500


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE / "vision_path", SCRIPTS, *filter(None, sys.path))))}


def run(script: str, folder: Path, runs: list[tuple[str, list[str]]]) -> list[list[str]]:
    """What each run of a script trained on."""
    told = json.dumps([(who, ["--data", str(folder), *arguments]) for who, arguments in runs])
    command = [sys.executable, "-W", "error::ResourceWarning", str(SCRIPTS / "run_scripts.py"), str(SCRIPTS / script), told]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sha(lines: list[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def resumed(state: Path, places: list[int], workers: list[int]) -> list[tuple[str, list[str]]]:
    """Runs that stop at a place, and such that go on from there, with several numbers of workers."""
    runs: list[tuple[str, list[str]]] = []
    for number, place in enumerate(places):
        file = ["--state", str(state.with_suffix(f".{number}"))]
        before, after = workers[number % len(workers)], workers[(number + 1) % len(workers)]
        runs.append(("workers", [*file, "--workers", str(before), "--stop", str(place)]))
        runs.append(("home", [*file, "--workers", str(after)]))
    return runs


def pairs(lines: list[Any]) -> list[Any]:
    return [first + second for first, second in zip(lines[::2], lines[1::2])]


def test_there_are_twelve_scripts_that_differ_from_torchs_by_one_line() -> None:
    assert len(ALONE) == 11
    for name in [*ALONE, "distributed.py"]:
        assert (SCRIPTS / name).read_text().count("from stoker.torch import DataLoader\n") == 1
        assert "stoker" not in (SCRIPTS / name).read_text().replace("from stoker.torch import DataLoader\n", "")


@pytest.mark.parametrize("script", FEW)
def test_a_script_trains_on_the_same_batches_with_workers_and_after_a_resume(
    script: str, image_folder: Path, tmp_path: Path
) -> None:
    runs = [("home", ["--workers", "0"]), ("workers", ["--workers", "1"]), ("auto", ["--workers", "2"])]
    runs += resumed(tmp_path / "state", [4], [0])
    whole, *others, first, second = run(script, image_folder, runs)
    assert len({*whole}) == len(whole) == 2 * -(-len(whole) // 2)
    assert {sha(lines) for lines in (whole, *others, first + second)} == {sha(whole)}


@pytest.mark.thorough
@pytest.mark.parametrize("script", ALONE)
def test_a_script_has_one_digest_over_0_1_2_and_4_workers_and_after_resumes_at_5_places(
    script: str, image_folder: Path, tmp_path: Path
) -> None:
    runs = [("home", ["--workers", str(workers)]) for workers in (0, 2)]
    runs += [("workers", ["--workers", str(workers)]) for workers in (1, 2, 4)]
    runs += [("auto", ["--workers", str(workers)]) for workers in (1, 3)]
    whole, *others = run(script, image_folder, runs)
    half = len(whole) // 2
    again = run(script, image_folder, resumed(tmp_path / "state", [1, 3, half, half + 1, len(whole) - 1], [0, 2, 1]))
    assert {sha(lines) for lines in (*others, *pairs(again))} == {sha(whole)}
    [torchs] = run(script, image_folder, [("torch", ["--workers", "0"])])
    assert len(torchs) == len(whole), "the same script runs with torch's loader, and has as many batches"


@pytest.mark.thorough
def test_ranks_share_every_epoch_and_train_on_the_same_batches_with_workers_and_after_a_resume(tmp_path: Path) -> None:
    def torchrun(*arguments: str) -> list[list[str]]:
        out = tmp_path / "out.x"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        command += [str(SCRIPTS / "distributed.py"), *arguments, "--out", str(out)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(out.with_suffix(f".{rank}").read_text()) for rank in range(2)]

    whole = torchrun("--workers", "0")
    assert len({*whole[0], *whole[1]}) == 16, "22 numbers on 2 ranks in batches of 3, twice, none of them alike"
    assert torchrun("--workers", "2") == whole
    for stop in (2, 4, 5):
        file = ["--state", str(tmp_path / f"{stop}.x")]
        first = torchrun(*file, "--stop", str(stop), "--workers", "1")
        second = torchrun(*file)
        assert [before + after for before, after in zip(first, second)] == whole

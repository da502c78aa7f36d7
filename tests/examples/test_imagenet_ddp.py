"""The ImageNet example: two ranks stop together, and training resumes to the last digit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .test_examples import EXAMPLES, run_python

_STEP = re.compile(r"^step (\d+ epoch \d+ loss \d+\.\d+), [\d,]+ images/s$", re.MULTILINE)

#: runs a program with one list of arguments after the other: torch takes long to import
_IN_TURN = """
import json, runpy, sys
program, runs = sys.argv[1:]
for words in json.loads(runs):
    sys.argv = [program, *words]
    runpy.run_path(program, run_name="__main__")
"""


def test_ctrl_c_stops_two_ranks_after_the_same_step_and_saves_it(image_folder: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    saved = tmp_path / "run.pt"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    endless = [EXAMPLES / "imagenet_ddp.py", image_folder, "--size", "32", "--batch", "4", "--epochs", "100000", "--every", "1"]
    command = [*launch, *map(str, endless), "--checkpoint", str(saved)]
    lines = []
    # A session of its own: Ctrl-C in a terminal goes to all processes of a command at once, as it does here.
    with (
        (tmp_path / "stderr").open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True) as started,
    ):
        try:
            assert started.stdout is not None
            for line in started.stdout:
                lines.append(line)
                if line.startswith("step 4 "):
                    os.killpg(started.pid, signal.SIGINT)
            started.wait()
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
    out = "".join(lines)
    assert saved.exists(), out + (tmp_path / "stderr").read_text()
    state = torch.load(saved, weights_only=True)
    steps, place = state["step"], json.loads(state["data"])
    assert steps >= 4 and f"saved step {steps} in {saved}\n" in out
    assert place["epoch"] * 24 + place["row"] == steps * 8  # rows of both ranks, of 24 in an epoch
    assert [int(line.split()[0]) for line in _STEP.findall(out)] == list(range(1, steps + 1))
    assert out.splitlines()[-1].startswith("parallel ")  # the table, as at any other end


def test_training_resumes_exactly_and_a_serial_pipeline_gives_the_same_batches(image_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    options = [image_folder, "--size", "32", "--batch", "4", "--every", "1", "--warmup", "1", "--steps"]
    saved = ["--checkpoint", tmp_path / "run.pt"]
    runs = (
        [*options, 4, *saved],  # an epoch has six
        [*options, 8, *saved],
        [*options, 8, *saved],  # there is nothing left to do
        [*options, 8, "--compare", "--profile", tmp_path / "logs"],
    )
    out = run_python("-c", _IN_TURN, EXAMPLES / "imagenet_ddp.py", json.dumps([list(map(str, words)) for words in runs]))
    assert "resumed after step 4" in out
    steps = _STEP.findall(out)
    assert [int(line.split()[0]) for line in steps] == [*range(1, 9)] * 3
    assert steps[:8] == steps[8:16] == steps[16:]  # in two parts, serial, parallel: the same losses, to the last digit
    tables = re.findall(r"^(serial|parallel) +[\d,]+ +[\d,]+ +\d+%$", out, re.MULTILINE)
    assert tables == ["parallel", "parallel", "serial", "parallel"]
    assert out.count("parallel   too few steps for a mean: it takes 3 in one run\n") == 1
    for name in ("serial", "parallel"):
        assert list((tmp_path / "logs" / name).glob("events.out.tfevents.*"))
        (profile,) = (tmp_path / "logs" / name).glob("*.pt.trace.json")  # where TensorBoard looks
        names = {event.get("name") for event in json.loads(profile.read_text())["traceEvents"]}
        assert {"stoker: wait for batch", "ProfilerStep#2"} <= names

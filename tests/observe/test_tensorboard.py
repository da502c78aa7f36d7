"""What TensorBoard reads of a loader: numbers over time, pictures, the verdict, and a timeline."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.errors import ConfigError, MissingExtra, WriteError
from stoker.observe.tensorboard_log import TensorBoardLog

from ..loader.runs import numbers, run_python

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder: Path) -> Any:
    events = accumulators.EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0, "tensors": 0})
    events.Reload()
    return events


def pictures(count: int = 40) -> Any:
    rows = np.arange(count * 8 * 8 * 3, dtype=np.uint8).reshape(count, 8, 8, 3)
    return stoker.arrays(image=rows, label=np.arange(count)).batch(4)


def fields(data: bytes) -> list[tuple[int, Any]]:
    """A protocol buffer's fields: their numbers, and an integer or bytes."""
    found: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (data[at - 1] & 0x7F) << shift
            shift += 7
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        key = varint()
        size = varint()
        if key & 7 == 2:
            found.append((key >> 3, data[at : at + size]))
            at += size
        else:
            found.append((key >> 3, size))
    return found


def test_tensorboard_reads_numbers_pictures_the_verdict_and_a_timeline(tmp_path: Path) -> None:
    with pictures().loader(threads=2, ahead=1) as loader:
        log = stoker.observe.tensorboard(tmp_path, loader, every_s=1e-6)
        assert isinstance(log, TensorBoardLog) and log.folder == tmp_path / "stoker"
        first, *_ = list(loader)
        list(loader)
        why = str(loader.why())
    events = read(tmp_path / "stoker")
    tags = events.Tags()
    assert {"stoker/samples_per_s", "stoker/wait_share", "stoker/busy_share", "stoker/step_ms"} <= set(tags["scalars"])
    assert "stoker_us_per_sample/read" in tags["scalars"]
    rates = events.Scalars("stoker/samples_per_s")
    assert [rate.step for rate in rates] == sorted({rate.step for rate in rates}) and all(rate.value >= 0 for rate in rates)
    assert [len(events.Images(tag)) for tag in tags["images"]] == [2, 2, 2, 2], "four rows of a batch, in both epochs"
    shown = np.asarray(Image.open(io.BytesIO(events.Images("stoker/pictures/00")[0].encoded_image_string)))
    np.testing.assert_array_equal(shown, first["image"][0])
    told = events.Tensors("stoker/verdict")[-1].tensor_proto.string_val[0].decode()
    assert told.split()[0] == why.split()[0]
    (timeline,) = (tmp_path / "stoker" / "plugins" / "profile").glob("*/*.trace.json.gz")
    events = json.loads(gzip.decompress(timeline.read_bytes()))["traceEvents"]
    assert len(events) > 20
    ((_, space),) = fields((timeline.parent / timeline.name.replace(".trace.json.gz", ".xplane.pb")).read_bytes())
    plane = fields(space)
    assert (2, b"/host:CPU") in plane
    lines = [fields(data) for number, data in plane if number == 3]
    assert {dict(line)[2] for line in lines} >= {b"training loop", b"worker 0"}
    kinds = {dict(entry)[1]: dict(fields(dict(entry)[2]))[2].decode() for entry in (fields(data) for n, data in plane if n == 4)}
    slices = [dict(fields(data)) for line in lines for number, data in line if number == 4]
    written = sorted((kinds[each[1]], each[2], each[3]) for each in slices)
    assert written == sorted((e["name"], e["ts"] * 10**6, e["dur"] * 10**6) for e in events if e["ph"] == "X")


def test_without_a_loader_all_those_made_from_then_on_are_logged(tmp_path: Path) -> None:
    logs = stoker.observe.tensorboard(tmp_path, name="data", trace_s=0)
    with logs, numbers().batch(4).loader() as one, pictures().shard(1, 2).loader(ahead=1) as two:
        list(zip(one, two))
    numbers().batch(4).loader().close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data-rank-1"]
    assert len(read(tmp_path / "data-rank-1").Tags()["images"]) == 4
    assert [path.suffix for path in (tmp_path / "data").iterdir()] == [".stoker"], "no timeline was asked for"


def test_a_loader_whose_log_cannot_be_written_runs_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("a file")
    with stoker.observe.tensorboard(tmp_path / "taken"), caplog.at_level(logging.WARNING, "stoker"):
        assert len(list(pictures().loader(threads=1))) == 10
    assert "not logged for TensorBoard" in caplog.text


def test_a_program_that_ends_and_a_child_that_is_forked_leave_a_whole_log(tmp_path: Path) -> None:
    script = f"""
import os, numpy as np, stoker
loader = stoker.arrays(x=np.arange(100)).batch(10).loader(executor="inline")
log = stoker.observe.tensorboard({str(tmp_path)!r}, loader, every_s=1e-6)
batches = iter(loader)
next(batches)
if not os.fork():
    list(batches)
    loader.close()
    os._exit(0)
os.wait()
list(batches)
"""
    done = run_python(script)
    assert done.returncode == 0 and not done.stderr, done.stderr
    events = read(tmp_path / "stoker")
    assert [rate.step for rate in events.Scalars("stoker/samples_per_s")][-1] == 10
    assert events.Tensors("stoker/verdict")


def test_a_log_that_can_no_longer_be_written_ends_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with numbers(400).batch(4).loader(executor="inline") as loader:
        log = stoker.observe.tensorboard(tmp_path, loader, every_s=1e-6, trace_s=0)
        assert isinstance(log, TensorBoardLog)
        assert log._file is not None
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log._file.fileno())
        os.close(full)
        with caplog.at_level(logging.WARNING):
            assert len(list(loader)) == 100
        assert log.closed and "training continues: No space left" in caplog.text
        assert not loader._meters.viewers


def test_what_cannot_be_logged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with numbers().batch(4).loader(executor="inline") as loader:
        with pytest.raises(WriteError, match="not a folder"):
            stoker.observe.tensorboard(tmp_path / "file", loader)
        (tmp_path / "log" / "stoker" / "plugins").mkdir(parents=True)
        (tmp_path / "log" / "stoker" / "plugins" / "profile").touch()
        with pytest.raises(WriteError, match="cannot be written"):
            stoker.observe.tensorboard(tmp_path / "log", loader)
        assert not loader._meters.endings
        for options in ({"every_s": 0}, {"trace_s": -1}, {"name": "../up"}):
            with pytest.raises(ConfigError, match="must be"):
                stoker.observe.tensorboard(tmp_path, loader, **options)  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "tensorboard", None)  # type: ignore[arg-type]
        with pytest.raises(MissingExtra, match=r"pip install 'stoker\[tensorboard\]'"):
            stoker.observe.tensorboard(tmp_path, loader)

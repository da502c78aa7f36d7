"""What a type checker sees of Stoker: the types of what users call, and that a name which is not there is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import stoker

from ..loader.runs import ROOT

SHOWN = {
    "stoker.files('x')": "stoker.pipeline.Pipeline",
    "stoker.tar('x', cache=stoker.Cache('a'), patience=stoker.Patience())": "stoker.pipeline.Pipeline",
    "stoker.tar(b'x')": "stoker.pipeline.Pipeline",
    "stoker.tar([b'x', 'y', Path('z')])": "stoker.pipeline.Pipeline",
    "stoker.tfrecord('x', {'y': stoker.Feature(int)})": "stoker.pipeline.Pipeline",
    "stoker.mix([stoker.arrays(x=[1]), stoker.lmdb('x')])": "stoker.pipeline.Pipeline",
    "stoker.write_tar('x', [])": "stoker.pack.writers.shard_writer.WrittenShards",
    "stoker.TarWriter('x')": "stoker.pack.writers.tar_writer.TarWriter",
    "stoker.errors.ReadError('x').key": "str",
    "Resize(4)": "stoker.image.geometry.Resize",
    "made.shuffle(seed=1).shard().image('image', Resize(4)).batch(2).take(3)": "stoker.pipeline.Pipeline",
    "made.filter(len).map(len).flat_map(len).select('x').on_error('skip', budget=3)": "stoker.pipeline.Pipeline",
    "made.classes": "tuple[str, ...]",
    "made.loader(threads=2)": "stoker.loader.loader.Loader",
    "made.loader().epoch": "int",
    "made.loader().set_epoch(1)": "None",
    "made.loader().state_dict()": "dict[str, Any]",
    "made.loader().stats().samples_per_s": "float",
    "made.loader().why()": "stoker.observe.verdict.Verdict",
}
WRONG = {
    "stoker.filez('x')": 'Module has no attribute "filez"',
    "made.bach(2)": '"Pipeline" has no attribute "bach"',
    "made.batch('2')": 'Argument 1 to "batch" of "Pipeline" has incompatible type "str"; expected "int"',
    "made.loader(thread=2)": 'Unexpected keyword argument "thread" for "loader" of "Pipeline"',
}


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(stoker.__file__).parent / "py.typed").read_bytes() == b""
    assert 'wheel.packages = ["src/stoker"]' in (ROOT / "pyproject.toml").read_text(), "all files below it are in the wheel"


def test_a_type_checker_sees_the_types_of_what_users_call(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="a tool of `make check`")
    lines = ["import stoker", "from pathlib import Path", "from stoker.image import Resize", "made = stoker.files('x')"]
    lines += [f"reveal_type({call})" for call in SHOWN] + list(WRONG)
    script = tmp_path / "user.py"
    script.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    kinds = re.findall(r'user\.py:\d+: note: Revealed type is "(.*)"', done.stdout)
    wrongs = re.findall(r"user\.py:\d+: error: (.*)", done.stdout)
    assert dict(zip(SHOWN, kinds)) == SHOWN, done.stdout + done.stderr
    assert len(wrongs) == len(WRONG), done.stdout
    for line, (call, wrong) in zip(wrongs, WRONG.items()):
        assert line.startswith(wrong), call

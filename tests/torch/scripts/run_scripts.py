"""Runs a script several times in one interpreter, as its arguments say, and prints what each run trained on.

``python run_scripts.py SCRIPT '[["torch"|"home"|"workers"|"auto", ["--workers", "2"]], ...]'``: with torch's own loader, with
Stoker's, with Stoker's and no batch made in this process while workers start, or with threads until processes are found better.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import tempfile
import warnings
from pathlib import Path

from training_log import TrainingLog

import stoker.torch.data_loader as ours
from stoker.engine.home_first import HomeFirst
from stoker.engine.process_executor import ProcessExecutor

_LINE = "from stoker.torch import DataLoader\n"


def run(script: Path, who: str, arguments: list[str]) -> list[str]:
    ours.HomeFirst = ProcessExecutor if who == "workers" else HomeFirst  # type: ignore[misc]
    ours.DataLoader.__init__.__kwdefaults__["executor"] = "auto" if who == "auto" else None
    with tempfile.TemporaryDirectory() as folder:
        if who == "torch":
            text = script.read_text()
            assert text.count(_LINE) == 1
            script = Path(folder) / script.name
            script.write_text(text.replace(_LINE, "from torch.utils.data import DataLoader\n"))
        sys.argv = [str(script), *arguments]
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(script), run_name="__main__")
    return TrainingLog.lines


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This DataLoader will create")
    script, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
    print(json.dumps([run(script, who, arguments) for who, arguments in runs]))

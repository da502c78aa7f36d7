"""The notebooks run from the first cell to the last, show what they name, and are kept without their outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_docs import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))

# Runs the cells of a notebook as IPython does, and shows the last value of each as a notebook would.
_RUNNER = """
import json, sys

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shown = []
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        done = shell.run_cell("".join(cell["source"]), store_history=False)
        done.raise_error()
        forms, _ = shell.display_formatter.format(done.result)
        shown.append("text/html" in forms)
print("shown", sum(shown))
"""


def test_there_are_notebooks() -> None:
    assert {notebook.stem for notebook in NOTEBOOKS} >= {"first-steps", "shards", "why-slow"}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RUNNER, str(notebook)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) >= 1, "no cell shows a pipeline, a batch, a loader or a verdict"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_without_the_machine_it_ran_on(notebook: Path) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    assert content["metadata"].keys() <= {"kernelspec", "language_info"} and content["metadata"]["language_info"] == {
        "name": "python"
    }
    for cell in content["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, "clear the outputs before you save it"

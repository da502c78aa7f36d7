"""Data can never name code: nothing here unpickles, evaluates or calls a shell. And no deadline trusts the wall clock."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stoker

PACKAGE = Path(stoker.__file__).parent
FORBIDDEN_MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "time.time", "time.time_ns", "datetime.now",
    "datetime.datetime.now", "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
#: arguments that turn a harmless call into a dangerous one
FORBIDDEN_ARGUMENTS = {"allow_pickle", "shell"}
#: functions of ours with such an argument: the names of fields the user trusts
OURS = {"open_tar"}


def faults(text: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            found += [f"{line}: import {a.name}" for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            if module.split(".")[0] in FORBIDDEN_MODULES or set(names) & FORBIDDEN_CALLS:
                found.append(f"{line}: from {module} import {', '.join(alias.name for alias in node.names)}")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in FORBIDDEN_CALLS or name.split(".")[0] in FORBIDDEN_MODULES:
                found.append(f"{line}: {name}()")
            for argument in node.keywords:
                if (
                    argument.arg in FORBIDDEN_ARGUMENTS
                    and name not in OURS
                    and not (isinstance(argument.value, ast.Constant) and argument.value.value is False)
                ):
                    found.append(f"{line}: {name}({argument.arg}=...)")
            if name.endswith("import_module") and not all(isinstance(argument, ast.Constant) for argument in node.args):
                found.append(f"{line}: {name} of a name that is made up")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_in_the_package_runs_what_it_reads(path: Path) -> None:
    found = faults(path.read_text())
    if path == PACKAGE / "source" / "shards" / "unpickle.py":
        assert all("pickle" in fault for fault in found)  # for the fields the user names in allow_pickle, and no others
        return
    if path.relative_to(PACKAGE).parts[0] == "cli":
        # `stoker run MODULE:PIPELINE` imports what the user names on the command line: that is its purpose.
        found = [fault for fault in found if "import_module" not in fault]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from pickle import loads", "import cloudpickle as c", "eval('1')", "exec('1')",
        "import os\nos.system('ls')", "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=yes)", "np.load(f, allow_pickle=True)", "torch.load(f)",
        "import time\ntime.time()", "from time import time", "importlib.import_module(name)",
    ],
)  # fmt: skip
def test_the_check_itself_finds_what_it_looks_for(text: str) -> None:
    assert faults(text)


def test_the_check_lets_pass_what_is_harmless() -> None:
    assert not faults("np.load(f, allow_pickle=False)\nsubprocess.run(['ls'])\nimport time\ntime.monotonic()\nre.compile('x')")


def opened_images(path: Path) -> list[ast.Call]:
    """The calls of Pillow's `Image.open` in a file."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [call for call in calls if re.search(r"\bImage\.open$", ast.unparse(call.func))]


def test_images_are_opened_in_one_place_and_only_in_formats_that_are_named() -> None:
    """Pillow starts Ghostscript for EPS; with `formats=` it asks only the plug-ins that are named."""
    examples = Path(__file__).parents[2] / "examples"
    for path in [*PACKAGE.rglob("*.py"), *examples.rglob("*.py")]:
        calls = opened_images(path)
        assert all("formats" in {argument.arg for argument in call.keywords} for call in calls), path
        assert not calls or path.is_relative_to(examples) or path == PACKAGE / "image" / "pillow.py", path
        assert "from PIL.Image import" not in path.read_text(), f"{path}: an open() that is not seen here"
    assert opened_images(PACKAGE / "image" / "pillow.py"), "the search finds what it looks for"

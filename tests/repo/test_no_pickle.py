"""Data can never name code: nothing here unpickles, evaluates or calls a shell. And no deadline trusts the wall clock."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stoker

from .test_layers import imported

PACKAGE = Path(stoker.__file__).parent
FORBIDDEN_MODULES = {
    "pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "runpy", "code", "codeop", "imp",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "compile", "os.system", "os.popen", "torch.load", "time.time", "time.time_ns", "datetime.now",
    "datetime.datetime.now", "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
#: what runs a text, called or handed on
FORBIDDEN_NAMES = {"eval", "exec", "__import__"}
#: arguments that turn a harmless call into a dangerous one
FORBIDDEN_ARGUMENTS = {"allow_pickle", "shell"}
#: functions of ours with such an argument: the names of fields the user trusts
OURS = {"open_tar"}

#: the only files that may do any of it: what is found there must match, and who may import them
NAMED = {
    # Fields that the user names in allow_pickle, and no others.
    "source/shards/unpickle.py": (r"pickle", {"source/shards/tar_source.py", "source/streams/sequential.py"}),
    # The user's own functions, to worker processes that this process started, through a socket nobody else has; and to actors of
    # a Ray cluster that the user names, which runs whatever its users send it in any case.
    "engine/function_wire.py": (r"pickle|marshal", {"engine/", "ray/"}),
    # Registries import what is written in their tables, and those are in the code.
    "registry.py": (r"import_module", {""}),
    # Traces and logs say when they were made.
    "observe/wall_clock.py": (r"time.time", {"observe/"}),
    # `stoker run MODULE:PIPELINE` imports what the user names on the command line: that is its purpose.
    "cli/pipelines.py": (r"import_module", {"cli/"}),
}

#: code that touches data, states, indexes, caches or a network
READS_DATA = {"kernel", "storage", "image", "source", "plan", "batch", "stage", "device", "observe", "pack"}


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
        elif (isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES) or (
            isinstance(node, ast.Attribute)
            and node.attr in FORBIDDEN_NAMES
            and ast.unparse(node.value) in ("builtins", "__builtins__")
        ):
            found.append(f"{line}: {ast.unparse(node)}")
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


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_nothing_in_the_package_runs_what_it_reads() -> None:
    found = {name_of(path): faults(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    for name, lines in found.items():
        allowed = NAMED[name][0] if name in NAMED else r"(?!)"
        assert not [line for line in lines if not re.search(allowed, line)], name
    assert not [name for name in NAMED if (PACKAGE / name).exists() and not found[name]], "a permission that nobody uses"


def test_who_may_run_something_is_known_to_those_alone_who_are_named() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in imported_files(path) & NAMED.keys():
            assert name_of(path).startswith(tuple(NAMED[name][1])), f"{name_of(path)} imports {name}"


def test_no_code_that_reads_data_leads_to_what_unpickles() -> None:
    """Along all imports, those within functions too. Fields in allow_pickle are the exception that the user makes."""
    graph = {name_of(path): imported_files(path) for path in PACKAGE.rglob("*.py")}
    reached = {name for name in graph if name.split("/")[0] in READS_DATA}
    while more := set().union(*(graph[name] for name in reached)) - reached:
        reached |= more
    assert len(reached) > 100
    allowed = {"source/shards/unpickle.py", "registry.py", "observe/wall_clock.py"}
    assert {name for name in reached if faults((PACKAGE / name).read_text())} <= allowed


def imported_files(path: Path) -> set[str]:
    """The files of the package that a file imports, and the packages these are in."""
    found = set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "stoker":
            inside = PACKAGE.joinpath(*parts[1:])
            found |= {
                name_of(file) for file in (inside.with_suffix(".py"), inside / "__init__.py") if file.exists() and file != path
            }
    return found - {"__init__.py"}  # its attributes are imported where they are asked for


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from pickle import loads", "import cloudpickle as c", "eval('1')", "exec('1')", "map(eval, lines)",
        "import builtins\nbuiltins.exec(text)", "import yaml\nyaml.load(text)", "import shelve",
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

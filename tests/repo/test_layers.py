"""Imports point one way: from what the user meets towards the bytes. Read from the source, not from what happens to be loaded."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stoker

PACKAGE = Path(stoker.__file__).parent

#: who may import whom, beside itself; whoever is not named here may not be imported at all
MAY_IMPORT = {
    "errors": set(),
    "turns": set(),
    "sizes": {"errors"},
    "faults": {"errors"},
    "registry": {"errors"},
    "foreign_names": {"errors"},
    "portable_arrays": {"errors"},
    "profiler_ranges": set(),
    "kernel": {"errors", "sizes"},
    "storage": {"errors", "registry", "sizes", "kernel"},
    "image": {"errors", "sizes", "kernel"},
    "source": {"errors", "portable_arrays", "registry", "sizes", "kernel", "storage", "image"},
    "plan": {"errors", "foreign_names", "sizes", "kernel", "image", "source"},
    "engine": {"errors", "faults", "turns", "portable_arrays", "registry", "sizes"},
    "batch": {"errors", "faults", "foreign_names", "registry", "sizes", "storage", "source"},
    "observe": {"errors", "profiler_ranges", "registry", "sizes", "kernel", "storage", "source", "plan", "engine", "batch"},
    "stage": {"errors", "faults", "turns", "profiler_ranges", "sizes", "kernel", "storage", "image", "source", "plan", "batch"},
    "device": {"errors", "registry", "sizes", "kernel", "storage", "batch"},
    "remote": {"errors", "faults", "registry", "sizes", "storage", "source", "engine", "batch"},
    "loader": {
        "errors", "faults", "foreign_names", "profiler_ranges", "registry", "sizes", "storage", "image", "source", "plan",
        "engine", "batch", "kernel", "remote", "stage", "observe", "device",
    },
    "pipeline": {"errors", "foreign_names", "sizes", "image", "source", "plan", "loader", "observe", "device"},
    "pack": {"errors", "registry", "sizes", "kernel", "storage", "source", "image"},
    "ray": {"errors", "registry", "sizes", "storage", "source", "plan", "engine", "batch", "loader", "pipeline"},
    "torch": {
        "errors", "faults", "registry", "sizes", "storage", "image", "source", "plan", "engine", "batch", "stage", "observe",
        "device", "loader", "pipeline",
    },
    "__init__": {
        "errors", "registry", "foreign_names", "batch", "engine", "image", "loader", "pipeline", "source", "storage", "pack",
    },
    "__main__": {"cli"},
    "cli": {
        "errors", "sizes", "kernel", "storage", "image", "source", "plan", "stage", "batch", "engine", "observe", "loader",
        "pipeline", "pack", "registry", "remote", "__init__",
    },
}  # fmt: skip

#: in `plan/` nothing happens: no I/O, no clock, no threads
NOT_IN_PLAN = {"time", "threading", "queue", "subprocess", "socket", "io", "pathlib", "tempfile", "random", "datetime", "shutil"}
#: environment variables are read in one place a purpose: who we are among ranks, our Ray cluster, where the user keeps caches,
#: and proxies
READS_ENVIRONMENT = {
    "engine/ray_session.py",
    "engine/worker_handle.py",
    "plan/ranks.py",
    "storage/aws_profile.py",
    "storage/home.py",
    "storage/objects.py",
    "storage/proxies.py",
}
#: finalizers that run when the process exits: of files not finished yet, of connections nobody uses, of what follows a loader
FINALIZES_AT_EXIT = {"storage/atomic.py": 1, "storage/connections.py": 1, "observe/followers.py": 1}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Full names of the modules a file imports anywhere in it, typing-only imports left out."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = ["stoker", *path.relative_to(PACKAGE).parent.parts]
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"stoker(\.\w+)+", node.value):
            names.add(node.value)  # a line of a registry
    return names


def layers_imported(path: Path) -> set[str]:
    found = set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "stoker":
            continue
        if len(parts) == 1:
            continue  # `from . import x` names x too
        inside = PACKAGE / parts[1]
        found.add(parts[1] if inside.is_dir() or inside.with_suffix(".py").exists() else "__init__")
    return found - {layer_of(path)}


def test_the_table_names_every_layer_there_is() -> None:
    assert {layer_of(path) for path in modules()} == set(MAY_IMPORT)


def test_the_table_has_no_circle() -> None:
    left = {layer: set(others) for layer, others in MAY_IMPORT.items()}
    while left:
        free = [layer for layer, others in left.items() if not others & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for layer in free:
            del left[layer]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_the_right_way(path: Path) -> None:
    wrong = layers_imported(path) - MAY_IMPORT[layer_of(path)]
    assert not wrong, f"{path.relative_to(PACKAGE)} must not import {sorted(wrong)}"


def test_what_may_be_imported_is_imported() -> None:
    """The table says what is true: a permission nobody uses is taken out."""
    used: dict[str, set[str]] = {layer: set() for layer in MAY_IMPORT}
    for path in modules():
        used[layer_of(path)] |= layers_imported(path)
    unused = {layer: others - used[layer] for layer, others in MAY_IMPORT.items() if layer not in ("cli", "errors")}
    common = {"errors", "registry", "sizes"}
    assert {layer: others - common for layer, others in unused.items() if others - common} == {}


@pytest.mark.parametrize("path", sorted((PACKAGE / "plan").glob("*.py")), ids=lambda path: path.name)
def test_in_the_plan_nothing_happens(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & NOT_IN_PLAN
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input"}


def test_threads_are_made_in_one_place_which_stops_them_when_the_program_ends() -> None:
    for path in modules():
        if path == PACKAGE / "engine" / "daemons.py":
            continue
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        made = {call for call in calls if call.split(".")[-1] in ("Thread", "ThreadPoolExecutor", "Timer")}
        assert not made, f"{path.relative_to(PACKAGE)} makes {made}"


def test_processes_are_made_in_the_engine() -> None:
    for path in modules():
        if layer_of(path) == "engine":
            continue
        name = path.relative_to(PACKAGE)
        makers = {"subprocess", "multiprocessing", "concurrent", "pty"} & {module.split(".")[0] for module in imported(path)}
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        makers |= {
            call
            for call in calls
            if call.startswith(("os.fork", "os.spawn", "os.posix_spawn", "os.exec", "os.system", "os.popen"))
        }
        assert not makers, f"{name} makes processes: {makers}"


def test_the_exit_of_the_process_frees_nothing_that_a_worker_may_be_using() -> None:
    """A finalizer runs at exit unless it says otherwise; those that may are named."""
    for path in modules():
        text = path.read_text()
        finalizers = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _is_finalize(node.func)]
        left_on = len(finalizers) - text.count(".atexit = False")
        assert left_on == FINALIZES_AT_EXIT.get(str(path.relative_to(PACKAGE)), 0), path


def _is_finalize(function: ast.expr) -> bool:
    return ast.unparse(function) in ("weakref.finalize", "finalize")


def test_the_environment_is_read_in_one_place() -> None:
    for path in modules():
        name = str(path.relative_to(PACKAGE))
        if layer_of(path) == "cli" or name in READS_ENVIRONMENT:
            continue
        text = path.read_text()
        used = {ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
        assert not used & {"os.environ", "os.getenv", "os.environb"}, name
        assert "urllib.request" not in text, f"{name}: that looks for proxies"


def test_the_scheduler_knows_nobody() -> None:
    assert not layers_imported(PACKAGE / "engine" / "schedule.py")
    outside = {name.split(".")[0] for name in imported(PACKAGE / "engine" / "schedule.py")}
    assert outside <= {"__future__", "collections", "dataclasses", "math", "types", "typing", "stoker"}


def test_only_one_file_speaks_to_each_native_library() -> None:
    """Ours, CUDA's driver, and its compiler."""
    speaking = [path.name for path in modules() if "ctypes" in {name.split(".")[0] for name in imported(path)}]
    assert speaking == ["cuda_driver.py", "kernel_compiler.py", "library.py"]

"""MODULE:PIPELINE on the command line: a pipeline from the user's own code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

import typer

from ..engine.training_modules import note_training
from ..errors import ConfigError, StokerError
from ..loader.command_import import imported_by_command
from ..pipeline import Pipeline
from .guard import place

T = TypeVar("T")

PipelineName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:PIPELINE",
        help="A pipeline, or a function without arguments that makes one: `my_module:train` or `path/to/file.py:train`.",
        show_default=False,
    ),
]


def load_pipeline(name: str) -> Pipeline:
    """Import the module and take the pipeline from it; a function is called."""
    module, module_name, attribute = load_named(name, "MODULE:PIPELINE", "train")
    if not hasattr(module, attribute):
        known = ", ".join(key for key, value in vars(module).items() if isinstance(value, Pipeline))
        raise ConfigError(f"{module_name} has no {attribute!r}; pipelines in it: {known or 'none'}")
    value: Any = getattr(module, attribute)
    if not isinstance(value, Pipeline) and _callable_without_arguments(value):
        value = asked(f"{name}()", value)
    if not isinstance(value, Pipeline):
        raise ConfigError(
            f"{name} is of type {type(value).__name__}; use a pipeline, or a function without arguments that makes one"
        )
    return value


def load_named(name: str, form: str, example: str) -> tuple[ModuleType, str, str]:
    """Import the module of something that is named as in ``my_module:train``; it, its name, and the name within it."""
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{name}: write {form}, as in my_module:{example} or path/to/file.py:{example}")
    with imported_by_command(module_name) as imported:
        module = asked(f"importing {module_name}", lambda: load_module(module_name))
    if imported.trains:
        note_training(module.__name__)
    return module, module_name, attribute


def load_module(name: str) -> ModuleType:
    """Import a module by its name, or by the path of its file."""
    path = Path(name)
    if path.suffix == ".ipynb":
        raise ConfigError(f"{name}: a notebook cannot be imported; write its pipeline to a file with %%writefile, and name that")
    if path.suffix != ".py":
        _look_in(Path.cwd())
        return importlib.import_module(name)
    if not path.is_file():
        raise ConfigError(f"{name}: there is no such file")
    _look_in(path.absolute().parent)
    own = path.stem if path.stem not in sys.modules else f"stoker_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = sys.modules[own] = importlib.util.module_from_spec(spec)
    spec._initializing = True  # type: ignore[attr-defined]  # as `import` sets it, for workers that its code may start
    try:
        spec.loader.exec_module(module)
    finally:
        spec._initializing = False  # type: ignore[attr-defined]
    return module


def _callable_without_arguments(value: Any) -> bool:
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


def _look_in(folder: Path) -> None:
    """Let the user's modules be found, as `python` itself would find them."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def asked(doing: str, act: Callable[[], T]) -> T:
    """Run the user's code; what it raises is told with the line it was raised on."""
    try:
        return act()
    except StokerError:
        raise
    except Exception as error:
        where = "" if isinstance(error, ModuleNotFoundError) else f" ({place(error)})"
        raise ConfigError(f"{doing} raised {type(error).__name__}: {error}{where}") from error

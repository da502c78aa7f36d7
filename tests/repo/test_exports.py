"""What users meet: every public name explains itself, and importing Stoker imports nothing heavy."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

import stoker
import stoker.image
from stoker.batch.batch import Batch, Sample
from stoker.loader import Loader
from stoker.observe.meters import Stats

from ..loader.runs import run_python

CLASSES = [stoker.Pipeline, Loader, Batch, Sample, Stats]


@pytest.mark.parametrize("module", [stoker, stoker.image], ids=lambda module: module.__name__)
def test_every_public_name_exists_and_has_a_docstring(module: Any) -> None:
    assert sorted(module.__all__) == list(module.__all__)
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), name


@pytest.mark.parametrize("module", [stoker, stoker.image], ids=lambda module: module.__name__)
def test_every_public_name_is_listed_also_before_it_is_used(module: Any) -> None:
    listed = run_python(f"import json, {module.__name__} as module; print(json.dumps(dir(module)))")
    assert set(module.__all__) <= set(json.loads(listed.stdout))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_method_has_a_docstring(cls: type) -> None:
    plain = {"keys", "values", "items"}
    for name, member in vars(cls).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)) and name not in plain:
            own = member.fget if isinstance(member, property) else member
            told = inspect.getdoc(own) or (name in ("samples_per_s",) and "plain")
            assert told, f"{cls.__name__}.{name}"


def test_every_error_derives_from_one_root_and_from_its_builtin() -> None:
    errors = [value for value in vars(stoker.errors).values() if isinstance(value, type)]
    assert len(errors) > 15
    for error in errors:
        assert issubclass(error, stoker.StokerError)
        assert inspect.getdoc(error)
        drawn = stoker.errors.__doc__ or ""
        assert error.__name__ in drawn, "it is in the drawing at the top of the file"


def test_the_names_of_the_contract_are_there() -> None:
    pipeline = (
        "shuffle shard image decode map map_batch filter flat_map unbatch select rename drop batch repeat take skip on_error "
        "retry"
    )
    for name in (*pipeline.split(), "explain", "fingerprint", "sample", "__len__", "loader", "torch_dataset", "classes"):
        assert hasattr(stoker.Pipeline, name), name
    loader = "__iter__ __len__ __enter__ close epoch state_dict load_state_dict stats why trace explain"
    sources = "files filelist voc arrays stream errors"
    image = "Resize CenterCrop RandomResizedCrop HorizontalFlip Normalize CropBox"
    for owner, names in ((Loader, loader), (stoker, sources), (stoker.image, image)):
        for name in names.split():
            assert hasattr(owner, name), name
    parameters = inspect.signature(stoker.Pipeline.loader).parameters
    assert {"threads", "executor", "memory", "ahead", "format", "batches", "device", "epoch", "watchdog_s"} <= parameters.keys()


@pytest.mark.parametrize("used", ["stoker.errors", "stoker.Pipeline", "stoker.image", "stoker.image.Resize"])
def test_importing_stoker_imports_nothing_heavy_and_using_it_numpy_alone(used: str) -> None:
    """A command ends quietly on Ctrl-C as soon as the package itself is there: see `__main__.py`."""
    script = f"import sys, json, stoker; {used}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = run_python(script)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert ("numpy" in loaded) == (used != "stoker.errors")
    assert not loaded & {"torch", "PIL", "typer", "rich", "defusedxml", "jax", "tensorflow", "xml", "multiprocessing", "click"}
    assert not loaded & {"zmq", "msgspec", "cloudpickle", "obstore", "lmdb", "ray", "asyncio", "http", "ssl"}


def test_making_a_pipeline_imports_nothing_that_runs_one() -> None:
    script = """
import json, sys, numpy as np, stoker
from stoker.image import HorizontalFlip
pipeline = stoker.arrays(x=np.zeros((4, 8, 8, 3), np.uint8)).shuffle().image("x", HorizontalFlip()).batch(2)
def parts(): return sorted({".".join(name.split(".")[1:2]) for name in sys.modules if name.startswith("stoker.")})
print(json.dumps([parts(), len(pipeline), parts()]))
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr
    before, length, after = json.loads(done.stdout)
    running = {"engine", "stage", "observe", "remote", "batch", "pack", "cli"}
    assert not running & set(before) and length == 2 and "engine" in after


def test_running_a_pipeline_of_arrays_imports_nothing_more() -> None:
    script = """
import sys, numpy as np, stoker
list(stoker.arrays(x=np.arange(9)).shuffle().map(x=abs).batch(2))
heavy = {"torch", "PIL", "typer", "rich", "defusedxml"} & set(sys.modules)
assert not heavy, heavy
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr


def test_the_version_is_the_one_of_the_project() -> None:
    from ..loader.runs import ROOT

    assert f'version = "{stoker.__version__}"' in (ROOT / "pyproject.toml").read_text()

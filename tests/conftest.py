"""Fixtures that many tests share."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stoker.kernel import native
from stoker.storage.scratch import Scratch

from .support import Passing, Simd, jpeg_bytes

# In the background of a shell this process ignores Ctrl-C and a hang-up; the commands that tests start and stop must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples in every run, and none of them judged by the clock: a run on a busy machine says what any other says.
# Whoever changes something looks further with `pytest --hypothesis-profile search`.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True, database=None)
settings.load_profile("same")

#: the folders of `image_folder`
CLASSES = ("cat", "dog", "owl")
#: JPEGs in each of them
PER_CLASS = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", action="store_true", help="repeat the scenarios of the fault lab as often as `make faults` does")
    parser.addoption("--core", action="store_true", help="skip tests that need a package which is not installed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: a scenario of the fault lab, which `make faults` repeats more often")
    config.addinivalue_line("markers", "thorough: played by `make faults` alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--faults"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


#: packages that ``--core`` does without
OPTIONAL = ("cv2", "jax", "keras", "lmdb", "msgpack", "msgpack_numpy", "tensorflow", "torch", "torchvision", "zstandard")


@contextmanager
def _skipped_without_extras(wanted: bool) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        lacks = re.search(r"No module named '(\w+)'|needs the package (\w+)", str(error))
        if wanted and lacks and (name := lacks[1] or lacks[2]) in OPTIONAL:
            pytest.skip(f"it takes {name}")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with _skipped_without_extras(item.config.getoption("--core")):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    with _skipped_without_extras(item.config.getoption("--core")):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    lacks = re.search(r"ModuleNotFoundError: No module named '(\w+)'", str(report.longrepr)) if report.failed else None
    if lacks and collector.config.getoption("--core") and lacks[1] in OPTIONAL:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: it takes {lacks[1]}")
    return report


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders of eight JPEGs, 60 to 160 pixels a side, no two alike. All tests share it: do not write to it."""
    root = tmp_path_factory.mktemp("images")
    for label, name in enumerate(CLASSES):
        (root / name).mkdir()
        for number in range(PER_CLASS):
            seed = label * PER_CLASS + number
            picture = jpeg_bytes(60 + seed * 37 % 101, 60 + seed * 53 % 101, seed=seed)
            (root / name / f"{name}_{number:02d}.jpg").write_bytes(picture)
    return root


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's cache folder, for this run and whatever it starts: tests never write to the real one."""
    folder = tmp_path_factory.mktemp("cache-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def no_proxies() -> Iterator[None]:
    """Servers that tests start are asked themselves, whatever proxy this machine is behind."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="module", autouse=True)
def settled() -> None:
    """What was imported so far is not looked at again when tests collect garbage: that would take longer than they do."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Passing:
    """The clock of feeds and tasks."""
    clock = Passing()
    monkeypatch.setattr("stoker.engine.feed.time", clock)
    monkeypatch.setattr("stoker.engine.run_task.time", clock)
    return clock


@pytest.fixture
def simd() -> Iterator[Simd]:
    """Chooses a SIMD level for the rest of the test, and says which it got."""
    yield native.simd
    native.simd(-1)


@pytest.fixture(params=range(3), ids=["scalar", "level 1", "level 2"])
def level(request: pytest.FixtureRequest, simd: Simd) -> int:
    """Each SIMD level that this machine has."""
    if simd(request.param) != request.param:
        pytest.skip("this machine has no such instructions")
    return int(request.param)


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    """A worker's private memory."""
    private = Scratch()
    yield private
    private.close()

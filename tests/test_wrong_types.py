"""Arguments of the wrong type: always a ConfigError, which says what is wrong, and never whatever Python makes of it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Cache, Patience, TarWriter
from stoker.errors import ConfigError

from .loader.runs import numbers

TAKES_NONE_OF_THESE: dict[str, Callable[[Any], object]] = {
    "files(pattern=)": lambda value: stoker.files(Path(__file__).parent, pattern=value),
    "filelist()": stoker.filelist,
    "filelist(root=)": lambda value: stoker.filelist(__file__, root=value),
    "voc(images=)": lambda value: stoker.voc([__file__], images=value),
    "lmdb()": stoker.lmdb,
    "tar(defaults=)": lambda value: stoker.tar("x.tar", defaults=value),
    "tar(allow_pickle=)": lambda value: stoker.tar("x.tar", allow_pickle=value),
    "tar(cache=)": lambda value: stoker.tar("http://localhost/x.tar", cache=value),
    "mix()": stoker.mix,
    "mix(weights=)": lambda value: stoker.mix([numbers(), numbers()], weights=value),
    "batch(pad=)": lambda value: numbers().batch(2, pad=value),
    "batch(drop_last=)": lambda value: numbers().batch(2, drop_last=value),
    "decode(format=)": lambda value: numbers().decode("x", format=value),
    "on_error(quarantine=)": lambda value: numbers().on_error("skip", quarantine=value),
    "on_error(window=)": lambda value: numbers().on_error("skip", window=value),
    "loader(batches=)": lambda value: numbers().loader(batches=value),
    "DataLoader(executor=)": lambda value: import_module("stoker.torch").DataLoader([1], executor=value),
    "torch_dataset(batches=)": lambda value: numbers().torch_dataset(batches=value),
    "loader(executor=)": lambda value: numbers().loader(executor=value),
    "loader(format=)": lambda value: numbers().loader(format=value),
    "loader(decode_on=)": lambda value: numbers().loader(decode_on=value),
    "loader(memory=)": lambda value: numbers().loader(memory=value),
    "loader(watchdog_s=)": lambda value: numbers().loader(watchdog_s=value),
    "loader(epoch=)": lambda value: numbers().loader(epoch=value),
    "loader(ray_address=)": lambda value: numbers().loader(executor="ray", ray_address=value),
    "loader(threads=)": lambda value: numbers().loader(threads=value),
    "loader(workers_at=)": lambda value: numbers().loader(workers_at=value),
    "loader(worker_keys=)": lambda value: numbers().loader(workers_at="tcp://127.0.0.1:0", worker_keys=value),
    "loader(pool=)": lambda value: numbers().loader(pool=value),
    "loader(pool_keys=)": lambda value: numbers().loader(pool="tcp://127.0.0.1:1", pool_keys=value),
    "Cache()": Cache,
    "Patience(budget_s=)": lambda value: Patience(budget_s=value),
    "TarWriter(about=)": lambda value: TarWriter("x.tar", about=value),
}


@pytest.mark.parametrize("call", TAKES_NONE_OF_THESE)
@pytest.mark.parametrize("value", [object(), 1.5j, np.zeros((2, 2)), [object()]], ids=lambda value: type(value).__name__)
def test_an_argument_of_the_wrong_type_is_a_config_error(
    call: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if call in ("torch_dataset(batches=)", "DataLoader(executor=)"):
        pytest.importorskip("torch")
    with pytest.raises(ConfigError):
        TAKES_NONE_OF_THESE[call](value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["executor", "format"])
def test_a_choice_of_the_wrong_type_is_named_with_the_choices(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"loader\({name}=array.*: there is no such .*; choose .* or "):
        numbers().loader(**{name: np.zeros(2)})


def test_a_key_file_that_no_system_could_have_is_named() -> None:
    with pytest.raises(ConfigError, match="is not the path of a key file"):
        numbers().loader(workers_at="tcp://127.0.0.1:0", worker_keys="a\0b")


@pytest.mark.parametrize("value", [10**30, "gpu?", 1.5])
def test_a_device_that_cannot_be_is_named(value: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ConfigError, match=r"loader\(device=.*torch has no such device"):
        numbers().loader(format="torch", device=value)

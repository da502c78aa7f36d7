"""Frameworks that look into dicts are told once that what functions get is one."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.source.sample_names import ListedNames, NamedColumns, NamedSample
from stoker.stage import pytrees


def test_a_framework_is_told_once_and_not_before_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[type, tuple[Any, Any]] = {}
    monkeypatch.setattr(pytrees, "_known", {"torch.utils._pytree"})
    monkeypatch.setitem(sys.modules, "jax.tree_util", SimpleNamespace())  # type: ignore[arg-type]
    pytrees.introduce()

    def register(kind: type, flatten: Any, unflatten: Any) -> None:
        assert kind not in told
        told[kind] = flatten, unflatten

    monkeypatch.setitem(sys.modules, "jax.tree_util", SimpleNamespace(register_pytree_node=register))  # type: ignore[arg-type]
    pytrees.introduce()
    pytrees.introduce()
    assert told.keys() == {NamedSample, NamedColumns}
    flatten, unflatten = told[NamedSample]
    leaves, names = flatten(NamedSample.of({"a": 1, "b": 2}, ListedNames(["k"], ["o"], [0]), 0))
    assert unflatten(names, [leaf * 10 for leaf in leaves]) == {"a": 10, "b": 20}

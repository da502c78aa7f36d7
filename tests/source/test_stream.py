"""`stream`: samples from a user's iterable."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

import stoker
from stoker.errors import ConfigError
from stoker.source.streams.stream import StreamSource


def numbers(count: int = 3) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"n": number}


class Numbers:
    def __call__(self) -> list[dict[str, int]]:
        return [{"n": 1}]


def test_each_opening_starts_anew() -> None:
    source = StreamSource(numbers)
    assert [sample["n"] for sample in source.open()] == [sample["n"] for sample in source.open()] == [0, 1, 2]


def test_half_a_character_in_a_key_is_shown_by_its_bytes() -> None:
    """It may come from anywhere, broken JSON say, and breaks neither a log nor the run."""
    pipeline = stoker.stream(lambda: [{"__key__": "a\ud800", "n": 1}, {"__key__": "a\udcff", "n": 2}])
    assert [sample.key for sample in pipeline] == [r"a\xed\xa0\x80", r"a\xff"]


def test_nothing_is_called_before_it_is_opened() -> None:
    calls: list[int] = []
    source = StreamSource(lambda: calls.append(1) or [{"n": 0}])  # type: ignore[func-returns-value]
    source.describe()
    source.fingerprint()
    assert not calls
    source.open()
    assert calls == [1]


def test_only_as_much_is_read_as_is_asked_for() -> None:
    taken: list[int] = []

    def endless() -> Iterator[dict[str, int]]:
        number = 0
        while True:
            taken.append(number)
            yield {"n": number}
            number += 1

    samples = StreamSource(endless).open()
    assert [next(samples)["n"], next(samples)["n"]] == [0, 1]
    assert taken == [0, 1]


def test_a_generator_in_place_of_its_function_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"got a generator, which can be read only once; pass the function"):
        StreamSource(numbers())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"got a list; pass a function that returns it: stream\(lambda: samples\)"):
        StreamSource([{"n": 1}])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"got an int; pass a function"):
        StreamSource(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, 3, {"n": 1}])
def test_a_function_that_returns_no_iterable_of_samples_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"returned an? (NoneType|int|dict); it must return an iterable of mappings"):
        StreamSource(lambda: given).open()


def test_samples_may_be_named_tuples_such_as_another_pipeline_gives() -> None:
    inner = stoker.arrays(n=[3, 4, 5])
    batch = next(iter(stoker.stream(lambda: inner).batch(3)))
    assert batch["n"].tolist() == [3, 4, 5]


def test_a_sample_that_is_no_mapping_is_named_by_its_number() -> None:
    samples = StreamSource(lambda: [{"n": 1}, (1, 2)]).open()  # type: ignore[list-item]
    assert next(samples) == {"n": 1}
    with pytest.raises(ConfigError, match=r"gave as sample 1 a tuple; use mappings"):
        next(samples)


def test_a_field_name_that_is_no_text_is_named() -> None:
    samples = StreamSource(lambda: [{"n": 1}, {"n": 1}, {1: 1}]).open()  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"sample 2 has a field 1; field names are str"):
        list(samples)


def test_samples_may_differ_in_their_fields() -> None:
    assert [list(sample) for sample in StreamSource(lambda: [{"a": 1}, {"b": 1}, {"a": 1}]).open()] == [
        ["a"],
        ["b"],
        ["a"],
    ]


def test_what_the_function_raises_passes_through() -> None:
    def broken() -> Iterator[dict[str, int]]:
        yield {"n": 0}
        raise RuntimeError("mine")

    samples = StreamSource(broken).open()
    next(samples)
    with pytest.raises(RuntimeError, match="mine"):
        next(samples)


def test_the_key_is_the_samples_own_or_its_number() -> None:
    source = StreamSource(numbers)
    assert source.key({"n": 1}, 41) == "41"
    assert source.key({"__key__": "a/b", "n": 1}, 41) == "a/b"
    assert source.key({"__key__": 7}, 41) == "7"
    assert source.key({"__key__": b"caf\xe9"}, 41) == source.key({"__key__": "caf\udce9"}, 41) == r"caf\xe9"


def test_the_fingerprint_is_of_the_functions_name() -> None:
    same = StreamSource(functools.partial(functools.partial(numbers, 5)))
    assert StreamSource(numbers).fingerprint() == same.fingerprint()
    assert StreamSource(numbers).fingerprint() != StreamSource(Numbers()).fingerprint()
    assert StreamSource(Numbers()).describe() == f"stream({__name__}.Numbers): length unknown"

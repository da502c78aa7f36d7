"""From verbs to a plan: mistakes are found before anything runs, and fields are known in advance."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import field, make_dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError, StallError, StateError
from stoker.image import CenterCrop, CropBox, HorizontalFlip, RandomResizedCrop, Resize, Rotate
from stoker.loader import front
from stoker.plan.nodes import Image, Shuffle, Take, describe

from ..loader.runs import expand, numbers, odd, samples, spread


def abc(n: int = 10) -> Pipeline:
    return stoker.arrays(a=np.arange(n), b=np.arange(n) * 2, c=np.arange(n) * 3)


def first(pipeline: Pipeline) -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in next(iter(pipeline)).items()}


A, B, C = [0, 1, 2, 3], [0, 2, 4, 6], [0, 3, 6, 9]

FIELDS: dict[str, tuple[Callable[[Pipeline], Pipeline], dict[str, list[int]]]] = {
    "select": (lambda p: p.select("c", "a").batch(4), {"c": C, "a": A}),
    "select behind batch": (lambda p: p.batch(4).select("c", "a"), {"c": C, "a": A}),
    "select twice": (lambda p: p.select("a", "b").select("b").batch(4), {"b": B}),
    "select before and behind batch": (lambda p: p.select("a", "b").batch(4).select("b"), {"b": B}),
    "drop": (lambda p: p.drop("b").batch(4), {"a": A, "c": C}),
    "drop behind batch": (lambda p: p.batch(4).drop("b"), {"a": A, "c": C}),
    "drop, then select": (lambda p: p.drop("b").select("a").batch(4), {"a": A}),
    "drop, then select behind batch": (lambda p: p.drop("b").batch(4).select("a"), {"a": A}),
    "rename": (lambda p: p.rename(z="a").batch(4), {"z": A, "b": B, "c": C}),
    "rename behind batch": (lambda p: p.batch(4).rename(z="a"), {"z": A, "b": B, "c": C}),
    "swap": (lambda p: p.rename(b="a", a="b").batch(4), {"b": A, "a": B, "c": C}),
    "rename what is left out later": (lambda p: p.rename(z="b").select("a").batch(4), {"a": A}),
    "rename to a name that was left out": (lambda p: p.select("a").rename(b="a").batch(4), {"b": A}),
    "rename, then drop": (lambda p: p.rename(z="b").drop("z").batch(4), {"a": A, "c": C}),
    "rename, then select behind batch": (lambda p: p.rename(z="b").batch(4).select("z"), {"z": B}),
    "rename behind batch, then select": (lambda p: p.batch(4).rename(z="b").select("z", "a"), {"z": B, "a": A}),
    "select, map to an old name": (lambda p: p.select("a").map(lambda s: {"b": s["a"]}).select("b").batch(4), {"b": A}),
    "select behind map_batch": (lambda p: p.batch(4).map_batch(lambda c: {"d": c["b"]}).select("d"), {"d": B}),
    "map one field, select another": (lambda p: p.map(a=lambda v: v).select("b").batch(4), {"b": B}),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_arrive_under_their_names_and_in_their_order(name: str) -> None:
    change, expected = FIELDS[name]
    found = first(change(abc()))
    assert found == expected
    assert list(found) == list(expected)


def test_fields_nobody_looks_at_are_not_read() -> None:
    assert abc().select("c").batch(2).plan.wanted == ("c",)
    assert abc().batch(2).select("b").plan.wanted == ("b",)
    assert abc().rename(z="b").select("z").batch(2).plan.wanted == ("b",)
    assert abc().map(lambda s: s).select("c").batch(2).plan.wanted == ("a", "b", "c"), "a function may look at everything"
    assert abc().batch(2).map_batch(spread).select("c").plan.wanted == ("a", "b", "c")


UNKNOWN: dict[str, Callable[[Pipeline], Pipeline]] = {
    "select": lambda p: p.select("nope"),
    "select behind batch": lambda p: p.batch(2).select("nope"),
    "rename": lambda p: p.rename(x="nope"),
    "drop": lambda p: p.drop("nope"),
    "map": lambda p: p.map(nope=abs),
    "image": lambda p: p.image("nope", Resize((4, 4))),
    "decode": lambda p: p.decode("nope"),
    "a field left out before": lambda p: p.select("a").drop("b"),
    "pad": lambda p: p.batch(2, pad={"nope": 0}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_field_that_is_not_there_is_named_before_anything_runs(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'(nope|b)', but the fields here are a"):
        _ = UNKNOWN[name](abc()).plan


def test_two_fields_cannot_get_one_name() -> None:
    with pytest.raises(ConfigError, match="same name"):
        _ = abc().rename(b="a").plan
    with pytest.raises(ConfigError, match="each only once"):
        abc().rename(z="a", y="a")
    with pytest.raises(stoker.errors.BatchError, match="same name"):
        list(abc().map(lambda s: s).rename(b="a"))


def test_a_rename_in_the_wrong_direction_or_of_no_name_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"the new name comes first: rename\(nope='a'\)"):
        _ = abc().rename(a="nope").plan
    with pytest.raises(ConfigError, match=r"'x;y', but the fields here are a, b, c$"):
        _ = abc().rename(a="x;y").plan
    for old in ("", "a;", ";a", ["a", "b"]):
        with pytest.raises(ConfigError, match=r"rename\(z=.*\): must be the old name, or several .* z='jpg;png'"):
            abc().rename(z=old)  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "map_batch without batch": (lambda: numbers().map_batch(spread).plan, "after batch"),
    "map behind batch": (lambda: numbers().batch(2).map(abs).plan, "before batch"),
    "filter behind batch": (lambda: numbers().batch(2).filter(odd).plan, "before batch"),
    "image behind batch": (lambda: numbers().batch(2).image("x", Resize(4)).plan, "before batch"),
    "two batches": (lambda: numbers().batch(2).batch(2).plan, "twice"),
    "map in an inner batch": (lambda: numbers().batch(2).map(abs).unbatch().plan, "only map_batch"),
    "shuffle behind flat_map": (lambda: numbers().flat_map(expand).shuffle().plan, "window"),
    "shuffle of a stream": (lambda: stoker.stream(samples).shuffle().plan, "window"),
    "repeat of a stream": (lambda: stoker.stream(samples).repeat(2).plan, "repeat"),
    "repeat behind take behind filter": (lambda: numbers().filter(odd).take(3).repeat(2).plan, "repeat"),
    "take behind batch behind filter": (lambda: numbers().filter(odd).batch(2).take(3).plan, "counted"),
    "take behind repeated batches": (lambda: numbers().batch(2).repeat(2).take(3).plan, "before batch"),
    "shuffle behind batch": (lambda: numbers().batch(2).shuffle().plan, "before batch"),
    "endless, then shuffled": (lambda: numbers().repeat().shuffle().plan, "endless"),
    "endless, then repeated in batches": (lambda: numbers().repeat().batch(2).take(3).repeat(2).plan, "give that one a count"),
    "nothing, without end": (lambda: numbers(3).skip(3).repeat().batch(1).loader(), "no batch of"),
    "endless batches of too few samples": (lambda: numbers(3).batch(4).repeat().loader(), "cannot make a batch of"),
    "endless batches that are all skipped": (lambda: numbers(9).batch(4).skip(2).repeat().loader(), "no batch of"),
    "no batch": (lambda: numbers(3).batch(4).loader(), "cannot make a batch of"),
    "no sample": (lambda: numbers(3).take(0).batch(1, drop_last=False).loader(), "no batch of"),
    "an empty rank": (lambda: numbers(3).shard(0, 4).batch(1).loader(), "4 ranks"),
    "batch of nothing": (lambda: numbers().batch(0), ">= 1"),
    "batch of a half": (lambda: numbers().batch(2.5), "must be an integer"),  # type: ignore[arg-type]
    "batch of True": (lambda: numbers().batch(True), "must be an integer"),
    "negative take": (lambda: numbers().take(-1), ">= 0"),
    "window of 0": (lambda: numbers().shuffle(window=0), ">= 1"),
    "repeat 0 times": (lambda: numbers().repeat(0), ">= 1"),
    "seed of text": (lambda: numbers().shuffle(seed="7"), "must be an integer"),  # type: ignore[arg-type]
    "map of nothing": (lambda: numbers().map(), "either"),
    "map of both": (lambda: numbers().map(abs, x=abs), "either"),
    "map of no function": (lambda: numbers().map(3), "function"),  # type: ignore[arg-type]
    "map of no functions": (lambda: numbers().map(x=[]), "at least one"),
    "filter of no function": (lambda: numbers().filter("x"), "function"),  # type: ignore[arg-type]
    "select of nothing": (lambda: numbers().select(), "at least one"),
    "select twice": (lambda: numbers().select("x", "x"), "each only once"),
    "rename to a number": (lambda: numbers().rename(x=3), "must be the old name"),  # type: ignore[arg-type]
    "on_error of text": (lambda: numbers().on_error("ignore"), "raise"),
    "negative budget": (lambda: numbers().on_error("skip", budget=-0.1), "budget"),
    "budget that is no number": (lambda: numbers().on_error("skip", budget=float("nan")), "budget"),
    "window of nothing": (lambda: numbers().on_error("skip", window=0), "window"),
    "fill with what": (lambda: numbers().on_error("skip", fill="zeros"), "'repeat'"),
    "a budget for errors that raise": (lambda: numbers().on_error("raise", budget=3), "does not skip"),
    "rename in the other direction": (lambda: numbers().rename(x="image").plan, r"new name comes first: rename\(image='x'\)"),
    "rng that is neither": (lambda: numbers().map(x=abs, rng=3), "True, False or a name"),  # type: ignore[arg-type]
    "operation that is none": (lambda: numbers().image("x", abs), "operation"),  # type: ignore[arg-type]
    "image of numbers": (lambda: numbers().image("y", Resize(4)).plan, "float32"),
    "decode to what": (lambda: numbers().decode("x", format="tf"), "'numpy' or 'pil' or 'torch'"),
    "threads": (lambda: numbers().batch(2).loader(threads=0), "threads"),
    "executor": (lambda: numbers().batch(2).loader(executor="dask"), "executor"),
    "memory": (lambda: numbers().batch(2).loader(memory="lots"), "memory"),
    "ahead": (lambda: numbers().batch(2).loader(ahead=0), "ahead"),
    "format": (lambda: numbers().batch(2).loader(format="mxnet"), "format"),
    "epoch": (lambda: numbers().batch(2).loader(epoch=-1), "epoch"),
    "watchdog": (lambda: numbers().batch(2).loader(watchdog_s=0), "watchdog_s"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_pipeline_is_refused_before_it_runs(name: str) -> None:
    make, told = WRONG[name]
    with pytest.raises(ConfigError, match=told):
        make()


SKIPPED = r"no batch of 6 is left of 4 batches after skip\(4\); skip fewer, or take more"
NOTHING: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "every batch skipped": (lambda: numbers(24).batch(6, drop_last=False).skip(4), SKIPPED),
    "every batch skipped, again and again": (lambda: numbers(24).batch(6).skip(4).repeat(), SKIPPED),
    "a rank's batches skipped": (lambda: numbers(24).shard(0, 2).batch(6).skip(2), r"of 2 batches after skip\(2\)"),
    "no batch taken": (lambda: numbers(24).batch(6).take(0), r"of 4 batches after take\(0\); "),
    "what was taken is skipped": (lambda: numbers(24).batch(6).take(2).skip(3), r"of 4 batches after take\(2\) and skip\(3\)"),
    "what was skipped is taken": (lambda: numbers(24).batch(6).skip(4).take(2), r"of 4 batches after skip\(4\) and take\(2\)"),
    "endless, and cut": (lambda: numbers(24).repeat().batch(6).take(2).skip(2), r"is left after take\(2\) and skip\(2\)"),
    "every sample skipped": (
        lambda: numbers(24).skip(24).batch(6),
        r"no sample is left after skip\(24\), so there is no batch of 6",
    ),
    "no sample taken": (lambda: numbers(24).take(3).skip(3), r"no sample is left after take\(3\) and skip\(3\); skip fewer"),
    "nothing, without end": (lambda: numbers(24).skip(24).repeat().batch(3), r"no sample is left after skip\(24\)"),
    "too many ranks": (lambda: numbers(24).shard(0, 30), "24 samples on 30 ranks cannot make a sample; use fewer ranks"),
    "too few samples": (lambda: numbers(24).batch(25), "24 samples on 1 rank cannot make a batch of 25; use a smaller batch"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_pipeline_known_to_give_nothing_is_refused_naming_what_leaves_nothing(name: str) -> None:
    make, told = NOTHING[name]
    for use in (Pipeline.loader, len, list):
        with pytest.raises(ConfigError, match=told):
            use(make())


def test_a_pipeline_of_which_only_its_samples_tell_that_it_gives_nothing_is_empty() -> None:
    nothing = [numbers().filter(lambda s: False), numbers().filter(odd).skip(60), numbers().skip(60).filter(odd)]
    nothing += [numbers().take(0).repeat().flat_map(expand), stoker.stream(lambda: []), numbers().batch(90).unbatch()]
    assert [[list(pipeline.batch(2)), list(pipeline)] for pipeline in nothing] == [[[], []]] * len(nothing)


def endless_nothing() -> list[Pipeline]:
    endless = numbers(40).shuffle(seed=1).repeat()
    mixed = stoker.mix([numbers(30).repeat(), numbers(10).repeat()])
    return [
        endless.filter(none).batch(2),
        endless.flat_map(lambda s: []),
        endless.filter(odd).filter(even).take(3),
        endless.filter(yes).skip(2).filter(none),
        endless.batch(2).unbatch().filter(none),
        endless.filter(none).skip(2).filter(yes),
        mixed.filter(none).batch(2),
    ]


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_a_filter_that_keeps_nothing_of_an_endless_repeat_is_a_stall(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "time", SimpleNamespace(monotonic=count(0, 100).__next__))
    for pipeline in endless_nothing():
        with pipeline.loader(executor=executor) as loader, pytest.raises(StallError, match=r"returned no sample for") as caught:
            next(iter(loader))
        looked_at = re.search(r"for 60 s \(watchdog_s\) while (\d+) samples went in", str(caught.value))
        assert looked_at
        assert int(looked_at[1]) >= 80


def test_a_sample_that_comes_late_is_waited_for_however_long_the_training_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(front, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rare = numbers(4).repeat().filter(lambda s, seen=count(): next(seen) % 99 == 98)
    with rare.loader(executor="inline") as loader:
        batches = iter(loader)
        for _ in range(3):
            assert next(batches)["x"] in range(4)
            now[0] += 1000


def test_what_ends_is_empty_although_it_was_repeated_without_end() -> None:
    short, one = numbers(5).repeat().take(40), numbers(1).repeat(2).repeat(3).repeat().take(40)
    mixed = stoker.mix([numbers(13).take(1), numbers(3).shuffle(seed=2).repeat(2).repeat()], weights=[5, 2]).repeat().take(40)
    empty = [short.filter(none), short.repeat(2).filter(odd).filter(even), mixed.filter(none)]
    for pipeline in (*empty, one.map(lambda s: {"x": np.zeros(0)}).unbatch(), one.filter(odd).map(lambda s: s)):
        assert list(pipeline.batch(2)) == []


def yes(sample: dict[str, Any]) -> bool:
    return True


def none(sample: dict[str, Any]) -> bool:
    return False


def even(sample: dict[str, Any]) -> bool:
    return not odd(sample)


def test_numpy_integers_are_whole_numbers_too() -> None:
    plain = numbers().shuffle(seed=7, window=9).skip(2).take(40).repeat(2).shard(1, 2).batch(3)
    i = np.int64
    same = numbers().shuffle(seed=i(7), window=i(9)).skip(i(2)).take(i(40)).repeat(i(2)).shard(i(1), i(2)).batch(i(3))
    assert same.plan.identity() == plain.plan.identity()
    assert [batch["x"].tolist() for batch in same] == [batch["x"].tolist() for batch in plain]


def test_a_pipeline_is_never_changed_by_its_methods() -> None:
    base = numbers()
    before = base.fingerprint()
    base.shuffle(seed=1).map(odd).filter(odd).batch(3).map_batch(spread).take(1)
    assert base.fingerprint() == before
    assert len(base) == 60


def test_equal_pipelines_have_equal_fingerprints_and_others_do_not() -> None:
    def make() -> Pipeline:
        return numbers().shuffle(seed=1).map(x=abs).filter(odd).take(9).batch(3)

    assert make().fingerprint() == make().fingerprint()
    others = [
        numbers(),
        numbers(59),
        numbers().shuffle(seed=1),
        numbers().shuffle(seed=2),
        numbers().shuffle(seed=1, window=8),
        numbers().shuffle(seed=1, reshuffle=False),
        numbers().take(9),
        numbers().map(x=abs),
        numbers().map(y=abs),
        numbers().map(x=abs, y=abs),
        numbers().filter(odd),
        numbers().filter(odd).take(9),
        numbers().batch(3).map_batch(spread),
        numbers().select("x"),
    ]
    assert len({pipeline.fingerprint() for pipeline in others}) == len(others)


def test_what_is_at_its_default_is_not_part_of_a_description() -> None:
    assert describe(Shuffle(1)) == "Shuffle(seed=1)"
    assert describe(Shuffle(1, reshuffle=False)) == "Shuffle(seed=1, reshuffle=False)"
    assert describe(Image("i", (HorizontalFlip(), Rotate(5, p=0.5)))) == (
        "Image(field='i', ops=(HorizontalFlip(), Rotate(degrees=(-5.0, 5.0), p=0.5)))"
    )


def test_a_state_survives_a_new_keyword_with_a_default() -> None:
    pipeline = numbers().shuffle(seed=1).batch(4)
    with pipeline.loader() as loader:
        next(iter(loader))
        state = loader.state_dict()
    newer = make_dataclass("Shuffle", [("strength", int, field(default=3))], bases=(Shuffle,), frozen=True)
    for strength, fits in ((3, True), (4, False)):
        changed = Pipeline(pipeline._source, (newer(1, strength=strength), *pipeline._nodes[1:]))
        with changed.loader() as loader, nullcontext() if fits else pytest.raises(StateError, match="order differ"):
            loader.load_state_dict(state)


def test_batch_size_and_ranks_are_not_part_of_the_fingerprint() -> None:
    prints = {numbers().shard(rank, 3, "pad").batch(size).fingerprint() for rank in range(3) for size in (1, 4)}
    assert prints == {numbers().fingerprint()}


def test_shapes_are_known_before_the_first_byte_moves() -> None:
    pixels = stoker.arrays(image=np.zeros((4, 20, 30, 3), np.uint8), box=np.zeros((4, 4), np.float32))

    def spec(*ops: object, **how: object) -> str:
        specs = pixels.image("image", *ops, **how).plan.specs  # type: ignore[arg-type]
        assert specs is not None
        return str(specs["image"])

    assert spec(RandomResizedCrop(8)) == "uint8[8, 8, 3]"
    assert spec(Resize((8, 9)), layout="chw", out="float32") == "float32[3, 8, 9]"
    assert spec(Resize(8), CenterCrop((6, 5)), color="gray") == "uint8[6, 5, 1]"
    assert spec(Resize(8)) == "uint8[8, 12, 3]"
    assert spec(CropBox("box"), Resize(8)) == "uint8[?, ?, 3]"
    assert spec(CropBox("box"), Resize((4, 4))) == "uint8[4, 4, 3]"


def test_verbs_behind_a_filter_stay_behind_it_where_they_must() -> None:
    plan = numbers().filter(odd).take(3).plan
    assert plan.order is not None and plan.order.verbs == ()
    assert plan.segments[0].tail == (Take(3),)
    moved = numbers().filter(odd).shuffle(seed=3).plan
    assert moved.order is not None and moved.order.verbs == (Shuffle(3),), "shuffling first gives the same samples"


def test_the_length_is_known_where_it_can_be() -> None:
    assert len(numbers().batch(7)) == 8
    assert len(numbers().batch(7, drop_last=False)) == 9
    assert len(numbers()) == 60
    assert len(numbers().shard(0, 4).batch(7)) == 2
    assert len(numbers().shard(3, 4, "pad").batch(7)) == 3
    assert len(numbers().batch(7).skip(2).take(4).repeat(3)) == 12
    for unknown in (numbers().filter(odd).batch(4), stoker.stream(samples).batch(4), numbers().repeat().batch(4)):
        with pytest.raises(TypeError, match="not known"):
            len(unknown)
        assert unknown, "a pipeline is true whether or not its length is known"
        assert unknown.loader(executor="inline")

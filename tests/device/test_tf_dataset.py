"""A pipeline as a `tf.data.Dataset`: every epoch once, where it was said to begin, cut by nobody a second time."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError

from ..loader.runs import PIPELINES, no_workers, numbers, odd, tokens

tensorflow = pytest.importorskip("tensorflow")


def ids(dataset: Any) -> list[list[int]]:
    return [batch[0].numpy().tolist() for batch in dataset]


@pytest.mark.parametrize("kind", ["shuffled", "last batch kept", "map_batch", "pad", "filter", "stream"])
def test_each_iteration_is_an_epoch_of_the_pipeline(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    dataset = pipeline.tf_dataset()
    with pipeline.loader() as loader:
        for _ in range(2):
            for ours, theirs in zip(loader, dataset, strict=True):
                assert all(np.allclose(a, b.numpy()) for a, b in zip(ours, theirs))
    named = next(iter(pipeline.tf_dataset(batches="dict")))
    assert list(named) == list(next(iter(pipeline)).keys())


def test_shapes_are_known_where_every_batch_has_them() -> None:
    assert numbers().batch(4).tf_dataset().element_spec[1].shape == (4, 5)
    assert numbers().batch(4, drop_last=False).tf_dataset().element_spec[1].shape.as_list() == [None, 5]
    assert numbers().shard(0, 2, "keep").batch(4).tf_dataset().element_spec[1].shape.as_list() == [None, 5]
    assert numbers().tf_dataset().element_spec[1].shape == (5,)
    assert numbers().map(tokens).batch(4, pad={"t": 0}).tf_dataset().element_spec[1].shape.as_list() == [None, None]
    assert numbers().batch(4).tf_dataset().cardinality() == 15
    assert numbers().filter(odd).batch(4).tf_dataset().cardinality() == tensorflow.data.UNKNOWN_CARDINALITY


def test_text_is_text_and_what_has_no_tensor_is_named() -> None:
    texts = numbers(8).map(lambda s: {"x": s["x"], "text": f"é{s['x']}", "raw": b"\0" * int(s["x"])})
    *_, text, raw = next(iter(texts.batch(4).tf_dataset()))
    assert [each.decode() for each in text.numpy()] == ["é0", "é1", "é2", "é3"] and raw.numpy().tolist()[2] == b"\0\0"
    names = stoker.arrays(name=np.array(["añb", "c"] * 4), code=np.array([[b"x", b"yz"]] * 8)).batch(4).tf_dataset()
    name, code = next(iter(names))
    assert name.numpy()[0].decode() == "añb" and code.numpy()[1].tolist() == [b"x", b"yz"]
    with pytest.raises(ConfigError, match=r"field 't' .* batch\(pad=\{'t': 0\}\)"):
        numbers(8).map(tokens).batch(4, pad={"t": list}).tf_dataset()


@pytest.mark.parametrize("skip", [0, 6, 14])
def test_a_look_at_the_first_batch_takes_nothing_away(skip: int) -> None:
    """Keras looks before it trains; an epoch that has but one batch was no look."""
    pipeline = numbers().shuffle(seed=3).batch(4)
    with pipeline.loader() as loader:
        epochs = [[batch["x"].tolist() for batch in loader] for _ in range(3)]
    dataset = pipeline.tf_dataset(skip=skip)
    for _ in range(0 if skip == 14 else 2):
        assert next(iter(dataset))[0].numpy().tolist() == epochs[0][skip]
    assert ids(dataset) == epochs[0][skip:]
    assert next(iter(dataset))[0].numpy().tolist() == epochs[1][0]
    assert ids(dataset.take(2)) == epochs[1][:2], "and whoever takes more begins the next epoch after it"
    assert ids(dataset) == epochs[2]
    single = numbers(4).shuffle(seed=3).batch(4)
    with single.loader() as loader:
        firsts = [next(iter(loader))["x"].tolist() for _ in range(3)]
    dataset = single.tf_dataset()
    assert [next(iter(dataset))[0].numpy().tolist() for _ in range(3)] == firsts


def test_numbers_of_python_in_single_samples_are_numbers() -> None:
    one = next(iter(numbers(8).map(lambda s: {"a": 3, "b": 0.5, "c": True}).tf_dataset(batches="dict")))
    assert {name: value.numpy().item() for name, value in one.items()} == {"a": 3, "b": 0.5, "c": True}


def test_a_program_goes_on_where_it_says() -> None:
    pipeline = numbers().shuffle(seed=3).batch(4)
    with pipeline.loader() as loader:
        epochs = [[batch["x"].tolist() for batch in loader] for _ in range(4)]
    dataset = pipeline.tf_dataset(epoch=2, skip=6)
    assert [ids(dataset), ids(dataset)] == [epochs[2][6:], epochs[3]]


def test_tensors_that_are_kept_are_not_overwritten() -> None:
    kept = []
    dataset = numbers(400).shuffle(seed=1).batch(16).tf_dataset(threads=2, ahead=2)
    for _ in range(4):
        kept += [(batch[1], batch[1].numpy().copy()) for batch in dataset]
    assert all(np.array_equal(tensor.numpy(), copy) for tensor, copy in kept) and len(kept) == 100


def test_tensorflow_does_not_share_out_what_is_a_share_already() -> None:
    policy = tensorflow.data.experimental.AutoShardPolicy
    alone, shared = (
        numbers().shard(0, world).batch(4).tf_dataset().options().experimental_distribute.auto_shard_policy for world in (1, 2)
    )
    assert shared == policy.OFF != alone


def test_a_data_set_that_is_dropped_leaves_no_worker() -> None:
    dataset = numbers(400).batch(4).tf_dataset(threads=2)
    batches = iter(dataset)
    next(batches)
    del batches, dataset
    gc.collect()
    assert no_workers()


def test_an_epoch_without_batches_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no batch"):
        stoker.arrays(x=np.arange(4) * 2).filter(odd).batch(2).tf_dataset()

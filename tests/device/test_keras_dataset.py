"""A pipeline as Keras wants data: whatever Keras looks at first, and in whatever order, every batch is trained on once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError

from ..loader.runs import environment, no_workers, numbers, odd


@pytest.fixture(scope="module")
def keras(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With the backend that is imported fastest, and without writing to the user's folder."""
    pytest.importorskip("jax")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "jax"))
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        return pytest.importorskip("keras")


def data(n: int = 42, seed: int = 3) -> stoker.Pipeline:
    return stoker.arrays(x=np.arange(n), y=np.zeros(n, np.float32)).shuffle(seed=seed).batch(4)


def expected(epochs: int) -> list[list[list[int]]]:
    with data().loader() as loader:
        return [[batch["x"].tolist() for batch in loader] for _ in range(epochs)]


def taken(dataset: Any, numbers: range | list[int]) -> list[list[int]]:
    return [dataset[number][0].tolist() for number in numbers]


def test_batches_are_asked_for_by_number_and_each_pass_is_an_epoch(keras: Any) -> None:
    epochs = expected(3)
    with data().keras_dataset(threads=1) as dataset:
        assert isinstance(dataset, keras.utils.PyDataset) and (len(dataset), dataset.num_batches, dataset.epoch) == (10, 10, 0)
        for number, epoch in enumerate(epochs):
            assert dataset.epoch == number
            assert taken(dataset, range(10)) == epoch
        assert (dataset.epoch, len(dataset)) == (3, 10)
    assert no_workers()


@pytest.mark.parametrize("looked_at", [[0], [0, 1], [0, 1, 2, 3], [0, 0, 0], list(range(9))], ids=str)
def test_what_was_looked_at_or_left_comes_again(looked_at: list[int], keras: Any) -> None:
    with data().keras_dataset(threads=1) as dataset:
        taken(dataset, looked_at)
        assert [taken(dataset, range(10)) for _ in range(2)] == expected(2)


def test_batches_out_of_order_are_refused(keras: Any) -> None:
    with data().keras_dataset(threads=1) as dataset, pytest.raises(ConfigError, match=r"batch 7 .* shuffle=False"):
        taken(dataset, [0, 7])


def test_epochs_of_one_batch_go_on(keras: Any) -> None:
    def get_tf_dataset() -> None:  # where Keras looks
        taken(dataset, [0])

    with data(4).keras_dataset(threads=1) as dataset, data(4).loader() as loader:
        epochs = [next(iter(loader))["x"].tolist() for _ in range(4)]
        assert taken(dataset, [0, 0]) == epochs[:2]
        get_tf_dataset()
        assert (dataset.epoch, len(dataset)) == (2, 1)
        assert taken(dataset, [0, 0]) == epochs[2:]


def test_keras_itself_shuffles_no_numbers(keras: Any) -> None:
    """`fit` would, by default."""
    from keras.src.trainers.data_adapters import get_data_adapter

    with data().keras_dataset(threads=1) as dataset:
        adapter = get_data_adapter(dataset, shuffle=True)
        assert [batch[0].tolist() for batch in adapter.get_numpy_iterator()] == expected(1)[0]


@pytest.mark.parametrize("step", [1, 4, 9, 10])
def test_a_state_goes_on_with_the_rest_of_its_epoch(step: int, keras: Any) -> None:
    epochs = expected(3)
    with data().keras_dataset(threads=1, epoch=1) as dataset:
        taken(dataset, range(step))
        state = dataset.state_dict()
        taken(dataset, range(step, 10))  # as backends do that take some ahead
        assert dataset.state_dict(trained=step) == state
        with pytest.raises(ConfigError, match=r"trained=11\): must be one of 0 to 10"):
            dataset.state_dict(trained=11)
    with data().keras_dataset(threads=1) as dataset:
        dataset.load_state_dict(state)
        assert dataset.epoch == (2 if step == 10 else 1)
        assert taken(dataset, range(len(dataset))) == (epochs[1][step:] or epochs[2])
        if step < 10:
            assert (dataset.epoch, len(dataset)) == (2, 10)
            assert taken(dataset, range(10)) == epochs[2]


def test_fields_are_inputs_targets_and_weights_in_order_or_by_name(keras: Any) -> None:
    fields = numbers().map(lambda s: {"a": s["x"], "b": s["x"] + 1, "c": s["x"] + 2, "d": s["x"] + 3}).batch(4)
    with fields.keras_dataset(inputs=["a", "d"], targets="b", weights="c", threads=1) as dataset:
        inputs, targets, weights = dataset[0]
        assert {name: value[0] for name, value in inputs.items()} == {"a": 0, "d": 3} and (targets[0], weights[0]) == (1, 2)
    with fields.select("b", "a").keras_dataset(threads=1) as dataset:
        assert [value[0] for value in dataset[0]] == [1, 0] and type(dataset[0]) is tuple
    with fields.keras_dataset(threads=1) as dataset, pytest.raises(ConfigError, match=r"fields a, b, c, d.*inputs='image'"):
        dataset[0]
    for wrong in ({"targets": "b"}, {"inputs": "a", "weights": "b"}):
        with pytest.raises(ConfigError, match="too"):
            fields.keras_dataset(**wrong)


def test_without_a_length_batches_come_without_end(keras: Any) -> None:
    pipeline = numbers().shuffle(seed=3).filter(odd).batch(4)
    with pipeline.loader() as loader:
        flat = [batch["x"].tolist() for _ in range(3) for batch in loader]
    with pipeline.keras_dataset(threads=1) as dataset:
        assert dataset.num_batches is None
        with pytest.raises(TypeError, match="steps_per_epoch"):
            len(dataset)
        taken(dataset, range(2))  # looked at
        assert taken(dataset, range(20)) == flat[:20]


def steps_of(dataset: Any, epochs: int, steps: int | None) -> list[list[list[int]]]:
    """The steps of some epochs as Keras's models take them: they look, begin again, and take the epochs from one iterator."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    iterator = EpochIterator(dataset, steps_per_epoch=steps, shuffle=dataset.num_batches is not None)

    def _symbolic_build() -> None:
        next(iter(iterator))

    _symbolic_build()
    iterator.reset()
    return [[batch[0].tolist() for *_, (batch, *_) in iterator] for _ in range(epochs)]


def fit(dataset: Any, epochs: int = 1, steps_per_epoch: int | None = None) -> list[list[list[int]]]:
    return steps_of(dataset, epochs, steps_per_epoch)


def evaluate(dataset: Any, steps: int | None = None) -> list[list[int]]:
    return steps_of(dataset, 1, steps)[0]


def test_epochs_of_keras_may_be_parts_of_an_epoch(keras: Any) -> None:
    flat = [batch for epoch in expected(2) for batch in epoch]
    with data().keras_dataset(threads=1) as dataset:
        assert fit(dataset, 4, 5) == [flat[at : at + 5] for at in range(0, 20, 5)]


@pytest.mark.parametrize("steps", [1, 4])
def test_every_call_of_fit_begins_another_epoch(steps: int, keras: Any) -> None:
    """And not the same first batches over and over, where `steps_per_epoch` leaves the rest out."""
    with data().keras_dataset(threads=1) as dataset, data(seed=5).keras_dataset(threads=1) as held_out:
        for epoch in expected(3):
            assert fit(dataset, 1, steps) == [epoch[:steps]]
            assert evaluate(held_out, 2) == evaluate(held_out, 2), "what is validated on stays the same"


def test_what_fit_left_of_an_epoch_can_be_trained_on(keras: Any) -> None:
    with data().keras_dataset(threads=1) as dataset:
        fit(dataset, 1, 4)
        dataset.load_state_dict(dataset.state_dict(trained=4))
        assert fit(dataset) == [expected(1)[0][4:]]
        assert fit(dataset) == [expected(2)[1]]


@pytest.mark.parametrize("steps", [None, 3, 6])
def test_the_rest_of_an_epoch_is_not_taken_for_the_length_of_all(steps: int | None, keras: Any) -> None:
    """Keras counts once for all epochs of a call: it would take the same six batches of every epoch after the rest."""
    with data().keras_dataset(threads=1) as dataset:
        taken(dataset, range(4))
        dataset.load_state_dict(dataset.state_dict())
        with pytest.raises(ConfigError, match=r"rest of an epoch, 6 of 10 batches.*initial_epoch=0, epochs=1"):
            fit(dataset, 3, steps)


def test_an_epoch_that_would_never_end_is_refused(keras: Any) -> None:
    with numbers().filter(odd).batch(4).keras_dataset(threads=1) as dataset:
        for use in (fit, evaluate):
            with pytest.raises(ConfigError, match=r"steps_per_epoch.*validation_steps.*evaluate\(\)"):
                use(dataset)
        assert len(fit(dataset, 1, 7)[0]) == 7


def test_dicts_are_batches_too_and_samples_are_not(keras: Any) -> None:
    with data().keras_dataset(threads=1, batches="dict") as dataset:
        assert taken(dataset, [0]) == expected(1)[0][:1]
    with pytest.raises(ConfigError, match=r"single samples; add .batch\(n\)"):
        numbers().keras_dataset()


FIT = """
import json, sys
import keras, numpy as np, stoker

seen, states = [], []

class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, x):
        return self.dense(x)

class Save(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        states.append(data.state_dict(trained=batch + 1))

rows = np.arange(42, dtype=np.float32)[:, None]
train = stoker.arrays(x=rows, y=rows).shuffle(seed=3).batch(4)

def model():
    made = Model()
    made.compile(optimizer=keras.optimizers.SGD(1e-6), loss="mse", run_eagerly=keras.backend.backend() != "jax")
    return made

def losses(data, **given):
    found = []
    noted = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: found.append(logs["loss"]))
    model().fit(data, verbose=0, callbacks=[noted, *given.pop("callbacks", [])], **given)
    return len(found)

data = train.keras_dataset(threads=1)
steps = losses(data, epochs=2, callbacks=[Save()])
assert steps == 20 and data.epoch == 2, (steps, data.epoch)
assert [(state["epoch"], state["row"]) for state in states] == [(e, 4 * (s + 1)) for e in range(2) for s in range(10)]
again = train.keras_dataset(threads=1)
again.load_state_dict(states[3])
assert losses(again, initial_epoch=again.epoch, epochs=again.epoch + 1) == 6
assert again.epoch == 1 and losses(again, initial_epoch=1, epochs=3) == 20 and again.epoch == 3
last = train.keras_dataset(threads=1)
last.load_state_dict(states[8])
assert losses(last, initial_epoch=0, epochs=1) == 1 and last.epoch == 1
assert losses(last, initial_epoch=1, epochs=2) == 10
print("trained with", keras.backend.backend())
"""


@pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=[pytest.mark.faults, pytest.mark.thorough]) for name in ("jax", "torch", "tensorflow")],
)
def test_fit_trains_on_every_batch_once_and_goes_on_in_the_middle_of_an_epoch(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    env = {**environment(), "KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, timeout=200, env=env, check=False)
    assert done.returncode == 0 and f"trained with {backend}" in done.stdout, done.stderr

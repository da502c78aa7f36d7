"""Batches for every framework: the same values, memory that is kept as long as somebody needs it, and used again after that."""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import BatchError, ConfigError
from stoker.image import RandomResizedCrop

from ..loader.runs import PIPELINES, SINGLES, numbers, tokens


@dataclass(frozen=True)
class Framework:
    """One `format`: what it needs, what its arrays are, and how one reads them."""

    package: str
    kind: Callable[[Any], type]
    #: whether a 64-bit integer stays one
    wide: bool = True
    read: Callable[[Any], np.ndarray[Any, Any]] = np.asarray


FRAMEWORKS = {
    "torch": Framework("torch", lambda torch: torch.Tensor),
    "jax": Framework("jax", lambda jax: jax.Array, wide=False),
    "tensorflow": Framework("tensorflow", lambda tensorflow: tensorflow.Tensor),
    "dlpack": Framework("numpy", lambda numpy: numpy.ndarray),
}


@pytest.fixture(params=list(FRAMEWORKS))
def format(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(FRAMEWORKS[request.param].package)
    return str(request.param)


def kind_of(format: str) -> type:
    return FRAMEWORKS[format].kind(importlib.import_module(FRAMEWORKS[format].package))


def same(format: str, array: Any, handed: Any) -> bool:
    """Whether a field holds what NumPy's has; JAX has 32 bits for everything."""
    if isinstance(array, (np.ndarray, np.generic)) and array.dtype.kind in "biufc":
        read = np.asarray(handed)
        narrow = not FRAMEWORKS[format].wide and array.dtype.itemsize > 4 and array.dtype.kind != "c"
        assert read.dtype == (array.dtype.str[1:].replace("8", "4") if narrow else array.dtype)
        return read.shape == array.shape and np.allclose(read, array, rtol=1e-6)
    return type(array) is type(handed) and all(np.array_equal(a, b) for a, b in zip(array, handed))


@pytest.mark.parametrize("kind", ["shuffled", "last batch kept", "map_batch", "pad", "filter", "stream"])
def test_batches_hold_what_arrays_would(format: str, kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader() as ours, pipeline.loader(format=format) as theirs:
        for _ in range(2):
            for a, b in zip(ours, theirs, strict=True):
                assert a.keys() == b.keys() and a.sample_keys == b.sample_keys and np.array_equal(a.valid, b.valid)
                assert all(same(format, a[name], b[name]) for name in a._fields), kind
                assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("kind", SINGLES)
def test_single_samples_hold_what_they_would_as_arrays(format: str, kind: str) -> None:
    pipeline = SINGLES[kind]()
    with pipeline.loader() as ours, pipeline.loader(format=format) as theirs:
        for a, b in zip(ours, theirs, strict=True):
            assert a.key == b.key and all(np.allclose(np.asarray(a[name]), np.asarray(b[name])) for name in a._fields)


def test_numbers_are_the_frameworks_and_the_rest_stays(format: str) -> None:
    mixed = numbers(8).map(lambda s: {"n": s["x"], "f": np.float32(0.5), "b": True, "text": "t", "raw": b"r", "list": [1]})
    batch = next(iter(mixed.batch(4).loader(format=format)))
    assert [name for name, value in batch.items() if isinstance(value, kind_of(format))] == ["n", "f", "b"]
    assert [type(batch[name]) for name in ("text", "raw", "list")] == [list, list, list]
    as_dict = next(iter(mixed.batch(4).loader(format=format, batches="dict")))
    assert type(as_dict) is dict and isinstance(as_dict["n"], kind_of(format))


def test_a_field_of_arrays_of_several_shapes_stays_a_list(format: str) -> None:
    batch = next(iter(numbers(6).map(tokens).batch(3, pad={"t": list}).loader(format=format)))
    assert isinstance(batch["t"], list) and [np.asarray(each).tolist() for each in batch["t"]] == [[0], [0, 1], [0, 1, 2]]


def pictures(image_folder: Path, size: int = 32) -> Pipeline:
    return stoker.files(image_folder).shuffle(seed=2).image("image", RandomResizedCrop(size)).batch(6)


def test_arrays_lie_in_the_slabs_own_memory_which_is_used_again(format: str, image_folder: Path) -> None:
    """On CPUs nothing is copied, and dropping a batch gives its memory back."""
    with pictures(image_folder, 64).loader(threads=2, format=format, ahead=2) as loader:
        addresses = set()
        for _ in range(10):
            for batch in loader:
                addresses.add(np.asarray(batch["image"]).ctypes.data)
                del batch
        assert len(addresses) <= 8, "40 batches"
        slabs = {returned.slab.memory.ctypes.data for returned in loader._machinery.slabs._free}
        assert addresses & slabs


@pytest.mark.parametrize("keep", ["array", "part", "result"])
def test_what_is_kept_is_not_overwritten(format: str, keep: str, image_folder: Path) -> None:
    """The batch is dropped, what was made of it stays: its lease lives as long as it does."""
    kept = []
    with pictures(image_folder).loader(threads=2, format=format, ahead=2) as loader:
        for _ in range(6):
            for batch in loader:
                array = batch["image"]
                value = {"array": lambda a: a, "part": lambda a: a[2:4], "result": lambda a: a[1:] + 1}[keep](array)
                kept.append((value, np.array(np.asarray(value))))
                del array, batch, value
    assert all(np.array_equal(np.asarray(value), copy) for value, copy in kept) and len(kept) == 24


def test_the_lease_ends_with_the_last_array(format: str, image_folder: Path) -> None:
    with pictures(image_folder).loader(executor="inline", format=format) as loader:
        leases: list[weakref.ref[Any]] = []
        own = loader._output.hand_over

        def noted(batch: Any) -> Any:
            base = batch["image"]
            while isinstance(base, np.ndarray):
                base = base.base
            leases.append(weakref.ref(base))
            return own(batch)

        loader._output.hand_over = noted  # type: ignore[method-assign]
        batch = next(iter(loader))
        image, first = batch["image"], leases[0]
        del batch
        gc.collect()
        assert first() is not None, "the image lies in the slab"
        del image
        gc.collect()
        assert first() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y[::-1],
        lambda y: y[:, ::-2],
        lambda y: y.astype(">f4"),
        lambda y: np.broadcast_to(y[0], y.shape),
        lambda y: y[:, 1:3],
        lambda y: np.concatenate([y[:1], y])[1:],
        lambda y: y[:, :0],
        lambda y: y.astype(np.float16),
        lambda y: y.astype(np.uint16),
    ],
    ids=["backwards", "strided", "big-endian", "read-only", "cut", "unaligned", "empty", "half", "uint16"],
)
def test_arrays_of_any_layout_are_taken(format: str, change: Any) -> None:
    """TensorFlow ends the process where it computes on memory that is not aligned, so everything is computed with."""
    pipeline = numbers().batch(4).map_batch(lambda c: {"y": change(c["y"])})
    for a, b in zip(pipeline.loader(), pipeline.loader(format=format)):
        if format == "torch" and a["y"].dtype == np.uint16:
            continue  # it has no arithmetic of these
        assert np.allclose(np.asarray(b["y"] + b["y"]), a["y"] + a["y"])


def test_small_batches_that_are_made_together_can_be_computed_with(format: str) -> None:
    """They begin anywhere in their slab."""
    pipeline = stoker.arrays(y=np.arange(999, dtype=np.float32).reshape(-1, 3)).batch(3)
    with pipeline.loader(format=format, threads=1) as loader:
        doubled = [np.asarray(batch["y"] * 2) for batch in loader]
    assert np.concatenate(doubled).ravel().tolist() == (2 * np.arange(999)).tolist()


def test_an_error_of_the_hand_over_ends_the_iteration(format: str) -> None:
    if format == "dlpack":
        return  # it is NumPy's own
    pipeline = numbers().batch(4).map_batch(lambda c: {"y": c["y"].astype(np.longdouble)})
    with pipeline.loader(format=format) as loader:
        batches = iter(loader)
        with pytest.raises(BatchError, match=r"convert the field ('y' )?with map"):
            next(batches)
        assert list(batches) == []


def test_devices_that_are_not_there_are_refused(format: str) -> None:
    with pytest.raises(ConfigError, match=r"no such device|host memory"):
        numbers().batch(4).loader(format=format, device="nonsense:7")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("jax", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(stoker.errors.MissingExtra, match=rf"pip install 'stoker\[{name}\]'"):
            numbers().batch(4).loader(format=name)


def test_dlpack_arrays_go_to_every_library(image_folder: Path) -> None:
    for package, take in (
        ("torch", lambda torch, array: torch.from_dlpack(array)),
        ("jax", lambda jax, array: jax.numpy.from_dlpack(array)),
        ("tensorflow", lambda tensorflow, array: tensorflow.experimental.dlpack.from_dlpack(array.__dlpack__())),
        ("numpy", lambda numpy, array: numpy.from_dlpack(array)),
    ):
        library = pytest.importorskip(package)
        kept = []
        with pictures(image_folder).loader(threads=2, format="dlpack", ahead=2) as loader:
            for _ in range(3):
                for batch in loader:
                    kept.append((take(library, batch["image"]), batch["image"].copy()))
                    del batch
        assert all(np.array_equal(np.asarray(array), copy) for array, copy in kept), package


def test_the_next_batch_is_put_on_the_device_before_it_is_asked_for() -> None:
    pytest.importorskip("jax")
    for pipeline in (numbers().batch(7), numbers()):  # single samples too
        with pipeline.loader(format="jax", executor="inline") as loader, pipeline.loader() as plain:
            put: list[Any] = []
            own = loader._output.hand_over
            loader._output.hand_over = lambda batch, own=own: put.append(batch) or own(batch)  # type: ignore[method-assign]
            for number, (handed, expected) in enumerate(zip(loader, plain)):
                assert np.array_equal(np.asarray(handed["x"]), expected["x"])
                assert number + 1 <= len(put) <= number + 2
            assert len(put) == number + 1, "each was handed over once"


def test_an_interrupt_while_the_next_batch_is_put_does_not_count_this_one() -> None:
    """Ctrl-C there means that the batch which is ready reaches nobody; a state that is saved then must not be after it."""
    pytest.importorskip("jax")
    pipeline = numbers().shuffle(seed=3).batch(7)
    with pipeline.loader() as plain:
        expected = [batch["x"].tolist() for batch in plain]
    with pipeline.loader(format="jax", executor="inline") as loader:
        own, got = loader._output.hand_over, []

        def hand_over(batch: Any) -> Any:
            if got and batch["x"].tolist() != expected[len(got)]:
                raise KeyboardInterrupt  # it is the one after the one that is asked for
            return own(batch)

        loader._output.hand_over = hand_over  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            for batch in loader:
                got.append(np.asarray(batch["x"]).tolist())
        state = loader.state_dict()
    with pipeline.loader() as again:
        again.load_state_dict(state)
        assert got + [batch["x"].tolist() for batch in again] == expected


def test_jax_takes_integers_that_fit_and_has_64_bits_if_asked() -> None:
    jax = pytest.importorskip("jax")
    big = stoker.arrays(x=np.arange(8) + (1 << 40)).batch(4)
    with big.loader(format="jax") as loader, pytest.raises(BatchError, match=r"field 'x' .* int32.*jax_enable_x64"):
        next(iter(loader))
    with jax.enable_x64(True), big.loader(format="jax") as loader:
        assert next(iter(loader))["x"].tolist() == [(1 << 40) + n for n in range(4)]


@pytest.mark.parametrize("format", ["jax", "tensorflow"])
@pytest.mark.parametrize("batched", [True, False])
def test_half_precision_of_the_framework_is_its_array_too(format: str, batched: bool) -> None:
    pytest.importorskip(format)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    pipeline = numbers().map(lambda s: {"x": s["y"].astype(ml_dtypes.bfloat16)})
    with (pipeline.batch(4) if batched else pipeline).loader(format=format) as loader, numbers().loader() as plain:
        x = next(iter(loader))["x"]
        first = np.asarray(x[0] if batched else x)
        assert isinstance(x, kind_of(format)) and first.dtype == ml_dtypes.bfloat16
        assert np.array_equal(first, next(iter(plain))["y"].astype(ml_dtypes.bfloat16))


def test_a_sharding_implies_jax_and_goes_to_every_field_or_to_those_it_names() -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.make_mesh((1,), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    for given, fields in ((rows, {"x", "y"}), ({"y": rows}, {"y"})):
        with numbers().batch(4).loader(sharding=given) as loader:
            batch = next(iter(loader))
            assert {name for name, value in batch.items() if isinstance(value.sharding, jax.sharding.NamedSharding)} == fields
    for wrong in ({"format": "torch"}, {"device": "cpu"}):
        with pytest.raises(ConfigError, match=f"omit {next(iter(wrong))}"):
            numbers().batch(4).loader(sharding=rows, **wrong)
    with numbers().batch(4).loader(sharding={"z": rows}) as loader, pytest.raises(BatchError, match=r"no field 'z'.* x, y"):
        next(iter(loader))
    with numbers().loader(sharding=rows) as loader, pytest.raises(BatchError, match=r"field 'x': JAX cannot shard int32\[\]"):
        next(iter(loader))  # a single sample has no rows
    with numbers().batch(4).loader(device=jax.devices()[0]) as loader:
        assert isinstance(next(iter(loader))["x"], jax.Array)
    with pytest.raises(ConfigError, match=r"the sharding of 'y' is 'rows'"):
        numbers().batch(4).loader(sharding={"y": "rows"})


def test_jax_writes_nothing_into_memory_that_it_was_lent(image_folder: Path) -> None:
    """A step may give its arguments away; where these lie in a slab, JAX has to copy them."""
    jax = pytest.importorskip("jax")
    with pictures(image_folder).loader(executor="inline", format="jax") as loader, pictures(image_folder).loader() as plain:
        step = jax.jit(lambda image: image + 1, donate_argnums=0)
        for batch, expected in zip(loader, plain):
            memory = np.asarray(batch["image"])
            assert np.array_equal(np.asarray(step(batch["image"])), expected["image"] + 1)
            assert np.array_equal(memory, expected["image"])

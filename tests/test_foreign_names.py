"""Names that other loaders taught are answered with ours."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import stoker
import stoker.image
from stoker.errors import ArgumentError, ConfigError
from tests.loader.runs import run_python

#: packages that need no import of their own
PACKAGES = ("image", "observe", "ray", "torch")
PIPELINE = stoker.arrays(image=np.zeros((4, 8, 8, 3), np.uint8), label=np.arange(4))


def double(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda p: p.loader(num_workers=4), r"loader\(num_workers=4\): .*threads="),
        (lambda p: p.loader(batch_size=32), r"\.batch\(32\)"),
        (lambda p: p.loader(shuffle=True), r"\.shuffle\(seed=0\)"),
        (lambda p: p.loader(prefetch_factor=2), "ahead="),
        (lambda p: p.loader(pin_memory=True), "device="),
        (lambda p: p.loader(collate_fn=double), r"pad=\{'field': 0\}.*map_batch"),
        (lambda p: p.loader(timeout=30), "watchdog_s="),
        (lambda p: p.loader(thread=2), "no argument 'thread'; did you mean threads="),
        (lambda p: p.loader(colour="red"), "no argument 'colour'; its arguments are threads, "),
        (lambda p: p.shuffle(1000), r"shuffle\(1000\): .*shuffle\(window=1000\).*shuffle\(seed=1000\)"),
        (lambda p: p.shuffle(1000, seed=3), r"shuffle\(window=1000\)"),
        (lambda p: p.shuffle(buffer_size=1000), r"shuffle\(window=1000\)"),
        (lambda p: p.shuffle(reshuffle_each_iteration=False), r"shuffle\(reshuffle=False\)"),
        (lambda p: p.shard(num_shards=4, index=1), "world=4"),
        (lambda p: p.batch(2, drop_remainder=True), "drop_last=True.*default"),
        (lambda p: p.batch(batch_size=2), r"batch\(2\)"),
        (lambda p: p.batch(2, partial=False), "drop_last=False keeps"),
        (lambda p: p.map(double, num_parallel_calls=4), r"map\(num_parallel_calls=4\): omit it"),
        (lambda p: p.map(label=double, deterministic=False), r"map\(deterministic=False\): omit it"),
        (lambda p: p.map(double, batched=True), "map_batch"),
        (lambda p: p.filter(double, handler=print), r"on_error\('skip'"),
        (lambda p: p.image("image", size=224), r"Resize\(224\)"),
        (lambda p: p.image("image", ops=[]), "separately"),
        (lambda p: p.decode("image", as_="pil"), "format='pil'"),
        (lambda p: p.torch_dataset(format="torch"), "no argument 'format'; its arguments are batches"),
        (lambda p: p.unbatch(3), "too many arguments; it takes none"),
        (lambda p: stoker.arrays([1, 2], [3, 4]), r"arrays\(\[1, 2\], \[3, 4\]\): .*arrays\(x=\.\.\., y=\.\.\.\)"),
        (lambda p: p.repeat(1, 2), "too many arguments; it takes count"),
        (lambda p: stoker.tfrecord("x", compression_type="GZIP"), r"tfrecord\(compression_type='GZIP'\): use compression='gzip'"),
        (lambda p: stoker.tfrecord("x", num_parallel_reads=4), "interleave="),
        (lambda p: stoker.tar("x", shardshuffle=100), r"\.shuffle\(\)"),
        (lambda p: stoker.tar("x", shuffle=100), r"\.shuffle\(\)"),
        (lambda p: stoker.tar("x", extensions="jpg cls"), r"\.select\("),
        (lambda p: stoker.tar("x", nodesplitter=double), r"\.shard\(\)"),
        (lambda p: stoker.tar("x", handler=double), r"on_error\('skip'"),
        (lambda p: stoker.files("x", transform=double), r"\.image\("),
        (lambda p: stoker.files("x", label=None), "did you mean labels="),
        (lambda p: stoker.lmdb("x", ["a"], 3), "too many arguments; it takes path, fields"),
    ],
)
def test_an_argument_of_another_loader_is_answered_with_ours(wrong: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told) as caught:
        wrong(PIPELINE)
    assert isinstance(caught.value, ConfigError) and isinstance(caught.value, TypeError)


def test_a_field_may_have_the_name_of_such_an_argument() -> None:
    named = stoker.arrays(name=np.arange(3), handler=np.arange(3))
    assert named.map(name=double, handler=[double, double]).sample(1) == {"name": 2, "handler": 4}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda p: p.decode("pil").plan, r"decode\('image', format='pil'\)"),
        (lambda p: p.decode("torchrgb").plan, r"decode\('image', format='torch', out='float32'\)"),
        (lambda p: p.select(double), r"filter\(fn\)"),
        (lambda p: p.map(function=double).plan, r"^map names the field 'function', .*passed as map\(fn\)"),
        (lambda p: p.image(stoker.image.Resize(4)), r"the first argument must be the name of a field, e\.g\. image\('image', "),
        (lambda p: p.decode(stoker.image.Resize(4)), r"e\.g\. decode\('image', "),
        (lambda p: p.batch(2).flat_map(double).plan, r"flat_map\(\) works on samples"),
        (lambda p: p.image("image", double), r"\.decode\('image'\) and \.map\(image=fn\)"),
    ],
)
def test_a_value_meant_for_another_loader_is_answered_too(wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        wrong(PIPELINE)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("prefetch", "ahead=n"),
        ("batched", r"\.batch\(size\)"),
        ("to_tuple", r"\.select"),
        ("map_dict", r"\.map\(field=fn\)"),
        ("snapshot", r"\.cache\("),
        ("enumerate", r"sample\.index.*batch\.sample_keys.*sample\.key,"),
        ("with_options", "omit it"),
        ("as_numpy_iterator", "for batch in pipeline"),
    ],
)
def test_a_method_of_another_loader_is_answered_with_ours(name: str, told: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{told}"):
        getattr(PIPELINE, name)
    assert not hasattr(PIPELINE, name)


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ("batch", r"^batch\(\) needs its size, as in \.batch\(256\)$"),
        ("decode", r"^decode\(\) needs .* \.decode\('jpg'\); numbers, .* by extension$"),
        ("image", r"^image\(\) needs .* \.image\('image', "),
        ("filter", r"^filter\(\) needs the argument 'fn'$"),
    ],
)
def test_a_missing_argument_is_asked_for_by_its_meaning(verb: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        getattr(PIPELINE, verb)()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("WebDataset", r"stoker\.tar\("),
        ("TFRecordDataset", r"stoker\.tfrecord\("),
        ("ImageFolder", r"stoker\.files\("),
        ("from_tensor_slices", r"stoker\.arrays\(.*stoker\.filelist\("),
        ("DataLoader", r"\.loader\(\).*stoker\.torch\.DataLoader"),
        ("LMDBSerializer", r"stoker\.lmdb\(.*stoker\.write_lmdb\("),
        ("BatchData", r"\.batch\(size\)"),
    ],
)
def test_a_class_of_another_library_is_answered_with_our_source(name: str, told: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'stoker' has no attribute '{name}'; .*{told}"):
        getattr(stoker, name)
    assert not hasattr(stoker, name)


def test_a_pipeline_is_still_copied_pickled_and_asked_for_what_it_lacks() -> None:
    assert getattr(PIPELINE, "nothing", None) is None and getattr(PIPELINE, "__nothing__", None) is None
    for twin in (copy.copy(PIPELINE), copy.deepcopy(PIPELINE), pickle.loads(pickle.dumps(PIPELINE))):  # noqa: S301
        assert twin.fingerprint() == PIPELINE.fingerprint()


def test_an_error_inside_a_property_is_not_hidden() -> None:
    class Odd(stoker.Pipeline):
        @property
        def shape(self) -> Any:
            return self._source.shape  # type: ignore[union-attr]

    with pytest.raises(AttributeError, match="'ArraysSource' object has no attribute 'shape'"):
        _ = Odd(PIPELINE._source).shape


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("RandomHorizontalFlip", r"HorizontalFlip\(p\)"),
        ("ToTensor", r"ToFloat\(\), layout='chw'"),
        ("Compose", "separately"),
        ("CutOut", "Cutout"),
        ("Mixup", r"\.blend\(MixUp"),
        ("HorizontalFlp", "did you mean HorizontalFlip"),
        ("ElasticTransform", r"\.map\(field=fn\)"),
    ],
)
def test_an_operation_of_another_library_is_answered_however_it_is_asked_for(name: str, told: str) -> None:
    with pytest.raises(ImportError, match=f"stoker.image has no {name}; .*{told}"):
        exec(f"from stoker.image import {name}")  # noqa: S102  only the statement itself is answered so
    with pytest.raises(AttributeError, match=f"stoker.image has no {name}; .*{told}"):
        getattr(stoker.image, name)
    assert not hasattr(stoker.image, name)


def test_names_of_earlier_versions_are_answered_with_those_of_now() -> None:
    with pytest.raises(AttributeError, match=r"module 'stoker' has no attribute 'skip'; use pipeline\.on_error\('skip', budget="):
        _ = stoker.skip
    with pytest.raises(ArgumentError, match=r"loader\(as_='torch'\): use loader\(format='torch'\)"):
        PIPELINE.loader(as_="torch")
    with pytest.raises(AttributeError, match=r"no attribute 'key_'; use sample\.key"):
        _ = next(iter(PIPELINE)).key_


def test_completion_offers_the_public_names_and_nothing_else() -> None:
    assert {*dir(stoker)} == {*stoker.__all__, "__version__", *PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_there_without_an_import_of_its_own(name: str) -> None:
    ended = run_python(f"import stoker, sys; assert stoker.{name} is sys.modules['stoker.{name}'] and 'torch' not in sys.modules")
    assert (ended.returncode, ended.stderr) == (0, "")

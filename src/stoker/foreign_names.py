"""Names that other loaders taught, and what they are called here.

A guess from PyTorch, tf.data, WebDataset, tensorpack or Hugging Face is answered with the right name. Adding one is one line in
one of the tables; `{value}` in an advice is what the user gave. (Image operations have such a table in
`image/foreign_operations.py`.)
"""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from .errors import ArgumentError

Given = ParamSpec("Given")
Result = TypeVar("Result")

_THREADS = "workers are threads here: loader(threads=...), by default one per core; executor='inline' for none"
_AHEAD = "loader(ahead=...) is the number of batches prepared, by all workers together"
_ORDER = "the order belongs to the pipeline: .shuffle() and .shard(); for weights, stoker.mix([...], weights=[...])"
_RANDOM = "random numbers do not depend on workers here: .shuffle(seed=...), and .map(fn, rng=True) for functions"
_WINDOW = "shuffle() is over the whole data set, without a buffer; shuffle(window={value}) keeps reading nearly sequential"
_COLLATE = "use batch(size, pad={{'field': 0}}) for rows of varying shape, and .map_batch(fn) after it"
_ALWAYS = "omit it: workers always run in parallel, and results always come in order"
_WORLD = "use shard(rank=..., world={value})"
_RANK = "use shard(rank={value}, world=...)"
_OPERATIONS = "operations are passed separately: image(field, Resize(224), ...), from stoker.image"
_SKIP = "use .on_error('skip', budget=...)"

_COMPRESSION = "use compression='gzip' or compression='zlib', or omit it to detect it"
_TOGETHER = "shards are read in parallel; for those read in sequence, interleave=... is how many are open at once"
_SHARDS = "the order belongs to the pipeline: .shuffle() is over the samples of all shards"
_SPLIT = "ranks belong to the pipeline: .shard(); workers share every batch by themselves"
_TRANSFORM = "what happens to samples belongs to the pipeline: .image('image', Resize(224), ...) or .map(fn)"

#: arguments, by the method or source they were given to
_ARGUMENTS: dict[str, dict[str, str]] = {
    "loader": {
        "as_": "use loader(format={value})",
        "batch_sampler": _ORDER,
        "batch_size": "batches belong to the pipeline: .batch({value}).loader()",
        "buffer_size": _AHEAD,
        "collate_fn": _COLLATE,
        "drop_last": "it belongs to the pipeline: .batch(size, drop_last={value}).loader()",
        "generator": _RANDOM,
        "in_order": "omit it: batches always come in order",
        "multiprocessing_context": "omit it: workers are threads; for processes use pipeline.torch_dataset() in a DataLoader",
        "num_parallel_calls": _THREADS,
        "num_threads": _THREADS,
        "num_workers": _THREADS,
        "persistent_workers": "omit it: workers live as long as their loader",
        "pin_memory": "omit it: loader(device='cuda') copies from pinned memory",
        "prefetch": _AHEAD,
        "prefetch_factor": _AHEAD,
        "sampler": _ORDER,
        "seed": "it belongs to the pipeline: .shuffle(seed={value}).loader()",
        "shuffle": "it belongs to the pipeline: .shuffle(seed=0).loader()",
        "timeout": "use loader(watchdog_s=...), the seconds for which nothing may move",
        "worker_init_fn": _RANDOM,
        "workers": _THREADS,
    },
    "shuffle": {
        "buffer": _WINDOW,
        "buffer_size": _WINDOW,
        "bufsize": _WINDOW,
        "generator": "use shuffle(seed=...)",
        "initial": "omit it: no buffer has to fill",
        "reshuffle_each_iteration": "use shuffle(reshuffle={value})",
        "rng": "use shuffle(seed=...)",
    },
    "shard": {"index": _RANK, "num_replicas": _WORLD, "num_shards": _WORLD, "world_size": _WORLD},
    "repeat": {"epochs": "use repeat({value})", "nepochs": "use repeat({value})"},
    "batch": {
        "batch_size": "use batch({value})",
        "batchsize": "use batch({value})",
        "collate_fn": _COLLATE,
        "collation_fn": _COLLATE,
        "drop_remainder": "use batch(size, drop_last={value}); True is the default here",
        "padded_shapes": "use batch(size, pad={{'field': 0}}), with the value that fills shorter rows",
        "padding_values": "use batch(size, pad={{'field': 0}}), with the value that fills shorter rows",
        "partial": "use batch(size, drop_last=...), its opposite: drop_last=False keeps a last, shorter batch",
    },
    "map": {
        "batch_size": "use .batch({value}).map_batch(fn)",
        "batched": "use .map_batch(fn) after .batch(size)",
        "remove_columns": "use .drop(...) after map()",
    },
    "cache": {"filename": "use cache({value})", "limit": "use cache(where, bytes={value})", "path": "use cache({value})"},
    "image": {
        "channels": "use image(field, ..., color='rgb') or color='gray'",
        "dtype": "use image(field, ..., out='uint8') or out='float32'",
        "mean": "use image(field, ..., Normalize(mean, std)), from stoker.image",
        "ops": _OPERATIONS,
        "resize": "use image(field, Resize({value})), from stoker.image",
        "size": "use image(field, Resize({value})), from stoker.image",
        "std": "use image(field, ..., Normalize(mean, std)), from stoker.image",
        "transform": _OPERATIONS,
        "transforms": _OPERATIONS,
    },
    "decode": {
        "as_": "use decode(field, format={value})",
        "channels": "use decode(field, color='rgb') or color='gray'",
        "dtype": "use decode(field, out='uint8') or out='float32'",
        "mode": "use decode(field, format=...), one of 'numpy', 'pil' and 'torch', and color='rgb' or color='gray'",
    },
    "files": {
        "extensions": "use pattern='**/*.jpg'; without a pattern, all image files count",
        "is_valid_file": "use pattern='**/*.jpg', or a list of paths",
        "loader": "files are read as bytes; decode them with .image(...), .decode(...) or .map(image=fn)",
        "target_transform": "use .map(label=fn)",
    },
    "tar": {
        "cache_dir": "use cache={value}",
        "cache_size": "use cache=stoker.Cache(folder, limit={value})",
        "decoder": "numbers, text, JSON and arrays are decoded by extension; pictures with .image(...) or .decode('jpg')",
        "detshuffle": _SHARDS,
        "extensions": "use .select('jpg', 'cls')",
        "nodesplitter": _SPLIT,
        "resampled": "use .repeat()",
        "shardshuffle": _SHARDS,
        "shuffle": _SHARDS,
        "splitter": _SPLIT,
        "workersplitter": _SPLIT,
    },
    "tfrecord": {
        "compression_type": _COMPRESSION,
        "cycle_length": _TOGETHER,
        "num_parallel_reads": _TOGETHER,
    },
}

#: arguments that others have in many places
_ANYWHERE = {
    "deterministic": _ALWAYS,
    "handler": _SKIP,
    "name": "omit it: steps are named after their functions and fields",
    "num_parallel_calls": _ALWAYS,
    "num_proc": _ALWAYS,
    "transform": _TRANSFORM,
    "transforms": _TRANSFORM,
}

#: what to say to arguments without a name
_POSITIONAL = {
    "arrays": "arrays get names, which are those of the fields: arrays(x=..., y=...)",
    "shuffle": (
        "choose one: shuffle() for the whole data set, without a buffer; shuffle(window={value}) to keep reading nearly "
        "sequential; or shuffle(seed={value})"
    ),
}

#: what to say where the first argument is missing
_MISSING = {
    "batch": "batch() needs its size, as in .batch(256)",
    "decode": (
        "decode() needs the name of a picture's field, as in .decode('jpg'); numbers, text, JSON and arrays in tar shards "
        "are decoded by extension"
    ),
    "image": "image() needs the name of a picture's field, as in .image('image', RandomResizedCrop(224))",
}

#: methods and attributes of other loaders' data sets
_METHODS = {
    "apply": "call your function on the pipeline itself: fn(pipeline)",
    "as_numpy_iterator": "a pipeline is iterable, and gives NumPy arrays: for batch in pipeline",
    "batched": "use .batch(size)",
    "cardinality": "use len(pipeline)",
    "column_names": "print(pipeline.explain()) shows the fields",
    "compose": "call your function on the pipeline itself: fn(pipeline)",
    "concatenate": "give one source a list of all shards, or use stoker.mix([...])",
    "ddp_equalize": "omit it: .shard() gives all ranks the same number of batches",
    "element_spec": "print(pipeline.explain()) shows the fields",
    "enumerate": "use sample.index in .map(fn), a number; or batch.sample_keys and, without batch(), sample.key, which are names",
    "extract_keys": "use .select(...)",
    "get_data": "a pipeline is iterable: for batch in pipeline",
    "ignore_errors": _SKIP,
    "interleave": "omit it: shards are read in parallel, and .shuffle() is over all of them; stoker.tar(..., interleave=n) "
    "for compressed shards",
    "listed": "use .batch(size, pad={'field': list})",
    "map_dict": "use .map(field=fn)",
    "map_tuple": "use .map(field=fn, other=fn), by name",
    "padded_batch": "use .batch(size, pad={'field': 0}), with the value that fills shorter rows",
    "prefetch": "omit it: batches are prepared ahead by default; .loader(ahead=n) says how many",
    "ragged_batch": "use .batch(size, pad={'field': list})",
    "rebatch": "use .unbatch().batch(size)",
    "remove_columns": "use .drop(...)",
    "rename_column": "use .rename(new='old')",
    "rename_columns": "use .rename(new='old')",
    "rename_keys": "use .rename(new='old')",
    "resampled": "use .repeat()",
    "reset_state": "omit it: iterate the pipeline, or its .loader()",
    "set_format": "use .loader(format='torch')",
    "slice": "use .take(n) and .skip(n)",
    "snapshot": "use .cache('/a/local/folder')",
    "to": "use .loader(device='cuda')",
    "to_tuple": "use .select(...): batches unpack in that order",
    "unbatched": "use .unbatch()",
    "with_epoch": "omit it: an epoch's length is known; .repeat().batch(size).take(n) makes one of n batches",
    "with_format": "use .loader(format='torch')",
    "with_length": "omit it: len(pipeline) is counted",
    "with_options": "omit it: there are no global options; see .loader(...)",
    "xdecode": "use .decode(field), once for each field",
    "zip": "use one source with all fields, or look the other value up in a function: .map(fn)",
}

#: attributes, by what they were asked of; a pipeline's are `_METHODS`
_ATTRIBUTES = {
    "Batch": {"keys_": "use batch.sample_keys", "mask": "use batch.valid"},
    "Loader": {"dataset": "to skip batches, as Accelerate's skip_first_batches() does, call loader.skip(n)"},
    "Sample": {"key_": "use sample.key"},
    "module": {
        "BatchData": "use pipeline.batch(size)",
        "DataLoader": "use pipeline.loader(), or stoker.torch.DataLoader for a torch data set",
        "Dataset": "start from a source, such as stoker.files('photos'), stoker.tar(...) or stoker.arrays(...)",
        "ImageFolder": "use stoker.files(folder)",
        "LMDBSerializer": "use stoker.lmdb(path), and stoker.write_lmdb(path, samples)",
        "MapData": "use pipeline.map(fn), or pipeline.map(field=fn)",
        "ShardWriter": "use stoker.write_tar('train-{:06d}.tar', samples)",
        "TFRecordDataset": "use stoker.tfrecord(files)",
        "TFRecordWriter": "use stoker.TfrecordWriter(path), or stoker.write_tfrecord(path, samples)",
        "WebDataset": "use stoker.tar('train-{000000..000147}.tar')",
        "from_generator": "use stoker.stream(fn)",
        "from_tensor_slices": "use stoker.arrays(x=..., y=...); for paths of files stoker.files([...]) or "
        "stoker.filelist('train.txt')",
        "image_dataset_from_directory": "use stoker.files(folder)",
        "list_files": "use stoker.files(folder, pattern='**/*.jpg')",
        "load_dataset": "start from a source, such as stoker.files('photos'), stoker.tar(...) or stoker.tfrecord(...)",
        "sample_from_datasets": "use stoker.mix([a, b], weights=[0.7, 0.3])",
        "skip": "use pipeline.on_error('skip', budget=...)",
    },
}

#: what WebDataset's `decode` takes in the place of a field
_IMAGE_SPECS = {
    "l": "color='gray', out='float32'",
    "l8": "color='gray'",
    "pil": "format='pil'",
    "pilrgb": "format='pil'",
    "pill": "format='pil', color='gray'",
    "rgb": "out='float32'",
    "rgb8": "",
    "torch": "format='torch', out='float32'",
    "torchl": "format='torch', color='gray', out='float32'",
    "torchl8": "format='torch', color='gray'",
    "torchrgb": "format='torch', out='float32'",
    "torchrgb8": "format='torch'",
}


# ---- arguments ------------------------------------------------------------------------------------------------------------


def advised(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """The method or source itself; an argument that it does not have is refused with the name it has here."""
    verb, parameters = method.__name__, list(inspect.signature(method).parameters.values())
    known = [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL and each.name != "self"]
    most = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)  # self is one
    needed = [
        (at, each.name)
        for at, each in enumerate(parameters)
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
    ]
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    any_name = any(each.kind is each.VAR_KEYWORD for each in parameters)

    @functools.wraps(method)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        for name, value in kwargs.items():
            if name not in known and not any_name:
                raise _unknown_argument(verb, name, value, known)
        if len(args) > most and not any_number:
            raise _too_many(verb, args[most:], known)
        for at, name in needed:
            if at >= len(args) and name not in kwargs:
                raise ArgumentError(_MISSING.get(verb, f"{verb}() needs the argument {name!r}"))
        return method(*args, **kwargs)

    return call


def _unknown_argument(verb: str, name: str, value: Any, known: list[str]) -> ArgumentError:
    """The error for an argument that a method does not have."""
    advice = argument_advice(verb, name, value)
    if advice is None:
        close = get_close_matches(name, known, 1)
        advice = f"did you mean {close[0]}=?" if close else f"its arguments are {', '.join(known) or 'none'}"
        return ArgumentError(f"{verb}() has no argument {name!r}; {advice}")
    return ArgumentError(f"{verb}({name}={reprlib.repr(value)}): {advice}")


def argument_advice(verb: str, name: str, value: Any) -> str | None:
    """The name here of an argument of other loaders; None if it is not one of theirs."""
    advice = _ARGUMENTS.get(verb, {}).get(name) or _ANYWHERE.get(name)
    return advice and advice.format(value=reprlib.repr(value))


def _too_many(verb: str, extra: tuple[Any, ...], known: list[str]) -> ArgumentError:
    if verb not in _POSITIONAL:
        return ArgumentError(f"{verb}() got too many arguments; it takes {', '.join(known) or 'none'}")
    shown = ", ".join(map(reprlib.repr, extra))
    return ArgumentError(f"{verb}({shown}): {_POSITIONAL[verb].format(value=reprlib.repr(extra[0]))}")


# ---- attributes and methods -------------------------------------------------------------------------------------------------


def unknown_attribute(owner: Any, name: str) -> AttributeError:
    """The error for a method or attribute that a pipeline, a batch or a sample does not have."""
    kind = type(owner).__name__
    what = f"module {owner.__name__!r}" if kind == "module" else f"{kind!r} object"
    text, advice = f"{what} has no attribute {name!r}", _ATTRIBUTES.get(kind, _METHODS).get(name)
    if advice is not None:
        return AttributeError(f"{text}; {advice}")
    return AttributeError(text, name=name, obj=owner)  # Python itself suggests names that are spelled alike


def image_spec_advice(field: str, known: Iterable[str]) -> str:
    """What to write instead of WebDataset's ``decode("pil")``; "" if the field is not one of its words."""
    if field not in _IMAGE_SPECS:
        return ""
    first = next(iter(known), "jpg")
    return f"; decode() takes a field first: decode({', '.join(filter(None, [repr(first), _IMAGE_SPECS[field]]))})"

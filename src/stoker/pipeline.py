"""The pipeline users write: immutable, each method gives a new one. The nodes it collects are plain values in `plan/`."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import loader as running
from .errors import ArgumentError, ConfigError, MissingExtra, StateError, StokerError
from .foreign_names import advised, argument_advice, unknown_attribute
from .image.batch_mixing import CutMix, Mixing, MixUp
from .image.foreign_operations import instead_of
from .image.limits import MAX_PIXELS
from .image.lower import lower
from .image.normalize import Normalize, ToFloat
from .image.operation import Operation
from .plan import nodes as n
from .plan.columns import AnySource
from .plan.deal import check_remainder
from .plan.field_effects import check_size
from .plan.mix_pattern import pattern_of
from .plan.nodes import Function
from .plan.order import MAX_LENGTH, Order
from .plan.plan import Plan, compile_plan, resolve_names
from .plan.ranks import check_rank
from .sizes import parse_bytes, short
from .source.concat import ConcatSource
from .source.paths import AnyPath, absolute, file_name
from .source.sample_names import NamedSample
from .source.source import Source, digest

if TYPE_CHECKING:
    from .device.keras_dataset import Fields
    from .loader import Loader
    from .storage.sample_cache import SampleCache

_log = logging.getLogger("stoker")
#: what functions are called with that are not of single fields
_SAMPLE = "the sample as a dict"


def mix(pipelines: Sequence[Pipeline], weights: Sequence[float] | None = None, until: str = "first") -> Pipeline:
    """Samples of several pipelines in exact proportions; see `stoker.mix`."""
    members = list(pipelines) if isinstance(pipelines, Iterable) and not isinstance(pipelines, Pipeline) else []
    if not members or not all(isinstance(member, Pipeline) for member in members):
        raise ConfigError("mix() takes a list of pipelines, e.g. mix([a, b], weights=[0.7, 0.3])")
    if weights is not None and not isinstance(weights, Iterable):
        raise ConfigError(f"mix(weights={weights!r}): must be a list, with a number for each pipeline")
    shares = [1.0] * len(members) if weights is None else list(weights)
    if len(shares) != len(members):
        raise ConfigError(f"mix() got {len(members)} pipelines and {len(shares)} weights")
    if until not in ("first", "all"):
        raise ConfigError(f"mix(until={until!r}): choose 'first' (end when one has no more) or 'all' (shorter ones begin again)")
    parts = [member._as_member() for member in members]
    source = ConcatSource([source for source, _, _ in parts], [names for _, names, _ in parts])
    orders = tuple(n.Member(verbs, first, len(part)) for (part, _, verbs), first in zip(parts, source.firsts))
    return Pipeline(source, (n.Mix(orders, pattern_of(shares), until),))


class Pipeline:
    """Where samples come from, and what happens to them on the way to a batch.

    >>> import numpy as np, stoker
    >>> numbers = stoker.arrays(x=np.arange(10)).shuffle(seed=1).batch(5)
    >>> [batch["x"].shape for batch in numbers]
    [(5,), (5,)]
    """

    def __init__(self, source: AnySource, nodes: tuple[n.Node, ...] = ()) -> None:
        self._source, self._nodes = source, nodes
        self._plan: Plan | None = None
        self._cache: SampleCache | None = None
        self._epochs = itertools.count()  # needs no lock, which a fork could meet held

    def _with(self, node: n.Node) -> Pipeline:
        return Pipeline(self._source, (*self._nodes, node))

    @property
    def plan(self) -> Plan:
        """The compiled plan; making it checks the pipeline."""
        if self._plan is None:
            self._plan = compile_plan(self._source, self._nodes)
        return self._plan

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names: label i is ``classes[i]``."""
        return self._source.classes if isinstance(self._source, Source) else ()

    def _as_member(self) -> tuple[Source, dict[str, str], tuple[n.OrderNode, ...]]:
        """Source, {field here: field there}, and order, for `mix`."""
        if not isinstance(self._source, Source):
            raise ConfigError("mix() needs sources whose samples can be counted, not streams")
        verbs: list[n.OrderNode] = []
        names: list[n.NameNode] = []
        for node in self._nodes:
            if isinstance(node, (n.Shuffle, n.Take, n.Skip, n.Repeat, n.Mix)):
                verbs.append(node)
            elif isinstance(node, (n.Select, n.Rename, n.Drop)):
                names.append(node)
            else:
                raise ConfigError(f"{n.verb_of(node)}() comes before mix(); put it after mix(), where it applies to all samples")
        if Order(tuple(verbs), len(self._source)).length == 0:
            raise ConfigError(f"mix(): {self._source.describe()} has no sample left after take or skip")
        return *resolve_names(self._source, names), tuple(verbs)

    # ---- order -------------------------------------------------------------------------------------------------------------

    @advised
    def shuffle(self, *, seed: int = 0, window: int | None = None, reshuffle: bool = True) -> Pipeline:
        """Put every epoch in a different random order.

        Over the whole data set; or with `window`, so that no sample moves by that many positions or more, which keeps reading
        nearly sequential. `seed` is also the seed of all random operations of the pipeline. With ``reshuffle=False`` all epochs,
        and all passes of a `repeat`, have the order of the first; random operations still differ from epoch to epoch.
        """
        seed = _whole("shuffle", "seed", seed, None)
        if window is not None:
            window = min(_whole("shuffle", "window", window, 1), MAX_LENGTH)  # no order is longer
        return self._with(n.Shuffle(seed, window, _flag("shuffle", "reshuffle", reshuffle)))

    @advised
    def shard(self, rank: int | None = None, world: int | None = None, remainder: str = "drop") -> Pipeline:
        """Divide every global batch among ranks; on a single process this does nothing.

        By default rank and world are looked up when a loader is made: from an initialised `torch.distributed` process group, or
        from torchrun, Lightning, Horovod, MPI, SLURM or JAX. All ranks get the same number of batches. Samples that do not fill a
        global batch are dropped (`drop`), padded with repeated rows, False in `batch.valid` (`pad`), or distributed as evenly as
        possible (`keep`). `pad` and `keep` lose nothing, and neither does ``batch(drop_last=False)``, which means `keep`.
        """
        if (rank is None) != (world is None):
            raise ConfigError("shard() needs both rank and world, or neither")
        check_remainder(remainder)
        if rank is None or world is None:
            return self._with(n.Shard(remainder=remainder))
        rank, world = _whole("shard", "rank", rank, None), _whole("shard", "world", world, None)
        check_rank(rank, world)
        return self._with(n.Shard(rank, world, remainder))

    @advised
    def take(self, count: int) -> Pipeline:
        """Only the first `count` samples of the order; after `batch`, batches."""
        return self._with(n.Take(_whole("take", "count", count, 0)))

    @advised
    def skip(self, count: int) -> Pipeline:
        """All but the first `count` samples of the order; after `batch`, batches."""
        return self._with(n.Skip(_whole("skip", "count", count, 0)))

    @advised
    def repeat(self, count: int | None = None) -> Pipeline:
        """The data `count` times in one epoch (None: without end), each time in a new order if `shuffle` comes before."""
        if count is not None:
            count = _whole("repeat", "count", count, 1)
        return self._with(n.Repeat(count))

    # ---- samples -----------------------------------------------------------------------------------------------------------

    @advised
    def image(
        self,
        field: str,
        *ops: Operation,
        color: str = "rgb",
        layout: str = "hwc",
        out: str | None = None,
        fast: bool = True,
        max_pixels: int = MAX_PIXELS,
        orient: bool = False,
        boxes: str | Sequence[str] = (),
        relative_boxes: bool = False,
        lenient: bool = False,
    ) -> Pipeline:
        """Decode an image field and transform it, in one pass.

        `ops` come from `stoker.image`. `color` is ``"rgb"`` or ``"gray"``, `layout` ``"hwc"`` or ``"chw"``, `out` ``"uint8"`` or
        ``"float32"`` (0 to 1, or as `Normalize` says; the default with `ToFloat` or `Normalize`). ``fast=False`` decodes at full
        resolution with exact chroma, for pixels within rounding of Pillow's. An image of more than `max_pixels` is refused before
        decoding. With ``orient=True`` images are first rotated upright, according to EXIF. With ``lenient=True`` a damaged JPEG
        is decoded as far as possible and counted (``stats().damaged``), instead of being a bad sample.

        `boxes` names fields that follow the geometry: each holds a box (ymin, xmin, ymax, xmax), or any number of them (k, 4), in
        pixels of the stored image (with ``orient=True`` of the upright one), and becomes float32 in pixels of the new one; with
        ``relative_boxes=True`` both are fractions of their image, 0 to 1. A box becomes the smallest upright box around its
        transformed corners, clipped to the image; a box outside the image has no area and lies on the border.
        """
        _field("image", field)
        for op in ops:
            if not isinstance(op, Operation):
                raise ConfigError(f"image({field!r}, {short(op)}): not an operation of stoker.image; {_instead(field, op)}")
        _choice("image", "color", color, ("rgb", "gray"))
        _choice("image", "layout", layout, ("hwc", "chw"))
        floats = next((op for op in ops if isinstance(op, (Normalize, ToFloat))), None)
        out = _choice("image", "out", out or ("uint8" if floats is None else "float32"), ("uint8", "float32"))
        if floats is not None and out == "uint8":
            raise ConfigError(f"image(out='uint8') with {type(floats).__name__}, which produces floats: omit out")
        lower(ops, color=color, layout=layout, out=out, fast=fast)  # find mistakes here, not in a worker
        _whole("image", "max_pixels", max_pixels, 1)
        fast, orient = _flag("image", "fast", fast), _flag("image", "orient", orient)
        relative_boxes = _flag("image", "relative_boxes", relative_boxes)
        if not isinstance(boxes, (str, list, tuple)):
            raise ConfigError(f"image({field!r}, boxes={boxes!r}): must be the name of the field that holds boxes, or several")
        names = (boxes,) if isinstance(boxes, str) else tuple(boxes)
        if names and field in _names("image boxes=", names):
            raise ConfigError(f"image({field!r}, boxes={field!r}): must be a field that holds boxes, not the image")
        if relative_boxes and not names:
            raise ConfigError(f"image({field!r}, relative_boxes=True): needs the fields that hold the boxes, e.g. boxes='box'")
        lenient = _flag("image", "lenient", lenient)
        node = n.Image(field, ops, color, layout, out, fast, max_pixels, orient, names, relative_boxes, lenient)
        check_size(node)
        return self._with(node)

    @advised
    def decode(
        self,
        field: str,
        format: str = "numpy",
        color: str = "rgb",
        out: str = "uint8",
        max_pixels: int = MAX_PIXELS,
        orient: bool = False,
        lenient: bool = False,
    ) -> Pipeline:
        """Decode an image field at full size: JPEG, JPEG 2000, PNG, WebP, AVIF, GIF, TIFF, BMP, PPM, ICO, TGA, or npy.

        `format` is ``"numpy"`` (height, width, channels), ``"pil"``, or ``"torch"`` (channels first); `out` is ``"uint8"`` or
        ``"float32"`` (0 to 1). With ``orient=True`` images are rotated upright, according to EXIF. If sizes vary within a batch,
        it holds a list of images. `lenient` as for `image`.
        """
        _field("decode", field)
        _choice("decode", "format", format, ("numpy", "pil", "torch"))
        _choice("decode", "color", color, ("rgb", "gray"))
        _choice("decode", "out", out, ("uint8", "float32"))
        if format == "torch" and find_spec("torch") is None:
            raise MissingExtra("decode(format='torch') needs the package torch: pip install 'stoker[torch]'")
        if format == "pil" and out != "uint8":
            raise ConfigError("decode(format='pil') produces 8-bit images; use format='numpy' for floats")
        _whole("decode", "max_pixels", max_pixels, 1)
        flags = _flag("decode", "orient", orient), _flag("decode", "lenient", lenient)
        return self._with(n.Decode(field, format, color, out, max_pixels, *flags))

    def map(
        self,
        fn: Function | None = None,
        /,
        *,
        rng: bool | str | Function | Sequence[Function] = False,
        seeded: bool | Function | Sequence[Function] = True,
        **fields: Function | Sequence[Function],
    ) -> Pipeline:
        """Apply a function to every sample, or functions to single fields.

        ``map(fn)`` calls ``fn(sample)`` with a dict and uses the dict it returns. ``map(label=fn)`` replaces one field by
        ``fn(value)``; a list of functions is applied in order. With ``rng=True`` functions get a second argument, a NumPy
        Generator keyed by the sample's position, so that results do not depend on the worker; ``rng="name"`` names the random
        stream: functions with the same name draw the same numbers for a sample. (``map(rng=fn)`` is for a field called rng.)

        If the function uses `random`, `numpy.random` or torch's CPU generator, these are also seeded by the sample's position
        before each call; such a function runs in one thread of a process at a time. ``seeded=False`` turns both off. The dict
        identifies the sample: ``sample.key`` (or ``sample["__key__"]``), ``sample.origin``, ``sample.index``. If `fn` returns an
        entry ``"__key__"``, that is the sample's new key and not a field.
        """
        if _is_function(rng):
            fields, rng = {**fields, "rng": rng}, False  # type: ignore[dict-item]
        if _is_function(seeded):
            fields, seeded = {**fields, "seeded": seeded}, True  # type: ignore[dict-item]
        if not isinstance(rng, (bool, str)) or rng == "":
            raise ConfigError(f"map(rng={short(rng)}): must be True, False or a name for the random numbers")
        for name, given in fields.items():
            advice = argument_advice("map", name, given) if fn is not None or not _is_function(given) else None
            if advice is not None:
                raise ArgumentError(f"map({name}={short(given)}): {advice}")
        if (fn is None) == (not fields):
            raise ConfigError("map() takes either one function over samples, or functions by field: map(fn), or map(label=fn)")
        if fn is not None:
            return self._with(n.Map(_function("map()", fn, _SAMPLE, rng), rng, _flag("map", "seeded", seeded)))
        named = tuple((name, _functions(name, given, rng)) for name, given in fields.items())
        return self._with(n.MapFields(named, rng, _flag("map", "seeded", seeded)))

    @advised
    def filter(self, fn: Function, *, seeded: bool = True) -> Pipeline:
        """Keep the samples for which ``fn(sample)`` is true; `fn` gets the same dict as in `map`.

        Put it before expensive stages.
        """
        return self._with(n.Filter(_function("filter()", fn, _SAMPLE), _flag("filter", "seeded", seeded)))

    @advised
    def flat_map(self, fn: Function, *, seeded: bool = True) -> Pipeline:
        """Replace every sample by the samples that ``fn(sample)`` returns; `fn` gets the same dict as in `map`."""
        return self._with(n.FlatMap(_function("flat_map()", fn, _SAMPLE), _flag("flat_map", "seeded", seeded)))

    @advised
    def unbatch(self) -> Pipeline:
        """Split every field along its first axis: after `batch`, back to samples; else one sample becomes several."""
        return self._with(n.Unbatch())

    def select(self, *fields: str) -> Pipeline:
        """Keep these fields, in this order; batches unpack in this order."""
        if any(map(callable, fields)):
            raise ConfigError("select() keeps fields, by name; to keep samples use .filter(fn)")
        return self._with(n.Select(_names("select", fields)))

    def rename(self, /, **names: str) -> Pipeline:
        """Rename fields: ``rename(new="old")``, as in ``rename(image="jpg", label="cls")``.

        Of several old names, ``rename(image="jpg;jpeg;png")``, it uses the first that a sample has, and drops the others.
        """
        for new, old in names.items():
            several = old.split(";") if isinstance(old, str) else [""]
            spaced = len(several) > 1 and any(name != name.strip() for name in several)
            if not all(several) or len(set(several)) < len(several) or spaced:
                raise ConfigError(
                    f"rename({new}={old!r}): must be the old name, or several to choose from, each once and without spaces, as "
                    f"in {new}='jpg;png'"
                )
        _names("rename", tuple(names))
        _names("rename", tuple(names.values()))
        return self._with(n.Rename(tuple((old, new) for new, old in names.items())))

    def drop(self, *fields: str) -> Pipeline:
        """Remove these fields."""
        return self._with(n.Drop(_names("drop", fields)))

    @advised
    def cache(self, where: AnyPath = "memory", *, bytes: int | str | None = None) -> Pipeline:
        """Store samples as they are at this point, so that reading and the steps before it are done once.

        `where` is ``"memory"``, or a folder that later runs and other processes on this machine share. `bytes` is the size limit
        (default: half of the free memory, or nine tenths of the free space of the folder's disk). A full cache keeps the samples
        that are needed soonest. Nothing random may come before it. Batches are the same with and without it, and so are saved
        states.
        """
        memory = isinstance(where, str) and where == "memory"
        name = "memory" if memory else os.fsdecode(absolute(os.fsdecode(file_name(where))))
        limit = None if bytes is None else parse_bytes(bytes, "cache: bytes")
        return self._with(n.Cached(name, limit))

    # ---- batches -----------------------------------------------------------------------------------------------------------

    @advised
    def batch(self, size: int, drop_last: bool = True, pad: Mapping[str, Any] | None = None) -> Pipeline:
        """Join `size` samples. Fields of one shape are stacked.

        Images are stacked if all of a batch have one size. Fields known to vary become lists; `pad` maps a field to the value
        that fills shorter rows, or to `list`. ``drop_last=False`` keeps a last, shorter batch, on any number of ranks.
        """
        size = _whole("batch", "size", size, 1)
        if pad is not None and not isinstance(pad, Mapping):
            raise ConfigError(f"batch(pad={short(pad)}): must be a mapping of fields to fill values, e.g. {{'tokens': 0}}")
        return self._with(n.Batch(size, _flag("batch", "drop_last", drop_last), tuple((pad or {}).items())))

    @advised
    def map_batch(self, fn: Function, *, seeded: bool = True) -> Pipeline:
        """Apply ``fn(columns)``, a dict of whole columns, to every batch, in a worker; it returns the new dict.

        ``columns.sample_keys`` (or ``columns["__key__"]``) lists the samples' keys, ``columns.rows`` counts them. If `fn` returns
        an entry ``"__key__"``, a list with a key per row, these are the batch's new keys. Random generators are seeded as in
        `map`, by the place of the batch's first sample.
        """
        return self._with(
            n.MapBatch(_function("map_batch()", fn, "the columns of a batch as a dict"), _flag("map_batch", "seeded", seeded))
        )

    @advised
    def blend(
        self,
        *ops: Mixing,
        image: str = "image",
        label: str = "label",
        layout: str | None = None,
        stream: str | None = None,
    ) -> Pipeline:
        """Mix the images and labels of every batch, in a worker and in place: `MixUp` and `CutMix` of `stoker.image`.

        Of several operations one is chosen for each batch, with equal probability. The label field becomes float32 (rows,
        classes), also in batches that are not mixed. `layout` is ``"hwc"`` or ``"chw"``, needed if the images' shape is
        ambiguous. `stream` names the random numbers: two `blend` with the same name mix in the same way, for fields that belong
        together.
        """
        if not ops or not all(isinstance(op, (MixUp, CutMix)) for op in ops):
            raise ConfigError(
                f"blend{ops!r}: pass operations over batches, e.g. blend(MixUp(0.2, classes=1000)); those over single images "
                "go into image(...)"
            )
        if len({op.classes for op in ops}) > 1:
            raise ConfigError(f"blend(): the operations differ in classes: {', '.join(str(op.classes) for op in ops)}")
        if layout is not None:
            _choice("blend", "layout", layout, ("hwc", "chw"))
        _names("blend", (image, label))
        if stream is not None and (not isinstance(stream, str) or not stream):
            raise ConfigError(f"blend(stream={stream!r}): must be a name or None")
        return self._with(n.Blend(ops, image, label, layout, stream))

    @advised
    def on_error(
        self,
        policy: str,
        *,
        budget: float = 0.001,
        window: int | None = None,
        quarantine: AnyPath | None = None,
        fill: str | None = None,
    ) -> Pipeline:
        """Set how bad samples are handled: ``"raise"`` an error (the default), or ``"skip"`` them.

        `budget` is how many may be skipped: a fraction of the samples (below 1), or a number of them (1 and more); beyond it a
        `DataLossError` is raised. It applies to the epoch so far (a fraction to at least 1,000 samples), or to the last `window`
        samples. `quarantine` names a file to which a JSON line is appended for each bad sample. A skipped sample makes its batch
        one row shorter, or with ``fill="repeat"`` is replaced by a good row of the same batch that is False in ``batch.valid``.
        All other batches, and their number, stay the same.
        """
        _choice("on_error", "policy", policy, ("raise", "skip"))
        if not isinstance(budget, (int, float)) or isinstance(budget, bool) or not budget >= 0:
            raise ConfigError(f"on_error(budget={budget!r}): must be a share below 1, or a number of samples")
        if window is not None:
            window = _whole("on_error", "window", window, 1)
        if fill is not None:
            _choice("on_error", "fill", fill, ("repeat",))
        listed = None if quarantine is None else os.fsdecode(file_name(quarantine))
        skipping = n.SkipPolicy(float(budget), window, listed, fill)
        if policy == "skip":
            return self._with(n.OnError(skipping))
        if skipping != n.SkipPolicy():
            raise ConfigError("on_error('raise') does not skip: omit budget, window, quarantine and fill, or use 'skip'")
        return self._with(n.OnError(None))

    @advised
    def retry(self, times: int) -> Pipeline:
        """Retry after temporary input and output errors, up to `times` times for each sample, with growing pauses.

        This applies to a lost connection, a timeout, or a disk or network file system that fails temporarily, in a source's
        reads, or raised by functions of `map`, `filter` and `flat_map`, which are then called again with the same sample. Bad
        data and missing files are never tried again. What Stoker itself fetches over a network (``http://``, ``s3://``, ...) has
        its own retries, and is not tried again here. ``stats().retried`` counts the retries.
        """
        return self._with(n.Retry(_whole("retry", "times", times, 0)))

    # ---- running -----------------------------------------------------------------------------------------------------------

    @advised
    def loader(
        self,
        *,
        threads: int | None = None,
        processes: int | None = None,
        executor: str = "auto",
        memory: int | str = "2GB",
        ahead: int | None = None,
        format: str = "numpy",
        batches: str = "tuple",
        device: Any = None,
        sharding: Any = None,
        decode_on: str = "cpu",
        device_memory: int | str = "2GB",
        pinned_memory: int | str | None = None,
        epoch: int = 0,
        watchdog_s: float = 60.0,
        ray_address: str | None = None,
        workers_at: str | None = None,
        worker_keys: AnyPath | None = None,
        pool: str | Sequence[str] | None = None,
        pool_keys: AnyPath | None = None,
    ) -> Loader:
        """Run the pipeline.

        `threads` defaults to the cores this process may use, divided among the processes of its run on this machine. With
        `processes` that many worker processes do the work, with `threads` threads each: as many as cores for functions that hold
        the interpreter lock, or one to keep the lock free for training. `executor` is ``"auto"``, ``"threads"``, ``"processes"``
        or ``"inline"`` (no threads); or ``"ray"``: `processes` actors of `threads` threads (default 1) on the cluster at
        `ray_address`, by default one per core. `memory` limits the bytes in flight, `ahead` the batches (default: about 64 MB
        worth, at least 2). Batches are named tuples, or with ``batches="dict"`` plain dicts. `epoch` is the first epoch. If
        nothing has moved for `watchdog_s` seconds, a `StallError` shows every worker's stack; stuck processes are replaced.

        `format` is ``"numpy"``, ``"torch"``, ``"jax"``, ``"tensorflow"``, or ``"dlpack"`` for any other library. `device` is one
        of that library, and implies torch; `sharding`, which implies JAX, distributes each batch over several devices, and makes
        one array of the batches of all processes.

        With ``device="cuda"``, `decode_on` is ``"cpu"``; or ``"cuda"``: JPEGs that have a seek index are decoded on the GPU, into
        the batch's memory there; or ``"auto"``: where that is faster, as measured. Batches are the same, byte for byte.
        `device_memory` limits what that takes on the GPU besides the batches. With `pinned_memory`, such as ``"20GB"``, pictures
        stay in so much of the host's memory as they are stored: the GPU fetches them from there, and nobody reads them again.

        With `workers_at`, an address such as ``"tcp://0.0.0.0:8877"``, processes of `stoker worker` on other machines connect
        there and work in addition to the threads here; with ``threads=0`` the threads here only assemble batches while a worker
        is connected. `worker_keys` is the trainer's file made by `stoker keys`, needed unless only this machine can reach the
        address.

        With `pool`, the address of a `stoker serve`, or several, rows are made there, once for all trainers that need them. The
        threads here assemble batches, and make rows while no pool answers. `pool_keys` is a file made by `stoker keys --pool`.
        """
        running.warn_unsharded(self.plan)
        options = running.LoaderOptions(
            threads=threads,
            processes=processes,
            executor=executor,
            memory=memory,
            ahead=ahead,
            format=format,
            batches=batches,
            device=device,
            sharding=sharding,
            decode_on=decode_on,
            device_memory=device_memory,
            pinned_memory=pinned_memory,
            epoch=epoch,
            watchdog_s=watchdog_s,
            ray_address=ray_address,
            workers_at=workers_at,
            worker_keys=worker_keys,
            pool=pool,
            pool_keys=pool_keys,
        )
        return running.Loader(self.plan, options)

    def __iter__(self) -> Iterator[Any]:
        """One epoch; iterating this very object again gives the next."""
        running.warn_unsharded(self.plan)
        return running.OneEpoch(self._next_epoch)

    def _next_epoch(self) -> Loader:
        from .loader.open_cache import open_cache

        # Counted with the first batch: trainers make iterators just to see whether they can, and that is not an epoch.
        if self._cache is None:
            self._cache = open_cache(self.plan)  # for all epochs: each has its own loader
        return running.Loader(self.plan, running.LoaderOptions(epoch=next(self._epochs)), once=True, cache=self._cache)

    def __getitem__(self, index: Any) -> NoReturn:
        raise ArgumentError(
            "a pipeline cannot be indexed; pipeline.sample(i) returns a sample, and DataLoader takes pipeline.torch_dataset()"
        )

    @advised
    def torch_dataset(self, *, batches: str = "tuple") -> Any:
        """An `IterableDataset` for `torch.utils.data.DataLoader`, whose workers share every epoch without overlap.

        With `batch` in the pipeline pass ``batch_size=None``. Each iteration is the next epoch; ``set_epoch`` chooses one.
        Batches, and samples without `batch`, are named tuples, or with ``batches="dict"`` plain dicts, like those of `loader`.
        """
        from .device.torch_dataset import torch_dataset

        return torch_dataset(running.WorkerPart(self), batches)

    def keras_dataset(self, *, inputs: Fields = None, targets: Fields = None, weights: Fields = None, **loader: Any) -> Any:
        """A `keras.utils.PyDataset` for `model.fit`, with any backend; it has a loader, and takes its arguments.

        The fields of a batch are inputs, targets and sample weights, in this order; or each is named: a field, or a list of
        fields that become a dict. Each pass is the next epoch, ``epoch`` says which; ``state_dict()`` and ``load_state_dict()``
        are those of a loader.
        """
        from .device.keras_dataset import keras_dataset

        if self.plan.batch is None:
            raise ConfigError("keras_dataset(): Keras takes batches, but this pipeline returns single samples; add .batch(n)")
        return keras_dataset(self.loader(**loader), inputs, targets, weights)

    def tf_dataset(self, *, batches: str = "tuple", epoch: int = 0, skip: int = 0, **loader: Any) -> Any:
        """A `tf.data.Dataset` of batches (samples, without `batch`); it has a loader, and takes its arguments.

        Each iteration is the next epoch. A program that goes on says where: from `epoch` on, without its first `skip` batches.
        Elements are tuples, or with ``batches="dict"`` dicts. The first batch is made at once, because it shows what they are.
        """
        from .device import check_batches
        from .device.tf_dataset import tf_dataset

        check_batches("tf_dataset", batches)

        def make() -> Loader:
            made = self.loader(epoch=epoch, **loader)
            made.skip(skip)
            return made

        plan = compile_plan(self._source, _uncached(self._nodes))
        with running.Loader(plan, running.LoaderOptions(executor="inline", ahead=1, epoch=epoch), once=True) as looking:
            sharded, length = looking.rank.world > 1, looking.remaining
            first = next(iter(looking), None)
        if first is None:
            raise ConfigError(
                "tf_dataset(): the first epoch has no batch, so the types of its tensors are unknown; use smaller batches, "
                "or drop_last=False"
            )
        shapes = running.known_shapes(plan, running.WorkerPart(self).deal)
        return tf_dataset(make, first._asdict(), shapes, batches == "dict", sharded, None if skip else length)

    def __len__(self) -> int:
        """Batches of one epoch on this rank; samples, without `batch`."""
        plan = compile_plan(self._source, _uncached(self._nodes))
        with running.Loader(plan, running.LoaderOptions(executor="inline")) as loader:
            return len(loader)

    def __bool__(self) -> bool:
        return True  # a pipeline is never "empty", and its length may be unknown

    def sample(self, i: int) -> NamedSample:
        """Sample `i` of the first epoch, after the stages before `batch`: a dict that also has `key`, `origin` and `index`."""
        i = _whole("sample", "i", i, 0)
        last_batch = max((at for at, node in enumerate(self._nodes) if isinstance(node, n.Batch)), default=len(self._nodes))
        if any(isinstance(node, n.Unbatch) for node in self._nodes[last_batch:]):
            last_batch = len(self._nodes)  # that batch is undone again
        nodes = tuple(node for node in _uncached(self._nodes[:last_batch]) if not isinstance(node, n.Shard))
        # Not `skip(i).take(1)`: positions, and with them random numbers, would be others. Batches of one, one at a time, so that
        # nothing after it is worked on. A function takes it out, because functions see which sample it is, and a batch might
        # refuse its values. Samples before it have to be made only where they have to be counted, and are worth threads there.
        seen: list[NamedSample] = []
        plan = Pipeline(self._source, (*nodes, n.Map(_noting(seen), seeded=False), n.Batch(1))).plan
        if not plan.counted or plan.pass_rows is None or plan.pass_rows > i:
            # A StateError is that of a stream that ends before i.
            options = running.LoaderOptions(executor="inline" if plan.counted else "auto", ahead=1)
            with suppress(StateError), running.Loader(plan, options, row=i, once=True) as loader:
                for _ in loader:
                    return seen[0]
        raise IndexError(f"sample({i}): the pipeline has fewer samples")

    # ---- looking -----------------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """A short string that changes when the data, their order or the stages change."""
        return digest("pipeline", *(f"{name}={value}" for name, value in self.plan.identity().items()))

    def explain(self, *, decode_on: str = "cpu", device_memory: int | str = "2GB", pinned_memory: int | str | None = None) -> str:
        """What the pipeline will do, as text; with `decode_on` also what ``loader(decode_on=...)`` decodes where, and why."""
        if decode_on == "cpu" and pinned_memory is None:
            return running.explained(self.plan)
        from .loader.decode_place import explain_decoding

        return running.explained(self.plan, decoding=explain_decoding(self.plan, decode_on, device_memory, pinned_memory))

    def __repr__(self) -> str:
        verbs = "".join(f"\n  .{n.written(node)}" for node in self._nodes)
        return f"Pipeline({self._source.describe()}){verbs}"

    def _repr_html_(self) -> str:
        """The graph of the pipeline, for notebooks; nothing is read for it."""
        from .observe.notebook_html import pipeline_html, plain_html

        try:
            return pipeline_html(self.plan, self.explain())
        except StokerError as error:
            return plain_html(f"{self!r}\n\n{type(error).__name__}: {error}")

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name: str) -> Any:
            """An answer to the methods that other loaders taught."""
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property that raised an AttributeError: again, to show that
            raise unknown_attribute(self, name)

    def __getstate__(self) -> tuple[AnySource, tuple[n.Node, ...]]:
        return self._source, self._nodes

    def __setstate__(self, state: tuple[AnySource, tuple[n.Node, ...]]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def _uncached(nodes: tuple[n.Node, ...]) -> tuple[n.Node, ...]:
    return tuple(node for node in nodes if not isinstance(node, n.Cached))


def _noting(seen: list[NamedSample]) -> Callable[[NamedSample], dict[str, int]]:
    def note(sample: NamedSample) -> dict[str, int]:
        seen.append(sample)
        return {"seen": len(seen)}

    return note


# ---- checks at the door ---------------------------------------------------------------------------------------------------


def _whole(verb: str, name: str, value: Any, least: int | None) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise ConfigError(f"{verb}({name}={value!r}): must be an integer{'' if least is None else f' >= {least}'}")
    return value


def _field(verb: str, field: Any) -> None:
    if not isinstance(field, str):
        raise ConfigError(f"{verb}({short(field)}): the first argument must be the name of a field, e.g. {verb}('image', ...)")


def _instead(field: str, op: Any) -> str:
    """What was meant by something in the place of an operation."""
    if isinstance(op, (MixUp, CutMix)):
        return f"it mixes batches: use .blend({type(op).__name__}(...)) after batch()"
    return instead_of(op, field)


def _choice(verb: str, name: str, value: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{verb}({name}={short(value)}): choose {' or '.join(map(repr, choices))}")
    return value


def _flag(verb: str, name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{verb}({name}={value!r}): choose True or False")
    return bool(value)


def _function(verb: str, fn: Any, given: str, rng: bool | str = False) -> Callable[..., Any]:
    """A function that can be called with one argument, which is `given`, and with a generator after it where there is `rng`."""
    if not callable(fn):
        raise ConfigError(f"{verb} needs a function, not {fn!r}")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of builtins
        return fn  # type: ignore[no-any-return]
    try:
        signature.bind(*(fn, fn) if rng else (fn,))
    except TypeError as error:
        also = ", and a generator because of rng" if rng else ""
        remedy = "; take fields from the dict, as in sample['label'], or use map(field=fn)" if given == _SAMPLE else ""
        raise ConfigError(f"{verb}: {n.describe_function(fn)} is called with {given}{also}: {error}{remedy}") from error
    return fn  # type: ignore[no-any-return]


def _is_function(given: Any) -> bool:
    """Whether it may stand for a function, or several, of one field."""
    return callable(given) or (isinstance(given, (list, tuple)) and all(map(callable, given)))


def _functions(name: str, given: Any, rng: bool | str) -> tuple[Function, ...]:
    functions = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not functions:
        raise ConfigError(f"map({name}=[]): pass at least one function")
    return tuple(_function(f"map({name}=...)", fn, f"the value of {name!r}", rng) for fn in functions)


def _names(verb: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ConfigError(
            f"{verb}({', '.join(map(repr, names))}): pass at least one field name, each only once, as in 'image', 'label'"
        )
    return names

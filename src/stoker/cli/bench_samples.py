"""What `stoker bench` measures: some samples of a source, and copies of them in other forms, in a temporary folder."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import stoker

from ..errors import ConfigError
from ..pack.jobs.convert import Conversion
from ..pack.jobs.planning import Options
from ..pack.values.stored_images import picture_kind
from ..sizes import counted, show_bytes
from ..source.files.labelled_files import LabelledFiles
from ..source.shards.record_source import RecordSource
from ..source.shards.tar_source import TarSource
from ..source.source import Source
from .progress import Progress
from .sample_choice import spread_samples
from .sources import open_source, stored_in

if TYPE_CHECKING:
    from ..pipeline import Pipeline

#: tar shards that copies are put into, at least
_SHARDS = 4


@dataclass(frozen=True, slots=True)
class BenchSamples:
    """Some samples of a source, at most a given number."""

    source: str
    samples: Pipeline
    count: int
    nbytes: int  # of their pictures; of all fields, where there are none
    field: str | None  # holds pictures; None: samples are only read and batched
    plain: Pipeline | None = None  # the same without their seek indices; None: they have none
    paths: tuple[str, ...] | None = None  # where they are image files
    in_tar: bool = False
    remote: bool = False
    left_out: tuple[str, ...] = ()  # image files that cannot be decoded, at which every loader would stop

    @property
    def thing(self) -> str:
        """What a sample is called."""
        return "sample" if self.field is None else "image"

    def notes(self) -> list[str]:
        """What to know of the choice."""
        bad = self.left_out
        if not bad:
            return []
        return [f"skipped: {counted(len(bad), 'image')} that cannot be decoded, {bad[0]} first; see `stoker verify --decode`"]

    def work(self, size: int, batch: int) -> Pipeline:
        """What is measured: random crops of the pictures, in batches."""
        return batches_of(self.samples, self.field, size, batch)


def batches_of(samples: Pipeline, field: str | None, size: int, batch: int) -> Pipeline:
    """Samples in another order in every epoch, without end; a random crop of each picture."""
    from stoker.image import HorizontalFlip, RandomResizedCrop

    mixed = samples.shuffle(seed=0).repeat()
    if field is not None:
        mixed = mixed.image(field, RandomResizedCrop(size), HorizontalFlip())
    return mixed.batch(batch)


def choose_samples(source: str, most: int, folder: Path) -> BenchSamples:
    """Files from all over a source, or the first of its records. All are read once, so that everybody finds them in memory."""
    opened = open_source(source)
    stored = stored_in(opened)
    if isinstance(stored, LabelledFiles):
        listed = folder / "images.txt"
        chosen = _spread_paths(stored, most)
        paths = _decodable(_write_list(listed, chosen), chosen)
        samples = stoker.filelist(_write_list(listed, paths), labels=None)
        seeks = stored_in(samples).seeks("image") > 0
        plain = stoker.filelist(listed, labels=None, seek=False) if seeks else None
        nbytes = sum(Path(path).stat().st_size for path in paths)
        bad = tuple(sorted(set(chosen).difference(paths)))
        return BenchSamples(source, samples, len(paths), nbytes, "image", plain, tuple(paths), left_out=bad)
    field = picture_field(stored)
    count = min(most, len(stored))
    samples = (opened if field is None else opened.select(field)).take(count)
    plain = open_source(source, seek=False).select(field).take(count) if field is not None and stored.seeks(field) else None
    return BenchSamples(
        source,
        samples,
        count,
        _read_once(samples, count),
        field,
        plain,
        in_tar=isinstance(stored, TarSource),
        remote=isinstance(stored, RecordSource) and stored.waits,
    )


def picture_field(source: Source) -> str | None:
    """The field of records that holds pictures, by content, or else by name; None: none does."""
    samples = spread_samples(source, 8)
    names = [name for sample in samples for name in sample.pictures]
    if not names:
        problem = next((sample.problem for sample in samples if sample.problem), "")
        if problem:
            raise ConfigError(f"{source.describe()}: its samples cannot be read: {problem}")
        return None
    return max(dict.fromkeys(names), key=names.count)


class Copies:
    """The same pictures in other forms, made when they are asked for."""

    def __init__(self, samples: BenchSamples, folder: Path, shards: int) -> None:
        self._samples, self._folder, self._most = samples, folder, shards

    def room(self) -> str:
        """Why there are no copies, or an empty text."""
        needed = self._samples.nbytes * (1 if self._samples.paths else 2)
        free = shutil.disk_usage(self._folder).free
        if free > 2 * needed:
            return ""
        return f"copies take {show_bytes(needed)}, and the temporary folder has {show_bytes(free)} free; use fewer --samples"

    @cached_property
    def paths(self) -> Sequence[str]:
        """As image files."""
        samples = self._samples
        paths: list[str] = []
        if samples.paths is not None:
            return samples.paths
        assert samples.field is not None
        files = self._folder / "files"
        files.mkdir()
        with Progress("copying", samples.count, unit="images") as shown:
            for batch in samples.samples.batch(64, drop_last=False):
                for data in batch[samples.field]:
                    path = files / f"{len(paths):06d}.{picture_kind(data) or 'jpg'}"
                    path.write_bytes(data)
                    paths.append(str(path))
                shown.move(len(paths))
        return paths

    @cached_property
    def files(self) -> Pipeline:
        """These files, as a source."""
        return stoker.filelist(_write_list(self._folder / "copies.txt", self.paths), labels=None, seek=False)

    @cached_property
    def _packed(self) -> tuple[list[str], str]:
        """Tar shards with seek indices, and the field of the pictures in them."""
        count = len(self.paths)
        pattern = str(self._folder / "shard-{:04d}.tar")
        with Progress("packing", count) as shown, shown.crews(None, self._most) as crews:
            most = -(-count // max(_SHARDS, self._most))
            conversion = Conversion(stored_in(self.files), pattern, Options(max_samples=most), each=crews.each)
            shards = [conversion.write(number, moved=shown.counting(crews)) for number in range(conversion.shards)]
        for bad in (bad for shard in shards for bad in shard.bad):
            raise ConfigError(f"{bad.origin}: {bad.reason}")
        return [shard.path for shard in shards], next(kept.target for kept in conversion.kept)

    @property
    def shards(self) -> list[str]:
        """As tar shards."""
        return self._packed[0]

    @property
    def field(self) -> str:
        """Of the pictures in the shards."""
        return self._packed[1]

    def tar(self, *, seek: bool) -> Pipeline:
        """These shards, as a source."""
        return stoker.tar(self.shards, seek=seek).select(self.field)


def _spread_paths(source: Source, most: int) -> list[str]:
    """At most so many files, evenly spread over the source."""
    count = min(most, len(source))
    paths = [source.origin(at * len(source) // count) for at in range(count)]
    # A name that is not UTF-8 is shown with escapes, and cannot be opened by what is shown: such files are not measured.
    return [path for path in paths if "\\" not in path or Path(path).exists()]


def _decodable(listed: Path, paths: Sequence[str]) -> list[str]:
    """Those of the listed files that can be decoded; all are read, so that everybody finds them in memory."""
    from stoker.image import Resize

    small = stoker.filelist(listed, labels=None).image("image", Resize((8, 8)))
    tolerant = small.on_error("skip", budget=len(paths)).batch(64, drop_last=False)
    good: set[str] = set()
    log = logging.getLogger("stoker")
    log.addFilter(_nothing)  # bad files are named in the result
    try:
        with Progress("reading", len(paths), unit="samples") as shown, tolerant.loader() as loader:
            for batch in loader:
                good.update(batch.sample_keys)
                shown.move(len(good))
    finally:
        log.removeFilter(_nothing)
    if not good:
        for _ in small.batch(1):  # raises the error that names the first
            pass
    return [path for path in paths if _line(path) in good]


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _write_list(path: Path, images: Sequence[str]) -> Path:
    """A list for `stoker.filelist`; the number keeps a name that ends in one whole."""
    path.write_text("".join(f"{_line(image)}\n" for image in images), encoding="utf-8")
    return path


def _line(image: str) -> str:
    return f"{image} 0"


def _read_once(samples: Pipeline, count: int) -> int:
    """Bring all samples into memory, so that everybody finds the same; returns their bytes."""
    with Progress("reading", count, unit="samples") as shown, samples.batch(64, drop_last=False).loader() as loader:
        done = 0
        for batch in loader:
            done += batch.rows
            shown.move(done)
        return loader.stats().bytes

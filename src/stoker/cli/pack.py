"""`stoker pack`: any source to shards, in parallel; resumes where it stopped."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.executor import in_words
from ..engine.single_tasks import run_tasks
from ..errors import ConfigError, WorkerError, WriteError
from ..pack.jobs.convert import BadSample, Conversion, ShardOutcome, convert_stream
from ..pack.jobs.planning import Options
from ..pack.writers.shard_writer import Pattern
from ..sizes import counted, parse_bytes, show_bytes
from ..source.source import Source
from ..source.streams.stream import StreamSource
from ..storage.atomic import sweep
from .classes import write_classes
from .cluster_workers import On, RayAddress, check_on, check_seen, ray_workers
from .guard import DATA
from .pack_worker import ShardPacker
from .progress import Progress, ShowProgress
from .screen import AsJson, Jobs, amount, argument, flag, option, print_json, tell
from .sources import SourceName, open_stored

#: bad samples named in the text
_NAMED = 20
_ENDINGS = {"tar": (".tar",), "tfrecord": (".tfrecord", ".tfrecords"), "lmdb": (".lmdb", ".mdb")}
#: what ends the name of a file, and not that of a folder (`v1.2`, `.hidden`)
_FILE_ENDING = re.compile(r"(?<=[^/])\.([A-Za-z][A-Za-z0-9]{0,9}|\d[A-Za-z]{1,3})$")
_MAX_BYTES = "1GB"


class Format(str, Enum):
    """Output format."""

    tar = "tar"
    tfrecord = "tfrecord"
    lmdb = "lmdb"


def pack(
    source: SourceName,
    dest: Annotated[
        str,
        argument(
            "DEST",
            "A folder, a pattern for the names of shards (`out/train-{:06d}.tar`), or one file (`out.tar`, `out.tfrecord`, "
            "`out.lmdb`). Missing folders are created.",
        ),
    ],
    format: Annotated[Format | None, typer.Option(help="Output format.", show_default="by DEST's ending, else tar")] = None,
    resize_max: Annotated[int | None, amount("Shrink JPEGs and PNGs whose longer side has more than N pixels.")] = None,
    quality: Annotated[int, option("Q", "JPEG quality of shrunk pictures.", min=1, max=100)] = 90,
    shuffle: Annotated[bool, flag("Shuffle all samples.", "--shuffle")] = False,
    seed: Annotated[int, option("S", "Seed of --shuffle: the same seed produces the same order.")] = 0,
    max_bytes: Annotated[str | None, option("SIZE", "Maximum size of a shard; `none`: no limit.", default=_MAX_BYTES)] = None,
    max_samples: Annotated[int | None, amount("Maximum number of samples in a shard.", default="no limit")] = None,
    fields: Annotated[
        str | None, option("LIST", "Fields to write, with new names: `jpg=image/encoded,cls=label`.", default="all")
    ] = None,
    by_content: Annotated[
        bool, flag("In a tar, name each picture's field by its format (jpg, png), even if samples then differ.", "--by-content")
    ] = False,
    keys: Annotated[bool, flag("In TFRecords, store the samples' keys as `__key__`.", "--keys/--no-keys")] = True,
    jpeg_index: Annotated[
        bool, flag("Add seek indices of JPEGs to the shards' indexes, for faster crops.", "--jpeg-index/--no-jpeg-index")
    ] = True,
    skip_bad: Annotated[bool, flag("Skip samples that cannot be read, and list them.", "--skip-bad")] = False,
    overwrite: Annotated[bool, flag("Replace existing shards that were made with other options.", "--overwrite")] = False,
    jobs: Jobs = None,
    on: On = "local",
    ray_address: RayAddress = None,
    progress: ShowProgress = None,
    json: AsJson = False,
) -> None:
    """Convert a data set to shards: tar (WebDataset), TFRecord or LMDB.

    Fields keep their meaning. Image files become `jpg` (`png`, `webp` ..., by their content) and `cls` in a tar, `image` and
    `label` elsewhere; the key is the path without its extension. Class names go to `classes.json`: a list, label i being entry i.
    Bytes are copied unchanged, except for pictures that `--resize-max` shrinks; these keep their aspect ratio.

    Each shard appears complete, with its index, or not at all. If it is stopped or killed, the same command resumes where it
    stopped, and the result is the same, byte for byte. A bad sample is reported, and its shard is not written; `--skip-bad` skips
    the sample. A source that is read in sequence (`-`, `.tar.gz`, `.tfrecord.gz`) is written by one writer, from the start each
    time. `--max-bytes` counts the sizes in the source, before pictures are shrunk.

    With `--on ray`, actors on all nodes of a Ray cluster write the shards. They must find SOURCE and DEST under the same names.

    Example: `stoker pack photos/train shards/train-{:06d}.tar --resize-max 500 --shuffle`
    """
    kind, pattern, folder = choose_dest(dest, None if format is None else format.value)
    options = Options(
        kind, _most_bytes(max_bytes, kind, max_samples), max_samples, seed if shuffle else None, resize_max, quality, fields,
        by_content, keys, jpeg_index,
    )  # fmt: skip
    on_ray = check_on(on, ray_address)
    opened = open_stored(source)
    _make_folder(folder)
    if isinstance(opened, StreamSource):
        if on_ray:
            raise ConfigError(f"{source}: can only be read in sequence, by one writer; omit --on ray")
        result = _in_sequence(opened, pattern, options, jobs, progress, skip_bad, overwrite)
    else:
        result = _in_shards(opened, pattern, options, jobs, progress, skip_bad, overwrite, on_ray, ray_address)
    if json:
        print_json({"source": source, "format": kind, **result.facts()})
    else:
        result.tell()
    _name_bad(result.bad, skip_bad)
    if result.bad and not skip_bad:
        raise typer.Exit(DATA)


# ---- what came of it --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PackResult:
    """What was written, and what was not."""

    planned: int | None  # shards; None where that is not known in advance
    fields: Sequence[str] = ()
    shards: list[ShardOutcome] = field(default_factory=list)
    classes: str | None = None
    renamed: int = 0
    seconds: float = 0.0
    rate: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def written(self) -> list[ShardOutcome]:
        return sorted((shard for shard in self.shards if shard.path), key=lambda shard: shard.number)

    @property
    def bad(self) -> list[BadSample]:
        return [bad for shard in sorted(self.shards, key=lambda shard: shard.number) for bad in shard.bad]

    def facts(self) -> dict[str, Any]:
        made = [shard for shard in self.written if not shard.kept]
        return {
            "shards": self.planned if self.planned is not None else len(self.written),
            "made": len(made),
            "kept": len(self.written) - len(made),
            "samples": sum(shard.samples for shard in self.written),
            "bytes": sum(shard.bytes for shard in self.written),
            "fields": list(self.fields),
            "paths": [shard.path for shard in self.written],
            "classes": self.classes,
            "renamed": self.renamed,
            "bad": [asdict(bad) for bad in self.bad],
            "seconds": self.seconds,
        }

    def tell(self) -> None:
        facts = self.facts()
        of = f" of {counted(facts['shards'], 'shard')}" if facts["made"] + facts["kept"] < facts["shards"] else ""
        kept = f" ({facts['kept']:,} of them made before)" if facts["kept"] else ""
        shards = f"{facts['made'] + facts['kept']:,}{of}" if of else counted(facts["made"] + facts["kept"], "shard")
        tell(f"{shards}{kept}: {counted(facts['samples'], 'sample')}, {show_bytes(facts['bytes'])}", style="bold")
        if facts["paths"]:
            last = f" … {facts['paths'][-1]}" if len(facts["paths"]) > 1 else ""
            tell(f"  files    {facts['paths'][0]}{last}")
        if self.fields:
            tell(f"  fields   {', '.join(self.fields)}")
        if self.classes:
            tell(f"  classes  {self.classes}")
        if facts["made"]:
            tell(f"  speed    {self.rate}, {self.seconds:,.1f} s")
        for note in self.notes:
            tell(f"  note     {note}")


def _name_bad(bad: Sequence[BadSample], skipped: bool) -> None:
    for entry in bad[:_NAMED]:
        typer.echo(f"bad sample {entry.key}: {entry.reason}", err=True)
    if len(bad) > _NAMED:
        typer.echo(f"and {len(bad) - _NAMED:,} more; --json lists them all", err=True)
    if bad and skipped:
        typer.echo(f"{counted(len(bad), 'bad sample')} skipped", err=True)
    elif bad:
        typer.echo(
            f"{counted(len(bad), 'bad sample')}: fix them, or skip them with --skip-bad; shards without any are done",
            err=True,
        )


# ---- the work ---------------------------------------------------------------------------------------------------------------


def _in_shards(
    source: Source,
    pattern: str,
    options: Options,
    jobs: int | None,
    progress: bool | None,
    skip_bad: bool,
    overwrite: bool,
    on_ray: bool,
    ray_address: str | None,
) -> PackResult:
    with Progress("looking", len(source), progress, unit="keys") as shown, shown.crews(None if on_ray else jobs, 1) as crews:
        conversion = Conversion(source, pattern, options, each=crews.each, overwrite=overwrite, looking=shown.move)
    standing = conversion.standing()
    result = PackResult(conversion.shards, [kept.target for kept in conversion.kept], list(standing.values()))
    result.classes = write_classes(source.classes, conversion.names.name(0), overwrite)
    result.renamed = conversion.keys.changed
    result.notes = _notes(conversion)
    missing = [number for number in range(conversion.shards) if number not in standing]
    had = sum(len(conversion.samples(number)) for number in standing)
    if on_ray:
        with Progress("packing", len(source), progress) as shown:
            shown.had(had)
            result.shards += _on_cluster(conversion, missing, skip_bad, jobs, ray_address, shown)
            result.seconds, result.rate = shown.seconds, shown.rate()
        return result
    with Progress("packing", len(source), progress) as shown, shown.crews(jobs, len(missing)) as crews:
        shown.had(had)
        write = partial(conversion.write, each=crews.each, moved=shown.counting(crews), skip_bad=skip_bad)
        result.shards += crews.over(write, missing)
        result.seconds, result.rate = shown.seconds, shown.rate()
    return result


def _on_cluster(
    conversion: Conversion, missing: list[int], skip_bad: bool, jobs: int | None, address: str | None, shown: Progress
) -> list[ShardOutcome]:
    """Shards that actors of a Ray cluster have written."""
    made: list[ShardOutcome] = []
    samples = nbytes = 0  # of these
    if not missing:
        return made
    with ray_workers(jobs, len(missing), address) as executor:

        def look() -> None:
            notes = [noted for _, noted in executor.notes()]
            shown.samples, shown.bytes = samples + sum(n.samples for n in notes), nbytes + sum(n.nbytes for n in notes)
            shown.draw()

        try:
            for outcome, causes in run_tasks(executor, ShardPacker(conversion, skip_bad), missing, look):
                shard = outcome.result
                if causes:
                    name = conversion.names.name(outcome.task.content)
                    raise WorkerError(f"{name}: its writer process {in_words(causes)}; run the command again to resume")
                if outcome.fault is not None:
                    raise outcome.fault.error()
                assert shard is not None  # what is neither a result nor a fault was lost
                if shard.path:
                    check_seen(shard.path)
                made.append(shard)
                samples, nbytes = samples + len(conversion.samples(shard.number)), nbytes + shard.bytes
        finally:
            sweep(os.fsencode(os.path.dirname(os.path.abspath(conversion.names.name(0)))), 0)  # noqa: PTH100, PTH120
    return made


def _in_sequence(
    source: StreamSource, pattern: str, options: Options, jobs: int | None, progress: bool | None, skip_bad: bool, overwrite: bool
) -> PackResult:
    typer.echo(f"{source.title} is read in sequence: if stopped, it begins again from the start", err=True)
    result = PackResult(None)
    with Progress("packing", None, progress) as shown, shown.crews(jobs, 1) as crews:

        def moved(samples: int, nbytes: int) -> None:
            shown.add(samples, nbytes)
            shown.draw()

        written, bad = convert_stream(
            source, pattern, options, each=crews.each, moved=moved, skip_bad=skip_bad, overwrite=overwrite
        )
        result.seconds, result.rate = shown.seconds, shown.rate()
    sizes = [Path(path).stat().st_size for path in written.paths]
    result.shards = [ShardOutcome(number, path, 0, size) for number, (path, size) in enumerate(zip(written.paths, sizes))]
    first = ShardOutcome(0, "", 0, 0) if not result.shards else result.shards[0]
    result.shards[:1] = [ShardOutcome(0, first.path, written.samples, first.bytes, bad=bad)]
    return result


def _notes(conversion: Conversion) -> list[str]:
    """What of the conversion a user may not expect."""
    notes = []
    if conversion.keys.changed:
        keys = f"{counted(conversion.keys.changed, 'key')} that another sample has too"
        notes.append(f"{keys} got a number at the end, as in {conversion.keys.example.decode('utf-8', 'replace')}")
    for name, kinds in conversion.pictures.items():
        if len(kinds) > 1 and conversion.options.format == "tar" and not conversion.options.by_content:
            told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            notes.append(
                f"field {name} holds several formats ({told} of those looked at); readers go by content (see --by-content)"
            )
    return notes


# ---- where from, where to ---------------------------------------------------------------------------------------------------


def choose_dest(dest: str, format: str | None) -> tuple[str, str, Path]:
    """Format, pattern of the shards' names, and the folder they go to."""
    if not dest:
        raise ConfigError("DEST is empty; name a folder, as in shards/, or `.` for this one")
    if dest == "-" or "://" in dest:
        raise ConfigError(f"{dest}: shards can only be written to local disks; for a pipe use `stoker tar cat`")
    lower = dest.lower()
    ending = next((kind for kind, endings in _ENDINGS.items() if lower.endswith(endings)), None)
    if ending is None or Path(dest).is_dir() or dest.endswith("/"):
        _check_folder(dest)
        kind = format or "tar"
        if Pattern(dest).single:
            return kind, os.path.join(dest, "data.mdb" if kind == "lmdb" else f"{{:06d}}{_ENDINGS[kind][0]}"), Path(dest)  # noqa: PTH118
        raise ConfigError(f"{dest}: the names of shards must end in .tar, .tfrecord or .lmdb")
    if format not in (None, ending):
        raise ConfigError(f"--format {format}, but {dest} is the name of a {ending}; choose one of the two")
    if ending == "lmdb" and not Pattern(dest).single:
        raise ConfigError(f"{dest}: an LMDB is one file; omit the number")
    return ending, dest, Path(dest).parent


def _check_folder(dest: str) -> None:
    """Refuse a new folder whose name ends as the name of a file does: that is more likely a file which cannot be written."""
    ending = _FILE_ENDING.search(dest)
    if ending and not Path(dest).is_dir():
        raise ConfigError(
            f"{dest}: {ending[0]} files cannot be written, only .tar, .tfrecord and .lmdb; if this is a folder, write {dest}/"
        )


def _most_bytes(given: str | None, format: str, max_samples: int | None) -> int | None:
    if format == "lmdb" and (given is not None or max_samples is not None):
        raise ConfigError("an LMDB is one file, however large; omit --max-bytes and --max-samples")
    if given is not None and given.lower() == "none":
        return None
    return parse_bytes(_MAX_BYTES if given is None else given, "--max-bytes")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: the folder cannot be made: {error.strerror}") from error

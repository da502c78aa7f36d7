"""`stoker tar first`: the first sample that matches."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Callable
from typing import Annotated

from ...errors import ConfigError, SourceEmpty
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ..screen import option
from .inputs import Shards, samples_of, shard_names
from .outputs import Output, Overwrite, archive, check_output
from .show_samples import print_table

Matches = Callable[[TarSample], bool]


def first(
    shards: Shards = None,
    key: Annotated[str | None, option("GLOB", "The key matches, for example `'n0144*/*'`.")] = None,
    field: Annotated[str | None, option("FIELD", "The sample has this field.", "-f", "--field")] = None,
    match: Annotated[str | None, option("REGEX", "The content of --field, or of any field, contains a match.")] = None,
    get: Annotated[str | None, option("FIELD", "Write only the bytes of this field, not an archive.")] = None,
    output: Output = "-",
    overwrite: Overwrite = False,
) -> None:
    """Find the first sample that matches, as an archive of one.

    At a terminal it is printed as text instead. All conditions must hold; without conditions the very first sample matches. `*`
    in a GLOB matches slashes too; a REGEX has Python's syntax and is searched in the bytes. The exit status is 1 if nothing
    matches.

    Example: `stoker tar first train-0000.tar -f cls --match '^304$' --get jpg > one.jpg`
    """
    matches = _condition(key, field, match)
    names = shard_names(shards)
    as_text = get is None and output == "-" and sys.stdout.isatty()
    if not as_text:
        check_output(output, overwrite, names)
    sample = next(filter(matches, samples_of(names)), None)
    if sample is None:
        raise SourceEmpty("no sample matches")
    if get is not None:
        _give_field(sample, get, output, overwrite)
    elif as_text:
        print_table([sample])
    else:
        with archive(output, overwrite) as out:
            out.write(sample)


def _condition(key: str | None, field: str | None, match: str | None) -> Matches:
    try:
        pattern = None if match is None else re.compile(os.fsencode(match))
    except re.error as error:
        raise ConfigError(f"--match {match!r} is not a regular expression: {error}") from error
    keys = None if key is None else re.compile(fnmatch.translate(key).encode("utf-8", "surrogateescape"))
    wanted = None if field is None else field.lower()

    def matches(sample: TarSample) -> bool:
        if keys is not None and not keys.match(sample.key):
            return False
        if wanted is not None and wanted not in sample.fields:
            return False
        if pattern is None:
            return True
        looked_at = sample.fields.values() if wanted is None else (sample.fields[wanted],)
        return any(pattern.search(data) for data in looked_at)

    return matches


def _give_field(sample: TarSample, field: str, output: str, overwrite: bool) -> None:
    from ...storage.atomic import AtomicFile

    if field.lower() not in sample.fields:
        raise SourceEmpty(f"the sample {printable(sample.key)} has no field {field!r}; it has {', '.join(sample.fields)}")
    data = sample.fields[field.lower()]
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with AtomicFile(output, overwrite=overwrite) as file:
        file.write(data)

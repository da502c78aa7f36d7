"""A worker process of `stoker map`: makes one shard from another, again and again."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..engine.task_notes import note
from ..errors import ConfigError, FunctionError, RecordError, StokerError, WriteError, message_of
from ..pack.jobs.notes import noted
from ..pack.writers.tar_writer import TarWriter
from ..sizes import a_type
from ..source.paths import printable
from ..source.shards.codecs import decode_field
from ..source.source import digest
from ..source.streams.tar_stream import TarSample, open_pieces, tar_samples
from ..storage.atomic import remove_unfinished
from ..storage.blob import Blob
from ..storage.names import spelled
from ..storage.open import open_blob
from .pipelines import load_named
from .tar.inputs import told

KEY = "__key__"
#: the entry of an index's `about` that says how a shard was made
NOTE = "map"
Function = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What is done to every shard; `code` identifies the function's code, as `load_function` returns it."""

    function: str
    code: str
    decode: bool = False
    overwrite: bool = False
    force: bool = False

    def record(self, blob: Blob) -> dict[str, Any]:
        """What an output's index says about how it was made."""
        module, _, name = self.function.rpartition(":")
        known_as = Path(module).stem if module.endswith(".py") else module
        return {
            "url": blob.url, "name": blob.name, "size": blob.stat().size, "version": blob.stat().version,
            "function": f"{known_as}:{name}", "code": self.code, "decode": self.decode,
        }  # fmt: skip


def load_function(name: str) -> tuple[Function, str]:
    """Import the module and take the function from it; also a hash of the code it is in."""
    module, module_name, attribute = load_named(name, "MODULE:FUNCTION", "resize")
    function = getattr(module, attribute, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        known = ", ".join(key for key in own if callable(vars(module)[key]) and not key.startswith("_"))
        raise ConfigError(f"{module_name} has no function {attribute!r}; it has {known or 'none'}")
    return function, _code_of(module, function)


def _code_of(module: ModuleType, function: Function) -> str:
    """A hash of the file a function is in, and of the one it was taken from. What these import is not looked at."""
    names = {getattr(module, "__file__", None)}
    with suppress(TypeError):  # it is of a class, or not written in Python
        names.add(inspect.getsourcefile(inspect.unwrap(function)))
    contents: set[bytes] = set()
    for name in filter(None, names):
        with suppress(OSError):  # a module in a zip file
            contents.add(Path(name).read_bytes())
    return digest("code", *sorted(contents))


@dataclass(frozen=True, slots=True)
class ShardMapper:
    """Makes one shard of another, as `job` says: the work of worker processes, whose tasks are an input and its output each."""

    job: Job

    def clean_up(self) -> None:
        remove_unfinished()

    def __call__(self, names: tuple[str, str], scratch: Any = None) -> dict[str, Any]:
        """What came of it, as plain data."""
        source, output = names
        blob = open_blob(source)
        record = self.job.record(blob)
        if os.path.lexists(output) and not self.job.force:
            differs = _differs(output, record)
            if not differs:
                return {"kept": True, "samples": 0, "written": 0, "dropped": 0, "bytes": 0}
            if not self.job.overwrite:
                raise WriteError(
                    f"{told(output)}: already exists, and {differs}; it was not changed: use another name, or --overwrite"
                )
        function = _loaded(self.job.function, self.job.code)
        samples = dropped = nbytes = 0
        # Its index appears first, so an output that is there has one, which says how it was made.
        with TarWriter(output, overwrite=self.job.overwrite or self.job.force, about={NOTE: record}) as writer:
            for samples, sample in enumerate(tar_samples(open_pieces(blob), blob.url), 1):
                nbytes += sample.nbytes
                note(samples, nbytes, sample.key)
                before = writer.samples
                for made in self._applied(function, sample, blob.url):
                    writer.write(made)
                dropped += writer.samples == before
        return {"kept": False, "samples": samples, "written": writer.samples, "dropped": dropped, "bytes": nbytes}

    def _applied(self, function: Function, sample: TarSample, url: str) -> Iterator[dict[str, Any]]:
        """The samples that the user's function makes of one; what it raises is told with the sample and the user's line."""
        key = printable(sample.key)
        where = f"{url}: the sample {key}"
        try:
            for made in _several(function(self._given(sample))):
                yield _checked(made, sample)
        except StokerError as error:
            raise RecordError(f"{where}: {error}", key=key, origin=url) from error
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            what = f"{type(error).__name__}: {message_of(error)} ({_line_of(error, function)})"
            raise FunctionError(f"{where}: {what}", key=key, origin=url) from error

    def _given(self, sample: TarSample) -> dict[str, Any]:
        fields = sample.fields
        values = {name: decode_field(name, data) for name, data in fields.items()} if self.job.decode else fields
        return {KEY: sample.key.decode("utf-8", "surrogateescape"), **values}


@lru_cache(maxsize=1)
def _loaded(name: str, code: str) -> Function:
    """The user's function, as it was when the command began."""
    function, found = load_function(name)
    if found != code:
        raise ConfigError(f"{name}: its code changed while the command ran; run the command again")
    return function


def _several(made: Any) -> Iterable[Any]:
    """What a function returned, as samples."""
    if made is None:
        return ()
    return (made,) if isinstance(made, Mapping) else made


def _checked(made: Any, sample: TarSample) -> dict[str, Any]:
    """A sample as it is written."""
    if not isinstance(made, Mapping):
        raise ConfigError(f"the function returned {a_type(made)}; return a dict, None, or a list or generator of dicts")
    fields = {spelled(name) if isinstance(name, str) else name: value for name, value in made.items()}
    return {KEY: sample.key, **fields}


def _line_of(error: BaseException, function: Function) -> str:
    """Where it went wrong: the last line within the file of the user's function, else the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(function, "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"{frame.filename}, line {frame.lineno}"


# ---- outputs ----------------------------------------------------------------------------------------------------------------


#: what it means that an entry of the record differs
_NAMES = {
    "name": "was made from another input",
    "size": "its input has changed since",
    "version": "its input has changed since",
    "function": "was made by another function",
    "code": "was made by other code: the function's file has changed since",
    "decode": "was made with another --decode",
}


def _differs(output: str, record: dict[str, Any]) -> str:
    """How an output that is there differs from the one that would be made; "" when it does not."""
    found = noted(output, NOTE)
    if found is None:
        return "has no index that says how this command made it"
    made, _ = found
    wrong = [name for name, value in record.items() if made.get(name) != value and name != "url"]
    return _NAMES[wrong[0]] if wrong else ""

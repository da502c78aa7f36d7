"""`stoker map`: a Python function over every sample of many shards, in processes, a shard at a time."""

from __future__ import annotations

import json as json_text
import os
import queue
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from ..engine.resources import usable_cores
from ..errors import ConfigError, CorruptIndex, FunctionError, RecordError, StokerError, WriteError
from ..pack.atomic import AtomicFile, sweep, sync_folder
from ..pack.tar import TarWriter
from ..source.codecs import decode_field
from ..source.index import SUFFIX, ShardIndex
from ..source.paths import printable
from ..source.shards import expand
from ..source.tarstream import TarSample, open_pieces, tar_samples
from ..storage.open import open_blob
from ..units import counted
from .guard import DATA
from .pipelines import _asked, _load_module
from .screen import AsJson, check_writable, print_json, tell
from .tar.inputs import ENDINGS
from .tar.meter import Meter, Progress
from .tar.outputs import spelled

KEY = "__key__"
Function = Callable[[dict[str, Any]], Any]

#: how often a shard is tried when its worker dies, how long workers may take to stop, and how often the parent looks at them
_TRIES, _STOP_S, _LOOK_S = 2, 3.0, 0.2
_WILD = "*?[{"
_WILD_ENDS = "*?]}"


def map_(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="`my_module:resize` or `path/to/file.py:resize`.", show_default=False)
    ],
    shards: Annotated[
        str, typer.Argument(metavar="IN", help="Shards, as in `in-{0000..0999}.tar`; also URLs and globs.", show_default=False)
    ],
    outputs: Annotated[str, typer.Argument(metavar="OUT", help="Their results, as in `out-{}.tar`.", show_default=False)],
    jobs: Annotated[
        int | None,
        typer.Option("-j", "--jobs", min=1, metavar="N", help="Shards at once.", show_default="the cores of this machine"),
    ] = None,
    on: Annotated[str, typer.Option(metavar="local", help="Where the processes run.")] = "local",
    decode: Annotated[bool, typer.Option("--decode", help="Decode fields by their extension (cls, json, txt, npy).")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds that a sample may take.")] = 3600.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace outputs that were made otherwise.")] = False,
    progress: Progress = None,
    json: AsJson = False,
) -> None:
    """Map a Python function over the samples of many shards, each to a shard of its own.

    The function gets a sample as a dict, bytes by field and the key as `__key__`, and returns the new sample; or None, and it is
    left out; or several, as a list or a generator. Without a `__key__` the new sample keeps the old one's. Values are bytes, or
    what the field's extension says: a number for `cls`, and so on.

    `{}` in OUT is what the braces, or the stars, of IN stood for, so `out-0007.tar` is made of `in-0007.tar`. Each output appears
    whole, with its index, or not at all. The index says which input and function made it: run again, the command does only what
    is missing. A shard that fails is reported with the sample's key and your line, the rest go on, and the exit status is 1.

    Example: `stoker map resize.py:small 'photos-{0000..0147}.tar' 'small-{}.tar' -j 8`
    """
    if on != "local":
        known = "is not in this version" if on == "ray" else "is not known"
        raise ConfigError(f"--on {on} {known}; --on local runs processes on this machine")
    load_function(function)  # what is wrong with it is told once, before anything starts
    tasks = [Task(number, *pair) for number, pair in enumerate(pair_up(shards, outputs))]
    for folder in {Path(task.output).parent: task.output for task in tasks}.values():
        check_writable(Path(folder))
    many = min(jobs or usable_cores(), len(tasks))
    with Meter("map", progress, text_out=True) as meter:
        result = Run(Job(function, decode, overwrite), tasks, many, timeout).done(meter)
    for text in result.failures:
        typer.echo(text, err=True)
    if json:
        print_json(result.facts())
    else:
        tell(result.told())
    if result.failures:
        raise typer.Exit(DATA)


def pair_up(shards: str, outputs: str) -> list[tuple[str, str]]:
    """Inputs and the outputs that belong to them."""
    names = expand(shards, "map", ENDINGS)
    if "-" in names:
        raise ConfigError("map reads shards, not standard input; `stoker tar proc` works on a pipe")
    if outputs.count("{}") > 1 or ("{}" not in outputs and len(names) > 1):
        raise ConfigError(f"{outputs}: write {{}} once, where the outputs' names differ, as in out-{{}}.tar")
    made = [outputs.replace("{}", part) for part in _varied(shards, names)] if "{}" in outputs else [outputs]
    if "://" in outputs or not outputs.endswith(".tar"):
        raise ConfigError(f"{outputs}: outputs are files on this machine whose names end in .tar; copy them elsewhere afterwards")
    inputs = {os.path.realpath(name) for name in names}
    for name in made:
        if os.path.realpath(name) in inputs:
            raise ConfigError(f"{name} is an input and an output; give the outputs another name")
    if len(set(made)) < len(made):
        raise ConfigError(f"{outputs}: several inputs would have the same output; they are listed twice in {shards}")
    return list(zip(names, made))


def _varied(spec: str, names: list[str]) -> list[str]:
    """What of each name the spec left open: from its first brace or star to its last."""
    first = next((at for at, letter in enumerate(spec) if letter in _WILD), None)
    if first is None or names == [spec]:
        raise ConfigError(
            f"{spec}: has no braces or stars for {{}} to take from; write both, as in in-{{0000..0999}}.tar out-{{}}.tar"
        )
    last = max(at for at, letter in enumerate(spec) if letter in _WILD_ENDS)
    before, behind = spec[:first], spec[last + 1 :]
    parts = []
    for name in names:
        if not name.startswith(before) or not name.endswith(behind):
            raise ConfigError(
                f"{name}: does not begin with {before!r} and end with {behind!r}, so there is nothing to put for {{}}"
            )
        part = name[len(before) : len(name) - len(behind)]
        if "/" in part:
            raise ConfigError(f"{name}: {{}} would be {part!r}, which leads to another folder; map one folder at a time")
        parts.append(part)
    return parts


def load_function(name: str) -> Function:
    """Import the module and take the function from it."""
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{name}: write MODULE:FUNCTION, as in my_module:resize or path/to/file.py:resize")
    module = _asked(f"importing {module_name}", lambda: _load_module(module_name))
    function = getattr(module, attribute, None)
    if not callable(function):
        known = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise ConfigError(f"{module_name} has no function {attribute!r}; it has {known or 'none'}")
    return function  # type: ignore[no-any-return]


# ---- what is to be done, and what came of it --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """What is done to every shard."""

    function: str
    decode: bool
    overwrite: bool

    def record(self, url: str, size: int, version: str) -> dict[str, Any]:
        """What an output's index says about how it was made."""
        module, _, name = self.function.rpartition(":")
        known_as = Path(module).stem if module.endswith(".py") else module
        return {"input": url, "size": size, "version": version, "function": f"{known_as}:{name}", "decode": self.decode}


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to make of another."""

    number: int
    input: str
    output: str


@dataclass(slots=True)
class Result:
    """What came of all tasks."""

    shards: int = 0
    made: int = 0
    kept: int = 0
    samples: int = 0
    written: int = 0
    dropped: int = 0
    bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, told: Mapping[str, Any]) -> None:
        """One task's outcome, as its worker tells it."""
        if "failed" in told:
            self.failures.append(told["failed"])
            return
        self.kept += told["kept"]
        self.made += not told["kept"]
        for name in ("samples", "written", "dropped", "bytes"):
            setattr(self, name, getattr(self, name) + told[name])

    def facts(self) -> dict[str, Any]:
        names = ("shards", "made", "kept", "samples", "written", "dropped", "failures")
        return {name: getattr(self, name) for name in names}

    def told(self) -> str:
        kept = f", {self.kept:,} were made before" if self.kept else ""
        dropped = f", {self.dropped:,} left out" if self.dropped else ""
        failed = f"; {counted(len(self.failures), 'shard')} failed" if self.failures else ""
        samples = f"{counted(self.samples, 'sample')} in, {self.written:,} out{dropped}"
        return f"{self.made:,} of {counted(self.shards, 'shard')} made{kept}: {samples}{failed}"


# ---- the parent -------------------------------------------------------------------------------------------------------------


class Run:
    """Hands tasks to workers and gathers what they tell. One that dies, however it does, is replaced and its task tried again."""

    def __init__(self, job: Job, tasks: list[Task], workers: int, timeout_s: float) -> None:
        self._job, self._timeout_s, self._many = job, timeout_s, workers
        self._waiting = deque(tasks)
        self._tries = dict.fromkeys((task.number for task in tasks), 0)
        self._workers: list[_Worker] = []
        self._result = Result(shards=len(tasks))
        self._folders = {_folder_of(task.output) for task in tasks}

    def done(self, meter: Meter) -> Result:
        """All outcomes. When this is interrupted, workers give up what they have begun; whole outputs stay."""
        try:
            self._start()
            while self._workers:
                self._look(meter)
        finally:
            self._stop()
        self._result.failures.sort()
        return self._result

    def _start(self) -> None:
        """As many workers as there is work for."""
        while self._waiting and len(self._workers) < self._many:
            worker = _Worker(self._job)
            self._workers.append(worker)
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        if self._waiting:
            task = self._waiting.popleft()
            self._tries[task.number] += 1
            worker.give(task)
        else:
            self._workers.remove(worker)
            worker.end(time.monotonic() + _STOP_S)

    def _look(self, meter: Meter) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select(_LOOK_S)]
        for worker in ready:
            told = worker.hear()
            if told is None:
                self._died(worker, worker.cause())
            elif told:
                self._result.add(told)
                self._give(worker)
        for worker in list(self._workers):
            if worker.idle_s() > self._timeout_s:
                worker.kill()
                self._died(worker, f"its worker finished no sample for {self._timeout_s:g} s (--timeout), and was stopped")
        self._tell(meter)

    def _died(self, worker: _Worker, cause: str) -> None:
        self._workers.remove(worker)
        task, key = worker.task, worker.status.key()
        worker.kill()
        assert task is not None
        if self._tries[task.number] < _TRIES:
            self._waiting.appendleft(task)
        else:
            at = f" at the sample {printable(key)}" if key else ""
            self._result.add({"failed": f"{_shown(task.input)}: {cause}{at}; it was tried {_TRIES} times"})
        self._start()

    def _tell(self, meter: Meter) -> None:
        finished = self._result.made + self._result.kept + len(self._result.failures)
        meter.note = f"{finished:,} of {counted(self._result.shards, 'shard')}"
        counts = [worker.status.counts() for worker in self._workers]
        meter.samples = self._result.samples + sum(samples for samples, _ in counts)
        meter.bytes = self._result.bytes + sum(nbytes for _, nbytes in counts)
        meter.tick()

    def _stop(self) -> None:
        """Let go of all workers: they give up what they do; those that do not, in time, are killed."""
        deadline = time.monotonic() + _STOP_S
        for worker in self._workers:
            worker.release()
        try:
            for worker in self._workers:
                worker.end(deadline)
        finally:
            for worker in self._workers:
                worker.kill()
            self._workers = []
            for folder in self._folders:
                sweep(folder, 0)  # what a worker that had to be killed left


_STATUS = struct.Struct("<qqI")
_KEY_BYTES = 1024


class Status:
    """Where a worker is, in a file without a name that both processes have open: it can still be read when the worker is dead."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def fileno(self) -> int:
        return self._file.fileno()

    def put(self, samples: int, nbytes: int, key: bytes) -> None:
        os.pwrite(self._file.fileno(), _STATUS.pack(samples, nbytes, min(len(key), _KEY_BYTES)) + key[:_KEY_BYTES], 0)

    def counts(self) -> tuple[int, int]:
        samples, nbytes, _ = self._read()[0]
        return samples, nbytes

    def key(self) -> bytes:
        """The sample it is at."""
        head, key = self._read()
        return key[: head[2]]

    def close(self) -> None:
        self._file.close()

    def _read(self) -> tuple[tuple[int, int, int], bytes]:
        data = os.pread(self._file.fileno(), _STATUS.size + _KEY_BYTES, 0)
        return (_STATUS.unpack_from(data), data[_STATUS.size :]) if len(data) >= _STATUS.size else ((0, 0, 0), b"")


#: finds what the parent found, wherever that was
_PROGRAM = """
import json, sys
words = json.loads(sys.argv[1])
sys.path[:] = words[0]
from stoker.cli.map import work
work(*words[1:])
"""


class _Worker:
    """A worker process, seen from the parent. Its tasks go down one pipe and its answers come up another, as lines of JSON.

    The pipe of tasks is also its lifeline: when it closes, because the parent says so or is dead, the worker gives up and ends.
    """

    def __init__(self, job: Job) -> None:
        self.status = Status(tempfile.TemporaryFile(prefix="stoker-map-", buffering=0))  # noqa: SIM115  closed with the worker
        tasks, self._tasks = os.pipe()
        self.answers, answers = os.pipe()
        words = json_text.dumps([sys.path, job.function, job.decode, job.overwrite, tasks, answers, self.status.fileno()])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, words],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what the user's function prints is no result of this command
                pass_fds=(tasks, answers, self.status.fileno()),
                start_new_session=True,  # Ctrl-C is for the parent to decide on
            )
        finally:
            os.close(tasks)
            os.close(answers)
        self.task: Task | None = None
        self._heard = b""
        self._since, self._at = time.monotonic(), (-1, -1)

    def give(self, task: Task) -> None:
        self.task = task
        self._since = time.monotonic()
        with suppress(BrokenPipeError):  # it is dead: that is heard soon enough
            os.write(self._tasks, json_text.dumps([task.input, task.output]).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """What it tells of its task; {} when that is not complete yet, None when it has died."""
        data = os.read(self.answers, 1 << 16)
        self._heard += data
        line, newline, rest = self._heard.partition(b"\n")
        if not newline:
            return {} if data else None
        self._heard = rest
        told: dict[str, Any] = json_text.loads(line)
        self.task = None
        return told

    def idle_s(self) -> float:
        """For how long it has finished no sample."""
        at = self.status.counts()
        if at != self._at or self.task is None:
            self._at, self._since = at, time.monotonic()
        return time.monotonic() - self._since

    def cause(self) -> str:
        """Why it is dead."""
        try:
            status = self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            return "its worker closed its pipes"
        if status < 0:
            hint = " (out of memory?)" if status == -signal.SIGKILL else ""
            return f"its worker was killed by signal {-status}{hint}"
        return f"its worker ended in the middle, with status {status}"

    def release(self) -> None:
        """Close the lifeline."""
        if self._tasks >= 0:
            os.close(self._tasks)
            self._tasks = -1

    def end(self, deadline: float) -> None:
        """Let it end by itself, until the deadline."""
        self.release()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """End it now, with all it started, and let go of everything."""
        self.release()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self.answers >= 0:
            os.close(self.answers)
            self.answers = -1
            self.status.close()


# ---- the worker -------------------------------------------------------------------------------------------------------------


def work(function: str, decode: bool, overwrite: bool, tasks: int, answers: int, status: int) -> None:
    """The life of a worker: does what it is told until nobody tells it any more."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, lines), name="stoker-lifeline", daemon=True).start()
    mapper = _Mapper(Job(function, decode, overwrite), Status(os.fdopen(status, "r+b", buffering=0)))
    try:
        while (line := lines.get()) is not None:
            told = mapper.outcome(*json_text.loads(line))
            os.write(answers, json_text.dumps(told).encode() + b"\n")
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)  # the shard in the making is given up; the interpreter's own end could wait for threads of the user


def _listen(tasks: int, lines: queue.SimpleQueue[bytes | None]) -> None:
    """Pass tasks on. When their pipe closes, whoever gave them is gone, or wants no more: interrupt what runs."""
    with os.fdopen(tasks, "rb", buffering=0) as stream:
        for line in stream:
            lines.put(line)
    lines.put(None)
    time.sleep(0.2)  # one that waits for tasks ends by itself
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # to the thread itself: it may sleep in a system call
    time.sleep(_STOP_S)
    os._exit(1)


class _Mapper:
    """Makes one shard of another."""

    def __init__(self, job: Job, status: Status) -> None:
        self._job, self._status = job, status
        self._function: Function | None = None

    def outcome(self, source: str, output: str) -> dict[str, Any]:
        """What came of it, as plain data."""
        try:
            return self._map(source, output)
        except StokerError as error:
            return {"failed": f"{_shown(source)}: {error}" if _shown(source) not in str(error) else str(error)}
        except OSError as error:
            return {"failed": f"{_shown(source)}: {error}"}

    def _map(self, source: str, output: str) -> dict[str, Any]:
        blob = open_blob(source)
        about = blob.stat()
        record = self._job.record(blob.url, about.size, about.version)
        if os.path.lexists(output):
            differs = _differs(output, record)
            if not differs:
                return {"kept": True, "samples": 0, "written": 0, "dropped": 0, "bytes": 0}
            if not self._job.overwrite:
                raise WriteError(
                    f"{_shown(output)}: is there already, and {differs}; it is left as it is: give another name, or --overwrite"
                )
        self._function = self._function or load_function(self._job.function)
        part = _part_of(output)
        samples = dropped = nbytes = 0
        with TarWriter(part, overwrite=True) as writer:
            for samples, sample in enumerate(tar_samples(open_pieces(blob), blob.url), 1):
                nbytes += sum(map(len, sample.fields.values()))
                self._status.put(samples, nbytes, sample.key)
                before = writer.samples
                for made in self._applied(self._function, sample, blob.url):
                    writer.write(made)
                dropped += writer.samples == before
        self._status.put(0, 0, b"")
        _publish(part, output, record, self._job.overwrite)
        return {"kept": False, "samples": samples, "written": writer.samples, "dropped": dropped, "bytes": nbytes}

    def _applied(self, function: Function, sample: TarSample, url: str) -> Iterator[dict[str, Any]]:
        """The samples that the user's function makes of one; what it raises is told with the sample and the user's line."""
        key = printable(sample.key)
        told = f"{url}: the sample {key}"
        try:
            for made in _several(function(self._given(sample))):
                yield _checked(made, sample)
        except (StokerError, GeneratorExit) as error:
            if isinstance(error, StokerError):
                raise RecordError(f"{told}: {error}", key=key, origin=url) from error
            raise
        except (Exception, SystemExit) as error:
            raise FunctionError(
                f"{told}: {type(error).__name__}: {error} ({_line_of(error, function)})", key=key, origin=url
            ) from error

    def _given(self, sample: TarSample) -> dict[str, Any]:
        fields = sample.fields
        values = {name: decode_field(name, data) for name, data in fields.items()} if self._job.decode else fields
        return {KEY: sample.key.decode("utf-8", "surrogateescape"), **values}


def _several(made: Any) -> Iterable[Any]:
    """What a function returned, as samples."""
    if made is None:
        return ()
    return (made,) if isinstance(made, Mapping) else made


def _checked(made: Any, sample: TarSample) -> dict[str, Any]:
    """A sample as it is written."""
    if not isinstance(made, Mapping):
        raise ConfigError(f"the function gave a {type(made).__name__}; return a dict, None, or a list or generator of dicts")
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


def _part_of(output: str) -> str:
    path = Path(output)
    return str(path.with_name(f".{path.name}.map"))


def _folder_of(path: str) -> bytes:
    return os.fsencode(Path(path).absolute().parent)


def _publish(part: str, output: str, record: dict[str, Any], overwrite: bool) -> None:
    """Make an output appear, its index first: so an output that is there has an index that says how it was made.

    An index whose shard never came, because we were killed in between, is replaced by the next try.
    """
    beside = Path(part + SUFFIX)
    try:
        index = ShardIndex.from_bytes(beside.read_bytes(), str(beside))
        if overwrite:
            Path(output).unlink(missing_ok=True)  # first: the new index must never lie beside the old shard
        with AtomicFile(output + SUFFIX, overwrite=True) as file:
            file.write(replace(index, about={**index.about, "map": record}).to_bytes())
        if os.path.lexists(output):
            raise WriteError(f"{_shown(output)}: somebody else made it meanwhile; it is left as it is")
        Path(part).rename(output)
        sync_folder(_folder_of(output))
    finally:
        for path in (Path(part), beside):
            path.unlink(missing_ok=True)


def _differs(output: str, record: dict[str, Any]) -> str:
    """How an output that is there differs from the one that would be made; "" when it does not."""
    beside = Path(output + SUFFIX)
    try:
        index = ShardIndex.from_bytes(beside.read_bytes(), str(beside))
        size = Path(output).stat().st_size
    except (OSError, CorruptIndex):
        return "it has no index that would say how it was made"
    made = index.about.get("map")
    if not isinstance(made, dict):
        return "it was not made by this command"
    if index.size != size:
        return f"it has {size:,} bytes and should have {index.size:,}"
    wrong = [name for name, value in record.items() if made.get(name) != value]
    return f"its {wrong[0]} was {made.get(wrong[0])!r} and is {record[wrong[0]]!r} now" if wrong else ""


def _shown(name: str) -> str:
    return printable(os.fsencode(name))

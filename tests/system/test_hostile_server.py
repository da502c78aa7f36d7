"""Servers that misbehave on purpose: whatever they do, reading ends in time, with the right samples or with the URL named.

Each behaviour (`hostile_cases.py`) is a server of its own (`hostile.py`), read through the public functions, all of them at once.
Where the end is that we give up, our patience is short. Every other end comes by itself, however slow the machine is, so there
it is long. A client that has not ended after `DEADLINE_S` never would.

URLs have a password and a signature. Neither may be found in an error, in its traceback, or in the log.
"""

from __future__ import annotations

import base64
import gc
import gzip
import logging
import resource
import ssl
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stoker

from ..storage.conftest import open_files
from ..storage.tls import self_signed
from .hostile import Behaviour, Hostile, Peer, Request
from .hostile_cases import CASES, SAMPLES, SECRET, SHARD

#: how long any of them may take, from the start of all
DEADLINE_S = 60.0
#: for servers that tire us out
HASTY = stoker.Patience(
    connect_s=2, silence_s=1, least_bytes_per_s=4000, rate_window_s=1, first_delay_s=0.1, longest_delay_s=0.5,
    longest_retry_after_s=0.5, budget_s=4,
)  # fmt: skip
#: for all others: a busy machine may take its time
PATIENT = stoker.Patience(
    connect_s=50, silence_s=50, rate_window_s=50, first_delay_s=0.01, longest_delay_s=0.02, longest_retry_after_s=0.02,
    budget_s=50,
)  # fmt: skip
LOGIN = base64.b64encode(f"reader:{SECRET}".encode()).decode()


# ---- clients -----------------------------------------------------------------------------------------------------------------


def samples_of(pipeline: stoker.Pipeline, memory: str = "2GB") -> dict[str, bytes]:
    with pipeline.batch(1).loader(executor="inline", memory=memory) as loader:
        return {key: bytes(data) for batch in loader for key, data in zip(batch["txt"], batch["bin"])}


def read_tar(url: str, patience: stoker.Patience, **options: Any) -> dict[str, bytes]:
    return samples_of(stoker.tar(url, patience=patience, **options))


def read_in_sequence(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    return read_tar(url, patience, index="never")


def read_tfrecord(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    return samples_of(stoker.tfrecord(url, {"txt": str, "bin": bytes}, patience=patience))


def read_one_by_one(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    """With too little memory to read blocks ahead, which may be the whole of a small file."""
    if url.partition("?")[0].endswith("tar"):
        return samples_of(stoker.tar(url, patience=patience), "8MB")
    return samples_of(stoker.tfrecord(url, {"txt": str, "bin": bytes}, patience=patience), "8MB")


def read_through_a_cache(url: str, patience: stoker.Patience) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder, closing(stoker.Cache(folder, limit="10MB")) as cache:
        return read_tar(url, patience, cache=cache)


#: ending of the URL, and who reads it
CLIENTS: dict[str, tuple[str, Callable[[str, stoker.Patience], dict[str, bytes]]]] = {
    "tar": ("tar", read_tar),
    "sequence": ("tar", read_in_sequence),
    "gzip": ("tar.gz", read_tar),
    "cache": ("tar", read_through_a_cache),
    "tfrecord": ("tfrecord", read_tfrecord),
    "tar records": ("tar", read_one_by_one),
    "tfrecord records": ("tfrecord", read_one_by_one),
}


# ---- all of them at once -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How reading ended. Of an error there is what it says and where it was raised: itself, it would keep connections open."""

    samples: dict[str, bytes] | None = None
    error: type[BaseException] | None = None
    message: str = ""
    raised: traceback.TracebackException | None = None

    @property
    def trace(self) -> str:
        """What the interpreter would print. Made by one thread: in some Pythons formatting in several at once fails."""
        return "the samples" if self.raised is None else "".join(self.raised.format())


@dataclass
class Run:
    """All behaviours, under way."""

    hostile: Hostile
    before: dict[str, Any]
    deadline: float
    ports: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, Future[Outcome]] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def outcome(self, name: str) -> Outcome:
        return self.outcomes[name].result(max(0, self.deadline - time.monotonic()))

    def asked(self, name: str) -> list[Request]:
        return self.hostile.requests[self.ports[name]]

    def wait_for_all(self) -> None:
        for name in CASES:
            self.outcome(name)


def outcome_of(read: Callable[[], dict[str, bytes]]) -> Outcome:
    try:
        return Outcome(read())
    except BaseException as error:
        return Outcome(None, type(error), str(error), traceback.TracebackException.from_exception(error))


class Listing(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the servers have, by the ending of its name."""
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    stoker.write_tfrecord(path, ({"txt": key, "bin": data} for key, data in SAMPLES.items()))
    return {"tar": SHARD, "tar.gz": gzip.compress(SHARD), "tfrecord": path.read_bytes()}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tls")
    return {name: self_signed(folder / f"{name}.pem") for name in ("trusted", "of a stranger")}


def secured(behave: Behaviour, certificate: Path) -> Behaviour:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def encrypted(peer: Peer) -> None:
        peer.encrypt(context)
        behave(peer)

    return encrypted


@pytest.fixture(scope="module")
def running(contents: dict[str, bytes], certificates: dict[str, Path]) -> Iterator[Run]:
    """All servers, and a client of each, started; the tests wait for what they need."""
    gc.collect()
    before = {"files": len(open_files()), "threads": set(threading.enumerate()), "memory": memory_peak()}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", str(certificates["trusted"]))
        run = Run(Hostile(), before, time.monotonic() + DEADLINE_S)
        log, listing = logging.getLogger("stoker"), Listing(run.log)
        log.addHandler(listing)
        stack.callback(log.removeHandler, listing)
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.DEBUG)
        for name, case in CASES.items():
            behave = case.behave if case.certificate is None else secured(case.behave, certificates[case.certificate])
            run.ports[name] = run.hostile.listen(behave, contents[CLIENTS[case.client][0]])
        stack.enter_context(run.hostile)
        for name in CASES:
            start(run, name)
        yield run


def start(run: Run, name: str) -> None:
    """Read from a server in a thread, which may hang without keeping this process."""
    case, future = CASES[name], Future[Outcome]()
    run.outcomes[name] = future
    url = plain_url(run, name).replace("://", f"://reader:{SECRET}@") + f"?signature={SECRET}"
    read = partial(CLIENTS[case.client][1], url, HASTY if case.tiring else PATIENT)
    thread = threading.Thread(target=lambda: future.set_result(outcome_of(read)), daemon=True)
    run.threads.append(thread)
    thread.start()


def plain_url(run: Run, name: str) -> str:
    """The URL as errors name it."""
    case = CASES[name]
    return f"{case.scheme}://127.0.0.1:{run.ports[name]}/shard.{CLIENTS[case.client][0]}"


def memory_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("name", CASES)
def test_whatever_a_server_does_reading_ends_with_the_samples_or_names_the_url(running: Run, name: str) -> None:
    ends = CASES[name].ends
    outcome = running.outcome(name)
    if ends is None:
        assert outcome.error is None, outcome.trace
        assert outcome.samples == SAMPLES
        return
    assert outcome.error is not None and issubclass(outcome.error, ends), outcome.trace
    assert plain_url(running, name) in outcome.message
    assert outcome.message.isprintable()
    assert SECRET not in outcome.trace and LOGIN not in outcome.trace


def test_nothing_a_server_says_brings_a_secret_into_the_log(running: Run) -> None:
    running.wait_for_all()
    assert running.log, "attempts are logged"
    assert [line for line in running.log if SECRET in line or LOGIN in line or not line.isprintable()] == []


def test_a_server_that_cuts_every_answer_is_asked_a_few_times(running: Run) -> None:
    name = "no ranges and every answer cut at 70000 bytes"
    running.outcome(name)
    # Two budgets, one before any byte came and one after, of pauses that are soon half of `longest_delay_s` at least.
    most = 2 * (3 + HASTY.budget_s / (HASTY.longest_delay_s / 2))
    assert len([request for request in running.asked(name) if request.is_for_bytes]) <= most


def test_name_and_password_do_not_follow_a_redirect_to_another_host(running: Run) -> None:
    name = "a redirect to another host"
    running.outcome(name)
    sent = {(request.headers["host"].partition(":")[0], "authorization" in request.headers) for request in running.asked(name)}
    assert sent == {("127.0.0.1", True), ("localhost", False)}


def test_after_all_of_it_no_thread_no_connection_and_no_memory_is_left(running: Run) -> None:
    running.wait_for_all()
    running.hostile.stop()
    assert running.hostile.mistakes == []
    for thread in running.threads:
        thread.join(10)
    gc.collect()
    assert set(threading.enumerate()) <= running.before["threads"]
    assert len(open_files()) <= running.before["files"], open_files()
    assert memory_peak() - running.before["memory"] < 1 << 30

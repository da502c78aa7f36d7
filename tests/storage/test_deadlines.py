"""Servers that never come to an end: whatever part of an answer they drip, asking them does."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from stoker.errors import RemoteError
from stoker.storage import connections
from stoker.storage.http import HttpRemote
from stoker.storage.origin import Origin
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from .conftest import read_url as read
from .conftest import secure_server
from .server import Act, Forever, Redirect, Server, Silence, Status

pytestmark = pytest.mark.usefixtures("nothing_is_left_open")
DATA = random.Random(4).randbytes(100_000)
#: for servers from which nothing good will come
SHORT = Patience(connect_s=0.5, silence_s=0.2, rate_window_s=0.2, first_delay_s=0.01, longest_delay_s=0.02, budget_s=0.5)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"

#: what a server sends for ever, and what becomes of it
ENDLESS: dict[str, tuple[Act, str]] = {
    "status line": (Forever(b"HTTP/1.1 200 ", b"O"), "nothing came in time"),
    "a header": (Forever(OK + b"X: ", b"x"), "nothing came in time"),
    "headers": (Forever(OK, b"X: y\r\n"), "nothing came in time"),
    "headers, fast": (Forever(OK, b"X: " + b"y" * 9000 + b"\r\n", 0), "a line of it has no end"),
    "a header, fast": (Forever(OK + b"X: ", b"y" * 9000, 0), "a line of it has no end"),
    "100 Continue": (Forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0), "more than 5 times"),
    "100 Continue, slowly": (Forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.15), "nothing came in time"),
    "line of a chunk": (Forever(OK + CHUNKS + b"1;", b"x", heads=False), "nothing came in time"),
    "line of a chunk, fast": (Forever(OK + CHUNKS + b"1;", b"x" * 9000, 0, heads=False), "a line of it has no end"),
    "chunks of a byte": (Forever(OK + CHUNKS, b"1\r\nx\r\n", 0.02, heads=False), "bytes came in"),
    "bytes": (Forever(OK + b"Content-Length: 100000\r\n\r\n", b"x", 0.02, heads=False), "bytes came in"),
    "body of a 500": (Forever(b"HTTP/1.1 500 No\r\nContent-Length: 4000\r\n\r\n", b"x"), "HTTP 500"),
}  # fmt: skip


def ending(work: Callable[[], object]) -> Callable[[], object]:
    """Have work done by a thread; gives what waits for its outcome, and fails when there is none."""
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(work())
        except Exception as error:
            outcomes.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def outcome() -> object:
        thread.join(30)
        assert outcomes, "it never ends"
        return outcomes[0]

    return outcome


def test_whatever_a_server_drips_asking_it_ends_with_the_url(server: Server) -> None:
    waiting = {}
    for number, (name, (act, _)) in enumerate(ENDLESS.items()):
        url = server.put(f"/{number}.tar", DATA)
        server.always(f"/{number}.tar", act)
        waiting[name] = url, ending(lambda url=url: read(url, SHORT))
    outcomes = {name: (url, outcome()) for name, (url, outcome) in waiting.items()}
    for name, (url, error) in outcomes.items():
        assert isinstance(error, RemoteError) and str(error).startswith(f"{url}: "), (name, error)
        # On a busy machine the budget may end in another attempt before anything came at all.
        assert ENDLESS[name][1] in str(error) or "nothing came in time" in str(error), (name, error)


def test_what_is_not_wanted_is_not_waited_for(server: Server, quick: Patience) -> None:
    there, gone, moved = server.put("/there", DATA), server.put("/gone", DATA), server.put("/moved", DATA)
    dripping = b"Content-Length: 4000\r\n\r\n"
    server.always("/gone", Forever(b"HTTP/1.1 404 Not Found\r\n" + dripping, b"x", heads=False))
    server.always("/moved", Forever(b"HTTP/1.1 302 Found\r\nLocation: /there\r\n" + dripping, b"x", heads=False))
    waiting = [ending(lambda url=url: read(url, quick)) for url in (there, moved, gone)]
    outcomes = [outcome() for outcome in waiting]
    assert outcomes[:2] == [DATA, DATA]
    assert isinstance(outcomes[2], RemoteError) and outcomes[2].status == 404


def test_the_end_of_chunks_is_not_waited_for_once_all_bytes_are_there(server: Server, quick: Patience) -> None:
    url = server.put("/a", DATA)
    chunk = b"%x\r\n%s\r\n0\r\nX: " % (len(DATA), DATA)
    server.always("/a", Forever(OK + CHUNKS + chunk, b"x", heads=False))
    assert ending(lambda: read(url, quick))() == DATA


def test_five_interim_answers_are_passed_over(server: Server, quick: Patience) -> None:
    url = server.put("/a", DATA)
    begin = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 5 + OK + b"Content-Length: %d\r\n\r\n" % len(DATA) + DATA
    server.always("/a", Forever(begin, b"", heads=False))
    assert read(url, quick) == DATA


def test_redirects_share_the_time_of_one_attempt(server: Server) -> None:
    """Each of six servers may be silent for nearly as long as one may; in all it is no longer than one."""
    for number in range(5):
        server.put(f"/{number}", b"")
        server.always(f"/{number}", Redirect(f"/{number + 1}"))
    server.put("/5", b"")
    server.always("/5", Silence())
    remote, began = HttpRemote(server.origin + "/0"), time.monotonic()
    seen: list[float] = []
    asked = remote._ask_one
    remote._ask_one = lambda *args: seen.append(args[4]) or asked(*args)  # type: ignore[method-assign, func-returns-value]
    error = ending(lambda: RemoteBlob(remote, SHORT).stat())()
    assert isinstance(error, RemoteError) and "nothing came in time" in str(error)
    first = seen[:6]
    assert len(set(first)) == 1 and first[0] - began >= 0.5


def test_the_addresses_of_a_host_share_the_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [entry] * 4)
    timeouts: list[float] = []

    def silent(connecting: socket.socket, address: object, timeout_s: float) -> socket.socket:
        connecting.close()
        timeouts.append(timeout_s)
        raise TimeoutError

    monkeypatch.setattr(connections, "_connected_to", silent)
    for given, expected in ((1000, (250, 334, 500, 1000)), (8, (3.5, 3.5, 4, 8)), (3, (3, 3, 3, 3))):
        timeouts.clear()
        with pytest.raises(TimeoutError):
            connections.Connections(Origin("http", "h", 80), None).connect(time.monotonic() + given)
        assert len(timeouts) == 4 and all(most * 0.7 < got <= most for got, most in zip(timeouts, expected)), timeouts


def test_a_handshake_that_does_not_come_ends(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and says nothing
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/a"
        error = ending(lambda: read(url, replace(SHORT, connect_s=0.2, silence_s=300)))()
    assert isinstance(error, RemoteError) and str(error).startswith(url) and "nothing came in time" in str(error)


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_an_answer_is_waited_for_as_long_as_the_budget_lasts(method: str, server: Server) -> None:
    """Once something failed; for the first attempt there is all the time that one answer may take."""
    blob = RemoteBlob(HttpRemote(server.put("/a", DATA)), replace(SHORT, connect_s=300, silence_s=300, budget_s=1))
    if method == "GET":
        blob.stat()
    server.script("/a", Status(503), *[Silence()] * 100, heads=True)
    error = ending(lambda: blob.read_all(1 << 20))()
    blob.close()
    assert isinstance(error, RemoteError) and "HTTP 503" in str(error)


def test_a_connection_is_waited_for_as_long_as_the_budget_lasts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def refuse_the_first() -> None:
            silent.accept()[0].close()

        refusing = threading.Thread(target=refuse_the_first, daemon=True)
        refusing.start()
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/a"
        error = ending(lambda: read(url, replace(SHORT, connect_s=300, silence_s=300, budget_s=1)))()
        refusing.join(30)
    assert isinstance(error, RemoteError) and str(error).startswith(url)


def test_what_drips_inside_of_tls_ends_too(certificate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with secure_server(certificate) as server:
        url = server.put("/a", DATA)
        server.always("/a", Forever(OK + b"X: ", b"x"))
        error = ending(lambda: read(url, replace(SHORT, connect_s=10)))()
    assert isinstance(error, RemoteError) and "nothing came in time" in str(error)

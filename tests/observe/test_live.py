"""A loader that is watched: who may look, and when it ends."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError
from stoker.loader import Loader
from stoker.observe import LoaderWatch, live, page_server, watch
from stoker.observe.loader_view import LoaderView
from stoker.observe.meters import Meters
from stoker.observe.stats import ExecutorStats
from stoker.storage.scratch import Looks

from ..loader.runs import numbers, run_python


@pytest.fixture
def loader() -> Iterator[Loader]:
    with numbers().batch(6).loader(threads=1) as made:
        list(made)
        yield made


@pytest.fixture
def page(loader: Loader) -> Iterator[LoaderWatch]:
    with watch(loader, title="mine") as served:
        yield served


def ask(page: LoaderWatch, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    """A request as a browser makes it; header names with _ for -."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = HTTPConnection("127.0.0.1", urlsplit(page.url).port or 0, timeout=30)
    try:
        connection.request(method, path, headers=given)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def token(page: LoaderWatch) -> str:
    return page.url.partition("token=")[2]


def serving(page: LoaderWatch) -> threading.Thread:
    background = page._server._thread
    assert background is not None
    return background._daemons._threads[0]


def test_who_has_the_address_sees_the_page_and_its_data(page: LoaderWatch) -> None:
    status, headers, text = ask(page, page.url.partition(str(urlsplit(page.url).port))[2])
    assert status == 200 and "<title>mine</title>" in text and "connect-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert headers["Cache-Control"] == "no-store" and "Set-Cookie" not in headers
    status, headers, text = ask(page, "/data", X_Stoker_Token=token(page))
    data = json.loads(text)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert (data["state"], data["stats"]["samples"]) == ("running", 60)
    assert "Access-Control-Allow-Origin" not in headers


def test_it_listens_on_loopback_alone(page: LoaderWatch) -> None:
    assert page._server.server_address[0] == "127.0.0.1" and page.url.startswith("http://127.0.0.1:")
    assert len(token(page)) >= 32


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/?token=", {}),
        ("/?token=wrong", {}),
        ("/?token=%FF%00", {}),
        ("/data", {}),
        ("/data", {"X_Stoker_Token": "wr\xf6ng"}),
        ("/data?token={token}", {}),
        ("/data", {"X_Stoker_Token": "{token}", "Host": "evil.example"}),
        ("/data", {"X_Stoker_Token": "{token}", "Host": "127.0.0.1.evil.example:80"}),
        ("/?token={token}", {"Host": "evil.example:80"}),
        ("/data", {"X_Stoker_Token": "{token}", "Origin": "http://evil.example"}),
        ("/data", {"X_Stoker_Token": "{token}", "Origin": "null"}),
        ("/data", {"X_Stoker_Token": "{token}", "Origin": "http://127.0.0.1:1"}),
        ("/data", {"X_Stoker_Token": "{token}", "Sec_Fetch_Site": "cross-site"}),
        ("/../../etc/passwd", {}),
    ],
)
def test_nobody_else_sees_anything(page: LoaderWatch, path: str, headers: dict[str, str]) -> None:
    filled = {name: value.replace("{token}", token(page)) for name, value in headers.items()}
    status, _, text = ask(page, path.replace("{token}", token(page)), **filled)
    assert status == 403 and "samples" not in text and token(page) not in text


def test_it_can_only_be_looked_at(page: LoaderWatch) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask(page, f"/?token={token(page)}", method)[0] == 405
    assert ask(page, "/%2e%2e/%2e%2e/etc/passwd", X_Stoker_Token=token(page))[0] == 404


def test_pictures_of_a_batch_are_shown_to_who_looks(page: LoaderWatch) -> None:
    batch = {"image": np.zeros((2, 8, 8, 3), np.uint8)}
    page.show(batch)  # nobody looks
    assert json.loads(ask(page, "/data", X_Stoker_Token=token(page))[2])["pictures"] == []
    page.show(batch)
    page.show({})  # too soon to change them
    shown = json.loads(ask(page, "/data", X_Stoker_Token=token(page))[2])["pictures"]
    assert len(shown) == 2 and shown[0]["src"].startswith("data:image/")


def test_a_tunnel_may_end_at_another_port(page: LoaderWatch) -> None:
    given = {"X_Stoker_Token": token(page), "Host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert ask(page, "/data", **given)[0] == 200


def test_those_who_say_nothing_keep_nobody_waiting(page: LoaderWatch) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(page.url).port)):
        assert ask(page, "/data", X_Stoker_Token=token(page))[0] == 200


def test_those_who_talk_slowly_lose_their_places(page: LoaderWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "_WHOLE_S", 0.0)
    with socket.create_connection(("127.0.0.1", urlsplit(page.url).port), timeout=30) as slow:
        slow.sendall(b"GET / HT")  # and a byte now and then
        monkeypatch.setattr(page_server, "_WHOLE_S", 60.0)
        assert slow.recv(1) == b""
    until_s = time.monotonic() + 30
    while page._server._talking and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not page._server._talking
    assert ask(page, "/data", X_Stoker_Token=token(page))[0] == 200


def test_closing_it_leaves_no_connection(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live._WatchAnswer, "timeout", 600)
    with watch(loader) as page:
        silent = socket.create_connection(("127.0.0.1", urlsplit(page.url).port), timeout=30)
        talking, until_s = [], time.monotonic() + 30
        while not talking and time.monotonic() < until_s:
            talking = [thread for thread in threading.enumerate() if thread.name == "stoker-answer"]
    try:
        for thread in talking:
            thread.join(timeout=30)
        assert talking and not any(thread.is_alive() for thread in talking)
    finally:
        silent.close()


def test_who_looks_sees_that_the_loader_was_closed(loader: Loader, page: LoaderWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_LINGER_S", 600.0)
    ask(page, "/data", X_Stoker_Token=token(page))
    loader.close()
    page._server.view._until_s = 0.0  # a second later
    assert json.loads(ask(page, "/data", X_Stoker_Token=token(page))[2])["state"] == "closed"


def test_the_page_ends_with_the_loader(loader: Loader, page: LoaderWatch) -> None:
    thread = serving(page)
    loader.close()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        ask(page, "/")


def test_closing_it_frees_the_port_and_the_loader_goes_on(loader: Loader) -> None:
    with watch(loader) as page:
        port = urlsplit(page.url).port or 0
        with pytest.raises(ConfigError, match=rf"watch\(port={port}\): .*in use.*choose another port"):
            watch(loader, port=port)
    page.close()
    with watch(loader, port=port):
        assert len(list(loader)) == 10


def test_steps_are_recorded_only_while_somebody_looks(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    with watch(loader) as page:
        assert ask(page, "/data", X_Stoker_Token=token(page))[0] == 200
        assert loader._meters.sinks and Looks.everything
        monkeypatch.setattr(live, "_LOOKED_S", 0.0)  # a while later
        until = time.monotonic() + 60
        while loader._meters.sinks and time.monotonic() < until:
            serving(page).join(0.01)
        assert not loader._meters.sinks
    monkeypatch.undo()
    with watch(loader) as page:
        assert ask(page, "/data", X_Stoker_Token=token(page))[0] == 200
        assert loader._meters.sinks
    assert not loader._meters.sinks and not Looks.everything


def test_a_loader_that_nobody_uses_is_not_kept() -> None:
    loader = numbers().batch(6).loader(threads=1)
    page = watch(loader)
    thread = serving(page)
    del loader
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_it_is_read_at_most_once_a_second(loader: Loader) -> None:
    view = LoaderView(loader, "watch")
    assert view.glance() is view.glance()
    view._until_s = 0.0  # a second later
    list(loader)
    assert view.glance().stats.samples == 120 and view.glance().recent[-1][1] > 0


def test_who_looks_puts_nothing_back_that_has_changed_meanwhile() -> None:
    moved = ExecutorStats("processes", 2, 1)

    def queued() -> float:
        if meters.snapshot(look=False).batches > 1:
            meters.moved(2, moved)  # as the consumer's thread may, while another one asks the system
        return 0.0

    meters = Meters(1, queued=queued)
    for _ in range(2):
        meters.delivered(meters.request(), 1, 0)
    assert meters.snapshot().executor == moved


@pytest.mark.parametrize("port", [-1, 65536, "80", True])
def test_a_port_that_is_none_is_refused(loader: Loader, port: Any) -> None:
    with pytest.raises(ConfigError, match=r"watch\(port="):
        watch(loader, port=port)


def test_a_notebook_shows_a_link(page: LoaderWatch) -> None:
    assert str(page) == page.url and f'href="{page.url}"' in page._repr_html_()


def test_a_forked_child_does_not_serve_and_the_end_of_the_program_leaves_nothing(tmp_path: Path) -> None:
    done = run_python(
        """
import os, numpy as np, stoker, stoker.observe, warnings
warnings.simplefilter("ignore")
loader = stoker.arrays(x=np.arange(64)).batch(4).loader(threads=1)
page = stoker.observe.watch(loader, terminal=True)
list(loader)
child = os.fork()
if not child:
    free = page._server.socket.fileno() == -1
    page.close()
    os._exit(0 if free else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert stoker.observe.watch is watch

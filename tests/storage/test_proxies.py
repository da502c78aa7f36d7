"""Proxies that the environment names."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import pytest

from stoker.errors import RemoteError
from stoker.storage.http import HttpRemote
from stoker.storage.origin import LOGIN_ADVICE, Origin
from stoker.storage.proxies import Proxy, proxy_for
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from .conftest import read_url as read
from .conftest import secure_server
from .proxy_server import ProxyServer
from .server import Coded, Redirect, Server, Short, Status

pytestmark = pytest.mark.usefixtures("nothing_is_left_open")
DATA = random.Random(5).randbytes(50_000)


def test_plain_requests_go_through_the_proxy_over_one_connection(
    server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProxyServer(login="Basic bmFtZTpjYW5hcnk=") as proxy:
        monkeypatch.setenv("http_proxy", f"http://name:canary@{proxy.authority}")
        proxy.names["data.example:80"] = proxy.names["data.example"] = tuple(server._server.server_address)
        server.put("/a.tar", DATA)
        assert read("http://user:secret@data.example/a.tar?q", quick) == DATA
        assert [line for line, _ in proxy.log] == [f"{method} http://data.example/a.tar?q HTTP/1.1" for method in ("HEAD", "GET")]
    assert server.connections == 1
    assert {request.headers["host"] for request in server.log} == {"data.example"}
    assert {request.headers["authorization"] for request in server.log} == {"Basic dXNlcjpzZWNyZXQ="}


def test_tls_goes_through_the_proxy_unseen_and_is_verified_for_the_target(
    certificate: str, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with secure_server(certificate) as server, ProxyServer(login="Basic OmNhbmFyeQ==") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f":canary@{proxy.authority}")
        url = server.put("/a.tar", DATA)
        assert read(url, quick) == DATA
        authority = url.removeprefix("https://").removesuffix("/a.tar")
        assert [line for line, _ in proxy.log] == [f"CONNECT {authority} HTTP/1.1"]
        assert {name for _, headers in proxy.log for name in headers} == {"host", "user-agent", "proxy-authorization"}
        assert all("proxy-authorization" not in request.headers for request in server.log)
        proxy.names["elsewhere.example:443"] = tuple(server._server.server_address)
        with pytest.raises(RemoteError, match=rf"certificate is not trusted \(Hostname mismatch.*\(proxy {proxy.authority}\)"):
            read("https://elsewhere.example/a.tar", quick)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_password_or_refuses_says_so_and_shows_nothing(
    scheme: str, quick: Patience, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "stoker")
    url, texts = f"{scheme}://data.example/a.tar?canary", []
    for proxy in (ProxyServer(login="another"), ProxyServer(refuses=403)):
        with proxy:
            monkeypatch.setenv(f"{scheme}_proxy", f"http://canary:canary@{proxy.authority}")
            with pytest.raises(RemoteError) as caught:
                read(url, quick)
            assert f"(proxy {proxy.authority})" in str(caught.value) and caught.value.__context__ is None
            texts.append(str(caught.value))
    assert "HTTP 407" in texts[0] and "http://name:password@host:port" in texts[0] and "HTTP 403" in texts[1]
    assert "canary" not in "".join(texts) + caplog.text


def test_a_proxy_that_is_not_there_is_named(quick: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProxyServer() as proxy:
        gone = proxy.authority
    monkeypatch.setenv("all_proxy", gone)
    with pytest.raises(RemoteError, match=rf"http://h/a: the connection failed \(Connection refused\) \(proxy {gone}\)"):
        read("http://h/a", Patience(budget_s=0.05, first_delay_s=0.01))


def test_the_proxys_own_address_says_nothing_of_where_a_redirect_leads(
    server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProxyServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for name in ("a.example", "b.example"):
            proxy.names[name] = tuple(server._server.server_address)
        server.put("/real", DATA)
        server.put("/a", b"")
        server.always("/a", Redirect("http://b.example/real"))
        assert read("http://a.example/a", quick) == DATA
        asked = len(server.log)
        for inwards in ("http://127.0.0.1/real", "http://localhost/real", "http://169.254.169.254/x", "http://2130706433/real"):
            server.always("/a", Redirect(inwards))
            with pytest.raises(RemoteError, match=r"a redirect from a public to a (loopback|link-local) address"):
                read("http://a.example/a", quick)
        assert {request.path for request in server.log[asked:]} == {"/a"}
        assert not [line for line, _ in proxy.log if "example" not in line], "not even the proxy was asked"
        monkeypatch.setenv("no_proxy", "127.0.0.1")  # and past the proxy
        server.always("/a", Redirect(server.origin + "/real"))
        with pytest.raises(RemoteError, match="a redirect from a public to a loopback address"):
            read("http://a.example/a", quick)


def test_the_proxy_is_named_for_what_was_asked_through_it_and_for_nothing_else(
    server: Server, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ProxyServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        proxy.names["far.example"] = tuple(server._server.server_address)
        server.put("/a", DATA)
        server.put("/there", DATA)
        blob = RemoteBlob(HttpRemote("http://far.example/a"), quick)
        blob.stat()
        for act in (Status(403), Coded()):
            server.always("/a", act)
            with pytest.raises(RemoteError, match=rf"\(proxy {proxy.authority}\)"):
                blob.read_all(1 << 20)
        server.always("/a", Short(10))
        blob._patience = replace(quick, budget_s=0.01)
        with pytest.raises(RemoteError, match=rf"bytes early at byte \d+ \(proxy {proxy.authority}\)"):
            blob.read_all(1 << 20)
        blob.close()
        # From a server that is asked directly to one that is asked through the proxy, and back to the first's refusal.
        server.always("/a", Redirect("http://far.example/there"))
        near = RemoteBlob(HttpRemote(server.origin + "/a"), quick)
        assert near.stat().size == len(DATA)
        server.always("/there", Status(403))
        server.always("/a", Status(403))
        with pytest.raises(RemoteError, match="HTTP 403") as caught:
            near.read_all(1 << 20)
        assert "(proxy" not in str(caught.value)
        near.close()


HTTP, HTTPS = Origin("http", "data.example", 80), Origin("https", "data.example", 8443)
PROXY = Proxy(Origin("http", "p", 3128), None)


@pytest.mark.parametrize(
    ("environment", "origin", "proxy"),
    [
        ({}, HTTP, None),
        ({"http_proxy": "http://p:3128"}, HTTP, PROXY),
        ({"HTTP_PROXY": "p:3128"}, HTTP, PROXY),
        ({"http_proxy": "http://p:3128/"}, HTTPS, None),
        ({"https_proxy": "http://p:3128"}, HTTPS, PROXY),
        ({"ALL_PROXY": "http://p:3128"}, HTTPS, PROXY),
        ({"http_proxy": "", "HTTP_PROXY": "http://p:3128"}, HTTP, None),
        ({"HTTP_PROXY": "http://p:3128", "REQUEST_METHOD": "GET"}, HTTP, None),
        ({"http_proxy": "http://p"}, HTTP, Proxy(Origin("http", "p", 80), None)),
        ({"http_proxy": "http://[::1]:3128"}, HTTP, Proxy(Origin("http", "::1", 3128), None)),
        ({"http_proxy": "http://a%40b:c@p:3128"}, HTTP, Proxy(PROXY.origin, "Basic YUBiOmM=")),
        ({"http_proxy": "http://a:%ff@p:3128"}, HTTP, Proxy(PROXY.origin, "Basic YTr/")),
        ({"http_proxy": "http://a:\udcff@p:3128"}, HTTP, Proxy(PROXY.origin, "Basic YTr/")),
        ({"http_proxy": "http://p:3128", "no_proxy": "*"}, HTTP, None),
        ({"http_proxy": "http://p:3128", "NO_PROXY": "other, .example"}, HTTP, None),
        ({"https_proxy": "http://p:3128", "no_proxy": "data.example:8443"}, HTTPS, None),
        ({"https_proxy": "http://p:3128", "no_proxy": "data.example:443"}, HTTPS, PROXY),
        ({"http_proxy": "http://p:3128", "no_proxy": "other .example"}, HTTP, None),
        ({"http_proxy": "http://p:3128", "no_proxy": "10.0.0.0/8, ::1"}, HTTP, PROXY),
        ({"http_proxy": "http://p:3128", "no_proxy": "x,10.0.0.0/8"}, Origin("http", "10.1.2.3", 80), None),
        ({"http_proxy": "http://p:3128", "no_proxy": "10.1.2.9/24"}, Origin("http", "10.1.2.3", 80), None),
        ({"http_proxy": "http://p:3128", "no_proxy": "10.0.0.0/8"}, Origin("http", "11.1.2.3", 80), PROXY),
        ({"http_proxy": "http://p:3128", "no_proxy": "::1"}, Origin("http", "::1", 8080), None),
        ({"http_proxy": "http://p:3128", "no_proxy": "[::1]"}, Origin("http", "::1", 8080), None),
        ({"http_proxy": "http://p:3128", "no_proxy": "fd00::/8"}, Origin("http", "fd00::7", 80), None),
    ],
)
def test_which_proxy_is_meant_is_as_in_the_standard_library_and_in_other_programs(
    environment: dict[str, str], origin: Origin, proxy: Proxy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(origin) == proxy


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("https://canary:canary@p:3128", "a proxy of the kind https://, which is not supported"),
        ("socks5h://canary@p:1080", "a proxy of the kind socks5h://, which is not supported"),
        ("http://proxy..corp:3128", "something that is not a proxy's URL"),
        ("http://canary:4711#canary@p:3128", LOGIN_ADVICE),
        ("http://canary:4711/canary@p:3128", LOGIN_ADVICE),
        ("canary:4711?canary@p:3128", LOGIN_ADVICE),
        ("canary://canary", "something that is not a proxy's URL"),
        ("http://", "something that is not a proxy's URL"),
        ("http://canary:x@[p", "something that is not a proxy's URL"),
        ("http://p:canary", "something that is not a proxy's URL"),
        ("http://p\r\nX: canary", "something that is not a proxy's URL"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_an_error_with_the_remedy(
    value: str, said: str, quick: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", value)
    with pytest.raises(RemoteError) as caught:
        read("https://data.example/a", quick)
    assert str(caught.value) == (
        f"https://data.example/a: https_proxy holds {said}; use http://host:port, or name data.example in no_proxy"
    )

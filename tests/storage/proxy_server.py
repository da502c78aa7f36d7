"""A proxy on the loopback that remembers what it was asked for.

    with ProxyServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)

It passes on requests for ``http://`` URLs and makes connections for ``CONNECT``, to whatever `names` says a host's name means.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading


class ProxyServer:
    """`login`: the value of Proxy-Authorization it wants; `refuses`: a status it answers all requests with."""

    def __init__(self, *, login: str | None = None, refuses: int | None = None) -> None:
        self._login, self._refuses = login, refuses
        #: host and port of a URL -> where they are
        self.names: dict[str, tuple[str, int]] = {}
        #: the request lines, and the headers by name in lower case
        self.log: list[tuple[str, dict[str, str]]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.authority = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.url = f"http://{self.authority}"
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> ProxyServer:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            server: socket.socket | None = None
            while (request := self._request(client)) is not None:
                line, headers, raw = request
                self.log.append((line, headers))
                method, target, _ = line.split(" ")
                if self._refuses is not None or headers.get("proxy-authorization") != self._login:
                    status = self._refuses or 407
                    client.sendall(b"HTTP/1.1 %d canary\r\nX: canary\r\nContent-Length: 6\r\n\r\ncanary" % status)
                    continue
                authority = target if method == "CONNECT" else target.removeprefix("http://").partition("/")[0]
                if server is None:
                    server = stack.enter_context(socket.create_connection(self._where(authority), 30))
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    server.sendall(raw.replace(f"http://{authority}".encode(), b"", 1))
                    client.setblocking(True)
                self._relay(client, server, both=method == "CONNECT")

    def _where(self, authority: str) -> tuple[str, int]:
        host, _, port = authority.rpartition(":")
        return self.names.get(authority) or (host, int(port))

    def _request(self, client: socket.socket) -> tuple[str, dict[str, str], bytes] | None:
        raw = b""
        while not raw.endswith(b"\r\n\r\n"):
            if not self._readable([client]) or not (more := client.recv(1)):
                return None
            raw += more
        lines = raw.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:-2])
        return lines[0], {name.lower(): value for name, value in headers.items()}, raw

    def _relay(self, client: socket.socket, server: socket.socket, *, both: bool) -> None:
        """Pass on bytes; without `both`, until the client says something, which is the next request."""
        while ready := self._readable([client, server]):
            for source in ready:
                if source is client and not both:
                    return
                data = source.recv(1 << 16)
                if not data:
                    raise OSError("one end is gone")
                (server if source is client else client).sendall(data)

    def _readable(self, sockets: list[socket.socket]) -> list[socket.socket]:
        while not self._ending.is_set():
            ready = select.select(sockets, [], [], 0.05)[0]
            if ready:
                return ready
        return []

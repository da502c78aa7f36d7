"""A web server for one folder that answers every request after a pause, as one far away would.

As cheap as Python can make it, because it works on the same cores as what is measured: a thread for each connection, and files
are mapped and sent from there. (``sendfile`` copies nothing, but hands over single pages of 4 KiB: seen over loopback, that took
twice the time on both sides.) It tells what it did at ``/-/stats``, at once. To clients of S3 its folder is a bucket, too.

Several processes can serve at one address: connections go to each in turn, and all of them tell what all did.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATS = "/-/stats"
BUCKET = "bucket"
#: which S3 has to tell; the ETag says whether a file is another
_MODIFIED = b"Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"
_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-(\d*)", re.IGNORECASE)
_MOST_HEADER = 1 << 16


class Crew:
    """The processes that serve at one address, and what they did together."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        # What a system's own choice would be is not the question: over loopback the sender's work is done in the time of whoever
        # acknowledges. Seen: with "bbr", which paces by timers, clients took twice the system's time.
        with contextlib.suppress(OSError):
            self.listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        self._lock = threading.Lock()

    def fork(self, processes: int) -> None:
        """Go on as so many processes, of which the others end with the first."""
        # Of each the number the system gave it, and its requests, in memory that all of them see.
        self._done = memoryview(mmap.mmap(-1, processes * 16)).cast("q")
        self._mine = 0
        watched, held = os.pipe()
        for number in range(1, processes):
            if not os.fork():
                os.close(held)
                self._mine = number
                threading.Thread(target=_end_after, args=(watched,), daemon=True).start()
                break
        self._done[2 * self._mine] = os.getpid()
        if not self._mine:
            print(self.listening.getsockname()[1], flush=True)

    def count(self) -> None:
        """One request more. Said before it is answered: who has the answer may ask for the count."""
        with self._lock:
            self._done[2 * self._mine + 1] += 1

    def stats(self) -> dict[str, float]:
        return {"requests": sum(self._done[1::2]), "cpu_s": sum(map(_cpu_s_of, self._done[::2]))}


def _end_after(watched: int) -> None:
    os.read(watched, 1)  # returns when the first process is no more
    os._exit(0)


def _cpu_s_of(process: int) -> float:
    """The time on cores that a process of this machine has had."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(process, ctypes.byref(clock)):
        raise ProcessLookupError(process)
    return time.clock_gettime(clock.value)


class Server:
    """Serves a folder's files, ranges of them, and HEAD."""

    def __init__(self, crew: Crew, folder: Path, latency_s: float, certificate: str = "") -> None:
        self._crew, self._folder, self._latency_s = crew, folder, latency_s
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if self._context is not None:
            self._context.load_cert_chain(certificate)
        self._files: dict[str, tuple[memoryview, bytes]] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve until the process ends."""
        while True:
            connection, _ = self._crew.listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError), self._secured(connection) as connection:
            held = b""
            while True:
                while b"\r\n\r\n" not in held:
                    received = connection.recv(_MOST_HEADER)
                    if not received:
                        return
                    held += received
                head, _, held = held.partition(b"\r\n\r\n")
                self._answer(connection, head)

    def _secured(self, connection: socket.socket) -> socket.socket:
        return connection if self._context is None else self._context.wrap_socket(connection, server_side=True)

    def _answer(self, connection: socket.socket, head: bytes) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if target == STATS:
            body = json.dumps(self._crew.stats()).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        time.sleep(self._latency_s)
        self._crew.count()
        self._send(connection, method, target, head)

    def _send(self, connection: socket.socket, method: str, target: str, head: bytes) -> None:
        """Answer a request for a file; `head` is its first line and headers."""
        found = self._open(target.partition("?")[0].lstrip("/").removeprefix(f"{BUCKET}/"))
        if found is None:
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        content, tag = found
        size = len(content)
        first, last, status = 0, size - 1, b"200 OK"
        if (wanted := _RANGE.search(head)) is not None:
            first, last = int(wanted[1]), min(last, int(wanted[2] or last))
            status = b"206 Partial Content\r\nContent-Range: bytes %d-%d/%d" % (first, last, size)
        told = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nETag: %s\r\n%s\r\n\r\n" % (status, last + 1 - first, tag, _MODIFIED)
        if method == "HEAD":
            connection.sendall(told)
        else:
            connection.sendall(told, 0 if self._context else socket.MSG_MORE)
            connection.sendall(content[first : last + 1])

    def _open(self, name: str) -> tuple[memoryview, bytes] | None:
        """Content and ETag of a file of the folder; each is opened once."""
        with self._lock:
            if name not in self._files:
                if "/" in name:
                    return None
                try:
                    with (self._folder / name).open("rb") as file:
                        about = os.fstat(file.fileno())
                        empty = not about.st_size  # which cannot be mapped
                        content = memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
                except OSError:
                    return None
                self._files[name] = content, b'"%x-%x"' % (about.st_size, about.st_mtime_ns)
            return self._files[name]


@contextmanager
def serving(folder: Path, latency_s: float, processes: int = 1, program: str = __file__, certificate: str = "") -> Iterator[str]:
    """A server in processes of its own, with a certificate over TLS; gives its address."""
    command = [sys.executable, str(Path(program).resolve()), str(folder), str(latency_s), str(processes), certificate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def ask_stats(address: str) -> dict[str, float]:
    """What a server has done so far."""
    with urllib.request.urlopen(address + STATS, timeout=60) as answer:
        return dict(json.load(answer))


def main() -> None:
    crew = Crew()
    crew.fork(int(sys.argv[3]))
    Server(crew, Path(sys.argv[1]), float(sys.argv[2]), sys.argv[4]).run()


if __name__ == "__main__":
    main()

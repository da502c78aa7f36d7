"""What does a ranged read cost, by Stoker's HTTP client, by obstore and by urllib3, over plain HTTP and over TLS?

One thread reads ranges of one file from a loopback server that answers at once, over a kept connection: the same ranges, into the
same buffer, and with the same checks of the answer (status, length, range, version). They take turns, and the order of turns is
reversed from round to round. `obstore` treats the server as S3 and signs each request, as Stoker does if it does not read by
signed URLs.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measure import SEED, available, median, note, ratio
from s3_server import look_for_s3_at
from slow_server import BUCKET, serving
from stoker.storage.http import HttpRemote
from stoker.storage.objects import ObjectRemote
from stoker.storage.remote import RemoteBlob

_FILE_BYTES = 32 << 20
#: bytes of a read -> reads in a turn
READS = {16 << 10: 2000, 128 << 10: 2000, 8 << 20: 75}
#: fill a buffer with the bytes from a place on
Read = Callable[[int, memoryview], None]


def compare_clients(rounds: int, quick: bool) -> dict[str, Any]:
    """CPU time of a read and reads per second, by size, over plain HTTP and TLS."""
    with tempfile.TemporaryDirectory() as name:
        folder, certificate = Path(name) / "files", Path(name) / "loopback.pem"
        folder.mkdir()
        (folder / "a.bin").write_bytes(random.Random(SEED).randbytes(_FILE_BYTES))
        found = {"http": _compare_over("", folder, rounds, quick)}
        if available("https", ("cryptography",)):
            _write_certificate(certificate)
            os.environ["SSL_CERT_FILE"] = str(certificate)
            found["https"] = _compare_over(str(certificate), folder, rounds, quick)
        return found


def _compare_over(certificate: str, folder: Path, rounds: int, quick: bool) -> dict[str, Any]:
    with serving(folder, 0, certificate=certificate) as server:
        clients = {"stoker": RemoteBlob(HttpRemote(f"{server}/a.bin")).read_into}
        if available("obstore", ("obstore",)):
            look_for_s3_at(server)
            os.environ["AWS_ALLOW_INVALID_CERTIFICATES"] = "true"  # which obstore alone knows of, so that it reads
            clients["obstore"] = RemoteBlob(ObjectRemote(f"s3://{BUCKET}/a.bin")).read_into
        if available("urllib3", ("urllib3",)):
            clients["urllib3"] = _urllib3(f"{server}/a.bin", certificate)
        note("over TLS" if certificate else "over plain HTTP")
        return {str(size): _compare(clients, size, reads // 20 if quick else reads, rounds) for size, reads in READS.items()}


def _compare(clients: dict[str, Read], size: int, reads: int, rounds: int) -> dict[str, Any]:
    cpu_us: dict[str, list[float]] = {name: [] for name in clients}
    per_s: dict[str, list[float]] = {name: [] for name in clients}
    buffer = memoryview(bytearray(size))
    for turn in range(rounds + 1):
        for name in list(clients)[:: 1 if turn % 2 else -1]:
            cpu, start = time.process_time(), time.perf_counter()
            for number in range(reads):
                clients[name](number * 7919 * 64 % (_FILE_BYTES - size), buffer)
            if turn:  # the first makes connections
                cpu_us[name].append((time.process_time() - cpu) / reads * 1e6)
                per_s[name].append(reads / (time.perf_counter() - start))
    figures: dict[str, Any] = {
        "cpu_us": {name: median(values) for name, values in cpu_us.items()},
        "reads_per_s": {name: median(values) for name, values in per_s.items()},
        "cpu_over_stoker": {name: ratio(values, cpu_us["stoker"]) for name, values in cpu_us.items()},
        "stoker_rate_over": {name: ratio(per_s["stoker"], values) for name, values in per_s.items()},
    }
    shown = ", ".join(f"{name} {value:.2f}" for name, value in figures["cpu_over_stoker"].items())
    note(f"{size >> 10:,} KiB: processor time over Stoker's: {shown}")
    return figures


def _urllib3(url: str, certificate: str) -> Read:
    import urllib3

    pool = urllib3.PoolManager(maxsize=4, ca_certs=certificate or None)
    tag = pool.request("HEAD", url).headers["ETag"]
    return partial(_read_by_urllib3, pool, url, tag)


def _read_by_urllib3(pool: Any, url: str, tag: str, offset: int, view: memoryview) -> None:
    last = offset + len(view) - 1
    headers = {"Range": f"bytes={offset}-{last}", "If-Match": tag, "Accept-Encoding": "identity", "User-Agent": "stoker"}
    answer = pool.request("GET", url, headers=headers, preload_content=False, decode_content=False, retries=False)
    said = answer.headers
    if answer.status != 206 or said["Content-Length"] != str(len(view)) or said["ETag"] != tag:
        raise RuntimeError(f"HTTP {answer.status}")
    if said["Content-Range"] != f"bytes {offset}-{last}/{_FILE_BYTES}":
        raise RuntimeError("other bytes came")
    while view:
        count = answer.readinto(view)
        if not count:
            raise RuntimeError("the answer ended early")
        view = view[count:]
    answer.drain_conn()
    answer.release_conn()


def _write_certificate(path: Path) -> None:
    """A certificate for 127.0.0.1 that nobody else vouches for, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, day = ec.generate_private_key(ec.SECP256R1()), datetime.datetime(2020, 1, 1)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, day, day.replace(year=2120))
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))

"""Objects in S3, Google Cloud Storage and Azure, through obstore: single attempts, like any other place.

obstore's own retries are switched off, so that `retry.py` alone decides: it resumes from the last good byte, which obstore does
not, and one loop within another would multiply their patience. The price: obstore does not hand out a server's Retry-After, so
pauses after 429 and 503 are ours. And its waits are set when a store is opened, so that the last attempt of a read is not cut off
where the budget ends: it may take half of `budget_s` once more, or `connect_s` and `silence_s` where that is longer.

Proxies named in the environment are obstore's business: it uses them by rules of its own.

Credentials, region and endpoint come as obstore takes them: the environment variables of each provider, then the identity of the
machine. What obstore says in its errors may hold the server's answer, and with it account names and signatures; none of it
reaches a message, only what kind of failure it was.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from ..errors import ConfigError, MissingExtra
from ..registry import needed
from .blob import Stat
from .names import printable
from .retry import Body, Patience, Remote, RemoteFault, refused

#: scheme -> the class of obstore that speaks to it
STORES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_STATUS = re.compile(r"status code: (\d{3})\b")
#: exceptions of obstore -> the status they stand for
_STATUSES = {"UnauthenticatedError": 401, "PermissionDeniedError": 403, "PreconditionError": 412, "NotModifiedError": 304}
#: what a text of obstore holds -> what it means
_MEANINGS = (
    ("169.254.169.254", "no credentials were found; set them as obstore reads them (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
     "GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME), or for public data AWS_SKIP_SIGNATURE=true and its like", 2),
    ("metadata.google.internal", "no credentials were found; set GOOGLE_SERVICE_ACCOUNT, or GOOGLE_SKIP_SIGNATURE=true", 2),
    ("incorrectly configured region", "the bucket is in another region; set AWS_REGION", 1),
    ("BadScheme", "the endpoint is http:// and that is not allowed; set AWS_ALLOW_HTTP=true if it is meant", 1),
    ("non-partial response", "the server cannot send a part of a file; read it from another server", 1),
)  # fmt: skip


class ObjectRemote(Remote):
    """An object at ``s3://bucket/key``, ``gs://bucket/key`` or ``az://container/key``. The key is taken as it is written."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        scheme = scheme.lower()
        self.address, self.url = f"{scheme}://{rest}", f"{scheme}://{printable(rest.encode('utf-8', 'surrogateescape'))}"
        if scheme not in STORES or not re.fullmatch(r"[A-Za-z0-9._-]{1,255}", bucket) or not key or "?" in key:
            # Not shown: what does not fit may be a password before the bucket, or a signature behind the key.
            raise ConfigError(
                f"a URL that begins with {scheme}:// must be {scheme}://bucket/key, without name, password or query"
            )
        _obstore(scheme)  # said now, if it is missing
        self.name = self.url.rpartition("/")[2]
        self._scheme, self._bucket, self._key = scheme, bucket, key
        self._store: _ObjectStore | None = None

    def head(self, patience: Patience, limit_s: float) -> Stat:
        opened = self._opened(patience)
        return _stat_of(_told(lambda: opened.api.head(opened.store, self._key)))

    def get(self, start: int, stop: int, stat: Stat, patience: Patience, limit_s: float) -> Body:
        options: dict[str, Any] = {"range": (start, stop)}
        if stat.version.startswith('"'):
            options["if_match"] = stat.version
        opened = self._opened(patience)
        result = _told(lambda: opened.api.get(opened.store, self._key, options=options))
        if _stat_of(result.meta) != stat:
            raise RemoteFault("its ETag, date or size is another now", changed=True)
        first, end = result.range
        if first != start or not start < end <= stop:
            raise RemoteFault(f"bytes {first} to {end - 1} came for {start} to {stop - 1}", tries=3)
        return _ObjectBody(first, end, result)

    def sibling(self, suffix: str) -> ObjectRemote:
        return ObjectRemote(self.address + suffix)

    def close(self) -> None:
        self._store = None  # the last object of a bucket closes its connections

    def __reduce__(self) -> tuple[type[ObjectRemote], tuple[str]]:
        return ObjectRemote, (self.address,)

    def _opened(self, patience: Patience) -> _ObjectStore:
        store = self._store
        if store is None or store.process != os.getpid():
            store = self._store = _store_of(self._scheme, self._bucket, patience)
        return store


class _ObjectBody(Body):
    def __init__(self, at: int, end: int, result: Any) -> None:
        self.at, self._end = at, end
        # Chunks as they arrive: were they collected to some size, a byte a second could not be told from silence.
        self._chunks: Iterator[Any] | None = result.stream(min_chunk_size=1)
        self._rest = memoryview(b"")

    def readinto(self, view: memoryview, wait_s: float) -> int:
        while not self._rest:
            chunk = _told(self._next_chunk)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(view), len(self._rest), self._end - self.at)
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self.at += count
        return count

    def close(self) -> None:
        self._chunks, self._rest = None, memoryview(b"")

    def _next_chunk(self) -> Any:
        return None if self._chunks is None else next(self._chunks, None)


class _ObjectStore:
    """obstore's client of one bucket; its connections are shared by all objects in it."""

    def __init__(self, scheme: str, bucket: str, patience: Patience) -> None:
        self.process = os.getpid()
        self.api = _obstore(scheme)
        # Not `client_options`: they would replace what the environment says, AWS_ALLOW_HTTP among it.
        config = {
            "connect_timeout": f"{round(patience.connect_s * 1000)}ms",
            "read_timeout": f"{round(patience.silence_s * 1000)}ms",
            # Of a whole answer: a server can drip the text of an error for ever, and obstore reads that to its end. Half of the
            # budget, so that there is time to resume a good answer where it was cut off.
            "timeout": f"{round(max(patience.budget_s / 2, patience.connect_s + patience.silence_s) * 1000)}ms",
        }
        make = getattr(self.api.store, STORES[scheme])
        self.store = _told(lambda: make(bucket, config=config, retry_config={"max_retries": 0}))


_stores: weakref.WeakValueDictionary[tuple[str, str, Patience], _ObjectStore] = weakref.WeakValueDictionary()
_stores_lock = threading.Lock()
#: the process in which obstore's threads run, once they do
_runs_in: int | None = None


def _store_of(scheme: str, bucket: str, patience: Patience) -> _ObjectStore:
    global _runs_in
    with _stores_lock:
        if _runs_in not in (None, os.getpid()):
            # Seen: the first request in such a child never returns.
            why = (
                "object stores cannot be read in a process forked after they were read in its parent; start workers with 'spawn'"
            )
            raise RemoteFault(why, again=False)
        store = _stores.get((scheme, bucket, patience))
        if store is None:
            store = _stores[scheme, bucket, patience] = _ObjectStore(scheme, bucket, patience)
        _runs_in = os.getpid()
        return store


def _renew_lock() -> None:
    global _stores_lock
    _stores_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _obstore(scheme: str) -> Any:
    needed("obstore.store", "remote", f"{scheme}://")
    return needed("obstore", "remote", f"{scheme}://")


def _stat_of(meta: Any) -> Stat:
    return Stat(int(meta["size"]), str(meta["e_tag"] or meta["last_modified"].isoformat()))


def _told(attempt: Any) -> Any:
    """What `attempt` gives; what obstore raises becomes a fault without its text."""
    try:
        return attempt()
    except (RemoteFault, MissingExtra):
        raise
    except (OSError, ValueError) as error:
        fault = _fault_of(error)
    except Exception as error:  # noqa: BLE001  obstore's own types, known only once it is imported
        fault = _fault_of(error)
    raise fault


def _fault_of(error: Exception) -> RemoteFault:
    text, kind = str(error), type(error).__name__
    if isinstance(error, FileNotFoundError):
        return refused(404)
    for sign, why, tries in _MEANINGS:
        if sign in text:
            return RemoteFault(why, again=tries > 1, tries=tries)
    found = _STATUS.search(text)
    if kind in _STATUSES or found:
        return refused(_STATUSES.get(kind) or int(found[1] if found else 0))
    if kind == "UnknownConfigurationKeyError":
        return RemoteFault("this obstore is too old, 0.11 is needed: pip install --upgrade 'stoker[remote]'", again=False)
    if isinstance(error, ValueError) or kind in ("InvalidPathError", "NotSupportedError"):
        return RemoteFault("obstore cannot use this name or configuration", again=False)
    if not type(error).__module__.startswith("obstore") and not isinstance(error, OSError):
        return RemoteFault(f"obstore failed ({kind})", again=False)
    waited = re.search(r"source: TimedOut|kind: Timeout|operation timed out", text)
    return RemoteFault("nothing came in time", late=True) if waited else RemoteFault("the connection failed")

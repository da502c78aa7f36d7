"""Objects in S3, Google Cloud Storage and Azure, through obstore and our own HTTP client: single attempts, like any other
backend.

obstore finds credentials, region and endpoint, and asks for size and version. Bytes are read from URLs that it signs for a few
minutes, through the client that reads any other URL (`http.py`), which takes a half to a third of the CPU time of obstore's
reading (`benchmarks/remote.py --part client`). What such a URL cannot reach (public data, which need no signature; identities
that may not sign; proxies that only obstore knows) is read by obstore, whose answer about an object is authoritative: see
`ObjectRemote.get`.

obstore's own retries are off, so that `retry.py` alone decides: it resumes from the last good byte, which obstore does not, and
nested loops would multiply their patience. The price: obstore does not pass on a server's Retry-After, so the pauses after its
429 and 503 are ours. And its timeouts are set when a store is opened, so that the last attempt of a read is not cut off where
the budget ends: it may take half of `budget_s` longer, or `connect_s` and `silence_s` if that is more.

Credentials, region and endpoint come from the environment variables of each provider, for S3 then from the files of AWS's tools
(`aws_profile.py`), and then from the identity of the machine. obstore's errors may contain the server's answer, and with it
account names and signatures; none of it reaches a message, only what kind of failure it was.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ..errors import ConfigError, MissingExtra
from ..registry import needed
from . import aws_profile
from .blob import Stat
from .http import HttpRemote
from .names import printable
from .once import Once
from .retry import Body, Patience, Remote, RemoteFault, refused

_log = logging.getLogger("stoker")
#: scheme -> the class of obstore that speaks to it
STORES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
#: scheme -> how the variables begin in which obstore finds its configuration
_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
#: what is configured for obstore alone, and that nothing is to be signed
_UNSIGNED = ("SKIP_SIGNATURE", "PROXY_URL", "PROXY_CA_CERTIFICATE", "ALLOW_INVALID_CERTIFICATES")
#: the variables among them with the address of a server
_ENDPOINT = re.compile(r"_ENDPOINT(_URL(_S3)?)?$|_BASE_URL$")
_OFF = ("", "0", "false", "off", "no", "n")
#: how long a signed URL is valid. It is used for half of that, so that clocks may differ; where one does not work, obstore reads
#: the object for as long
_SIGNED_S = 900
#: reads for which signed URLs were no use, in a store where none ever worked, after which none are signed for as long
_MOST_DOUBTS = 3
#: how often files with credentials are looked at
_FILES_S = 60.0
_STATUS = re.compile(r"status code: (\d{3})\b")
#: exceptions of obstore -> the corresponding status
_STATUSES = {"UnauthenticatedError": 401, "PermissionDeniedError": 403, "PreconditionError": 412, "NotModifiedError": 304}
#: what a text of obstore holds -> what it means, what to do, and how many attempts are worth it
_MEANINGS = (
    ("169.254.169.254", "no credentials were found",
     "set them as obstore reads them (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, GOOGLE_SERVICE_ACCOUNT, "
     "AZURE_STORAGE_ACCOUNT_NAME), or for public data AWS_SKIP_SIGNATURE=true and its like", 2),
    ("metadata.google.internal", "no credentials were found", "set GOOGLE_SERVICE_ACCOUNT, or GOOGLE_SKIP_SIGNATURE=true", 2),
    ("incorrectly configured region", "the bucket is in another region", "set AWS_REGION", 1),
    ("BadScheme", "the endpoint is http:// and that is not allowed", "set AWS_ALLOW_HTTP=true if it is meant", 1),
    ("non-partial response", "the server cannot send a part of a file", "read it from another server", 1),
)  # fmt: skip


class ObjectRemote(Remote):
    """An object at ``s3://bucket/key``, ``gs://bucket/key`` or ``az://container/key``. The key is used literally.

    Objects that share `once` share their warnings.
    """

    def __init__(self, url: str, once: Once | None = None) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        scheme = scheme.lower()
        self.address, self.url = f"{scheme}://{rest}", f"{scheme}://{printable(rest.encode('utf-8', 'surrogateescape'))}"
        if scheme not in STORES or not re.fullmatch(r"[A-Za-z0-9._-]{1,255}", bucket) or not key or "?" in key:
            # Not shown: what does not fit may be a password before the bucket, or a signature after the key.
            raise ConfigError(
                f"a URL that begins with {scheme}:// must be {scheme}://bucket/key, without name, password or query"
            )
        if not {"", ".", ".."}.isdisjoint(key.split("/")):
            # obstore refuses such a name, or reads the object whose name is the rest of it.
            raise ConfigError(
                f"{self.url}: names of objects that begin or end with '/', or hold '//', '/./' or '/../', are not supported; "
                "check for a '/' too many, or rename the object"
            )
        _obstore(scheme)  # said now, if it is missing
        self.name = self.url.rpartition("/")[2]
        self._scheme, self._bucket, self._key = scheme, bucket, key
        self._once = Once() if once is None else once
        self._store: _ObjectStore | None = None
        self._signed: _Signed | None = None
        #: until then, by the monotonic clock, obstore reads it
        self._unsigned_until = 0.0

    def head(self, patience: Patience, limit_s: float) -> Stat:
        opened = self._opened(patience)
        return _stat_of(_answer_of(lambda: opened.api.head(opened.store, self._key)))

    def get(self, start: int, stop: int, stat: Stat, patience: Patience, limit_s: float) -> Body:
        """By a signed URL; if that is refused, or has never worked in this store, by obstore."""
        opened = self._opened(patience)
        signed = self._signed_by(opened) if stat.version.startswith('"') else None
        if signed is None:
            return self._get_by_obstore(opened, start, stop, stat)
        try:
            body = signed.place.get(start, stop, stat, patience, limit_s)
        except RemoteFault as fault:
            # Another attempt may go better where a server answered that it is busy, or where others did go well.
            if fault.again and (fault.status is not None or opened.doubts is None):
                raise
            if fault.late:  # obstore would wait as long: that is the next attempt's
                self._leave_to_obstore(opened)
                raise
        else:
            opened.doubts = None
            return body
        by_obstore = self._get_by_obstore(opened, start, stop, stat)
        # So it is the URL. An older one may have outlived the credentials it was signed with.
        if signed.age_s < _SIGNED_S / 10:
            self._leave_to_obstore(opened)
        self._signed = None
        return by_obstore

    def _get_by_obstore(self, opened: _ObjectStore, start: int, stop: int, stat: Stat) -> Body:
        options: dict[str, Any] = {"range": (start, stop)}
        if stat.version.startswith('"'):
            options["if_match"] = stat.version
        result = _answer_of(lambda: opened.api.get(opened.store, self._key, options=options))
        if _stat_of(result.meta) != stat:
            raise RemoteFault("its ETag, date or size is another now", changed=True)
        first, end = result.range
        if first != start or not start < end <= stop:
            raise RemoteFault(f"bytes {first} to {end - 1} came for {start} to {stop - 1}", tries=3)
        return _ObjectBody(first, end, result)

    def _signed_by(self, opened: _ObjectStore) -> _Signed | None:
        """The object as a file at a signed URL; None: obstore has to read it."""
        if not opened.signs() or time.monotonic() < self._unsigned_until:
            return None
        signed = self._signed
        if signed is None or signed.age_s > _SIGNED_S / 2:
            try:
                url = _answer_of(lambda: opened.api.sign(opened.store, "GET", self._key, timedelta(seconds=_SIGNED_S)))
                place = HttpRemote(url, self._once)
            except (RemoteFault, ConfigError):
                self._leave_to_obstore(opened)
                return None
            if not unquote(urlsplit(url).path).endswith(f"/{self._key}"):
                self._unsigned_until = math.inf  # obstore leaves "%" and "#" as they are for Google: it names another object
                return None
            place.url = self.url  # for messages
            signed = self._signed = _Signed(place, time.monotonic())
        return signed

    def _leave_to_obstore(self, opened: _ObjectStore) -> None:
        """Have obstore read it for some time."""
        self._signed, self._unsigned_until = None, time.monotonic() + _SIGNED_S / 2
        opened.doubt()

    def sibling(self, suffix: str) -> ObjectRemote:
        return ObjectRemote(self.address + suffix, self._once)

    def close(self) -> None:
        self._store = self._signed = None  # the last object of a bucket closes its connections

    def __reduce__(self) -> tuple[type[ObjectRemote], tuple[str, Once]]:
        return ObjectRemote, (self.address, self._once)

    def _opened(self, patience: Patience) -> _ObjectStore:
        store = self._store
        if store is None or store.process != os.getpid() or store.outdated():
            store = self._store = _store_of(self._scheme, self._bucket, patience)
        return store


class _Signed(NamedTuple):
    """An object at a URL that was signed at some time of the monotonic clock."""

    place: HttpRemote
    since: float

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.since


class _ObjectBody(Body):
    def __init__(self, at: int, end: int, result: Any) -> None:
        self.at, self._end = at, end
        # Chunks as they arrive: were they collected to some size, a byte a second could not be told from silence.
        self._chunks: Iterator[Any] | None = result.stream(min_chunk_size=1)
        self._rest = memoryview(b"")

    def readinto(self, view: memoryview, wait_s: float) -> int:
        while not self._rest:
            chunk = _answer_of(self._next_chunk)
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
        self.process, self._url = os.getpid(), f"{scheme}://{bucket}"
        self.api = _obstore(scheme)
        _check_endpoint(_VARIABLES[scheme])
        #: the files of AWS's tools, as they are now, when they are looked at again, and whether they have changed
        self._files, self._look_s = aws_profile.seen() if scheme == "s3" else (), time.monotonic() + _FILES_S
        self._outdated = False
        # Not `client_options`: they would replace what the environment says, AWS_ALLOW_HTTP among it.
        config = {
            "connect_timeout": f"{round(patience.connect_s * 1000)}ms",
            "read_timeout": f"{round(patience.silence_s * 1000)}ms",
            # Of a whole answer: a server can drip the text of an error for ever, and obstore reads that to its end. Half of the
            # budget, so that there is time to resume a good answer where it was cut off.
            "timeout": f"{round(max(patience.budget_s / 2, patience.connect_s + patience.silence_s) * 1000)}ms",
        }
        make = getattr(self.api.store, STORES[scheme])
        try:
            # Settings of a profile have no name here: they hold secrets, and tools show a traceback's variables.
            profile = aws_profile.settings if scheme == "s3" else dict
            self.store = _answer_of(lambda: make(bucket, config={**config, **profile()}, retry_config={"max_retries": 0}))
        except RemoteFault as fault:
            if not fault.again:
                raise
            remedy = f"check the variables that begin with {_VARIABLES[scheme]}"
            raise RemoteFault("obstore cannot use its configuration", again=False, remedy=remedy) from None  # it asked nobody yet
        #: reads so far for which a signed URL was no use; None: one worked, so they work here
        self.doubts: int | None = 0
        #: until then, by the monotonic clock, none is signed
        self.unsigned_until = 0.0
        if any(os.environ.get(_VARIABLES[scheme] + name, "").lower() not in _OFF for name in _UNSIGNED):
            self.unsigned_until = math.inf

    def outdated(self) -> bool:
        """Whether files that may hold its credentials have changed: keys for some hours are written again and again."""
        if self._files and time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + _FILES_S
            self._outdated = self._files != aws_profile.seen()
        return self._outdated

    def signs(self) -> bool:
        """Whether URLs of this store are worth signing."""
        return self.doubts is None or time.monotonic() >= self.unsigned_until

    def doubt(self) -> None:
        """Count a read for which a signed URL was no use. Threads need not agree on the number."""
        doubts = self.doubts
        if doubts is not None:
            self.doubts = (doubts + 1) % _MOST_DOUBTS
            if not self.doubts:
                self.unsigned_until = time.monotonic() + _SIGNED_S / 2
                _log.info("%s: signed URLs do not work now; obstore reads, which takes more processor time", self._url)


def _check_endpoint(variables: str) -> None:
    """Raise where a variable with the address of a server is not a URL."""
    for name, value in os.environ.items():
        if name.startswith(variables) and _ENDPOINT.search(name) and value:
            aws_profile.check_address(f"the variable {name}", value)


_stores: weakref.WeakValueDictionary[tuple[str, str, Patience], _ObjectStore] = weakref.WeakValueDictionary()
_stores_lock = threading.Lock()
#: the process in which obstore's threads run, once they do
_runs_in: int | None = None


def _store_of(scheme: str, bucket: str, patience: Patience) -> _ObjectStore:
    global _runs_in
    with _stores_lock:
        if _runs_in not in (None, os.getpid()):
            # Seen: the first request in such a child never returns.
            why = "object stores cannot be read in a process forked after they were read in its parent"
            raise RemoteFault(why, again=False, remedy="start workers with 'spawn' or 'forkserver'")
        store = _stores.get((scheme, bucket, patience))
        if store is None or store.outdated():
            with nullcontext() if store is None else suppress(RemoteFault):  # as it is being written: the old keys may still do
                store = _stores[scheme, bucket, patience] = _ObjectStore(scheme, bucket, patience)
            assert store is not None
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


def _answer_of(attempt: Any) -> Any:
    """What `attempt` returns; what obstore raises becomes a fault without its text."""
    try:
        return attempt()
    except (RemoteFault, MissingExtra):
        raise
    except BaseException as error:  # obstore's own types are known only once it is imported
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # as of an endpoint that is not a URL
            raise
        fault = _fault_of(error)
    raise fault


def _fault_of(error: BaseException) -> RemoteFault:
    text, kind = str(error), type(error).__name__
    if isinstance(error, FileNotFoundError):
        return refused(404)
    for sign, why, remedy, tries in _MEANINGS:
        if sign in text:
            return RemoteFault(why, again=tries > 1, tries=tries, remedy=remedy)
    found = _STATUS.search(text)
    if kind in _STATUSES or found:
        return refused(_STATUSES.get(kind) or int(found[1] if found else 0))
    if kind == "UnknownConfigurationKeyError":
        return RemoteFault("obstore is older than 0.11", again=False, remedy="pip install --upgrade 'stoker[remote]'")
    if isinstance(error, ValueError) or kind in ("InvalidPathError", "NotSupportedError"):
        return RemoteFault("obstore cannot use this name or configuration", again=False)
    if not type(error).__module__.startswith("obstore") and not isinstance(error, OSError):
        return RemoteFault(f"obstore failed ({kind})", again=False)
    waited = re.search(r"source: TimedOut|kind: Timeout|operation timed out", text)
    if waited:
        return RemoteFault("nothing came in time", late=True)
    return RemoteFault("the connection failed", remedy="check the network, and the address of the server if you have set one")

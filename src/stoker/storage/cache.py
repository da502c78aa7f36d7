"""A cache of remote files on a local disk, shared by all processes that name the same folder.

Its entries are whole shards or blocks of them. An entry is fetched once, checked when a process first reads it, and removed when
room is needed: first what is not known to be needed, least recently used first, then what is needed last. What is needed is known
because the plan is: `Cache.foresee` receives it, and `Cache.fetch_ahead` fetches in that order.

The cache never fails a read that would work without it: if the folder is full, read-only or slow, or the limit is too small,
bytes are read without the cache, and one warning says so. The only exception is a disk that repeatedly damages what is written
to it.
"""

from __future__ import annotations

import copy
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import ConfigError, CorruptShard, StokerError
from ..sizes import parse_bytes, show_bytes
from .blob import Blob
from .cache_blob import CachedBlob as CachedBlob
from .cache_blob import CacheEntry as CacheEntry
from .cache_blob import pieces
from .cache_entries import CacheEntries
from .cache_file import DamagedError, EntryFile, EntryWriter, Identity, file_bytes, identity_of
from .cache_flight import Flight
from .cache_folder import BOOKS_BYTES, Claim, Folder, Refusal
from .foresight import Foresight
from .fork import after_fork
from .names import AnyPath, path_bytes

_log = logging.getLogger("stoker")
#: how often an entry may turn out damaged, in one process
_MOST_DAMAGED = 3
#: the longest wait for an entry that another thread or process is fetching; then it is read past the cache
_WAIT_S = 20.0
#: with threads that fetch ahead, entries up to this size are waited for; of larger ones the part needed is read past the cache
_WORTH_WAITING_BYTES = 64 << 20
#: how long the cache is left alone after the disk failed
_REST_S = 30.0
#: how often the use of an entry is noted, at most
_NOTE_S = 1.0
#: pieces of an entry that `hold` checks beforehand
_CHECK_AHEAD = 4


@dataclass(slots=True)
class CacheCounts:
    """What a cache did in this process: reads served, entries fetched, reads past it, files found damaged, files deleted."""

    hits: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    past: int = 0
    damaged: int = 0
    evicted: int = 0


def room_for(sizes: Iterable[int]) -> int:
    """The limit with which a cache holds files of these sizes at once, checksums and all.

    >>> room_for([1000, 1000])
    10320
    """
    return BOOKS_BYTES + sum(map(file_bytes, sizes))


class Cache:
    """Remote files kept on a local disk, at most `limit` bytes of them.

    ``block=None`` keeps whole shards, which suits reading in order; ``block="4MiB"`` keeps the parts that were read. Any number
    of threads and processes may use the same folder. Only files that a cache made are ever deleted.

    >>> Cache("/tmp/shards", limit="1GB", block="4MB")
    Cache('/tmp/shards', limit='1.0 GB', block='4.0 MB')
    """

    def __init__(self, folder: AnyPath, limit: int | str = "100GB", block: int | str | None = None) -> None:
        if not (name := path_bytes(folder)):
            raise ConfigError("Cache(folder=''): must be the path of a folder")
        self.folder = Path(os.fsdecode(name)).expanduser().absolute()
        self.limit = parse_bytes(limit, "limit")
        self.block = None if block is None else parse_bytes(block, "block")
        if self.block is not None and not 1 << 16 <= self.block <= 1 << 32:
            raise ConfigError(f"Cache(block={block!r}): choose a size from 64KiB to 4GiB, or None for whole shards")
        self._files = CacheEntries()
        self._folder = Folder(self.folder, self.limit, self._files.drop_stale)
        self._note_s = _NOTE_S
        self._damaged: dict[str, int] = {}
        self._shunned: set[str] = set()  # damaged, and cannot be deleted
        self._warned: set[str] = set()
        self._resting_until_s = float("-inf")
        self._fed_elsewhere = False  # this is a worker's, and the process that started it fetches ahead
        self._begin_process(CacheCounts())
        after_fork(self, Cache._after_fork)

    def _begin_process(self, counts: CacheCounts) -> None:
        self._work = threading.Condition()  # guards what follows; its owner never waits for the network or the books
        self._healing = threading.Lock()
        self._counts = counts
        self._flights: dict[str, Flight] = {}
        self._urgent: deque[CacheEntry] = deque()
        self._failed: set[str] = set()
        self._foreseen: Foresight[CacheEntry] = Foresight()
        self._full = False  # there is no room for more of what is foreseen
        self._fetchers = 0

    # ---- what users and the loader call ------------------------------------------------------------------------------------

    def wrap(self, blob: Blob) -> CachedBlob:
        """The same file, read through the cache."""
        return CachedBlob(self, blob)

    def foresee(self, entries: Iterable[CacheEntry]) -> None:
        """Say which entries will be needed from now on, the first one first; an entry may come more than once.

        What was said before is forgotten.
        """
        foreseen = Foresight(entries)
        with self._work:
            self._foreseen, self._full = foreseen, False
            self._failed.clear()
            self._work.notify_all()

    def next_fetch(self) -> Callable[[], None] | None:
        """The next thing to fetch, as a call that fetches it and raises none of our errors; None: there is nothing to do now.

        Any number of threads may ask; a thread that gets a call must make it. What is fetched ahead displaces nothing needed
        sooner.
        """
        with self._work:
            entry = self._choose()
            if entry is None:
                return None
            flight = self._flights.setdefault(entry.name, Flight(ahead=True))
            flight.begun = True
        return lambda: self._fetch_quietly(entry, flight)

    def fetch_ahead(self, stop: threading.Event) -> None:
        """Fetch what will be needed until `stop` is set: the work of a thread of the caller's, or of several."""
        with self._work:
            self._fetchers += 1
        try:
            while not stop.is_set():
                fetch = self.next_fetch()
                if fetch is not None:
                    fetch()
                    continue
                with self._work:
                    self._work.wait(0.1)
        finally:
            with self._work:
                self._fetchers -= 1
                if not self._fetchers:
                    self._give_up_urgent()

    def counts(self) -> CacheCounts:
        """What happened so far, in this process."""
        with self._work:
            return replace(self._counts, evicted=self._folder.evicted)

    def close(self) -> None:
        """Close unused files; it may be used again."""
        self._files.close()

    def __repr__(self) -> str:
        block = "" if self.block is None else f", block={show_bytes(self.block)!r}"
        return f"Cache({str(self.folder)!r}, limit={show_bytes(self.limit)!r}{block})"

    def __reduce__(self) -> tuple[Callable[..., Cache], tuple[str, int, int | None, bool]]:
        return _same_cache, (str(self.folder), self.limit, self.block, self._fed_elsewhere or len(self._foreseen) > 0)

    # ---- what CachedBlob calls ---------------------------------------------------------------------------------------------

    def read(self, entry: CacheEntry, offset: int, view: memoryview, *, in_order: bool = False) -> bool:
        """Fill a view from an entry, which is fetched if need be; returns False when it has to be read past the cache.

        `in_order`: the reader will want the rest of the entry too, so it is worth waiting for.
        """
        for _ in range(_MOST_DAMAGED + 2):
            file = self.pin(entry, offset, offset + len(view))
            if file is not None:
                try:
                    file.read(offset, view)
                except DamagedError as damage:
                    self._heal(entry, file, damage)
                    continue
                finally:
                    self._files.unpin(file)
                self._count(hits=1)
                return True
            if entry.name in self._shunned or time.monotonic() < self._resting_until_s or not self._is_small_enough(entry):
                break
            if self._fed_elsewhere and not in_order and entry.length > _WORTH_WAITING_BYTES:
                break
            flight, mine = self._board(entry)
            if mine:
                if not self._fetch(entry, flight):
                    break
                continue
            if flight.read(offset, view, self._worth_waiting_s(entry, in_order)):
                self._count(hits=1)
                return True
            if flight.error is not None:
                raise copy.copy(flight.error) from flight.error
            if not flight.kept and not flight.left:
                break
        self._count(past=1)
        return False

    def pin(self, entry: CacheEntry, start: int, stop: int, spare: bool = False) -> EntryFile | None:
        """The file of an entry, if it is there and these bytes of it are right; open until it is unpinned.

        `spare`: only if there is a descriptor to spare.
        """
        if entry.name in self._shunned:
            return None
        try:
            file = self._files.pin(entry.name, self._folder.entry_path(entry.name), entry.digest, spare)
        except DamagedError as damage:
            self._heal(entry, None, damage)
            return None
        except OSError as error:
            self._rest(error)
            return None
        if file is None:
            return None
        try:
            file.check(start, stop)
        except DamagedError as damage:
            self._files.unpin(file)
            self._heal(entry, file, damage)
            return None
        now = time.monotonic()
        if now - file.noted_s >= self._note_s:
            file.noted_s = now
            with suppress(OSError):
                file.note_use(self._folder.tick(self._note_s))
            self._files.drop_stale()  # other processes delete too
        return file

    def hold(self, entry: CacheEntry) -> int:
        """A descriptor of an entry's file once all of it has been checked, a few pieces more with each call; else -1.

        So it is too where many are held: then spans are read one by one, which takes one descriptor a thread.
        """
        file = self.pin(entry, 0, 0, spare=True)
        if file is None:
            return -1
        try:
            if file.check_more(_CHECK_AHEAD):
                return file.fd
        except DamagedError as damage:
            self._heal(entry, file, damage)
        self._files.unpin(file)
        return -1

    def release(self, fd: int) -> None:
        """Give back a descriptor that `hold` gave."""
        self._files.unpin_fd(fd)

    def warn_once(self, kind: str, message: str, *args: object) -> None:
        with self._work:
            if kind in self._warned:
                return
            self._warned.add(kind)
        _log.warning(message, *args)

    # ---- fetching ----------------------------------------------------------------------------------------------------------

    def _board(self, entry: CacheEntry) -> tuple[Flight, bool]:
        """The flight that fetches an entry, and whether this thread has to make it."""
        with self._work:
            flight = self._flights.get(entry.name)
            if flight is not None:
                flight.ahead = False
                return flight, False
            flight = self._flights[entry.name] = Flight(ahead=False)
            if not self._fetchers:
                flight.begun = True
                return flight, True
            self._failed.discard(entry.name)
            self._urgent.append(entry)
            self._work.notify()
            return flight, False

    def _choose(self) -> CacheEntry | None:
        """What to fetch now; with `_work` held."""
        while self._urgent:
            entry = self._urgent.popleft()
            flight = self._flights.get(entry.name)
            if flight is not None and not flight.begun:
                return entry
        foreseen = self._foreseen
        if self._full or time.monotonic() < self._resting_until_s:
            return None
        while foreseen.ahead < len(foreseen):
            entry = foreseen[foreseen.ahead]
            foreseen.ahead += 1
            known = entry.name in self._flights or entry.name in self._failed
            if not known and not self._folder.entry_path(entry.name).exists():
                return entry
        return None

    def _fetch_quietly(self, entry: CacheEntry, flight: Flight) -> None:
        """Fetch in a thread of its own. An error is left for who needs the entry: its cause may be gone by then."""
        try:
            if self._is_small_enough(entry):
                self._fetch(entry, flight)
        except StokerError as error:
            _log.info("%s: could not be fetched ahead: %s", entry.blob.url, error)
            with self._work:
                self._failed.add(entry.name)
        finally:
            self._land(entry, flight)

    def _fetch(self, entry: CacheEntry, flight: Flight) -> bool:
        """Fetch an entry; returns whether it is in the cache now."""
        try:
            flight.kept = self._download(entry, flight)
        except StokerError as error:
            flight.error = error
            raise
        except OSError as error:
            self._rest(error)
        finally:
            self._land(entry, flight)
        return flight.kept

    def _land(self, entry: CacheEntry, flight: Flight) -> None:
        with self._work:
            if self._flights.get(entry.name) is flight:
                del self._flights[entry.name]
        flight.land()

    def _download(self, entry: CacheEntry, flight: Flight) -> bool:
        claim = self._claim(entry, flight)
        if not isinstance(claim, Claim):
            return claim is Refusal.HERE
        flight.claim, writer = claim, EntryWriter(claim.fd, entry.length)
        try:
            self._folder.allocate(claim, self._order(entry, flight.ahead))
            for piece in pieces(entry):
                writer.add(piece)
                flight.progress(writer.written)
            writer.finish(entry.digest)
            flight.seal()
            self._folder.publish(claim)
        except BaseException:
            flight.seal()
            self._folder.abandon(claim)
            raise
        self._count(fetched=1, fetched_bytes=entry.length)
        return True

    def _claim(self, entry: CacheEntry, flight: Flight) -> Claim | Refusal:
        deadline, pause = time.monotonic() + self._worth_waiting_s(entry, in_order=False), 0.005
        while True:
            ahead = flight.ahead
            answer = self._folder.claim(entry.name, file_bytes(entry.length), self._order(entry, ahead))
            if not isinstance(answer, Refusal) or answer is Refusal.HERE:
                return answer
            if ahead:
                if self._put_off(entry, flight, answer):
                    return answer
                continue
            if answer is Refusal.NO_ROOM or time.monotonic() > deadline:
                return answer
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)

    def _put_off(self, entry: CacheEntry, flight: Flight, why: Refusal) -> bool:
        """End a flight that was refused, unless somebody has come to wait for it: then it is no longer one ahead."""
        with self._work:
            if not flight.ahead:
                return False
            if why is Refusal.NO_ROOM:
                self._full = True
                self._foreseen.ahead = min(self._foreseen.ahead, self._foreseen.next_need(entry.name) or 0)
            del self._flights[entry.name]
            return True

    def _order(self, entry: CacheEntry, ahead: bool) -> Callable[[str, int], tuple[int, int] | None]:
        """Which entries go first when room is made for this one. What is needed before it stays.

        For what is not needed soon nothing goes that is needed at all. Fetching as early as can be would drop, whenever a shard
        has been read, that very shard, and in every epoch fetch all of them; waiting leaves the choice of what is needed last.
        """
        soon = max(2, self.limit // 8 // max(1, entry.length))

        def order(name: str, stamp: int) -> tuple[int, int] | None:
            with self._work:
                foreseen = self._foreseen
                need = foreseen.next_need(entry.name)
                if ahead and (need is None or need > soon):
                    return foreseen.rank(name, stamp, len(foreseen))
                return foreseen.rank(name, stamp, need or 0)

        return order

    def _worth_waiting_s(self, entry: CacheEntry, in_order: bool) -> float:
        return _WAIT_S if in_order or not self._fetchers or entry.length <= _WORTH_WAITING_BYTES else 0.0

    def _is_small_enough(self, entry: CacheEntry) -> bool:
        need = room_for([entry.length])
        if need <= self.limit:
            return True
        message = "%s is read past the cache in %s: it needs %s, and limit=%s; raise the limit, or cache blocks (block='4MiB')"
        self.warn_once("limit", message, entry.blob.url, self.folder, show_bytes(need), show_bytes(self.limit))
        return False

    # ---- trouble -----------------------------------------------------------------------------------------------------------

    def _heal(self, entry: CacheEntry, file: EntryFile | None, damage: DamagedError) -> None:
        """Delete a damaged file, so that it is fetched again; raise when that does not help."""
        path = self._folder.entry_path(entry.name)
        with self._healing:
            if file is not None:
                self._files.drop(entry.name, file)
            try:
                identity = file.identity if file is not None else _identity_if_damaged(path, entry.digest)
                if identity is None or not self._folder.discard(entry.name, identity):
                    return  # another thread or process saw it first
            except OSError:
                self._shunned.add(entry.name)
        with self._work:
            times = self._damaged[entry.name] = self._damaged.get(entry.name, 0) + 1
            self._counts.damaged += 1
        message = (
            "%s: its copy in the cache is damaged (%s: %s) and is fetched again; others like it are counted in counts().damaged"
        )
        self.warn_once("damaged", message, entry.blob.url, path, damage)
        if times > _MOST_DAMAGED:
            raise CorruptShard(
                f"{entry.blob.url}: its copy in the cache was damaged {times} times ({path}: {damage}); check that disk, or "
                "move the cache to another",
                shard=entry.blob.url,
                offset=entry.start,
            )

    def _rest(self, error: OSError) -> None:
        with self._work:
            self._resting_until_s = time.monotonic() + _REST_S
        kind = errno.errorcode.get(error.errno or 0, "?")
        self.warn_once(kind, "%s: the cache cannot be used now (%s); reading past it", self.folder, error.strerror or error)

    def _give_up_urgent(self) -> None:
        for entry in self._urgent:
            flight = self._flights.get(entry.name)
            if flight is not None and not flight.begun:
                del self._flights[entry.name]
                flight.left = True
                flight.land()
        self._urgent.clear()

    def _count(self, hits: int = 0, fetched: int = 0, fetched_bytes: int = 0, past: int = 0) -> None:
        with self._work:
            self._counts.hits += hits
            self._counts.fetched += fetched
            self._counts.fetched_bytes += fetched_bytes
            self._counts.past += past

    def _after_fork(self) -> None:
        """In a forked child: downloads are the parent's, and its locks are nobody's here. What is open may be read on."""
        for flight in self._flights.values():
            if flight.claim is not None:
                flight.claim.let_go()
        self._begin_process(CacheCounts())
        self._folder.renew()


def _identity_if_damaged(path: Path, digest: bytes) -> Identity | None:
    """Which file it is that cannot be opened as an entry; None: it can, or it is gone."""
    try:
        os.close(EntryFile(path, digest).open())
    except FileNotFoundError:
        return None
    except DamagedError:
        return identity_of(path.lstat())
    return None


def _same_cache(folder: str, limit: int, block: int | None, fed: bool) -> Cache:
    cache = Cache(folder, limit, block)
    cache._fed_elsewhere = fed
    return cache

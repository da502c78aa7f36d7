"""The cache files being read, by entry name; their descriptors are in the common pool."""

from __future__ import annotations

from pathlib import Path

from .cache_file import DamagedError, EntryFile, ReplacedError
from .open_files import NO_MORE, files


class CacheEntries:
    """What is known of entries that were read before: what was checked of a file is remembered after it is closed."""

    def __init__(self) -> None:
        self._files: dict[str, EntryFile] = {}
        self._pinned: dict[int, EntryFile] = {}

    def pin(self, name: str, path: Path, digest: bytes, spare: bool = False) -> EntryFile | None:
        """The file of an entry, open until `unpin`; None: it does not exist. Raises OSError, and DamagedError.

        With `spare` the caller can do without it, and may have others pinned: if too many are in use it returns None, instead of
        waiting for a descriptor.
        """
        for _ in range(2):  # a second time for one that has taken the place of what is known
            file = self._files.get(name) or self._files.setdefault(name, EntryFile(path, digest))
            try:
                fd = files.pin_spare(file) if spare else files.pin(file, 0.0)
            except (DamagedError, FileNotFoundError, ReplacedError) as error:
                self.drop(name, file)
                if isinstance(error, DamagedError):
                    raise
                continue
            except OSError as error:
                if spare and error.errno in NO_MORE:
                    return None
                raise
            if fd < 0:
                return None
            file.fd = fd
            if not file.is_stale():
                self._pinned[fd] = file
                return file
            self.drop(name, file)
            files.unpin(file)
        return None

    def unpin(self, file: EntryFile) -> None:
        files.unpin(file)

    def unpin_fd(self, fd: int) -> None:
        files.unpin(self._pinned[fd])

    def drop(self, name: str, file: EntryFile) -> None:
        """Forget a file, if it is still the one of that name; its descriptor goes with the last pin."""
        if self._files.get(name) is file:
            del self._files[name]
        files.drop(file)

    def drop_stale(self) -> None:
        """Close files that were deleted in the meantime: only then is their disk space free."""
        for name, file in list(self._files.items()):
            if files.has(file) and file.is_replaced():
                self.drop(name, file)

    def close(self) -> None:
        """Close what nobody uses."""
        for file in list(self._files.values()):
            files.drop(file)

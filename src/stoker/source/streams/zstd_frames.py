"""Where the frames of zstd data end (RFC 8878, section 3.1), found without decompressing them.

The library's stream reader accepts data that end in the middle as complete. So the few bytes that give the lengths are read here:
the header of each frame, and three bytes of each of its blocks.
"""

from __future__ import annotations

from collections.abc import Generator

_MAGIC, _SKIPPABLE = 0xFD2FB528, 0x184D2A50
#: bytes of the size of a frame's content by the first two bits of its descriptor, and of its dictionary's number by the last two
_SIZE_BYTES, _DICTIONARY_BYTES = (0, 2, 4, 8), (0, 1, 2, 4)
_ONE_BYTE_REPEATED = 1


class ZstdFrames:
    """Follows zstd data as they come; `whole` says whether they end where a frame does.

    What is not zstd data is left to whoever unpacks them: from there on nothing counts as whole.

    >>> frames = ZstdFrames()
    >>> frames.take(bytes.fromhex("28b52ffd2000010000")[:-1])
    >>> frames.whole
    False
    >>> frames.take(b"\\0")
    >>> frames.whole
    True
    """

    def __init__(self) -> None:
        self.whole = True
        self._held = b""  # the beginning of what the walk waits for
        self._skip = 0  # bytes that are passed over first
        self._between = True  # whether what comes next begins a frame
        self._walk = self._walked()
        self._need = next(self._walk)

    def take(self, data: bytes) -> None:
        """The next bytes."""
        at = 0
        while at < len(data):
            if self._skip:
                passed = min(self._skip, len(data) - at)
                self._skip -= passed
            else:
                passed = min(self._need - len(self._held), len(data) - at)
                self._held += data[at : at + passed]
            at += passed
            if not self._skip and len(self._held) == self._need:
                held, self._held = self._held, b""
                self._need = self._walk.send(int.from_bytes(held, "little"))
            self.whole = self._between and not self._held and not self._skip

    def _walked(self) -> Generator[int, int, None]:
        """Yields how many bytes it needs next, and gets the number they are; sets how many are passed over after them."""
        while True:
            magic = yield 4
            self._between = False
            if magic & ~15 == _SKIPPABLE:
                self._skip = yield 4
            elif magic == _MAGIC:
                yield from self._frame()
            else:
                while True:
                    yield 1
            self._between = True

    def _frame(self) -> Generator[int, int, None]:
        descriptor = yield 1
        single, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
        size = _SIZE_BYTES[descriptor >> 6] or single
        yield (1 - single) + _DICTIONARY_BYTES[descriptor & 3] + size
        last = False
        while not last:
            block = yield 3
            last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            self._skip = 1 if kind == _ONE_BYTE_REPEATED else length
        if checksum:
            yield 4

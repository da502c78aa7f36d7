"""What every image operation is: a frozen value that knows its parameters and the size it leaves."""

from __future__ import annotations

#: height and width behind an operation; None where it depends on the image
Size = tuple[int | None, int | None]


class Operation:
    """One step of an `.image(...)` stage."""

    __slots__ = ()

    def size_after(self, size: Size) -> Size:
        """The image's height and width behind this operation."""
        return size

"""What every image operation is: a frozen value that knows its parameters and the size it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import ConfigError
from ..kernel.status import OpKind
from . import checks

#: height and width after an operation; None where it depends on the image
Size = tuple[int | None, int | None]
#: operations of the kernel, each with its parameters as ``stoker.h`` lists them, the probability of an effect left out
Lowered = tuple[tuple[OpKind, Sequence[float]], ...]


class Operation:
    """One step of an `.image(...)` stage."""

    __slots__ = ()

    def size_after(self, size: Size) -> Size:
        """The image's height and width after this operation."""
        return size

    def lowered(self) -> Lowered:
        """What the kernel does for it, in order."""
        raise ConfigError(f"{self!r} is not an image operation; see stoker.image")


@dataclass(frozen=True, slots=True, repr=False)
class RandomOperation(Operation):
    """One that draws random numbers.

    Its numbers depend on its kind, and on how many of that kind come before it in the pipeline, not on what other kinds there
    are. `stream` is a name instead of that count: operations of one kind and name draw the same numbers, wherever they are.
    """

    stream: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checks.put(self, stream=checks.name(self, "stream", self.stream))
        if hasattr(self, "p"):
            checks.put(self, p=checks.probability(self))
        self.check()

    def check(self) -> None:
        """Check the other parameters, and put them in normal form."""

    def __repr__(self) -> str:
        names = [name for name in self.__dataclass_fields__ if name != "stream"] + ["stream"] * (self.stream is not None)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

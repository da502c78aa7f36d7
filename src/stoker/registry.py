"""What users choose by name: each name is a line in a table, and is imported when it is chosen.

If a chosen name needs a package that is not installed, the error says which `pip install` provides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from .errors import ConfigError, MissingExtra

T = TypeVar("T")
#: module, attribute ("": the module itself), and the extra of Stoker that the module needs; "": none
Entry = tuple[str, str, str]


class Registry(Generic[T]):
    """A table of names. `what` names its kind in messages, as in "executor".

    >>> Registry("number", {"pi": ("math", "pi", ""), "e": ("math", "e", "")}).get("pi", "circle(ratio='pi')")
    3.141592653589793
    """

    def __init__(self, what: str, entries: Mapping[str, Entry]) -> None:
        self._what, self._entries = what, dict(entries)

    def get(self, name: str, asked: str) -> T:
        """The object for a name; `asked` is what the user wrote, for the message if there is no such name or package."""
        self.check(name, asked)
        module, attribute, extra = self._entries[name]
        within: Any = needed(module, extra, asked) if extra else import_module(module)
        found: T = getattr(within, attribute) if attribute else within
        return found

    def check(self, name: object, asked: str) -> None:
        """Refuse what is not one of the names."""
        if not isinstance(name, str) or name not in self._entries:
            raise ConfigError(f"{asked}: there is no such {self._what}; choose {self.choice()}")

    def choice(self) -> str:
        """The names there are, for messages.

        >>> Registry("number", {"pi": ("math", "pi", ""), "e": ("math", "e", "")}).choice()
        "'pi' or 'e'"
        """
        *others, last = map(repr, self._entries)
        return f"{', '.join(others)} or {last}" if others else last

    def add(self, name: str, entry: Entry) -> None:
        """One more name, or another meaning of one."""
        self._entries[name] = entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)


def imported_later(package: str, modules: Mapping[str, str], extra: str = "") -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are imported when they are first used: each name, and the module it is in."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(modules)}")
        module = f"{package}.{modules[name]}"
        return getattr(needed(module, extra, f"{package}.{name}") if extra else import_module(module), name)

    return get


def needed(module: str, extra: str, asked: str) -> Any:
    """Import a module that may be missing, or a module of ours that imports one; raises MissingExtra with the `pip install`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == "stoker":
            raise  # a mistake of ours, and no package of others that is missing
        raise MissingExtra(f"{asked} needs the package {package}: pip install 'stoker[{extra}]'") from error

"""What users choose by name."""

from __future__ import annotations

import sys

import pytest

from stoker.errors import ConfigError, MissingExtra
from stoker.registry import Registry, imported_later, needed

NUMBERS: Registry[float] = Registry(
    "number", {"pi": ("math", "pi", ""), "tau": ("math", "tau", ""), "far": ("no_such_package.there", "x", "torch")}
)


def test_a_name_gives_what_it_stands_for() -> None:
    assert NUMBERS.get("tau", "f('tau')") == pytest.approx(6.283185307)
    assert list(NUMBERS) == ["pi", "tau", "far"]
    assert "pi" in NUMBERS


@pytest.mark.parametrize("name", ["e", "", None, ["pi"]])
def test_an_unknown_name_is_answered_with_those_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^f\(x=\.\): there is no such number; choose 'pi', 'tau' or 'far'$"):
        NUMBERS.get(name, "f(x=.)")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtra, match=r"^f\('far'\) needs the package no_such_package: pip install 'stoker\[torch\]'$"):
        NUMBERS.get("far", "f('far')")


def test_nothing_is_imported_before_it_is_chosen() -> None:
    sys.modules.pop("colorsys", None)
    colours: Registry[object] = Registry("colour", {"hue": ("colorsys", "rgb_to_hsv", "")})
    assert "colorsys" not in sys.modules
    assert callable(colours.get("hue", ""))


def test_a_mistake_of_ours_is_not_taken_for_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        needed("stoker.no_such_module", "torch", "f()")
    assert not isinstance(raised.value, MissingExtra)


def test_a_name_may_be_added() -> None:
    own: Registry[float] = Registry("number", {})
    own.add("e", ("math", "e", ""))
    assert own.get("e", "f('e')") == pytest.approx(2.718281828)
    assert own.choice() == "'e'"


def test_names_of_a_package_are_imported_when_they_are_first_used() -> None:
    sys.modules.pop("json.tool", None)
    get = imported_later("json", {"main": "tool"})
    assert "json.tool" not in sys.modules
    assert callable(get("main"))
    with pytest.raises(AttributeError, match=r"^module 'json' has no attribute 'x'; it has main$"):
        get("x")

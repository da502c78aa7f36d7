"""What people download: the source distribution has what a build needs, the wheel has the package, both have their licences."""

from __future__ import annotations

import email
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stoker

from .wheels import ROOT, WHEEL, build, names_in, sources, text_in

NOTES = {"LICENSE", "licenses/libjpeg-turbo/LICENSE.md", "licenses/libjpeg-turbo/README.ijg"}
given = pytest.mark.skipif(not WHEEL, reason="no wheel is given: `make wheel check-wheel`")


@pytest.fixture(scope="module")
def python_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_source_distribution_has_what_a_build_needs_and_nothing_else(tmp_path: Path) -> None:
    found = names_in(build("sdist", tmp_path))
    native = {name for name in found if name.startswith("native/")}
    assert found - sources() - native == {*NOTES, "CMakeLists.txt", "PKG-INFO", "README.md", "pyproject.toml"}
    wanted = [ROOT / "native" / "include", ROOT / "native" / "src"]
    files = {path.relative_to(ROOT).as_posix() for folder in wanted for path in folder.rglob("*") if path.is_file()}
    assert native == files | {"native/libjpeg_turbo.cmake", "native/libjpeg_turbo.cdx.json.in"}
    assert sources() <= found


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(python_wheel: Path) -> None:
    package = {name for name in names_in(python_wheel) if ".dist-info/" not in name}
    assert package == {name.removeprefix("src/") for name in sources()}
    assert {"stoker/py.typed", "stoker/observe/page/page.js"} <= package


def test_the_wheel_says_what_it_is_and_under_which_licences(python_wheel: Path) -> None:
    about = email.message_from_string(text_in(python_wheel, "/METADATA"))
    assert (about["Name"], about["Version"]) == ("stoker", stoker.__version__)
    assert about["Requires-Python"] == ">=3.10"
    assert set(about.get_all("License-File") or []) == NOTES
    assert {f"stoker-{stoker.__version__}.dist-info/licenses/{note}" for note in NOTES} <= names_in(python_wheel)


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    for page, line in {"pyproject.toml": 'version = "{}"', "CITATION.cff": "version: {}"}.items():
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        assert line.format(stoker.__version__) in lines, page


def test_a_type_checker_sees_the_types_of_an_installed_wheel(python_wheel: Path, tmp_path: Path) -> None:
    """In an environment that holds the wheel; what it depends on comes from here."""
    pytest.importorskip("mypy", reason="a tool of `make check`")
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=100)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(python_wheel) as archive:
        archive.extractall(packages)
    (packages / "others.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
    user = tmp_path / "user.py"
    user.write_text(
        "import stoker\nfrom stoker.image import Resize\n"
        "made = stoker.files('x').image('image', Resize(4)).batch(2)\n"
        "reveal_type(made)\n"
        "with made.loader(threads=2) as batches:\n    reveal_type(batches.epoch)\n"
        "made.batch('2')\n"
        "stoker.filez('x')\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--no-error-summary", "--config-file", ""]
    done = subprocess.run(
        [*command, "--python-executable", str(home / "bin" / "python"), "user.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        'user.py:4: note: Revealed type is "stoker.pipeline.Pipeline"',
        'user.py:6: note: Revealed type is "int"',
        'user.py:7: error: Argument 1 to "batch" of "Pipeline" has incompatible type "str"; expected "int"  [arg-type]',
        'user.py:8: error: Module has no attribute "filez"; maybe "files"?  [attr-defined]',
    ], done.stderr


@given
def test_a_wheel_for_a_platform_serves_every_python_and_has_libjpeg_turbo_inside() -> None:
    wheel = Path(WHEEL)
    name, version, python, abi, _ = wheel.stem.split("-")
    assert (name, version, python, abi) == ("stoker", stoker.__version__, "py3", "none")
    package = {file for file in names_in(wheel) if ".dist-info/" not in file}
    native = package - {file.removeprefix("src/") for file in sources()}
    assert native in ({"stoker/kernel/libstoker.so"}, {"stoker/kernel/libstoker.dylib"}), "one library, and none beside it"
    parts = json.loads(text_in(wheel, "/sboms/libjpeg-turbo.cdx.json"))
    (part,) = parts["components"]
    assert (parts["bomFormat"], parts["metadata"]["component"]["version"]) == ("CycloneDX", version)
    rules = (ROOT / "native" / "libjpeg_turbo.cmake").read_text()
    assert f"set(STOKER_TURBO_VERSION {part['version']})" in rules
    assert part["externalReferences"][0]["hashes"][0]["content"] in rules

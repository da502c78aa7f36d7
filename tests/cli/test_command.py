"""The command as a whole: help, exit status, what goes where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker import __version__

COMMANDS = ("demo", "bench", "run", "show", "explain", "pack", "index", "verify", "tar", "map")


def test_help_names_every_command(stoker: Any) -> None:
    result = stoker("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(stoker: Any, command: str) -> None:
    result = stoker(command, "--help")
    assert result.exit_code == 0
    assert f"Example: stoker {command}" in result.stdout


def test_the_version_is_told(stoker: Any) -> None:
    assert stoker("--version").stdout == f"stoker {__version__}\n"


def test_the_package_runs_as_the_command() -> None:
    told = subprocess.run([sys.executable, "-m", "stoker", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"stoker {__version__}\n"


@pytest.mark.parametrize("words", [["nonsense"], ["show"], ["run", "m:p", "--epochs", "0"], ["bench", ".", "--size", "x"]])
def test_wrong_usage_is_status_2(stoker: Any, words: list[str]) -> None:
    result = stoker(*words)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_importing_stoker_imports_neither_typer_nor_rich() -> None:
    code = "import sys, stoker; assert not {'typer', 'rich', 'torch', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_importing_the_command_imports_nothing_slow() -> None:
    code = "import sys, stoker.cli.main; assert not {'torch', 'PIL', 'cv2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_output_that_goes_to_a_file_has_no_control_characters(start: Any, image_folder: Path) -> None:
    out, err = start("show", image_folder).communicate(timeout=60)
    assert out and "\x1b" not in out + err
    assert set(out) - {"\n"} == {c for c in out if c.isprintable()}


def test_a_report_that_cannot_be_written_is_found_before_the_work(stoker: Any, module: Path, tmp_path: Path) -> None:
    for words in (["run", f"{module}:train"], ["show", tmp_path], ["demo"]):
        result = stoker(*words, "--html", tmp_path / "missing" / "page.html")
        assert result.exit_code == 2
        assert "cannot write" in result.stderr

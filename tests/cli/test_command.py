"""The command as a whole: help, exit status, what goes where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker import __version__

from ..support import DEADLINE_S

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


def test_output_in_an_encoding_without_some_letters_has_question_marks(image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "für.py").write_text(
        f"import stoker\ntrain = stoker.files({str(image_folder)!r}).decode('image').batch(2)\n", encoding="utf-8"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "stoker.cli.main", "run", f"{tmp_path}/für.py:train"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (told.returncode, told.stderr) == (0, "") and "?" in told.stdout


def test_output_that_goes_to_a_file_has_no_control_characters(start: Any, image_folder: Path) -> None:
    out, err = start("show", image_folder).communicate(timeout=60)
    assert out and "\x1b" not in out + err
    assert set(out) - {"\n"} == {c for c in out if c.isprintable()}


def test_a_report_that_cannot_be_written_is_found_before_the_work(stoker: Any, module: Path, tmp_path: Path) -> None:
    for words in (["run", f"{module}:train"], ["show", tmp_path], ["demo"]):
        result = stoker(*words, "--html", tmp_path / "missing" / "page.html")
        assert result.exit_code == 2
        assert "cannot write" in result.stderr


# ---- output that nobody takes -------------------------------------------------------------------------------------------------

#: commands that print, each in its own way: text, a table, JSON, help
PRINTING = (["show", "FOLDER"], ["show", "FOLDER", "--json"], ["verify", "FOLDER"], ["explain", "--help"], ["--help"])


def outcome(words: list[str], folder: Path, out: Any, *, buffered: bool) -> tuple[int, str]:
    """Exit status and standard error of the command, with this standard output."""
    command = [sys.executable, "-m", "stoker", *(str(folder) if word == "FOLDER" else word for word in words)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONUNBUFFERED": "" if buffered else "1",
    }
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_reader_that_has_gone_is_status_141_without_a_word(words: list[str], image_folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert outcome(words, image_folder, writing, buffered="--json" in words) == (141, "")
    finally:
        os.close(writing)


def test_a_broken_pipe_of_the_users_code_is_an_error_like_others(stoker: Any, tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text(
        "import stoker\n"
        "def lost(sample=None):\n"
        "    raise BrokenPipeError(32, 'the feature server has gone')\n"
        "mapped = stoker.arrays(x=list(range(4))).map(lost).batch(2)\n"
    )
    for name, status in (("mapped", 1), ("lost", 2)):
        result = stoker("run", f"{tmp_path / 'breaking.py'}:{name}")
        assert result.exit_code == status and "the feature server has gone" in result.stderr


def test_output_that_was_closed_at_the_start_goes_nowhere(tmp_path: Path, image_folder: Path) -> None:
    closed = [sys.executable, "-m", "stoker", "show", str(image_folder), "--html", str(tmp_path / "page.html")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *closed], stderr=subprocess.PIPE, text=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "page.html").exists()


def test_input_that_was_closed_at_the_start_is_empty() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "stoker", "tar", "cat", "-", "-o", "-"]
    done = subprocess.run(closed, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("error: standard input: is empty")


@pytest.mark.parametrize("words", PRINTING[:2], ids=" ".join)
def test_a_full_disk_is_status_74_and_one_line(words: list[str], image_folder: Path) -> None:
    with open("/dev/full", "w") as full:
        status, told = outcome(words, image_folder, full, buffered="--json" in words)
    assert status == 74
    assert told == "error: the output cannot be written: No space left on device; it is incomplete\n"


def test_an_error_that_cannot_be_told_keeps_its_status(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "stoker", "verify", str(tmp_path / "nothing")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        assert subprocess.run(command, stderr=full, env=environment, timeout=60).returncode == 2


# ---- help ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*COMMANDS, "tar cat", "tar proc", "tar show", "tar sort", ""])
def test_help_names_no_types(stoker: Any, command: str) -> None:
    text = stoker(*command.split(), "--help").stdout
    for type_name in ("<bool>", "<str>", "<list", "<int>", "{SOURCE}", "{MODULE"):
        assert type_name not in text


def test_every_command_is_described_in_one_line_of_80_columns(stoker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for group in ([], ["tar"]):
        text = stoker(*group, "--help").stdout
        lines = text[text.index("─ Commands") :].splitlines()[1:]
        rows = [line for line in lines if line.startswith("│")]
        assert len(rows) >= 9 and all(line[2] != " " for line in rows), text


@pytest.mark.parametrize("command, option", [("worker", "workers_at"), ("serve", "pool")])
def test_a_script_that_would_train_where_it_is_imported_is_named(start: Any, tmp_path: Path, command: str, option: str) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import stoker\npipeline = stoker.arrays(x=[1, 2, 3]).batch(1)\n"
        f"with pipeline.loader({option}='tcp://127.0.0.1:9') as batches:\n    list(batches)\n"
    )
    where = "--connect" if command == "worker" else "--at"
    with start(command, where, "tcp://127.0.0.1:9", f"{script}:pipeline") as process:
        _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert f"loader({option}='tcp://127.0.0.1:9'): {script} makes this loader while it is imported" in told
    assert 'put its training code under if __name__ == "__main__":' in told


#: it counts how deep it is in workers of workers, so that a mistake here does not fill the machine
UNGUARDED = """import os, numpy as np, stoker
os.environ["DEPTH"] = os.environ.get("DEPTH", "") + "."
assert len(os.environ["DEPTH"]) < 4
def flipped(x): return x[::-1].copy()
pipeline = stoker.arrays(x=np.zeros((64, 4), np.uint8)).map(x=flipped).batch(32)
with pipeline.loader({}) as batches:
    print("trained on", len(list(batches)), flush=True)
"""


@pytest.mark.parametrize("how", ["", "processes=1"])
def test_a_script_that_trains_while_it_is_imported_does_so_once_and_the_command_says_so(
    start: Any, tmp_path: Path, how: str
) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED.format(how))
    command = start("run", f"{script}:pipeline", "--processes", "1")
    out, err = command.communicate(timeout=60)
    assert command.returncode == 0 and out.startswith("trained on 2\n") and out.count("trained") == 1
    assert (
        f"{script} makes a loader while it is imported, so the command begins after that; put its training code under if" in err
    )


@pytest.mark.parametrize("how", ["threads=1", "processes=1"])
def test_a_script_without_a_main_guard_that_another_imports_trains_once(tmp_path: Path, how: str) -> None:
    (tmp_path / "unguarded.py").write_text(UNGUARDED.format(how))
    code = "import unguarded\nwith unguarded.pipeline.loader(processes=1) as batches: print(len(list(batches)))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "trained on 2\n2\n", "")


def test_a_module_that_starts_workers_only_where_workers_import_it_is_named(tmp_path: Path) -> None:
    """Its functions are imported there, because it made no loader here."""
    lines = UNGUARDED.format("processes=1").splitlines(keepends=True)
    (tmp_path / "sly.py").write_text(
        "".join([*lines[:-2], "if os.environ.get('MAIN') != str(os.getpid()):\n"]) + "".join("    " + line for line in lines[-2:])
    )
    code = (
        "import os; os.environ['MAIN'] = str(os.getpid()); import sly\n"
        "with sly.pipeline.loader(processes=1) as batches: list(batches)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        f"loader(processes=1): {tmp_path / 'sly.py'} starts worker processes while a worker imports it; put its" in ended.stderr
    )

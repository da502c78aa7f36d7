"""`stoker run`: a user's pipeline, measured."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.cli import main
from stoker.engine import signals

from ..observe.test_report import data_of
from ..support import until
from .conftest import in_terminal


def test_all_samples_are_counted_and_costs_told(stoker_json: Any, module: Path) -> None:
    told = stoker_json("run", f"{module}:train", "--epochs", 2, "--threads", 2)
    assert (told["batches"], told["samples"], told["epochs"], told["workers"]) == (8, 48, 2, 2)
    assert told["samples_per_s"] > 0 and 0 <= told["wait_share"] <= 1
    assert all(cost > 0 for cost in told["step_us"].values()) and "read" in told["step_us"]
    assert told["verdict"] and isinstance(told["limit"], str) and isinstance(told["advice"], list)


def test_text_has_figures_and_the_verdict(stoker: Any, module: Path) -> None:
    result = stoker("run", f"{module}:made")
    assert result.exit_code == 0
    assert "24 samples, 4 batches" in result.stdout and "samples/s" in result.stdout and "verdict" in result.stdout


def test_processes_are_told_as_such(stoker: Any, module: Path) -> None:
    result = stoker("run", f"{module}:train", "--processes", 1, "--threads", 2)
    assert result.exit_code == 0 and "1 process of 2 threads on" in result.stdout


def test_one_batch_has_no_rate(stoker: Any, module: Path, tmp_path: Path) -> None:
    result = stoker("run", f"{module}:train", "--limit", 1, "--html", tmp_path / "report.html")
    page = data_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    for text in (result.stdout, f"{page['stats']['samples']} samples {page['verdict']['text']}"):
        assert "6 samples" in text and "`--epochs` of" in text
        assert not re.search(r"samples/s|Samples per second|busy", text)
    assert page["stats"]["measured"] is False


def test_where_nothing_is_trained_no_word_is_lost_on_waiting(stoker: Any, module: Path, tmp_path: Path) -> None:
    result = stoker("run", f"{module}:train", "--epochs", 3, "--html", tmp_path / "report.html")
    page = data_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "verdict" in result.stdout and page["training"] is False
    for text in (result.stdout, page["verdict"]["text"]):
        assert "loop" not in text and "waited for data" not in text and "training" not in text


@pytest.mark.parametrize("option", ["--html", "--trace"])
def test_a_report_that_cannot_be_written_is_named(stoker: Any, module: Path, option: str) -> None:
    result = stoker("run", f"{module}:train", "--limit", 1, option, "/dev/full")
    assert result.exit_code == 74 and "/dev/full: cannot be written: the disk is full" in result.stderr
    measured = option == "--html"  # a trace is begun, and fails, before anything is measured
    assert ("6 samples" in result.stdout and "verdict" in result.stdout) is measured, "what was measured is not lost with it"


def test_a_module_in_the_current_folder_is_found(stoker_json: Any, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(module.parent)
    assert stoker_json("run", "user_pipelines:train", "--limit", 2)["batches"] == 2


def test_an_endless_pipeline_needs_a_limit(stoker: Any, stoker_json: Any, module: Path) -> None:
    result = stoker("run", f"{module}:endless")
    assert result.exit_code == 2 and "--limit" in result.stderr
    assert stoker_json("run", f"{module}:endless", "--limit", 9)["batches"] == 9


def test_trace_and_report_are_written(stoker: Any, module: Path, tmp_path: Path) -> None:
    trace, report = tmp_path / "trace.json", tmp_path / "report.html"
    assert stoker("run", f"{module}:train", "--trace", trace, "--html", report).exit_code == 0
    assert json.loads(trace.read_text())["traceEvents"]
    page = data_of(report.read_text(encoding="utf-8"))
    assert page["verdict"]["text"] and page["stats"]["steps"][0]["name"] == "read" and "RandomResizedCrop" in page["plan"]
    assert len(page["pictures"]) == 6 and page["title"] == f"{module}:train" and page["settings"]["command"]


def test_a_run_can_be_watched_where_there_is_no_terminal_too(stoker: Any, module: Path) -> None:
    result = stoker("run", f"{module}:train", "--watch")
    assert result.exit_code == 0 and "verdict" in result.stdout
    assert re.fullmatch(r"watch it at http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", result.stderr)


def test_ctrl_c_while_it_is_watched_leaves_the_terminal_clean(module: Path) -> None:
    told, status = in_terminal("run", f"{module}:endless", "--limit", str(10**9), "--watch", until=b"samples/s", then=b"\x03")
    assert status == 130 and b"Traceback" not in told
    assert b"token=" in told and told.rstrip().endswith(b"stopped")
    assert told.rfind(b"\x1b[?25h") > told.rfind(b"\x1b[?25l"), "the cursor is shown"
    frames = re.findall(r"╭─ (?!verdict).+?╮", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", told.decode()))
    assert frames and {len(line) for line in frames} == {98}, "of 100 columns: ^C has room, and begins no line that stays"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{file}:nothing", "train, endless, failing"),
        ("{file}:number", "type int"),
        ("{file}:wants", "without arguments"),
        ("{file}:broken", "ZeroDivisionError"),
        ("{file}", "MODULE:PIPELINE"),
        ("no_such_module:train", "no_such_module"),
        ("no_such_file.py:train", "no_such_file.py"),
        ("first.ipynb:train", "first.ipynb: a notebook cannot be imported; write its pipeline to a file"),
    ],
)
def test_a_name_that_gives_no_pipeline_is_wrong_usage(stoker: Any, module: Path, name: str, told: str) -> None:
    result = stoker("run", name.format(file=module))
    assert result.exit_code == 2
    assert told in result.stderr and "Traceback" not in result.stderr


def test_a_bad_sample_is_named_without_a_traceback(start: Any, module: Path) -> None:
    process = start("run", f"{module}:failing", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == ""
    assert "cat/cat_00.jpg" in err and "no such luck" in err and str(module) in err and "Traceback" not in err


def test_ctrl_c_while_modules_are_imported_is_the_same_status(start: Any, tmp_path: Path) -> None:
    """There Python runs code from strings, to make dataclasses."""
    (tmp_path / "slow.py").write_text("exec('raise KeyboardInterrupt')")
    process = start("run", f"{tmp_path}/slow.py:train")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "stopped\n")


def test_ctrl_c_before_there_is_a_command_is_the_same_status(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signals, "install", lambda: None)
    monkeypatch.setattr(main, "app", interrupt)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "stopped\n")


@pytest.mark.parametrize(("number", "status", "told"), [(signal.SIGINT, 130, "stopped\n"), (signal.SIGTERM, 143, "")])
def test_a_signal_that_meets_a_finalizer_is_not_lost(
    start: Any, tmp_path: Path, number: signal.Signals, status: int, told: str
) -> None:
    (tmp_path / "unlucky.py").write_text(
        f"""
import signal, time

class Unlucky:
    def __del__(self):
        signal.raise_signal({int(number)})

def train():
    Unlucky()
    time.sleep(50)
"""
    )
    process = start("run", f"{tmp_path}/unlucky.py:train")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (status, "", told)


def test_ctrl_c_stops_it_quietly(start: Any, module: Path) -> None:
    process = start("run", f"{module}:endless", "--limit", 10**9)
    until(module.with_suffix(".imported").exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in out + err


def test_ctrl_c_leaves_figures_verdict_and_report(start: Any, module: Path, tmp_path: Path) -> None:
    trace, report = tmp_path / "trace.json", tmp_path / "report.html"
    process = start("run", f"{module}:endless", "--limit", 10**9, "--trace", trace, "--html", report)
    until(lambda: trace.exists() and trace.stat().st_size >= 20_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in err
    assert "handed out" in out and "verdict" in out and "</html>" in report.read_text()

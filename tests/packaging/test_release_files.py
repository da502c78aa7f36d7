"""The files of the release agree: workflows parse, are pinned, and name the Pythons and platforms of pyproject.toml."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from .wheels import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML reads workflows")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: files of GitHub's that a checkout may lack
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="there are no workflows here")


def settings() -> dict[str, Any]:
    if sys.version_info < (3, 11):
        pytest.skip("it takes tomllib")
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))


def pythons() -> list[str]:
    """Those that pyproject.toml says Stoker is for."""
    classifiers = settings()["project"]["classifiers"]
    return [found[1] for text in classifiers if (found := re.match(r"Programming Language :: Python :: (3\.\d+)$", text))]


def test_the_pythons_are_the_same_everywhere() -> None:
    versions = pythons()
    assert settings()["project"]["requires-python"] == f">={versions[0]}"
    tags = [f"cp{version.replace('.', '')}-*" for version in versions]
    free = f"{versions[-1]}t"
    assert settings()["tool"]["cibuildwheel"]["build"] == [*tags, f"cp{free.replace('.', '')}-*"]
    assert workflow("test.yml")["jobs"]["core"]["strategy"]["matrix"]["python"] == [*versions, free]
    assert workflow("release.yml")["jobs"]["clean"]["strategy"]["matrix"]["python"] == versions
    page, front = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/howto/install.md", "README.md"))
    assert f"Python {versions[0]} to {versions[-1]}" in page and f"Python {versions[0]} or newer" in front


def test_the_platforms_are_those_that_the_page_on_installing_names() -> None:
    jobs = workflow("release.yml")["jobs"]["wheels"]["strategy"]["matrix"]["include"]
    platforms = " ".join(job["platforms"] for job in jobs).split()
    assert len(set(platforms)) == 5
    images = settings()["tool"]["cibuildwheel"]["linux"]
    page = (ROOT / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    for platform in platforms:
        system, _, machine = platform.partition("_")
        tag = images[f"{system}-{machine}-image"] if system.endswith("linux") else system
        assert re.search(rf"`{tag}.*{machine}|{tag}.*`{machine}`", page), f"{tag} on {machine}"
    assert settings()["tool"]["cibuildwheel"]["macos"]["archs"] == ["arm64"]


def test_the_page_on_installing_names_every_extra() -> None:
    ours = {"bench", "check", "docs", "release", "test", "test-core"}
    page = (ROOT / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    named = set(re.findall(r"'stoker\[([\w-]+)\]'", page))
    assert named == set(settings()["project"]["optional-dependencies"]) - ours


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_and_little_is_permitted(path: Path) -> None:
    content = workflow(path.name)
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        assert job["timeout-minutes"] and job["steps"], name
        assert set(job.get("permissions", {})) <= {"publish": {"id-token"}, "release": {"contents"}}.get(name, set())
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_what_workflows_run_is_there() -> None:
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = [
        step["run"]
        for path in WORKFLOWS
        for job in workflow(path.name)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    text = "\n".join(commands)
    for file in re.findall(r"python ([\w/]+\.py)|^(\.ci/\w+)$", text, re.MULTILINE):
        assert (ROOT / "".join(file)).exists(), file
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", made, re.MULTILINE), target
    assert {".ci/run", "make test-core PYTHON=python"} <= set(commands)
    pinned = settings()["project"]["optional-dependencies"]["release"]
    assert re.search(r"build==[\d.]+", text)[0] in pinned  # type: ignore[index]


def test_the_citation_names_no_single_person() -> None:
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert about["cff-version"] == "1.2.0" and about["type"] == "software"
    assert about["authors"] == [{"name": "The Stoker developers"}] == settings()["project"]["authors"]
    assert about["license"] in settings()["project"]["license"]

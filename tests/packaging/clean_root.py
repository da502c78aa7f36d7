"""Installs a wheel in a system that has Python and no compiler, and runs the README's example there.

    python tests/packaging/clean_root.py dist/stoker-*.whl [--suite bookworm] [--torch torch==2.13.0] [--root FOLDER]

The system is a fresh Debian, made by debootstrap in a temporary folder and entered by chroot, without a network; so this takes
root, debootstrap, a Debian mirror and PyPI. What the wheel depends on is downloaded outside, for the Python inside.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
README = HERE.parents[1] / "README.md"
PLACE = "opt/check"


def run(*command: str | Path) -> str:
    """What the command prints; its errors are ours."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stdout[-4000:])
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}")
    return done.stdout.strip()


def inside(root: Path, *command: str) -> str:
    """Run in the other system, with its own programs alone; whatever is started there ends with it."""
    apart = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc", "chroot", root)
    return run(*apart, "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8", *command)


def make_root(root: Path, suite: str) -> None:
    packages = "--include=python3,python3-venv"
    run("debootstrap", "--variant=minbase", packages, suite, root)  # from its usual mirror


def download(wheel: Path, torch: str, version: str, folder: Path) -> None:
    """The wheel and torch, and all they depend on, for that version of Python."""
    options = ["--only-binary=:all:", f"--python-version={version}", "--dest", str(folder)]
    run(sys.executable, "-m", "pip", "download", "--quiet", *options, wheel, torch)


def check(wheel: Path, torch: str, root: Path) -> None:
    version = inside(root, "/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    place = root / PLACE
    (place / "wheels").mkdir(parents=True)
    download(wheel, torch, version, place / "wheels")
    for file in (HERE / "check_installed.py", README):
        shutil.copy(file, place)
    inside(root, "/usr/bin/python3", "-m", "venv", f"/{PLACE}/venv")
    python = f"/{PLACE}/venv/bin/python"
    inside(root, python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", f"/{PLACE}/wheels", "stoker[torch]")
    print(inside(root, python, f"/{PLACE}/check_installed.py", "--bare", "--readme", f"/{PLACE}/README.md"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--torch", default="torch", help="what to install for the example, as pip takes it")
    parser.add_argument("--root", type=Path, help="a root that is there already, and is kept")
    asked = parser.parse_args()
    if not re.match(r"stoker-.*\.whl$", asked.wheel.name) or not asked.wheel.exists():
        raise SystemExit(f"{asked.wheel}: not a wheel of Stoker; `make wheel` builds one")
    if os.geteuid() or not shutil.which("debootstrap"):
        raise SystemExit("this takes root and debootstrap: apt-get install debootstrap")
    if asked.root:
        check(asked.wheel, asked.torch, asked.root)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_root(Path(folder), asked.suite)
        check(asked.wheel, asked.torch, Path(folder))


if __name__ == "__main__":
    main()

"""Builds the source distribution, and from it a wheel for this or another machine: what the release workflow does in containers.

    python -m tests.packaging.make_wheel x86_64-linux-gnu.2.28 [--turbo-source libjpeg-turbo-3.1.3.tar.gz]

The target is what Zig calls it. Wheels go to ``dist``; auditwheel checks those for glibc and this processor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "wheel"
DIST = ROOT / "dist"
#: Zig has names of its own for processors
COMPILER = """#!/bin/sh
for word; do
  shift
  case $word in -march=armv8-a+crc) word=-mcpu=generic+crc ;; esac
  set -- "$@" "$word"
done
exec {python} -m ziglang cc -target {target} "$@"
"""


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run([str(word) for word in command], check=True, env={**os.environ, **environment}, cwd=ROOT)


def make_compiler(target: str) -> Path:
    """A compiler for the target under one name, as CMake wants it."""
    path = WORK / "cc"
    path.write_text(COMPILER.format(python=sys.executable, target=target))
    path.chmod(0o755)
    return path


def processor_tables(target: str) -> str:
    """What tells processors apart on x86-64 (``__cpu_model``) is in GCC's library; Zig has none."""
    if not target.startswith("x86_64"):
        return ""
    return subprocess.run(["gcc", "-print-libgcc-file-name"], check=True, capture_output=True, text=True).stdout.strip()


def settings(target: str, turbo_source: Path | None) -> list[str]:
    """Of the build: libjpeg-turbo inside; for another machine, which one."""
    machine = target.split("-")[0]
    defined = {"STOKER_TURBO": "BUNDLED"}
    if turbo_source:
        defined["STOKER_TURBO_SOURCE"] = str(turbo_source.resolve())
    words = [f"build-dir={WORK}/native"]
    if machine != os.uname().machine:
        defined |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": machine}
        words.append("install.strip=false")
    words += [f"cmake.define.{name}={value}" for name, value in defined.items()]
    return [f"-C{word}" for word in words]


def platform_tag(target: str) -> str:
    """What pip calls the target: ``aarch64-linux-gnu.2.28`` is manylinux_2_28_aarch64."""
    machine, _, libc = target.split("-")
    name, _, version = libc.partition(".")
    kind = {"gnu": "manylinux", "musl": "musllinux"}[name]
    return f"{kind}_{(version or '1.2').replace('.', '_')}_{machine}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--turbo-source", type=Path)
    asked = parser.parse_args()
    tag = platform_tag(asked.target)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    compiler = make_compiler(asked.target)
    machine = asked.target.split("-")[0]
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", WORK)
    environment = {"CC": str(compiler), "LDFLAGS": processor_tables(asked.target), "_PYTHON_HOST_PLATFORM": f"linux-{machine}"}
    run(*build, *settings(asked.target, asked.turbo_source), **environment)
    DIST.mkdir(exist_ok=True)
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (sources,), (wheel,) = WORK.glob("*.tar.gz"), WORK.glob("*.whl")
    shutil.move(sources, DIST / sources.name)
    if tag.startswith("manylinux") and machine == os.uname().machine:
        run(sys.executable, "-m", "auditwheel", "repair", "--plat", tag, "--only-plat", "--wheel-dir", DIST, wheel, PATH=tools)
    else:  # auditwheel judges wheels for its own system alone
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel)
        (wheel,) = WORK.glob("*.whl")
        shutil.move(wheel, DIST / wheel.name)


if __name__ == "__main__":
    main()

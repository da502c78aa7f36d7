"""Does the installed Stoker work? A program for an environment that holds the wheel and what it depends on, and nothing else.

    python check_installed.py [--readme README.md] [--bare]

It makes some images, among them progressive JPEGs, and loads them with threads and with processes. ``--readme`` runs the first
example of that page, which needs torch. ``--bare`` insists that there is no compiler that could have helped. Nothing of the
source tree is used, so this file can be copied anywhere.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
from PIL import Image

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop
from stoker.kernel import native
from stoker.kernel.device_load import KERNELS, kernel_source

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "zig", "cmake", "ninja", "make", "nasm")
CLASSES = ("cat", "dog")
#: in each class: as many as make one batch of the page's example
PER_CLASS = 128


def picture(seed: int) -> bytes:
    """A smooth JPEG, every second one progressive."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(small).resize((80, 60), Image.Resampling.BICUBIC).save(data, "JPEG", progressive=seed % 2 == 1)
    return data.getvalue()


def make_images(root: Path) -> None:
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            (root / name / f"{number:03d}.jpg").write_bytes(picture(label * PER_CLASS + number))


def epoch_hash(**how: int) -> str:
    """All bytes of an epoch of crops, as one hash."""
    pipeline = stoker.files("photos/train").shuffle(seed=7).image("image", RandomResizedCrop(32), HorizontalFlip()).batch(64)
    seen = hashlib.sha256()
    with pipeline.loader(**how) as batches:  # type: ignore[arg-type]
        for images, labels in batches:
            assert images.shape == (64, 32, 32, 3) and images.dtype == np.uint8 and set(labels.tolist()) <= {0, 1}
            seen.update(images.tobytes() + labels.tobytes())
    return seen.hexdigest()


def check_progressive_is_decoded_here() -> None:
    """By libjpeg-turbo inside the library: Pillow, which would be asked otherwise, is not."""
    info = native.build_info()
    assert info.startswith("libjpeg-turbo "), info
    assert native.jpeg_header(picture(1)).supported


def first_example(page: str) -> str:
    found = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found, "the page has no example"
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", type=Path)
    parser.add_argument("--bare", action="store_true")
    asked = parser.parse_args()
    page = asked.readme.read_text(encoding="utf-8") if asked.readme else ""
    if asked.bare:
        found = [name for name in COMPILERS if shutil.which(name)]
        assert not found, f"not a bare environment: {found}"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_images(Path("photos/train"))
        check_progressive_is_decoded_here()
        assert all(name in kernel_source() for name in KERNELS)
        one = epoch_hash(threads=1)
        assert epoch_hash(threads=3) == one
        if hasattr(os, "memfd_create"):  # processes need Linux
            assert epoch_hash(processes=2) == one
        if page:
            exec(compile(first_example(page), "README.md", "exec"), {})  # noqa: S102  our own page
        os.chdir("/")
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert locked or sysconfig.get_config_var("Py_GIL_DISABLED")
    version = metadata.version("stoker")
    assert version == stoker.__version__
    print(f"stoker {version} works: {native.build_info()}, Python {sys.version.split()[0]}{'' if locked else ' without GIL'}")


if __name__ == "__main__":
    main()

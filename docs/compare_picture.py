"""Make `docs/images/serial-against-parallel.png`: `stoker bench --compare` on a folder of photographs, as a browser shows it.

    python docs/compare_picture.py photos/ [--out FILE] [--seconds 20]

Needs chromium. What it shows is measured: run it while the machine does nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

OUT = Path(__file__).parent / "images" / "serial-against-parallel.png"
WIDTH, HEIGHT = 1040, 620


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", type=Path, help="a folder of photographs")
    parser.add_argument("--out", type=Path, default=OUT, help="the PNG to write")
    parser.add_argument("--seconds", default="20", help="how long to measure each way")
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("there is no chromium; install it to make the picture")
    with TemporaryDirectory() as folder:
        page = Path(folder) / "compare.html"
        bench = ["bench", given.photos.name, "--compare", "--batch", "64", "--seconds", given.seconds, "--html", str(page)]
        subprocess.run([sys.executable, "-m", "stoker", *bench], cwd=given.photos.absolute().parent, check=True)
        shot = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/browser"]
        size = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={given.out.absolute()}"]
        subprocess.run([browser, *shot, *size, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

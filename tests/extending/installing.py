"""Installs a package of `examples/` as a person would, into a folder of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(package: Path, target: Path) -> Path:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"),
            *("--no-deps", "--no-build-isolation", "--no-cache-dir", "--target", str(target), str(package)),
        ],
        check=True,
    )
    return target

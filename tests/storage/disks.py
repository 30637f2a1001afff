"""A real disk that is soon full."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One megabyte, mounted. Only root may mount."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], stderr=subprocess.DEVNULL
    )
    if not mounted:
        pytest.skip("Only root may mount a small disk here; the limit on file sizes is tried instead.")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)

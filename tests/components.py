"""Programs that tests need and no wheel brings: installed once by their own package client, by name and version, into
a cache outside the tree. What cannot be had is skipped, and the skip names the command that would bring it."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock"
AZURITE = "3.35.0"
INSTALL_SECONDS = 600


def installed(name: str, version: str, install: Callable[[Path], None]) -> Path:
    """The component's folder. It appears whole or not at all, however many ask and whoever is killed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{name}-{version}"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = CACHE / f"{name}-{version}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            install(unfinished)
            unfinished.rename(folder)
    return folder


def missing(what: str, command: str, why: str) -> NoReturn:
    pytest.skip(f"SKIPPED for want of {what} ({why}). To have it: {command}")


def azurite() -> Path:
    """Azure's blob storage, as Microsoft emulates it."""
    package = f"azurite@{AZURITE}"
    if shutil.which("npm") is None or shutil.which("node") is None:
        missing("azurite", f"apt-get install nodejs npm, then npm install {package}", "npm or node is not installed")

    def install(folder: Path) -> None:
        run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder), package])

    try:
        folder = installed("azurite", AZURITE, install)
    except subprocess.SubprocessError as problem:
        missing("azurite", f"npm install {package}", f"npm failed: {type(problem).__name__}")
    return folder / "node_modules" / ".bin" / "azurite-blob"


def run(command: list[str], cwd: Path | None = None, environ: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        check=True,
        timeout=INSTALL_SECONDS,
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )

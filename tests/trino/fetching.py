"""A real Trino, fetched once per machine by name and version through Maven, into a cache outside the tree."""

import fcntl
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

VERSION = "476"
ARTIFACT = f"io.trino:trino-server:{VERSION}:tar.gz"
FETCH = ("mvn", "-B", "-ntp", "-q", "dependency:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false")
INSTALL = ("apt-get", "install", "-qq", "-y", "--no-install-recommends", "maven")
PLUGINS = {
    "blackhole",
    "geospatial",
    "hive",
    "iceberg",
    "memory",
    "password-authenticators",
    "resource-group-managers",
    "spooling-filesystem",
    "tpch",
}


def trino_home() -> Path:
    """The unpacked server. Skips the test, loudly, where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock-tests"
    home = cache / f"trino-server-{VERSION}"
    ready = home / ".ready"
    if not ready.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"trino-{VERSION}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():
                _unpack(_archive(), home)
                ready.touch()
    return home


def _archive() -> Path:
    folder = Path(os.environ.get("MAVEN_REPO") or Path.home() / ".m2" / "repository")
    archive = folder / "io" / "trino" / "trino-server" / VERSION / f"trino-server-{VERSION}.tar.gz"
    if archive.exists():
        return archive
    if shutil.which("mvn") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(INSTALL, check=False, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    if shutil.which("mvn") is None:
        pytest.skip("TRINO IS NOT TESTED: Maven is missing (Debian: apt-get install maven), then: " + " ".join(FETCH))
    fetched = subprocess.run(FETCH, check=False, capture_output=True, text=True)
    if fetched.returncode != 0 or not archive.exists():
        pytest.skip(f"TRINO IS NOT TESTED: {' '.join(FETCH)} failed: {fetched.stdout[-500:]}")
    return archive


def _unpack(archive: Path, home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    # All of it, then less: jars are hard links across plugins.
    with tarfile.open(archive) as tar:
        tar.extractall(home.parent, filter="data")
    for plugin in (home / "plugin").iterdir():
        if plugin.name not in PLUGINS:
            shutil.rmtree(plugin)

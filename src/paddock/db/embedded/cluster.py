"""The cluster in `pg/`: made whole or not at all, of the version of the programs."""

import os
import shutil
from pathlib import Path

from paddock.db.embedded.children import run
from paddock.db.embedded.errors import DataFolderInUse, WrongVersion
from paddock.db.embedded.place import DATABASE, USER, Place, give
from paddock.db.embedded.programs import programs_version

_LOG_LIMIT = 10 * 1024 * 1024


async def prepare_cluster(place: Place) -> None:
    """Leaves a whole cluster of the right version in `pg/`, with no trace of a previous server."""
    major = programs_version(place.pg_bin)
    if place.log_file.exists() and place.log_file.stat().st_size > _LOG_LIMIT:
        place.log_file.replace(place.data_dir / "postgres.log.old")
    if not place.cluster.exists():
        await _create_cluster(place, major)
    made_by = (place.cluster / "PG_VERSION").read_text().strip()
    if made_by != str(major):
        raise WrongVersion(
            f"{place.cluster} was made by PostgreSQL {made_by}, but the programs in {place.pg_bin} are version {major}. "
            f"Use the programs of version {made_by} (--pg-bin DIR), or move the data with pg_dump or pg_upgrade."
        )
    _remove_stale_pid_file(place.cluster)


async def _create_cluster(place: Place, major: int) -> None:
    new = place.data_dir / "pg.new"
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(0o700)
    give(new, place.account)
    builtin = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if major >= 17 else ()
    access = ("--auth-local=peer", "--auth-host=scram-sha-256", f"--username={USER}")
    encoding = ("--encoding=UTF8", "--locale=C", *builtin)
    await run(place, "initdb", "-D", str(new), *access, *encoding, "--data-checksums", "--no-sync", "--no-instructions")
    create = f"CREATE DATABASE {DATABASE};\n".encode()
    single = ("--single", "-D", str(new), "-c", "exit_on_error=on", "-c", "fsync=off", "postgres")
    await run(place, "postgres", *single, stdin=create)
    await run(place, "initdb", "-D", str(new), "--sync-only")
    new.rename(place.cluster)
    folder = os.open(place.data_dir, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _remove_stale_pid_file(cluster: Path) -> None:
    """A pid file left by a killed server stops the next one when its process id is in use again.

    The server lock says that the server we started is gone; one started by hand on this folder has to be respected.
    """
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    pid = pid_file.read_text().partition("\n")[0]
    try:
        alive = os.path.samefile(f"/proc/{pid}/cwd", cluster)
    except OSError:
        alive = False
    if alive:
        raise DataFolderInUse(
            f"A PostgreSQL that Paddock did not start (process {pid}) is running on {cluster}: stop it first."
        )
    pid_file.unlink()

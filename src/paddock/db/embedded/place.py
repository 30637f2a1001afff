"""The data folder, and the account that postgres runs as in it."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from paddock.db.data_folder import make_data_folder
from paddock.db.embedded.errors import EmbeddedPostgresError, FolderUnreachable

DATABASE = "paddock"
USER = "paddock"


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Place:
    data_dir: Path
    pg_bin: Path
    account: Account
    server_lock: int

    @property
    def cluster(self) -> Path:
        return self.data_dir / "pg"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "postgres.log"


def server_account(cluster: Path) -> Account:
    """Who postgres runs as: ourselves, or for root, the cluster's owner or an unprivileged account."""
    euid = os.geteuid()
    try:
        owner = cluster.stat().st_uid if cluster.exists() else None
    except PermissionError as error:
        raise FolderUnreachable(
            f"{cluster} cannot be read: {error}. Choose another data folder (--data DIR)."
        ) from error
    if owner is not None and (owner == 0 or euid not in (0, owner)):
        raise FolderUnreachable(
            f"{cluster} belongs to the user with id {owner}, and PostgreSQL runs only as the owner of its files and never "
            f"as root. Run Paddock as that user, change the owner (chown -R), or choose another folder (--data DIR)."
        )
    try:
        if euid != 0 or owner is not None:
            entry = pwd.getpwuid(owner if owner is not None else euid)
        else:
            entry = next(entry for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)
    except (KeyError, StopIteration) as error:
        raise EmbeddedPostgresError(
            "PostgreSQL needs an account in /etc/passwd to run as: there is none for this user id, or, for root, "
            "neither 'postgres' nor 'nobody'. Add one, or use a PostgreSQL server of your own."
        ) from error
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def make_folder(data_dir: Path) -> None:
    try:
        make_data_folder(data_dir)
    except OSError as error:
        raise FolderUnreachable(
            f"{error.filename} cannot be made: {error}. Choose a data folder with --data DIR."
        ) from error


def give(path: Path, account: Account) -> None:
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def open_file(path: Path, flags: int, mode: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)

"""How the owner, and nobody else, connects: the folder of the socket, and who is whom."""

import contextlib
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paddock.db.embedded.place import USER, Place, give

_SOCKET_PATH_LIMIT = 107
_TMP = Path("/tmp")  # noqa: S108  short and reachable for postgres' account, unlike TMPDIR; mkdtemp makes it private
_TMP_PREFIX = "paddock-pg-"


@contextlib.contextmanager
def socket_folder(place: Place) -> Iterator[Path]:
    """`socket/` in the data folder, or, where that path is too long or odd for a socket, a private one under /tmp."""
    folder = place.data_dir / "socket"
    if folder.is_symlink():  # to the folder under /tmp of an owner that was killed
        left = folder.readlink()
        if left.parent == _TMP and left.name.startswith(_TMP_PREFIX) and left.exists() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)  # with the stale lock file of a killed server
    longest = folder / ".s.PGSQL.65535"
    if len(os.fsencode(longest)) <= _SOCKET_PATH_LIMIT and re.fullmatch(r"[\w./+-]+", str(folder), re.ASCII):
        folder.mkdir(0o700)
        give(folder, place.account)
        yield folder
        return
    temporary = Path(tempfile.mkdtemp(prefix=_TMP_PREFIX, dir=_TMP))
    try:
        give(temporary, place.account)
        folder.symlink_to(temporary)
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def access_files(place: Place) -> dict[str, str]:
    """Peer authentication: the kernel vouches for the OS user, so a world-readable socket would not matter either."""
    owner = pwd.getpwuid(os.geteuid()).pw_name
    contents = {
        "hba_file": f"local all all peer map={USER}\nhost all all all scram-sha-256\n",
        "ident_file": f'{USER} "{owner}" {USER}\n',
    }
    paths = {"hba_file": place.data_dir / "pg_hba.conf", "ident_file": place.data_dir / "pg_ident.conf"}
    for setting, path in paths.items():
        # Renamed into place, not opened: a symbolic link planted under this name is replaced, not followed.
        with tempfile.NamedTemporaryFile("w", dir=place.data_dir, delete=False) as file:
            file.write(contents[setting])
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    return {setting: str(path) for setting, path in paths.items()}

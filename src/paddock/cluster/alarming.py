"""What the overview's sentence says about the cluster; nothing when all is well."""

from paddock.db.pool import Database
from paddock.runtimes.kubernetes.installation import mismatches
from paddock.web.judging import Clause


async def clauses(_db: Database) -> list[Clause]:
    return [Clause("this database and its cluster do not belong together", "/cluster")] if mismatches() else []

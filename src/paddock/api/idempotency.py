"""`Idempotency-Key`: the same key and body get the same answer, from the route and owner they came from.

`core.submit` keeps a key in the transaction that makes its jobs, and so do routes with a transaction of their own. Here
is the same for `retry`, whose transaction is the core's: there the key is kept right after it.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Header

from paddock.api.bodies import canonical_hash
from paddock.api.documenting import IDEMPOTENCY_DESCRIPTION
from paddock.api.errors import invalid_field
from paddock.api.tokens import Caller
from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.enqueueing import SQL, IdempotencyKey, earlier, jobs_of_key, remember
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job

PATTERN = re.compile(r"[\x21-\x7e]{1,200}\Z")

KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", description=IDEMPOTENCY_DESCRIPTION)]


def key_of(caller: Caller, route: str, key: str | None, body: Any) -> IdempotencyKey | None:
    if key is None:
        return None
    if not PATTERN.match(key):
        raise invalid_field("Idempotency-Key", "It has 1 to 200 visible ASCII characters.")
    return IdempotencyKey(caller.owner, route, key, canonical_hash(body))


async def once(db: Database, key: IdempotencyKey | None, make: Callable[[], Awaitable[Job]]) -> Job:
    """The job `make` makes, or made for this key before. Only for work that refuses to be done twice by itself."""
    if key is None:
        return await make()
    made = await _look_up(db, key)
    if made is not None:
        return made
    try:
        job = await make()
    except Refused:
        # Perhaps the same request, sent twice at once, has won.
        made = await _look_up(db, key)
        if made is None:
            raise
        return made
    async with db.transaction() as tx:
        if await earlier(tx, key) is None:
            await remember(tx, key, [job.id])
    return job


async def _look_up(db: Database, key: IdempotencyKey) -> Job | None:
    row = await db.fetchrow(SQL["read_idempotency_key"], key.owner, key.route, key.key)
    return None if row is None else await reading.job(db, jobs_of_key(row, key)[0])

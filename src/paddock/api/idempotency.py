"""`Idempotency-Key`: the same key and body get the same answer, from the route and owner they came from.

`core.submit` keeps a key in the transaction that makes its jobs. Here is the same for routes with a transaction of their
own, and for `retry`, whose transaction is the core's: there the key is kept right after it.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Header

from paddock.api.bodies import canonical_hash
from paddock.api.documenting import IDEMPOTENCY_DESCRIPTION
from paddock.api.errors import invalid_field
from paddock.api.tokens import Caller
from paddock.db.pool import Database, Transaction
from paddock.jobs import reading
from paddock.jobs.enqueueing import SQL, IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JobId

PATTERN = re.compile(r"[\x21-\x7e]{1,200}\Z")

KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", description=IDEMPOTENCY_DESCRIPTION)]


def key_of(caller: Caller, route: str, key: str | None, body: Any) -> IdempotencyKey | None:
    if key is None:
        return None
    if not PATTERN.match(key):
        raise invalid_field("Idempotency-Key", "It has 1 to 200 visible ASCII characters.")
    return IdempotencyKey(caller.owner, route, key, canonical_hash(body))


async def earlier(tx: Transaction, key: IdempotencyKey | None) -> list[JobId] | None:
    """The jobs this key made before; None: it is new, kept from now on, and `remember` fills it in."""
    if key is None:
        return None
    if await tx.fetchval(SQL["keep_idempotency_key"], key.owner, key.route, key.key, key.body_hash):
        return None
    row = await tx.fetchrow(SQL["read_idempotency_key"], key.owner, key.route, key.key)
    return _checked(row, key)


async def remember(tx: Transaction, key: IdempotencyKey | None, ids: list[JobId]) -> None:
    if key is not None:
        await tx.execute(SQL["fill_idempotency_key"], key.owner, key.route, key.key, ids)


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
    return None if row is None else await reading.job(db, _checked(row, key)[0])


def _checked(row: Any, key: IdempotencyKey) -> list[JobId]:
    if row is None:
        raise Refused("idempotency_key_expired", "The idempotency key just expired.", hint="Send it again.")
    if row["body_hash"] != key.body_hash:
        raise Refused(
            "idempotency_key_reused",
            "This Idempotency-Key was used with another body.",
            hint="Use a fresh key for each new request.",
            status=422,
        )
    return [JobId(id) for id in row["job_ids"]]

"""The key an owner's callbacks are signed with: made on first use, shown to its owner, changed when they say so.

A subscription has a secret of its own; the URL that comes with a request has none, and only its owner is known.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime

from paddock.db.pool import Transaction, statements
from paddock.jobs.acting import audit

SQL = statements("paddock.jobs.sql", "webhook.sql")
SECRET_PREFIX = "whsec_"  # noqa: S105  # not a secret: what every one of them begins with


@dataclass(frozen=True, slots=True)
class OwnerKey:
    secret: str
    created_at: datetime


def new_secret() -> str:
    return SECRET_PREFIX + secrets.token_urlsafe(32)


async def of(tx: Transaction, owner: str) -> OwnerKey:
    row = await tx.fetchrow(SQL["owner_key"], owner)
    if row is None:
        # Two may come first at once: both get the one that stayed.
        await tx.execute(SQL["make_owner_key"], owner, new_secret())
        row = await tx.fetchrow(SQL["owner_key"], owner)
    assert row is not None
    return OwnerKey(**row)


async def rotate(tx: Transaction, owner: str, *, actor: str) -> OwnerKey:
    """Whatever is sent from now on is signed with the new one."""
    row = await tx.fetchrow(SQL["rotate_owner_key"], owner, new_secret())
    assert row is not None
    await audit(tx, actor, "webhook_key_rotated", f"owner:{owner}")
    return OwnerKey(**row)

"""Signing is a job for workers; what it wrote is committed by the control plane, in the transaction that ends the job."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from guestbook.settings import GuestbookSettings
from paddock.config import Config
from paddock.jobs.kinds import Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.model import Job


class Signature(BaseModel):
    book: str = Field(min_length=1, max_length=100)
    guest: str = Field(min_length=1, max_length=100)


class Nothing(BaseModel):
    pass


async def sign(turn: Turn[Signature]) -> Outcome:
    """Killed on any line, it leaves nothing behind: the row is written when the job ends."""
    return done({"book": turn.payload.book, "guest": turn.payload.guest})


async def signed(tx: "Transaction", job: "Job") -> None:
    from guestbook.service import SQL

    if job.status == "completed":
        await tx.execute(SQL["insert_guest"], job.id, job.payload["book"], job.payload["guest"], job.owner)


def worker_kinds(_config: Config) -> Sequence[Kind]:
    return [
        Kind(
            name="sign_guestbook",
            payload=Signature,
            handler=sign,
            submit=frozenset({"analyst", "ops", "admin"}),
            uses=lambda payload: [("book", payload.book)],
            on_end=signed,
        )
    ]


def internal_kinds(config: Config) -> Sequence[Kind]:
    from guestbook.service import SQL
    from paddock.db.pool import Database

    async def tidy(turn: Turn[Nothing], db: Database) -> Outcome:
        kept = timedelta(days=config.of(GuestbookSettings).keep_days)
        return done({"deleted": await db.execute(SQL["delete_old_guests"], kept)})

    return [
        Kind(name="tidy_guestbook", payload=Nothing, handler=tidy, internal=True, housekeeping=True, serial=True),
    ]

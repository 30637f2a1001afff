"""Who asked to be called at a dump's end is, by a job of its own: whatever comes of it, the dump stays as it is.

The request is a delivery like that of an event: signed together with its time by the key of the dump's owner, sent to
public addresses only, following no redirect, tried again for about half a day. The URL comes from the dump's row and is
in no payload, log or error; errors name its host.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import orjson
from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Transaction, statements
from paddock.dumps import dumps
from paddock.dumps.settings import DumpSettings
from paddock.jobs.core import Core
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, PermanentFailure, done, permanent
from paddock.jobs.turn import Turn
from paddock.jobs.webhooks import delivering, keys, outbound

SQL = statements("paddock.dumps.sql", "dumps.sql")


class CallbackPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dump_id: str
    # The host of its URL.
    receiver: str = ""


async def call(turn: Turn[CallbackPayload], core: Core, config: Config) -> Outcome:
    row = await core.db.fetchrow(SQL["callback"], turn.payload.dump_id)
    secret = turn.secrets.get("signing")
    if row is None or row["callback_url"] is None or secret is None:
        return done({"skipped": "The dump was deleted."})
    if row["status"] not in ("completed", "failed", "cancelled"):
        return done({"skipped": "The dump is being deleted."})
    message = callback_body(row, config)
    body = orjson.dumps(message)
    answer = await outbound.post(
        row["callback_url"],
        body,
        delivering.headers(turn.id, f"dump.{message['status']}", row["now"], body, secret),
        allow_private=core.settings.webhook_allow_private,
        owner=turn.owner,
        allow_http=config.of(DumpSettings).callback_allow_http,
    )
    meaning = delivering.meaning(answer, datetime.fromtimestamp(row["now"], UTC))
    if isinstance(meaning, PermanentFailure) and meaning.error.code == delivering.GONE:
        return permanent(delivering.GONE, "The receiver answered 410: it is gone for good.")
    return meaning


def callback_body(row: asyncpg.Record | Mapping[str, Any], config: Config) -> dict[str, Any]:
    """As StarbaseDB has it: somebody who cancelled is told that it failed."""
    if row["status"] == "completed":
        return {"jobId": row["id"], "status": "completed", "downloadUrl": download_url(row["id"], config)}
    error = None if row["error"] is None else orjson.loads(row["error"])
    message = "Cancelled" if row["status"] == "cancelled" else (error or {}).get("message") or "Failed"
    return {"jobId": row["id"], "status": "failed", "error_message": message}


def download_url(id: str, config: Config) -> str:
    """Whole where we know how we are reached from outside, else the path."""
    return f"{str(config.public_url or '').rstrip('/')}/export/jobs/{id}/download"


async def signing_key(tx: Transaction, payload: CallbackPayload) -> Mapping[str, str]:
    owner = await tx.fetchval(SQL["callback_owner"], payload.dump_id)
    return {} if owner is None else {"signing": (await keys.of(tx, owner)).secret}


CALLBACK = Kind(
    name=dumps.CALLBACK,
    payload=CallbackPayload,
    handler=call,
    about="dump_id",
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=delivering.LONGEST_DELAY, limit=12),
    turn_timeout=timedelta(minutes=1),
    concurrency=delivering.CONCURRENCY,
    shares=delivering.SHARES,
    secrets=signing_key,
)

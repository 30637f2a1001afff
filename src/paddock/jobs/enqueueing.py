"""How work comes in: validated by its kind, inserted with its lock and its place in a group in one transaction."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import asyncpg
import orjson
from pydantic import BaseModel, ValidationError

from paddock.db.pool import Database, Transaction, column, statements
from paddock.field_errors import field_errors
from paddock.jobs import grouping, reading
from paddock.jobs.about import about
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.kinds import Kind
from paddock.jobs.model import MAX_PAYLOAD_BYTES, MAX_TAG_LENGTH, MAX_TAGS, Job, JobId, NewJob
from paddock.jobs.values import InvalidValue, checked_json, clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "enqueueing.sql")
MAX_BATCH = 1_000
MAX_LOCK_KEY = 500
PRIORITIES = range(1, 5)
# Of a job, or of what a job is made for: both are UUIDs, and a key remembers either.
Id = TypeVar("Id", bound=UUID)


class InvalidPayload(Refused):
    status = 422

    def __init__(self, kind: str, fields: Sequence[dict[str, str]], index: int) -> None:
        listed = " ".join(f"{field['field']}: {field['message']}" for field in fields[:20])
        super().__init__(
            "invalid_payload",
            f"The payload does not fit kind '{kind}': {listed}",
            details={"fields": list(fields), "index": index},
        )


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Scoped to who asks and where, so that nobody can learn of another's work by guessing keys."""

    owner: str
    route: str
    key: str
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class Submitted:
    jobs: Sequence[Job]
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class _Ready:
    job: NewJob
    kind: Kind
    payload: str
    tags: str | None
    lock_key: str | None
    share_key: str | None
    about: str | None


async def submit(
    core: "Core", jobs: Sequence[NewJob], *, public: bool = True, idempotency: IdempotencyKey | None = None
) -> Submitted:
    if len(jobs) == 1 and jobs[0].group_id is None:
        job = await _submit_one(core, jobs[0], public, idempotency)
        if job is not None:
            return Submitted([job])

    async def write(tx: Transaction) -> tuple[list[JobId], bool]:
        before = await earlier(tx, idempotency)
        if before is not None:
            return before, True
        ids = await enqueue(core, tx, jobs, public=public)
        await remember(tx, idempotency, ids)
        return ids, False

    ids, repeated = await core.db.repeated(write)
    return Submitted(await made(core, ids), repeated)


async def made(core: "Core", ids: Sequence[JobId]) -> list[Job]:
    """What a request made, now or when it came first."""
    jobs = await reading.jobs(core.db, ids)
    if len(jobs) < len(ids):
        # A key lives for a day, the run of a housekeeping kind only until 200 others came after it.
        raise Refused("not_found", "What this request made has left the history.", status=404)
    return jobs


async def _submit_one(core: "Core", job: NewJob, public: bool, key: IdempotencyKey | None) -> Job | None:
    """The usual submission, in one statement. None: its key is known, or being made known by somebody else."""
    ready = [_checked(core, job, 0)]
    try:
        async with core.db.single() as tx:
            rows = await _insert(core, tx, ready, public, key)
            if not rows and key is not None:
                return None
            if not rows:
                await _refuse(tx, ready, [], public)
    except asyncpg.UniqueViolationError as conflict:
        if conflict.constraint_name != "idempotency_keys_pkey":
            raise
        return None
    # A worker that waits for it asks the database first, and this answer is built while that one works.
    await asyncio.sleep(0)
    return _job_from_row(job, ready[0], rows[0])


async def enqueue(core: "Core", tx: Transaction, jobs: Sequence[NewJob], *, public: bool = False) -> list[JobId]:
    """Inserts `jobs` in the caller's transaction, in their order. All of them or, by an exception, none."""
    if not jobs:
        return []
    if len(jobs) > MAX_BATCH:
        raise Refused("too_many_jobs", f"At most {MAX_BATCH:,} jobs go into one submission.", status=422)
    ready = [_checked(core, job, index) for index, job in enumerate(jobs)]
    await _grow_groups(tx, jobs)
    rows = await _insert(core, tx, ready, public, None)
    if len(rows) < len(ready):
        await _refuse(tx, ready, [row["id"] for row in rows], public)
    # Ids made by one statement ascend in the order of its items.
    return sorted(JobId(row["id"]) for row in rows)


async def _insert(
    core: "Core", tx: Transaction, ready: Sequence[_Ready], public: bool, key: IdempotencyKey | None
) -> list[asyncpg.Record]:
    kept = (None, None, None, None) if key is None else (key.owner, key.route, key.key, key.body_hash)
    shares, abouts = column(item.share_key for item in ready), column(item.about for item in ready)
    try:
        rows = await tx.fetch(
            SQL["insert_jobs"], *_columns(ready), public, secrets.token_hex(16), *kept, shares, abouts
        )
    except asyncpg.CharacterNotInRepertoireError:
        raise Refused("invalid_text", "A text contains a character PostgreSQL cannot store.", status=422) from None
    core.tell(tx, rows)
    core.count_enqueued(tx, (row["kind"] for row in rows))
    return rows


def _job_from_row(job: NewJob, ready: _Ready, row: asyncpg.Record) -> Job:
    """As it stands in the database, without reading it there."""
    return Job(
        id=row["id"],
        kind=job.kind,
        status="pending",
        priority=job.priority,
        owner=job.owner,
        role=job.role,
        tags=row["tags"],
        payload=orjson.loads(row["payload"]),
        due_at=row["due_at"],
        visible_at=row["due_at"],
        lock_key=ready.lock_key,
        retry_of=job.retry_of,
        schedule=job.schedule,
        created_at=row["created_at"],
        about=ready.about,
    )


def unknown_kind(name: str, index: int) -> Refused:
    return Refused(
        "unknown_kind",
        f"There is no kind '{name[:100]}'.",
        hint="GET /api/kinds lists them; a package adds kinds through the entry-point group paddock.kinds.",
        status=422,
        details={"index": index},
    )


def _checked(core: "Core", job: NewJob, index: int) -> _Ready:
    kind = core.kinds.get(job.kind)
    if kind is None:
        raise unknown_kind(job.kind, index)
    model = _validated(kind, job, index)
    if len(job.tags) > MAX_TAGS or any(not tag or len(tag) > MAX_TAG_LENGTH or "\0" in tag for tag in job.tags):
        raise Refused("invalid_tags", f"At most {MAX_TAGS} tags of 1 to {MAX_TAG_LENGTH} characters each.", status=422)
    try:
        payload = checked_json(job.payload, limit=MAX_PAYLOAD_BYTES, what="payload")
        tags = checked_json(list(job.tags), limit=MAX_PAYLOAD_BYTES, what="tags") if job.tags else None
    except InvalidValue as problem:
        raise InvalidPayload(kind.name, [{"field": "payload", "message": str(problem)}], index) from None
    if job.priority not in PRIORITIES:
        raise Refused("invalid_priority", "A priority is 1 (urgent) to 4 (low).", status=422, details={"index": index})
    lock_key = None if kind.lock_key is None else _key(kind, kind.lock_key, "lock", model, index)
    share_key = None if kind.shares is None else _key(kind, kind.shares.key, "share", model, index)
    return _Ready(job, kind, payload or "{}", tags, lock_key, share_key, about(kind, model))


def _key(kind: Kind, make: Callable[[Any], str | None], what: str, model: BaseModel, index: int) -> str | None:
    """Whatever is wrong with it is wrong with this one job: as a follow-up it must not hold up others' finishes."""
    try:
        key = make(model)
    except Exception as problem:
        message = f"No {what} can be made of it: {type(problem).__name__}."
        raise InvalidPayload(kind.name, [{"field": "payload", "message": message}], index) from problem
    if key is not None and key != clean_text(key, MAX_LOCK_KEY):
        message = f"Its {what} is not text of at most {MAX_LOCK_KEY} characters."
        raise InvalidPayload(kind.name, [{"field": "payload", "message": message}], index)
    return key


def _validated(kind: Kind, job: NewJob, index: int) -> BaseModel:
    try:
        return kind.payload.model_validate(job.payload)
    except ValidationError as problem:
        fields = [
            {"field": ".".join(["payload", *found.path]), "message": found.sentence} for found in field_errors(problem)
        ]
        raise InvalidPayload(kind.name, fields, index) from None


def _columns(ready: Sequence[_Ready]) -> list[list[object]]:
    return [
        [item.job.kind for item in ready],
        [item.payload for item in ready],
        [item.job.owner for item in ready],
        column(item.job.role for item in ready),
        [item.job.priority for item in ready],
        column(item.job.run_at for item in ready),
        column(item.job.delay for item in ready),
        column(item.tags for item in ready),
        column(item.lock_key for item in ready),
        column(item.job.group_id for item in ready),
        column(item.job.retry_of for item in ready),
        column(item.job.parent_id for item in ready),
        column(item.job.schedule for item in ready),
        column(item.kind.serial or None for item in ready),
        column(item.job.traceparent for item in ready),
    ]


async def _grow_groups(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    sizes = Counter(job.group_id for job in jobs if job.group_id is not None and job.retry_of is None)
    for group_id in sorted(sizes):
        await grouping.grow(tx, group_id, sizes[group_id])


async def _refuse(tx: Transaction, ready: Sequence[_Ready], inserted: Sequence[UUID], public: bool) -> None:
    state = await tx.fetchrow(SQL["drain_state"])
    if public and state is not None and state["drained"]:
        raise Draining(state["drain_reason"])
    lock_keys = [item.lock_key for item in ready if item.lock_key is not None]
    # Not this transaction's own rows: they go with it and hold nothing.
    holder = await tx.fetchrow(SQL["lock_holder"], lock_keys, inserted)
    if holder is not None:
        raise LockHeld(holder["lock_key"], holder["id"], holder["owner"])
    if not lock_keys:
        # Refused by the drain, which ended before it could be read.
        raise Draining(None)
    # The holder ended meanwhile, or two jobs of this very batch want the same lock.
    raise LockHeld(next(key for key in lock_keys if lock_keys.count(key) > 1 or key == lock_keys[-1]), None, None)


async def earlier(tx: Transaction, key: IdempotencyKey | None) -> list[JobId] | None:
    """The jobs this key made before; None: it is new, kept from now on, and `remember` fills it in."""
    if key is None:
        return None
    if await tx.fetchval(SQL["keep_idempotency_key"], key.owner, key.route, key.key, key.body_hash):
        return None
    return jobs_of_key(await tx.fetchrow(SQL["read_idempotency_key"], key.owner, key.route, key.key), key)


async def once(core: "Core", key: IdempotencyKey | None, make: Callable[[Transaction], Awaitable[Id]]) -> Id:
    """The id of what `make` makes in one transaction, or of what this key made before. A transaction that met a deadlock
    is made again, and `make` with it."""

    async def write(tx: Transaction) -> Id:
        before = await earlier(tx, key)
        if before is not None:
            return cast("Id", before[0])
        id = await make(tx)
        await remember(tx, key, [JobId(id)])
        return id

    return await core.db.repeated(write)


async def is_known(db: Database, key: IdempotencyKey | None) -> bool:
    """Whether `earlier` would find it."""
    if key is None:
        return False
    return await db.fetchrow(SQL["read_idempotency_key"], key.owner, key.route, key.key) is not None


async def remember(tx: Transaction, key: IdempotencyKey | None, ids: list[JobId]) -> None:
    if key is not None:
        await tx.execute(SQL["fill_idempotency_key"], key.owner, key.route, key.key, ids)


def jobs_of_key(row: asyncpg.Record | None, key: IdempotencyKey) -> list[JobId]:
    if row is None:
        # Its owner expired it between the two statements: nothing is lost by asking again.
        raise Refused("idempotency_key_expired", "The idempotency key just expired.", hint="Send it again.")
    if row["body_hash"] != key.body_hash:
        raise Refused(
            "idempotency_key_reused",
            "This Idempotency-Key was used with another body.",
            hint="Use a fresh key for each new request.",
            status=422,
        )
    return [JobId(id) for id in row["job_ids"]]

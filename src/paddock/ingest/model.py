"""What the jobs of ingest are told and what they answer, and a run and a batch as a reader sees them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg
import orjson
from pydantic import BaseModel, ConfigDict, Field

from paddock.jobs.model import GroupId, JobId, JsonObject

LIVE = ("running", "finishing", "stopping")
RUN_STATUSES = (*LIVE, "completed", "failed", "cancelled", "deleting")
OPEN_BATCHES = ("fetched", "hooked")
BATCH_STATUSES = (*OPEN_BATCHES, "published", "failed", "cancelled", "skipped")
MAX_SESSION = 128 * 1024

Step = Literal["fetch", "hooks", "publish"]


def prefix_of_run(source: str, run: str) -> str:
    """Everything that a run's jobs ever wrote is below."""
    return f"ingest/{source}/{run}"


def prefix_of_step(source: str, run: str, batch: int, step: Step) -> str:
    return f"{prefix_of_run(source, run)}/{batch}/{step}"


class StepPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run_id: str
    source: str
    batch: int = Field(ge=0)


class FetchPayload(StepPayload):
    batch_size: int = Field(ge=1)
    # How many records the run may still have; None: any number.
    limit: int | None = None


class BatchPayload(StepPayload):
    """Of hooks and of publishing: what the step before wrote."""

    manifest: str
    sha256: str
    fetched_at: datetime


class FetchedBatch(BaseModel):
    manifest: str
    sha256: str
    records: int
    duplicates: int
    bytes: int


class Fetched(BaseModel):
    """The result of a fetch. The session is text, kept to the letter; None: where it began. It may hold anything, so it has a
    name that is masked wherever people see the result of a job."""

    batches: list[FetchedBatch]
    secret_session: str | None = None
    has_more: bool
    fetched_at: datetime
    # The run's limit was met before the ingester's records ended: where they end is not where the source goes on.
    cut: bool = False


class Hooked(BaseModel):
    manifest: str
    sha256: str
    passed: int
    rejected: int
    errors: int
    hooks: list[JsonObject]


class Published(BaseModel):
    manifest: str
    sha256: str
    rows: int
    rejected: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    id: UUID
    source: str
    owner: str
    status: str
    group_id: GroupId
    request: JsonObject
    batch_size: int
    record_limit: int | None
    session: str | None
    next_batch: int
    fetched: int
    waiting_bytes: int
    held_since: datetime | None
    failed_batches: int
    max_failed_batches: int
    stop_as: str | None
    error: JsonObject | None
    created_at: datetime
    ended_at: datetime | None
    runtime: str
    transfer_key: bytes | None = field(repr=False)

    @property
    def live(self) -> bool:
        return self.status in LIVE


@dataclass(frozen=True, slots=True)
class Batch:
    run_id: UUID
    n: int
    status: str
    records: int
    duplicates: int
    bytes: int
    fetched_at: datetime
    session: str | None
    manifest: str | None
    sha256: str | None
    hooked_manifest: str | None
    hooked_sha256: str | None
    hooks: list[JsonObject] | None
    passed: int | None
    rejected: int | None
    errors: int | None
    file_id: UUID | None
    job_id: JobId | None
    error: JsonObject | None
    ended_at: datetime | None


def run_of(row: asyncpg.Record) -> Run:
    return Run(**_loaded(row, "request", "error"))


def batch_of(row: asyncpg.Record) -> Batch:
    return Batch(**_loaded(row, "hooks", "error"))


def _loaded(row: asyncpg.Record, *names: str) -> dict[str, Any]:
    parsed = {name: None if row[name] is None else orjson.loads(row[name]) for name in names}
    return {**row, **parsed}

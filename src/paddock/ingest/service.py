"""What a caller may do with sources and runs, whoever asks: a route, a page or a command only translates.

Operators may use every source; others those that name them in `owners`. For all others a source and its runs do not exist.
"""

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.ingest import runs
from paddock.ingest.messages import states_of
from paddock.ingest.model import MAX_SESSION, Batch, Run
from paddock.ingest.outputs import InvalidOutput
from paddock.ingest.request import new_run
from paddock.ingest.runs import File, NewRun
from paddock.ingest.source_settings import Source, sources_from


class RunBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", title="StartIngest", json_schema_extra={"examples": [{"source": "orders", "from": "last"}]}
    )

    source: str = Field(max_length=100)
    begin: Literal["last", "start", "session"] = Field(
        default="last",
        alias="from",
        description="Where to begin: after what is published, from the start, or at `session`.",
    )
    session: Any = Field(default=None, description="With `from: session`: any JSON of at most 128 KiB.")
    batch_size: int | None = Field(default=None, ge=1, le=100_000)
    limit: int | None = Field(default=None, ge=1, le=2**53, description="So many records at most.")


def may_use(caller: Caller, source: Source) -> bool:
    return caller.operator or caller.owner in source.owners


def visible_sources(plane: ControlPlane, caller: Caller) -> dict[str, Source]:
    return {name: source for name, source in sources_from(plane.config).items() if may_use(caller, source)}


def visible_source(plane: ControlPlane, caller: Caller, name: str) -> Source:
    source = visible_sources(plane, caller).get(name)
    if source is None:
        raise ApiError(404, "unknown_source", f"There is no source '{name[:100]}'.")
    return source


def prepare_run(plane: ControlPlane, caller: Caller, body: RunBody) -> NewRun:
    source = visible_source(plane, caller, body.source)
    given = "session" in body.model_fields_set
    if given != (body.begin == "session"):
        raise invalid_field("session", "`session` and `from: session` belong together.")
    session = orjson.dumps(body.session).decode() if given else None
    if session is not None and len(session.encode()) > MAX_SESSION:
        raise invalid_field("session", f"A session has at most {MAX_SESSION:,} bytes.")
    if source.protocol == "airbyte":
        try:
            states_of(session)
        except InvalidOutput as problem:
            raise invalid_field("session", problem.message) from None
    return new_run(
        plane.config,
        body.source,
        owner=caller.owner,
        begin=body.begin,
        session=session,
        batch_size=body.batch_size,
        limit=body.limit,
    )


def sources_seen(plane: ControlPlane, caller: Caller, source: str | None) -> Sequence[str]:
    """Of which sources somebody may see the runs."""
    seen = list(visible_sources(plane, caller))
    return seen if source is None else [name for name in seen if name == source]


async def visible_run(plane: ControlPlane, caller: Caller, text: str) -> Run:
    found = await runs.get(plane.core.db, path_id(text, "run"))
    if found is None or not may_see_source(plane, caller, found.source):
        raise not_found("run")
    return found


async def visible_batch(plane: ControlPlane, run: Run, n: int) -> Batch:
    found = await runs.batch(plane.core.db, run, n)
    if found is None:
        raise ApiError(404, "not_found", f"The run has no batch {n}.")
    return found


async def visible_file(plane: ControlPlane, caller: Caller, text: str) -> File:
    found = await runs.file(plane.core.db, UUID(str(path_id(text, "file"))))
    if found is None or not may_see_source(plane, caller, found.source):
        raise not_found("file")
    return found


def may_see_source(plane: ControlPlane, caller: Caller, source: str) -> bool:
    """Operators see runs of sources that are configured no more, too."""
    return caller.operator or source in visible_sources(plane, caller)

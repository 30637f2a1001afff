"""`GET /api/stream`: jobs' current states as Server-Sent Events."""

import asyncio
import contextlib
import time
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.database_problems import database_problem
from paddock.api.documenting import documented
from paddock.api.errors import invalid_field
from paddock.api.guard import guarded_router
from paddock.api.hub import Watch, Watcher
from paddock.api.ids import optional_id
from paddock.api.job_json import EXAMPLE_ID, BriefJob
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.tokens import Caller
from paddock.stopping import cancel

COMMENT_SECONDS = 15.0
TOKEN_CHECK_SECONDS = 60.0
# How long a watcher that was dropped for slowness may take over its last message.
LAST_WORD_SECONDS = 10.0

router = guarded_router("stream", PEOPLE)

STREAM_EXAMPLE = (
    f'id: 5d1b6a0c9e2f7c0a41d3\nevent: job\ndata: {{"id":"{EXAMPLE_ID}","kind":"probe","status":"completed"}}\n\n'
)


class EventStream(Response):
    def __init__(self, plane: ControlPlane, caller: Caller, watcher: Watcher) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        del self.headers["content-length"]
        self.plane = plane
        self.caller = caller
        self.watcher = watcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [
            asyncio.create_task(self._send(send)),
            asyncio.create_task(_hung_up(receive)),
            asyncio.create_task(self._patience()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.plane.hub.leave(self.watcher)
            await cancel(*tasks)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        check_at = time.monotonic() + TOKEN_CHECK_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which makes a task for each message.
                async with asyncio.timeout(COMMENT_SECONDS):
                    await self.watcher.stirred.wait()
            over = self.watcher.ended.is_set()
            content = self.watcher.take() or b": still here\n\n"
            if time.monotonic() >= check_at:
                over = over or not await self._still_good()
                check_at = time.monotonic() + TOKEN_CHECK_SECONDS
            await send({"type": "http.response.body", "body": content, "more_body": not over})
            if over:
                return

    async def _still_good(self) -> bool:
        try:
            return await self.plane.tokens.still_good(self.caller)
        except Exception as problem:
            if database_problem(problem) is not None:
                return True  # Nothing can be said now, and nothing is told now either; the next minute decides.
            raise

    async def _patience(self) -> None:
        await self.watcher.ended.wait()
        await asyncio.sleep(LAST_WORD_SECONDS)


def _fields(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    asked = frozenset(name.strip() for name in text.split(","))
    if unknown := sorted(asked - BriefJob.model_fields.keys()):
        raise invalid_field("fields", f"A job in a list has no field '{unknown[0][:50]}'.")
    return asked


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@router.get(
    "/api/stream",
    response_class=Response,
    summary="Watch jobs change",
    responses={
        **documented({}),
        200: {
            "description": "Server-Sent Events: `job` (a job's current state), with batch=1 `jobs`, and `reset`.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": STREAM_EXAMPLE}},
        },
    },
)
async def stream(
    request: Request,
    plane: ThePlane,
    caller: Asking,
    kind: Annotated[str | None, Query(max_length=200, examples=["probe"])] = None,
    group: Annotated[str | None, Query(max_length=100)] = None,
    job: Annotated[str | None, Query(max_length=100, examples=[EXAMPLE_ID])] = None,
    batch: Annotated[bool, Query(description="One message a second with all changed jobs.")] = False,
    fields: Annotated[
        str | None,
        Query(
            max_length=1000,
            description="Which fields of a job to tell, with commas between; else all.",
            examples=["id,status"],
        ),
    ] = None,
    last_event_id: Annotated[str | None, Query(max_length=100)] = None,
    last_event_id_header: Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)] = None,
) -> Response:
    watch = Watch(caller.scope, kind, optional_id(group, "group"), optional_id(job, "job"), _fields(fields))
    watcher = await plane.hub.enter(caller, watch, batch=batch, last_event_id=last_event_id_header or last_event_id)
    return EventStream(plane, caller, watcher)

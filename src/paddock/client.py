"""A small client: submit, wait, watch.

    with Client("http://localhost:8080", token) as paddock:
        job = paddock.submit("probe", {"turns": 3})
        print(paddock.wait(job["id"])["result"])

A refusal is a `PaddockError` with the server's code, message and hint. What may be asked twice is asked again when the
line breaks: reads, and work that is submitted, since each submission carries an idempotency key.
"""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx2

WAIT_SECONDS = 30
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.2
RECONNECT_SECONDS = 1.0
# A server that restarts, or whose database does, is away this long at most before one who waits is told so.
PATIENCE_SECONDS = 120.0
# The server says something every 15 s; silence for three times that long is a broken line.
SILENCE_SECONDS = 45.0

Job = dict[str, Any]


class PaddockError(Exception):
    """`code` is stable, the message is a sentence, `hint` says what to do. `status` 0: no answer at all."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.details = dict(details or {})
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def passes(self) -> bool:
        """Whether the same question may be answered in a moment: nobody answers, or one who cannot at present."""
        return self.status in (0, 429) or self.status >= 500

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" + (f"\n{self.hint}" if self.hint else "")


class Unreachable(PaddockError):
    """Nobody answered: nothing is known about what was asked."""

    def __init__(self, server: str, problem: Exception) -> None:
        super().__init__(
            0,
            "unreachable",
            f"{server} does not answer ({type(problem).__name__}).",
            hint="Is it running? `paddock up` starts one on this machine.",
        )


class NotFinished(PaddockError):
    """The time to wait is over and the job is not."""

    def __init__(self, job: Job) -> None:
        super().__init__(0, "not_finished", f"Job {job['id']} is still {job['status']}.", details={"job": job})
        self.job = job


@dataclass(frozen=True, slots=True)
class Message:
    """`event`: `job` (data is a job), `jobs` (data has `jobs`), or `reset` (changes were missed: load again).

    Without an event it is a sign of life, which may move the place to go on from.
    """

    event: str
    data: Any
    id: str | None


class Client:
    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(base_url=self.server, headers=headers, timeout=timeout, transport=transport)
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        role: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """The answer as it came: `data`, and for lists `next_cursor`. `role` is the engine role to work under."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        headers |= {"X-Use-Case-Id": role} if role else {}
        repeatable = method == "GET" or idempotency_key is not None
        given = {name: _plain(value) for name, value in (params or {}).items() if value is not None}
        for attempt in range(ATTEMPTS if repeatable else 1):
            if attempt:
                time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
            try:
                response = self._http.request(
                    method, path, params=given, json=body, headers=headers, timeout=timeout or self._timeout
                )
                return _answer(response)
            except httpx2.TransportError as problem:
                if attempt == ATTEMPTS - 1 or not repeatable:
                    raise Unreachable(self.server, problem) from problem
        raise AssertionError("the loop above returns or raises")

    def submit(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Job:
        body: dict[str, Any] = {"kind": kind, "payload": dict(payload or {}), "tags": list(tags)}
        if priority is not None:
            body["priority"] = priority
        if run_at is not None:
            body["run_at"] = _plain(run_at)
        return self._job("POST", "/api/jobs", body=body, idempotency_key=idempotency_key or uuid4().hex)

    def submit_many(self, jobs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None) -> list[Job]:
        """All or none; at most 1,000."""
        body = {"jobs": [dict(job) for job in jobs]}
        found: list[Job] = self._data(
            "POST", "/api/jobs/batch", body=body, idempotency_key=idempotency_key or uuid4().hex
        )
        return found

    def get(self, id: str) -> Job:
        return self._job("GET", f"/api/jobs/{id}")

    def wait(self, id: str, timeout: float | None = None) -> Job:
        """The job once it has ended, however it ended; `NotFinished` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        patience = time.monotonic() + PATIENCE_SECONDS
        while True:
            left = WAIT_SECONDS if deadline is None else max(0.0, min(WAIT_SECONDS, deadline - time.monotonic()))
            try:
                job = self._job("GET", f"/api/jobs/{id}", params={"wait": left}, timeout=left + self._timeout)
            except PaddockError as error:
                if not error.passes or time.monotonic() >= min(patience, deadline or patience):
                    raise
                time.sleep(RECONNECT_SECONDS * random.uniform(0.5, 1.5))
                continue
            patience = time.monotonic() + PATIENCE_SECONDS
            if job["completed_at"] is not None:
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise NotFinished(job)

    def cancel(self, id: str, reason: str | None = None) -> Job:
        return self._job("POST", f"/api/jobs/{id}/cancel", body={"reason": reason})

    def retry(self, id: str, reason: str | None = None, *, idempotency_key: str | None = None) -> Job:
        """The new job, whose `retry_of` is the old one."""
        key = idempotency_key or uuid4().hex
        return self._job("POST", f"/api/jobs/{id}/retry", body={"reason": reason}, idempotency_key=key)

    def run_now(self, id: str) -> Job:
        return self._job("POST", f"/api/jobs/{id}/run-now")

    def list(self, *, most: int | None = None, **filters: Any) -> Iterator[Job]:
        """Newest first, page after page; `filters` as in `GET /api/jobs`."""
        return self.pages("/api/jobs", most=most, **filters)

    def pages(self, path: str, *, most: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        found = 0
        while True:
            limit = 100 if most is None else min(1000, most - found)
            answer = self.request("GET", path, params={"limit": limit, **params, "cursor": cursor})
            for item in answer["data"]:
                yield item
                found += 1
                if most is not None and found >= most:
                    return
            cursor = answer.get("next_cursor")
            if cursor is None:
                return

    def timeline(self, id: str) -> Any:
        return self._data("GET", f"/api/jobs/{id}/timeline")

    def logs(self, id: str, after: str | None = None) -> dict[str, Any]:
        """`chunks` with their `lines`; `after` of the answer asks for what came since."""
        return self._job("GET", f"/api/jobs/{id}/logs", params={"after": after})

    def stream(
        self,
        *,
        kind: str | None = None,
        group: str | None = None,
        job: str | None = None,
        batch: bool = False,
        last_event_id: str | None = None,
    ) -> Iterator[Message]:
        """Jobs' current states as they change, for ever: a broken line is picked up where it broke."""
        while True:
            try:
                for message in self.stream_once(
                    kind=kind, group=group, job=job, batch=batch, last_event_id=last_event_id
                ):
                    last_event_id = message.id or last_event_id
                    if message.event:
                        yield message
            except PaddockError as error:
                if not error.passes:
                    raise
            # Not all at the same moment: a server that comes back has many of us.
            time.sleep(RECONNECT_SECONDS * random.uniform(0.5, 1.5))

    def stream_once(
        self,
        *,
        kind: str | None = None,
        group: str | None = None,
        job: str | None = None,
        batch: bool = False,
        last_event_id: str | None = None,
        silence: float = SILENCE_SECONDS,
    ) -> Iterator[Message]:
        """The messages of one connection, signs of life too. `Unreachable` when it breaks or stays silent."""
        params = {"kind": kind, "group": group, "job": job, "batch": 1 if batch else None}
        given = {name: value for name, value in params.items() if value is not None}
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        timeout = httpx2.Timeout(self._timeout, read=silence)
        try:
            with self._http.stream("GET", "/api/stream", params=given, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    _answer(response)
                yield from read_events(response.iter_lines())
        except httpx2.TransportError as problem:
            raise Unreachable(self.server, problem) from problem

    def about_file(self, path: str) -> Mapping[str, str]:
        """What the server says of a file without sending it: `etag`, `content-length`."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
            try:
                response = self._http.head(path)
            except httpx2.TransportError as problem:
                if attempt == ATTEMPTS - 1:
                    raise Unreachable(self.server, problem) from problem
                continue
            if response.status_code != 200:
                _answer(response)
            return response.headers
        raise AssertionError("the loop above returns or raises")

    def download(
        self, path: str, *, params: Mapping[str, Any] | None = None, start: int = 0, etag: str | None = None
    ) -> Iterator[bytes]:
        """The bytes of a file from `start` on. `Unreachable` when the line breaks: ask again from there. With an `etag`
        only of that very file: `PaddockError` `file_changed` when another took its place."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        headers |= {"If-Range": etag} if start and etag else {}
        try:
            with self._http.stream("GET", path, params=params, headers=headers) as response:
                if response.status_code not in (200, 206):
                    response.read()
                    _answer(response)
                if etag and response.headers.get("etag", etag) != etag:
                    raise PaddockError(412, "file_changed", "The server has another file under this name by now.")
                part = response.status_code == 206
                if part and not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
                    raise PaddockError(
                        206, "wrong_range", "The server sent another part of the file than was asked for."
                    )
                # Who knows no ranges, a proxy perhaps, sends it all.
                known = 0 if part else start
                for chunk in response.iter_bytes():
                    if len(chunk) > known:
                        yield chunk[known:]
                    known = max(0, known - len(chunk))
        except httpx2.TransportError as problem:
            raise Unreachable(self.server, problem) from problem

    def _job(self, method: str, path: str, **options: Any) -> Job:
        found: Job = self._data(method, path, **options)
        return found

    def _data(self, method: str, path: str, **options: Any) -> Any:
        return self.request(method, path, **options)["data"]


def read_events(lines: Iterator[str]) -> Iterator[Message]:
    """Server-Sent Events. A comment is a message without an event."""
    event, data, id, comment = "", "", None, False
    for line in lines:
        if not line:
            if data or id is not None or comment:
                yield Message(event if data else "", json.loads(data) if data else None, id)
            event, data, id, comment = "", "", None, False
        elif line.startswith(":"):
            comment = True
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:"):
            data += line[5:].strip()
        elif line.startswith("id:"):
            id = line[3:].strip()


def _answer(response: httpx2.Response) -> dict[str, Any]:
    try:
        content = response.json()
    except ValueError:
        content = None
    if response.is_success and isinstance(content, dict):
        return content
    error = content.get("error") if isinstance(content, dict) else None
    if isinstance(error, str):
        # `/export/...` speaks as its older clients expect.
        error = {"code": response.headers.get("x-error-code", "refused"), "message": error}
    if not isinstance(error, dict):
        # Not ours: a proxy on the way.
        error = {"code": f"http_{response.status_code}", "message": f"The server answered {response.status_code}."}
    retry_after = response.headers.get("retry-after", "")
    raise PaddockError(
        response.status_code,
        str(error.get("code")),
        str(error.get("message")),
        hint=error.get("hint"),
        details=error.get("details"),
        request_id=response.headers.get("x-request-id"),
        retry_after=float(retry_after) if retry_after.isdecimal() else None,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value

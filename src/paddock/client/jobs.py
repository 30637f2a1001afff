"""What can be done with jobs."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from paddock.client.connection import Connection
from paddock.client.errors import Job, PaddockError
from paddock.client.reading import Message, plain
from paddock.client.waiting import RECONNECT_SECONDS, until


class JobsClient(Connection):
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
            body["run_at"] = plain(run_at)
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
        return until(
            lambda left: self._job("GET", f"/api/jobs/{id}", params={"wait": left}, timeout=left + self._timeout),
            lambda job: job["completed_at"] is not None,
            timeout=timeout,
        )

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

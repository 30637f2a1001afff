"""What the server sent, read: an answer or a refusal, and the messages of a stream."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from paddock.client.errors import class_for


@dataclass(frozen=True, slots=True)
class Message:
    """`event`: `job` (data is a job), `jobs` (data has `jobs`), or `reset` (changes were missed: load again).

    Without an event it is a sign of life, which may move the place to go on from.
    """

    event: str
    data: Any
    id: str | None


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


def answer(response: httpx2.Response) -> dict[str, Any]:
    try:
        content = response.json()
    except ValueError:
        content = None
    if response.is_success and isinstance(content, dict):
        return content
    error = content.get("error") if isinstance(content, dict) else None
    if isinstance(error, str):
        # `/export/...` speaks as its older clients expect.
        error = {**content, "code": response.headers.get("x-error-code", "refused"), "message": error}
    if not isinstance(error, dict):
        # Not ours: a proxy on the way.
        error = {"code": f"http_{response.status_code}", "message": f"The server answered {response.status_code}."}
    retry_after = response.headers.get("retry-after", "")
    code = str(error.get("code"))
    raise class_for(response.status_code, code)(
        response.status_code,
        code,
        str(error.get("message")),
        hint=error.get("hint"),
        details=error.get("details"),
        request_id=response.headers.get("x-request-id"),
        retry_after=float(retry_after) if retry_after.isdecimal() else None,
    )


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return f"PT{value.total_seconds():.12g}S"
    return value

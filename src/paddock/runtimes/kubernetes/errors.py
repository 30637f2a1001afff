"""How a call to the API server fails, with all that the server said."""

from typing import cast

import orjson

from paddock.runtimes.kubernetes.objects import Status

MOST_TEXT = 2_000


class ApiError(Exception):
    """It was refused, or there was no whole answer: `code` is None then. `doubt`: what was asked may have been done."""

    def __init__(
        self,
        code: int | None,
        status: Status,
        *,
        verb: str,
        what: str,
        retry_after: float | None = None,
        doubt: bool = False,
    ) -> None:
        super().__init__(f"{verb} {what}: {code or 'no answer'} {status.get('message', '')}".rstrip())
        self.code = code
        self.status = status
        self.verb, self.what = verb, what
        self.retry_after = retry_after
        self.doubt = doubt

    @property
    def reason(self) -> str:
        return self.status.get("reason", "")

    @property
    def message(self) -> str:
        return self.status.get("message", "")

    @property
    def may_pass(self) -> bool:
        """Whether the same call may do better in a moment."""
        return self.code is None or self.code == 429 or self.code >= 500


def status_in(body: bytes, code: int) -> Status:
    """What stands in the way of the server may answer in its place, with a page: its text is kept."""
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        read = None
    if isinstance(read, dict) and read.get("kind") == "Status":
        return cast(Status, read)
    return {"code": code, "message": body[:MOST_TEXT].decode("utf-8", "replace")}

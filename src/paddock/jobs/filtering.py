"""What a reader may ask of the list of jobs, checked before SQL sees it.

A filter is also part of a bulk job's payload: frozen, as JSON, with the scope of whoever asked.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from paddock.jobs.errors import Refused
from paddock.jobs.model import LIVE, STATUSES, TERMINAL, JobId

SEARCHED_DAYS = timedelta(days=7)
LONGEST_TEXT = 500
MOST_IDS = 1_000
LEAST_ID = UUID(int=0)
GREATEST_ID = UUID(int=2**128 - 1)

# Ids are time-ordered, so each begins with 0 until the year 10889; `deadbeef` is therefore a text, `019a` an id.
_ID_PREFIX = re.compile(r"0[0-9a-f-]{3,35}\Z")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WAITING = ("pending", "submitted")
_TEXTS = ("kind", "owner", "worker", "tag", "error_code", "q", "schedule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Every field narrows. `status` is one or several; `since` and `until` bound when a job was made, until excluded.

    `worker` is the worker that has the job now, or had it when it ended. `q` is the beginning of an id, or a part of what
    a job is about or of its error's code or text. `error_code` finds live, failed and cancelled jobs: a completed one has none.
    `retrying` finds those that failed or lost their worker and wait for the next try.
    """

    kind: str | None = None
    status: str | tuple[str, ...] | None = None
    owner: str | None = None
    group: UUID | None = None
    worker: str | None = None
    tag: str | None = None
    error_code: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    q: str | None = None
    schedule: str | None = None
    retrying: bool = False
    include_housekeeping: bool = False
    include_cleanups: bool = True
    ids: tuple[JobId, ...] | None = None

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses a match can have."""
        asked = (self.status,) if isinstance(self.status, str) else tuple(dict.fromkeys(self.status or STATUSES))
        if self.retrying:
            return tuple(status for status in asked if status in WAITING)
        if self.error_code is not None:
            return tuple(status for status in asked if status != "completed")
        return asked

    @property
    def live(self) -> tuple[str, ...]:
        return tuple(status for status in self.statuses if status in LIVE)

    @property
    def ended(self) -> tuple[str, ...]:
        return tuple(status for status in self.statuses if status in TERMINAL)

    @property
    def id_prefix(self) -> str | None:
        if self.q is None:
            return None
        q = self.q.strip().lower()
        return q if _ID_PREFIX.match(q) or _is_id(q) else None

    @property
    def text(self) -> str | None:
        return None if self.q is None or self.id_prefix is not None else self.q

    @property
    def empty(self) -> bool:
        """True when it leaves nothing out but by time: a bulk action then wants to hear `all`."""
        narrowing = (self.kind, self.status, self.owner, self.group, self.worker, self.tag, self.error_code, self.q)
        return not any((*narrowing, self.schedule, self.retrying, self.ids is not None))

    def checked(self) -> "Filter":
        for name in _TEXTS:
            text = getattr(self, name)
            if text is not None:
                _check_text(name, text)
        asked = () if self.status is None else self.status if isinstance(self.status, tuple) else (self.status,)
        for status in asked:
            if status not in STATUSES:
                raise _refused("status", f"There is no status '{str(status)[:50]}'; there are {', '.join(STATUSES)}.")
        if self.ids is not None and len(self.ids) > MOST_IDS:
            raise _refused("ids", f"At most {MOST_IDS:,} ids go into one filter.")
        for name in ("since", "until"):
            time = getattr(self, name)
            if time is not None and time.tzinfo is None:
                raise _refused(name, f"`{name}` needs a time zone, like 2026-01-31T12:00:00Z.")
        return self

    def to_json(self) -> dict[str, Any]:
        """Only what narrows, as values JSON has."""
        return {
            field.name: _plain(value) for field in fields(self) if (value := getattr(self, field.name)) != field.default
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Filter":
        known = {field.name for field in fields(cls)}
        for name in content:
            if name not in known:
                raise _refused("filter", f"There is no filter '{name[:50]}'; there are {', '.join(sorted(known))}.")
        values = dict(content)
        try:
            for name in ("since", "until"):
                if values.get(name) is not None:
                    values[name] = datetime.fromisoformat(values[name])
            if values.get("group") is not None:
                values["group"] = UUID(values["group"])
            if values.get("ids") is not None:
                values["ids"] = tuple(JobId(UUID(text)) for text in values["ids"])
            if isinstance(values.get("status"), list):
                values["status"] = tuple(values["status"])
            for name in ("retrying", "include_housekeeping", "include_cleanups"):
                if not isinstance(values.get(name, True), bool):
                    raise ValueError(f"`{name}` is true or false")
        except (ValueError, TypeError, AttributeError) as problem:
            raise _refused("filter", f"The filter has a value that does not fit: {problem}.") from None
        return cls(**values).checked()


def id_range(prefix: str) -> tuple[UUID, UUID]:
    """The least and the greatest id that begin so."""
    digits = prefix.replace("-", "")[:32]
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def least_id(at: datetime) -> UUID:
    """The least id a job made at that time could have, rounded as `paddock_least_id` does."""
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    return UUID(int=max(0, (microseconds + 500) // 1000) << 80)


def time_of(job_id: UUID) -> datetime:
    """When a job with this id was made, to the millisecond."""
    milliseconds = min(job_id.int >> 80, 253_402_300_799_000)
    return EPOCH + timedelta(milliseconds=milliseconds)


def write_cursor(job_id: UUID) -> str:
    return base64.urlsafe_b64encode(job_id.bytes).rstrip(b"=").decode()


def read_cursor(cursor: str) -> JobId:
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return JobId(UUID(bytes=content))
    except (binascii.Error, ValueError):
        raise Refused(
            "bad_cursor", "This cursor is not one of ours.", hint="Use `next_cursor` of the page before.", status=400
        ) from None


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or not text or len(text) > LONGEST_TEXT:
        raise _refused(name, f"`{name}` must be a text of 1 to {LONGEST_TEXT} characters.")
    if "\0" in text:
        raise _refused(name, f"`{name}` contains a NUL character, which no job can have.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(name, f"`{name}` contains a lone surrogate, which is not text.") from None


def _refused(field: str, message: str) -> Refused:
    return Refused("invalid_filter", message, status=422, details={"fields": [{"field": field, "message": message}]})


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", text) is not None


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value

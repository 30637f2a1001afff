"""What a client is told instead of an answer: a class for each code that a program may want to tell apart."""

from collections.abc import Mapping
from typing import Any

Job = dict[str, Any]
Snapshot = dict[str, Any]
Instance = dict[str, Any]
Execution = dict[str, Any]

# Where the server says that it may be repeated and not when: an engine is back after this long.
REPEAT_SECONDS = 0.5


class PaddockError(Exception):
    """`code` is stable, the message is a sentence, `hint` says what to do. `status` 0: it is no answer of the server."""

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
        return self.code == "unreachable" or self.status == 429 or self.status >= 500

    @property
    def repeat_after(self) -> float | None:
        """In how many seconds the same may be asked again, where the server says so."""
        if self.code == "engine_restarted":
            return self.retry_after or REPEAT_SECONDS
        return self.retry_after if self.status in (429, 503) else None

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
    """The time to wait is over, and what was waited for has not come."""

    def __init__(self, found: Mapping[str, Any], noun: str = "job") -> None:
        name = found.get("name") or found["id"]
        super().__init__(
            0, "not_finished", f"{noun.capitalize()} {name} is still {found['status']}.", details={noun: dict(found)}
        )


class NotOneRow(PaddockError):
    """One row was asked for, and the query has more."""

    def __init__(self) -> None:
        super().__init__(
            0, "not_one_row", "The query has more than one row.", hint="Add LIMIT 1, or ask with query() or query_df()."
        )


class Ambiguous(PaddockError):
    """More than one thing has this name."""


class NotAuthenticated(PaddockError):
    """No token, or one that is unknown, revoked or expired."""


class NotAllowed(PaddockError):
    """The token may not do this."""


class NotFound(PaddockError):
    """It is not there, or the caller may not see it."""


class Conflict(PaddockError):
    """Something else is in the way; the message names it."""


class Invalid(PaddockError):
    """What was asked makes no sense; `details` names every field."""


class Busy(PaddockError):
    """Too much at once; `retry_after` says when to ask again."""


class Unavailable(PaddockError):
    """The server cannot at present, or accepts no new work: drain."""


class ConcurrencyLimitExceeded(Conflict):
    """A limit on live instances or their memory; the message names it and the caller's own instances."""


class ResourceLocked(Conflict):
    """An algorithm runs on this instance already."""


class InstanceNotRunning(Conflict):
    """It answers no queries in the state it is in."""


class SnapshotInUse(Conflict):
    """Instances live from it."""


class NoRuntime(Conflict):
    """This server starts no instances."""


class InstanceGone(NotFound):
    """It was there; the message says when it went, by whom and why."""


class NotLoadable(Invalid):
    """The graph engine cannot load what the mapping defines."""


class QueryFailed(Invalid):
    """The engine's own words; `line` and `column` where it says them."""

    @property
    def line(self) -> int | None:
        return self.details.get("line")

    @property
    def column(self) -> int | None:
        return self.details.get("column")


class QueryCrashed(QueryFailed):
    """The query ended the engine, which was restarted."""


class QueryOutOfMemory(QueryFailed):
    """The query needs more memory than the instance has for queries."""


class ReadOnly(QueryFailed):
    """An instance is asked, not changed: writes and DDL are refused."""


class QueryTimeout(PaddockError):
    """The query took longer than it may; `timeout=` gives it more."""


class EngineRestarted(Unavailable):
    """Another query ended the engine; this one may be repeated."""


class InstanceFailed(PaddockError):
    """The instance is `failed`, or went away while it was waited for. `code` is the instance's own, like OOM_KILLED."""

    def __init__(self, instance: Instance) -> None:
        error = instance.get("error") or {}
        super().__init__(
            0,
            str(error.get("code") or "instance_failed"),
            str(error.get("message") or f"Instance '{instance['name']}' is {instance['status']}."),
            hint=error.get("hint"),
            details={"instance": instance},
        )
        self.instance = instance


class SnapshotFailed(PaddockError):
    """The snapshot ended without its files."""

    def __init__(self, snapshot: Snapshot) -> None:
        error = snapshot.get("error") or {}
        super().__init__(
            0,
            str(error.get("code") or "snapshot_failed"),
            str(error.get("message") or f"Snapshot '{snapshot['name']}' is {snapshot['status']}."),
            hint=error.get("hint"),
            details={"snapshot": snapshot},
        )
        self.snapshot = snapshot


class AlgorithmFailed(PaddockError):
    """The execution failed or was cancelled."""

    def __init__(self, execution: Execution) -> None:
        error = execution.get("error") or {}
        super().__init__(
            0,
            str(error.get("code") or f"algorithm_{execution['status']}"),
            str(error.get("message") or f"{execution['algorithm']} was {execution['status']}."),
            hint=error.get("hint"),
            details={"execution": execution},
        )
        self.execution = execution


BY_CODE: Mapping[str, type[PaddockError]] = {
    "CONCURRENCY_LIMIT_EXCEEDED": ConcurrencyLimitExceeded,
    "RESOURCE_LOCKED": ResourceLocked,
    "instance_not_running": InstanceNotRunning,
    "instance_gone": InstanceGone,
    "snapshot_in_use": SnapshotInUse,
    "no_runtime": NoRuntime,
    "not_loadable": NotLoadable,
    "query_failed": QueryFailed,
    "query_crashed": QueryCrashed,
    "query_out_of_memory": QueryOutOfMemory,
    "read_only": ReadOnly,
    "QUERY_TIMEOUT": QueryTimeout,
    "engine_restarted": EngineRestarted,
}
# What has no class of its own is at least told by its status.
BY_STATUS: Mapping[int, type[PaddockError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: Busy,
    503: Unavailable,
}


def class_for(status: int, code: str) -> type[PaddockError]:
    return BY_CODE.get(code) or BY_STATUS.get(status, PaddockError)

"""What an end means: of a start that failed, and of a process or pod that is gone. One table, used by the start, by the proxy
and by whoever looks after instances.

A cause is evidence: what the instance server, the runtime or the store said. `END_OF` decides what becomes of it: the code
that people see, and whether another start may get over it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paddock.jobs.model import JsonObject
from paddock.runtimes.diagnosis import Diagnosis
from paddock.runtimes.runtime import RuntimeWords

# fail: the instance is failed. larger: once more with twice the memory, a few times. again: once more, a few times.
# restart: once more, uncounted.
Then = Literal["fail", "larger", "again", "restart"]

STARTUP_FAILED = "STARTUP_FAILED"
MAPPING_FETCH_ERROR = "MAPPING_FETCH_ERROR"
SCHEMA_CREATE_ERROR = "SCHEMA_CREATE_ERROR"
DATA_LOAD_ERROR = "DATA_LOAD_ERROR"
DATABASE_ERROR = "DATABASE_ERROR"
OOM_KILLED = "OOM_KILLED"
UNEXPECTED_TERMINATION = "UNEXPECTED_TERMINATION"

REOPEN = "Reopen it, or delete it and make another."


@dataclass(frozen=True, slots=True)
class End:
    code: str
    # What an analyst reads where whoever reports the cause has no sentence of their own.
    message: str
    hint: str | None = REOPEN
    then: Then = "fail"


END_OF: Mapping[str, End] = {
    # Before it answered.
    "never_answered": End(STARTUP_FAILED, "{thing} {name} never answered."),
    "no_room": End(
        STARTUP_FAILED,
        "There is no room for the instance.",
        "Delete an instance that is not needed, then reopen this one.",
    ),
    "no_disk": End(
        STARTUP_FAILED, "There is not enough disk for the instance.", "Free some disk space, then reopen it."
    ),
    "disk_full": End(STARTUP_FAILED, "The disk is full.", "Free some disk space, then reopen it."),
    "start_cancelled": End(STARTUP_FAILED, "Its start was cancelled."),
    "start_failed": End(STARTUP_FAILED, "The instance could not be started."),
    "refused": End(STARTUP_FAILED, "{place} refused {thing} {name}."),
    # The files.
    "manifest_missing": End(
        MAPPING_FETCH_ERROR, "The snapshot's list of files cannot be read.", "Make a new snapshot."
    ),
    "manifest_changed": End(MAPPING_FETCH_ERROR, "The snapshot's list of files was changed.", "Make a new snapshot."),
    "file_missing": End(MAPPING_FETCH_ERROR, "A file of the snapshot is gone.", "Make a new snapshot."),
    "file_changed": End(MAPPING_FETCH_ERROR, "A file of the snapshot was changed.", "Make a new snapshot."),
    # The load.
    "ddl_refused": End(
        SCHEMA_CREATE_ERROR, "The graph engine refused the mapping's definitions.", "Correct the mapping."
    ),
    "key_duplicate": End(DATA_LOAD_ERROR, "A key comes twice.", "Make it unique in the node's SQL."),
    "key_null": End(DATA_LOAD_ERROR, "A key is NULL.", "Leave such rows out in the node's SQL."),
    "value_does_not_fit": End(DATA_LOAD_ERROR, "A value does not fit its type.", "Correct the type, or the SQL."),
    "loader_died": End(DATA_LOAD_ERROR, "The load ended unexpectedly."),
    "stood_still": End(DATA_LOAD_ERROR, "Nothing was loaded for ten minutes."),
    "counts_differ": End(DATABASE_ERROR, "The graph does not hold what the snapshot does."),
    "database_does_not_open": End(DATABASE_ERROR, "The loaded database cannot be opened."),
    "out_of_memory": End(OOM_KILLED, "The load ran out of memory.", None, "larger"),
    # The snapshot it waited for.
    "snapshot_failed": End(
        DATA_LOAD_ERROR,
        "Snapshot failed: {error}",
        "Mend what failed and retry the snapshot, then reopen the instance.",
    ),
    "snapshot_cancelled": End(
        DATA_LOAD_ERROR, "Snapshot creation was cancelled", "Make another instance of the mapping."
    ),
    "snapshot_deleted": End(
        DATA_LOAD_ERROR,
        "Pending snapshot was deleted before it could complete",
        "Make another instance of the mapping.",
    ),
    # It was there.
    "exited": End(UNEXPECTED_TERMINATION, "{thing} {name} disappeared from {place}"),
    "killed_for_memory": End(OOM_KILLED, "{place} ran out of memory and {thing} {name} was ended.", None, "larger"),
    "unknown_for_long": End(UNEXPECTED_TERMINATION, "{thing} entered Unknown phase"),
    "disrupted": End(UNEXPECTED_TERMINATION, "{thing} entered {phase} phase", then="again"),
    "failed": End(UNEXPECTED_TERMINATION, "{thing} entered {phase} phase"),
    "never_created": End(STARTUP_FAILED, "{thing} {name} could not be created, and was tried several times."),
    "keeper_gone": End(UNEXPECTED_TERMINATION, "{thing} {name} disappeared from {place}", then="restart"),
}
# What a cause of the runtime is called here.
OF_RUNTIME = {
    "exited": "exited",
    "keeper_gone": "keeper_gone",
    "out_of_memory": "killed_for_memory",
    "disrupted": "disrupted",
    "failed": "failed",
}


class CannotStart(Exception):
    """The start cannot succeed, by a cause of the table of ends."""

    def __init__(
        self,
        cause: str,
        message: str | None = None,
        hint: str | None = None,
        *,
        diagnosis: Diagnosis | None = None,
        phase: str | None = None,
    ) -> None:
        super().__init__(cause)
        self.cause, self.message, self.hint = cause, message, hint
        self.diagnosis, self.phase = diagnosis, phase


def cause_of(reported: str) -> str:
    """A cause that nobody here knows: the server that reported it may be newer."""
    return reported if reported in END_OF else "start_failed"


def reported(status: JsonObject) -> CannotStart:
    """Of an instance server whose phase is `failed`."""
    error = status.get("error")
    error = error if isinstance(error, dict) else {}
    cause = cause_of(str(error.get("cause")))
    message, hint = error.get("message"), error.get("hint")
    return CannotStart(
        cause, None if message is None else str(message)[:2_000], None if hint is None else str(hint)[:500]
    )


def error_of(
    cause: str,
    *,
    message: str | None = None,
    hint: str | None = None,
    words: RuntimeWords | None = None,
    name: str | None = None,
    error: str | None = None,
    phase: str | None = None,
    diagnosis: Diagnosis | None = None,
) -> JsonObject:
    """What the instance's `error` says. A sentence of whoever saw it happen is better than ours."""
    end = END_OF[cause]
    told = words or RuntimeWords("Process", "this machine")
    text = message or end.message.format(
        thing=told.thing,
        place=told.place,
        name=name or "",
        error=error or "Export failed",
        phase=phase or "Unknown",
    )
    shown: JsonObject = {"code": end.code, "message": text, "cause": cause}
    if diagnosis is not None:
        shown["diagnosis"] = diagnosis.as_json()
        hint = hint or diagnosis.hint
    if hint or end.hint:
        shown["hint"] = hint or end.hint
    return shown

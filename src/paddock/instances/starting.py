"""`instance_start`: from a generation that is written down to an instance that runs.

It polls: each turn looks once, says how far it is, and gives its slot back. Killed on any line it goes on where it was: the
generation, name and token were written before anything ran, and starting a name twice leaves one process. What ends without
*done* is taken away by the cleanup, which holds the instance's lock until then.
"""

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog
from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.exports import snapshot_states
from paddock.instances import dropping, keeping, limits, loading, more_starts, moving, places, sizing, talking
from paddock.instances.ends import END_OF, OF_RUNTIME, CannotStart, error_of, reported
from paddock.instances.loading import CannotLoad
from paddock.instances.model import SQL
from paddock.instances.running_on import runtime_of
from paddock.instances.talking import BadAnswer, Endpoint, Unreachable
from paddock.jobs.core import Core
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.fencing import EXHAUSTED
from paddock.jobs.model import Job, JsonObject, NewEvent, NewJob
from paddock.jobs.outcomes import Again, Outcome, again, done
from paddock.jobs.turn import Turn
from paddock.runtimes.runtime import Found, NoRoom, Runtime, Start, StartRefused

GIVEN_UP_AFTER = timedelta(minutes=10)
# Between two looks, from the first on: a small graph is there in a moment, and a large one is not asked all the time.
PAUSES = (0.05, 0.05, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3, 0.5, 0.5, 1.0, 1.0, 2.0)
LINKS_EVERY = timedelta(minutes=5)
# What only whoever wrote the mapping can mend.
MISTAKES = frozenset({"ddl_refused", "key_duplicate", "key_null", "value_does_not_fit"})
# How many tables the progress tells of: it is saved with the job.
MOST_TABLES = 200
PHASES = ("empty", "fetching", "schema", "nodes", "edges", "checking", "ready", "failed")
log = structlog.get_logger()


class StartPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str
    generation: str


async def run_start(turn: Turn[StartPayload], core: Core, config: Config) -> Outcome:
    row = await core.db.fetchrow(SQL["instance_row"], UUID(turn.payload.instance_id))
    if row is None or str(row["generation"]) != turn.payload.generation or row["status"] != "starting":
        return done({"superseded": True})
    try:
        if "cause" in turn.saved:  # killed after it was saved
            raise CannotStart(turn.saved["cause"], turn.saved["message"], turn.saved.get("hint"))
        runtime = runtime_of(config)
        if runtime is None:
            raise CannotStart("start_failed", "This control plane has no runtime any more.", "Set PADDOCK_RUNTIME.")
        return await _Start(turn, core, config, runtime, row).look()
    except CannotStart as ended:
        return await _give_up(turn, config, row, ended)
    except InfrastructureError as problem:
        last = {"code": problem.code, "hint": problem.hint, "diagnosis": problem.evidence}
        saved = {**turn.saved, "last_problem": last}
        if isinstance(problem, TransientResourceError):
            failures = turn.saved.get("failures", {})
            saved["failures"] = {**failures, problem.code: failures.get(problem.code, 0) + 1}
            told = f"another try: {problem.message.rstrip('.')}"
            saved["progress"] = {**turn.saved.get("progress", {"phase": "starting"}), "waiting_for": told}
        await turn.save(saved, progress=False)
        raise


async def _give_up(turn: Turn[StartPayload], config: Config, row: asyncpg.Record, ended: CannotStart) -> Outcome:
    runtime = runtime_of(config)
    words = None if runtime is None else runtime.words
    error = error_of(
        ended.cause,
        message=ended.message,
        hint=ended.hint,
        words=words,
        name=row["pod_name"],
        phase=ended.phase,
        diagnosis=ended.diagnosis,
    )
    room = None if runtime is None else await runtime.memory_bytes()
    await turn.save({**turn.saved, **error, "room_bytes": room}, progress=False)
    kind = UserMistake if ended.cause in MISTAKES else PermanentRunnerError
    raise kind(error["message"], code=error["code"], hint=error.get("hint"))


class _Start:
    """One look of one turn."""

    def __init__(
        self, turn: Turn[StartPayload], core: Core, config: Config, runtime: Runtime, row: asyncpg.Record
    ) -> None:
        self.turn, self.core, self.config, self.runtime, self.row = turn, core, config, runtime, row
        self.saved: JsonObject = {"name": row["pod_name"], **turn.saved}

    async def look(self) -> Outcome:
        found = await self.runtime.get(self.row["pod_name"], "polled")
        if found is None or (found.state == "ended" and found.why == "keeper_gone"):
            return await self._begin(found)
        if self.saved.get("taken_away") == found.uid:
            await self.runtime.delete(found.name, found.uid)
            return self._wait()
        if found.state == "ended":
            raise await self._ended(found)
        if found.address is None:
            await places.check(self.turn, self.runtime, self.saved, found)
            return self._wait(found=found)
        endpoint = Endpoint(found.address, self.row["generation"], self.row["token"])
        try:
            return await self._ask(endpoint)
        except (Unreachable, BadAnswer):
            return self._wait()

    async def _ended(self, found: Found) -> CannotStart:
        found = await self.runtime.get(found.name, "closely") or found
        cause = OF_RUNTIME[found.why or "exited"]
        if cause in ("exited", "failed") and not self.saved.get("answered"):
            cause = "never_answered"
        message = found.diagnosis.message if found.diagnosis is not None and cause == "never_answered" else None
        return CannotStart(cause, message, diagnosis=found.diagnosis, phase=found.phase)

    async def _begin(self, found: Found | None) -> Outcome:
        if found is None and self.saved.get("started"):
            raise CannotStart("exited")
        # Its name is saved before it may run: the cleanup takes away what has that name.
        await self.turn.save({**self.saved, **self._progress("starting")}, progress=False)
        snapshot = await snapshot_states.get(self.core.db, self.row["snapshot_id"])
        start = Start(
            name=self.row["pod_name"],
            instance=self.row["id"],
            generation=self.row["generation"],
            wrapper_type=self.row["wrapper_type"],
            memory_bytes=self.row["memory_gb"] * sizing.GB,
            cpu=self.row["cpu_cores"],
            disk_bytes=sizing.GB if snapshot is None else sizing.disk_bytes(snapshot),
            token_sha256=hashlib.sha256(self.row["token"].encode()).hexdigest(),
            owner=self.row["owner"],
            failures=self.saved.get("failures", {}),
        )
        try:
            started = await self._create(start)
        except StartRefused as refused:
            raise CannotStart("refused", refused.message, refused.hint, diagnosis=refused.diagnosis) from None
        except NoRoom as full:
            raise CannotStart("no_disk" if full.what == "disk" else "no_room", full.message) from None
        return self._wait(started=started)

    async def _create(self, start: Start) -> bool:
        """What the owner reads comes later, and only where the start ends of it."""
        try:
            return await self.runtime.start(start)
        except Exception as problem:
            tell = log.warning if isinstance(problem, TransientResourceError) else log.error
            about = {"instance_id": str(start.instance), "pod_name": start.name}
            tell("wrapper_pod_creation_failed", **about, error=f"{type(problem).__name__}: {problem}")
            raise

    async def _ask(self, endpoint: Endpoint) -> Outcome:
        answer = await talking.ask(endpoint, "GET", "/status")
        status = answer.data
        phase = status.get("phase")
        if answer.status != 200 or phase not in PHASES:
            raise BadAnswer("the status is no status")
        if phase == "ready":
            return done({**_result(status), "address": {"host": endpoint.address.host, "port": endpoint.address.port}})
        if phase == "failed":
            raise reported(status)
        links_at = self.saved.get("links_at")
        old = links_at is None or self.turn.age - timedelta(seconds=links_at) > LINKS_EVERY
        if phase == "empty" or status.get("needs_links") or old:
            await self._load(endpoint)
            self.saved["links_at"] = self.turn.age.total_seconds()
        return self._wait(status, answered=True)

    async def _load(self, endpoint: Endpoint) -> None:
        """Told again while it loads, it only takes the fresh links."""
        snapshot = await snapshot_states.get(self.core.db, self.row["snapshot_id"])
        if snapshot is None or snapshot.status != "ready":
            raise CannotStart("manifest_missing", "The snapshot is gone.")
        try:
            body = await loading.load_body(self.core.db, self.config, snapshot)
        except CannotLoad as problem:
            raise CannotStart(problem.cause, problem.message) from None
        answer = await talking.ask(endpoint, "POST", "/load", body, seconds=60)
        if answer.status not in (200, 202):
            raise CannotStart(
                "ddl_refused", str(answer.error.get("message") or "The instance refused what it was to load.")
            )

    def _wait(self, status: JsonObject | None = None, *, found: Found | None = None, **facts: bool) -> Again:
        """Given up when nothing moved for long; what moves is the phase, and what the server calls a move. While there is no
        place for it nothing can move: that time has its own clock."""
        self.saved.update(facts)
        shown = self._progress("starting") if status is None else self._progress(str(status["phase"]), status)
        waiting = None if found is None else found.waiting
        if waiting is not None:
            shown["progress"]["waiting_for"] = waiting.words
        self.saved.update(shown)
        sign = [shown["progress"]["phase"], None if status is None else str(status.get("moved_at"))]
        if waiting is not None:
            sign.append(waiting.words)
        now = self.turn.age.total_seconds()
        moved = self.saved.get("sign") != sign
        if moved or (waiting is not None and waiting.clock != "start"):
            self.saved.update(sign=sign, moved_at_age=now)
        elif now - self.saved["moved_at_age"] > GIVEN_UP_AFTER.total_seconds():
            raise CannotStart("stood_still" if self.saved.get("answered") else "never_answered")
        pause = PAUSES[min(self.turn.turn_count - 1, len(PAUSES) - 1)]
        thing = self.runtime.words.thing.lower()
        return again(
            timedelta(seconds=pause), waiting_on=f"{thing} {self.row['pod_name']}", saved=self.saved, progress=moved
        )

    def _progress(self, phase: str, status: JsonObject | None = None) -> JsonObject:
        status = status or {}
        told = status.get("tables")
        tables = [table for table in told[:MOST_TABLES] if isinstance(table, dict)] if isinstance(told, list) else []
        shown = {
            "phase": "starting" if phase == "empty" else phase,
            "percent": _number(status.get("percent")),
            "eta_seconds": _number(status.get("eta_seconds")),
            "tables": [
                {
                    "section": str(table.get("section"))[:5],
                    "name": str(table.get("name"))[:64],
                    "rows": _number(table.get("rows")),
                    "done": _number(table.get("done")),
                }
                for table in tables
            ],
        }
        return {"progress": shown}


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and -1e15 < value < 1e15 else None


def _result(status: JsonObject) -> JsonObject:
    return {name: status.get(name) for name in ("counts", "dangling_edges", "from_database", "database_bytes")}


async def start_ended(tx: Transaction, job: Job) -> Sequence[NewJob | NewEvent]:
    """In the transaction that ends the start: `running` and `failed` are written here and nowhere else for a start."""
    id, generation = UUID(job.payload["instance_id"]), UUID(job.payload["generation"])
    if job.status == "completed":
        result = job.result if isinstance(job.result, dict) else {}
        return () if result.get("superseded") else await moving.to_running(tx, id, generation, result)
    saved = job.saved or {}
    kept = ("code", "message", "hint", "cause", "diagnosis")
    error = {name: saved[name] for name in kept if saved.get(name) is not None}
    if "cause" not in error:
        error = _given_up(job, saved)
    if END_OF[error["cause"]].then in ("larger", "again"):
        await limits.lock(tx)
        row = await tx.fetchrow(SQL["lock_instance"], id)
        if row is None or row["generation"] != generation or row["status"] != "starting":
            return ()
        too_much = await more_starts.once_more(tx, row, error, saved.get("room_bytes"))
        if too_much is None:
            return [more_starts.restarted(row, error)]  # the cleanup begins the next start
        error.update(too_much)
    events = await moving.to_failed(tx, id, generation, error, from_=["starting"])
    if events and job.turn_count == 0:  # no cleanup follows one that was never at work
        return [*events, *await _stop_of_earlier(tx, id)]
    return events


async def _stop_of_earlier(tx: Transaction, id: UUID) -> list[NewJob]:
    """One that was reopened while it ran has its process still."""
    row = await tx.fetchrow(SQL["lock_instance"], id)
    return [] if row is None or row["generation_number"] == 1 else [moving.stop_job(row)]


def _given_up(job: Job, saved: JsonObject) -> JsonObject:
    """Cancelled, or what the last try met was final, or its tries were spent: then what is known of the last one is told."""
    cause = "start_cancelled" if job.status == "cancelled" else "start_failed"
    told = f"{END_OF[cause].message.rstrip('.')}: {job.error_message}" if job.error_message else None
    last = saved.get("last_problem") or {}
    if job.error_code not in (last.get("code"), EXHAUSTED):
        return error_of(cause, message=told)
    error = error_of(cause, message=told, hint=last.get("hint"))
    return error if last.get("diagnosis") is None else {**error, "diagnosis": last["diagnosis"]}


async def clean_start(turn: Turn[StartPayload], core: Core, config: Config) -> Outcome:
    """Log and diagnosis are kept, then the process is taken away; a row that is `stopping` goes with it. One that is not stopping
    keeps what an earlier start had loaded, if this one never ran. It is looked at once: where it is deleted from here on, the
    end of this cleanup makes the stop that takes the rest."""
    runtime, id = runtime_of(config), UUID(turn.payload.instance_id)
    name = turn.saved.get("name")
    if runtime is not None and name is not None:
        generation = UUID(turn.payload.generation)
        saved = turn.saved
        if not saved.get("kept"):
            await keeping.keep(core.db, runtime, id, generation, name)
            saved = {**saved, "kept": True}
        row = await core.db.fetchrow(SQL["instance_row"], id)
        goes = row is None or row["status"] == "stopping"
        if not await runtime.delete(name, keep_loaded=not goes):
            return again(timedelta(milliseconds=100), waiting_on=f"end of {name}", saved=saved)
        if goes:
            await dropping.drop(core, id, generation)
    return done()


async def start_cleaned(tx: Transaction, job: Job) -> Sequence[NewJob]:
    """What was asked for while the cleanup held the lock: a deletion, or another start."""
    row = await tx.fetchrow(SQL["lock_instance"], UUID(job.payload["instance_id"]))
    if row is None:
        return ()
    if row["status"] == "stopping":
        return [moving.stop_job(row)]
    if row["status"] == "starting" and row["again"] and str(row["generation"]) == job.payload["generation"]:
        once_more = await moving.to_starting(tx, row, memory_gb=row["memory_gb"], from_=["starting"])
        return [] if once_more is None else [once_more]
    return ()

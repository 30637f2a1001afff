"""What must be true of runs, batches and files after every step, whatever happened."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database
from paddock.ingest import runs

Row = Any
OPEN = ("fetched", "hooked")
ENDS = ("IngestRunCompleted", "IngestRunFailed", "IngestRunCancelled")


@dataclass
class Checking:
    connection: "asyncpg.Connection[asyncpg.Record]"
    seen: "Counter[str]"
    # As they were seen before.
    next_batch: dict[UUID, int] = field(default_factory=dict)
    ended: dict[UUID, str] = field(default_factory=dict)
    published: dict[tuple[UUID, int], UUID | None] = field(default_factory=dict)
    # The end of one of its jobs was told to fail: what it left undone is made good at the end of the run.
    maimed: bool = False

    async def check(self, db: Database, source: str, *, raised: bool) -> None:
        self.maimed |= raised
        fetch = self.connection.fetch
        all_runs = await fetch("SELECT * FROM ingest_runs ORDER BY id")
        batches: dict[UUID, list[Row]] = defaultdict(list)
        for row in await fetch("SELECT * FROM ingest_batches ORDER BY run_id, n"):
            batches[row["run_id"]].append(row)
        told: Counter[tuple[str, str, int | None]] = Counter()
        for row in await fetch("SELECT type, data FROM events"):
            data = orjson.loads(row["data"])
            told[row["type"], data["run"], data.get("batch")] += 1
        groups = {row["id"]: row for row in await fetch("SELECT * FROM groups")}
        jobs: dict[UUID, list[Row]] = defaultdict(list)
        for row in await fetch("SELECT kind, group_id, payload FROM jobs WHERE cleanup_of IS NULL"):
            jobs[row["group_id"]].append(row)
        assert sum(run["status"] in ("running", "finishing", "stopping") for run in all_runs) <= 1
        await self._files(batches, told)
        for run in all_runs:
            self._batches(run, batches[run["id"]])
            self._ends_once(run, told)
            self._way_to_end(run, batches[run["id"]], groups[run["group_id"]], jobs[run["group_id"]])
        await self._session(db, source, all_runs, batches)

    async def _files(self, batches: dict[UUID, list[Row]], told: "Counter[tuple[str, str, int | None]]") -> None:
        """A batch is published at most once, and stays so."""
        files = {
            (row["run_id"], row["batch"]): row["id"]
            for row in await self.connection.fetch("SELECT * FROM ingest_files")
        }
        for (type, run, n), times in told.items():
            assert type != "IngestBatchPublished" or times == 1, f"batch {n} of {run} was published {times} times"
        now = {(batch["run_id"], batch["n"]): batch for each in batches.values() for batch in each}
        for key, file in self.published.items():
            assert key not in now or (now[key]["status"], now[key]["file_id"]) == ("published", file)
        for key, batch in now.items():
            if batch["status"] == "published":
                self.published[key] = batch["file_id"]
                assert files.get(key) == batch["file_id"]
                assert (batch["file_id"] is None) == (batch["manifest"] is None)
            else:
                assert key not in files, f"{key} is {batch['status']} and has a file"

    def _batches(self, run: Row, batches: list[Row]) -> None:
        assert run["next_batch"] >= self.next_batch.get(run["id"], 0), "next_batch went back"
        self.next_batch[run["id"]] = run["next_batch"]
        assert [batch["n"] for batch in batches] == list(range(run["next_batch"]))
        waiting = sum(batch["bytes"] for batch in batches if batch["status"] in OPEN)
        assert run["waiting_bytes"] == waiting, (run["waiting_bytes"], waiting)
        failed = sum(batch["status"] in ("failed", "skipped") for batch in batches)
        assert run["failed_batches"] == failed, (run["failed_batches"], failed)

    def _ends_once(self, run: Row, told: "Counter[tuple[str, str, int | None]]") -> None:
        times = sum(told[type, str(run["id"]), None] for type in ENDS)
        assert times == (run["ended_at"] is not None), f"{run['status']} and told {times} times"
        if run["ended_at"] is None:
            return
        self.seen[f"run {run['status']}"] += run["id"] not in self.ended
        first = self.ended.setdefault(run["id"], run["status"])
        assert run["status"] in (first, "deleting")

    def _way_to_end(self, run: Row, batches: list[Row], group: Row, jobs: list[Row]) -> None:
        """A live run has a job that is counted by its group, or the group's end is to be repeated."""
        assert group["open"] == len(jobs), "the group counts its jobs"
        if run["ended_at"] is not None:
            assert group["final"]
            assert not jobs
            assert run["held_since"] is None
            return
        assert group["sealed"]
        assert jobs or group["hook_due"], "nothing will ever end this run"
        fetching = [job for job in jobs if job["kind"] == "run_ingester" and _batch(job) == run["next_batch"]]
        assert len(fetching) <= 1, "one ingester at a time"
        if run["held_since"] is not None:
            self.seen["held"] += 1
            assert run["status"] == "running"
            assert not fetching
            assert run["waiting_bytes"] > 0
        elif run["status"] == "running" and not self.maimed:
            assert fetching
        if run["status"] in ("running", "finishing") and not self.maimed:
            at_work = {(_batch(job), job["kind"]) for job in jobs}
            for batch in batches:
                wanted = {"fetched": "run_hooks", "hooked": "publish_batch"}.get(batch["status"])
                assert wanted is None or (batch["n"], wanted) in at_work, f"batch {batch['n']} is left alone"

    async def _session(self, db: Database, source: str, all_runs: list[Row], batches: dict[UUID, list[Row]]) -> None:
        """The committed session passes no batch that is open, failed or cancelled."""
        kept = await self.connection.fetchrow("SELECT * FROM ingest_sessions WHERE source = $1", source)
        found: list[tuple[UUID, str]] = [] if kept is None else [(kept["run_id"], kept["session"])]
        for run in all_runs:
            last = None
            for batch in batches[run["id"]]:
                if batch["status"] not in ("published", "skipped"):
                    break
                last = batch["session"] or last
            if last is not None:
                found.append((run["id"], last))
        expected = max(found)[1] if found else None
        self.seen["committed"] += expected is not None
        assert await runs.committed_session(db, source) == expected


def _batch(job: Row) -> int:
    return int(orjson.loads(job["payload"])["batch"])

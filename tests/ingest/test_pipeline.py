"""Records go from a command through hooks into Parquet, and the next run goes on where the last one ended."""

import asyncio
import contextlib
from datetime import UTC, datetime
from uuid import uuid4

import orjson
import pytest

from paddock.api.job_json import job_json
from paddock.ingest import fetching, pipeline, runs
from paddock.ingest.model import Fetched, FetchedBatch
from paddock.ingest.outputs import InvalidOutput
from paddock.ingest.pipeline import SQL
from paddock.jobs import reading
from paddock.jobs.errors import Draining
from paddock.jobs.filtering import Filter
from paddock.jobs.model import MAX_RESULT_BYTES, Event
from tests.ingest.conftest import NUMBERS, SEVENS, Bench


async def test_a_run_publishes_what_passed_and_keeps_why_the_rest_did_not(bench: Bench) -> None:
    bench.hook("sevens", SEVENS)
    bench.source("numbers", config={"total": 25}, batch_size=10, hooks=["sevens"])

    run = await bench.run("numbers")

    assert (run.status, run.next_batch, run.failed_batches, run.waiting_bytes) == ("completed", 3, 0, 0)
    rows = await bench.rows("numbers")
    expected = [n for n in range(1, 26) if n % 7 and n % 11]
    assert [int(row["id"]) for row in rows] == expected
    assert [orjson.loads(row["data"])["square"] for row in rows] == [n * n for n in expected]
    assert orjson.loads(rows[0]["features"]) == {"sevens": {"even": False}}
    counts = await runs.counts(bench.core.db, run)
    assert counts == {"published": {"n": 3, "records": 25, "passed": 20, "rejected": 3, "errors": 2, "duplicates": 0}}


async def test_the_next_run_goes_on_after_what_is_published(bench: Bench) -> None:
    bench.source("numbers", config={"total": 5}, batch_size=3)
    await bench.run("numbers")
    bench.source("numbers", config={"total": 8}, batch_size=3)

    await bench.run("numbers")

    assert [int(row["id"]) for row in await bench.rows("numbers")] == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_a_limit_ends_fetching_exactly_and_nothing_falls_between_two_runs(bench: Bench) -> None:
    bench.source("numbers", config={"total": 9}, batch_size=4)

    await bench.run("numbers", limit=6)
    assert [int(row["id"]) for row in await bench.rows("numbers")] == [1, 2, 3, 4, 5, 6]

    await bench.run("numbers")
    assert [int(row["id"]) for row in await bench.rows("numbers")] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


async def test_an_empty_source_completes_with_nothing_published(bench: Bench) -> None:
    bench.source("numbers", config={"total": 0})
    run = await bench.run("numbers")
    assert (run.status, await bench.rows("numbers")) == ("completed", [])


async def test_a_second_run_of_a_source_at_work_is_refused_and_names_the_first(bench: Bench) -> None:
    bench.source("numbers", config={"total": 1})
    first = await bench.start("numbers")
    with pytest.raises(runs.RunActive) as refused:
        await bench.start("numbers")
    assert refused.value.details == {"run_id": str(first.id)}


async def test_a_failed_batch_leaves_the_others_and_is_fetched_again_by_the_next_run(bench: Bench) -> None:
    bench.hook("picky", "import os, sys; sys.exit(3) if os.environ['PADDOCK_BATCH'] == '1' else None\n" + SEVENS)
    bench.source("numbers", config={"total": 6}, batch_size=2, hooks=["picky"])

    run = await bench.run("numbers")

    assert (run.status, run.failed_batches) == ("completed", 1)
    [failed] = await runs.batches(bench.core.db, run, statuses=["failed"])
    assert failed.n == 1
    assert failed.error is not None
    assert failed.error["code"] == "command_failed"
    assert [int(row["id"]) for row in await bench.rows("numbers")] == [1, 2, 5, 6]

    bench.hook("picky", SEVENS)
    await bench.run("numbers")
    # What came after the failed batch is fetched again, too: a newer version of the same records.
    assert [int(row["id"]) for row in await bench.rows("numbers")] == [1, 2, 5, 6, 3, 4, 5, 6]


async def test_a_failed_batch_is_retried_alone_after_its_run_has_ended(bench: Bench) -> None:
    bench.hook("picky", "import sys; sys.exit(64)")
    bench.source("numbers", config={"total": 2}, hooks=["picky"])
    run = await bench.run("numbers")
    bench.hook("picky", SEVENS)

    await runs.retry_batch(bench.core, run, 0, actor="ann")
    async with bench.worker():
        await bench.when(run, lambda now: now.failed_batches == 0)
        await _until_published(bench, 2)

    # The jobs of the retry are in no group, and are steps of the batch all the same.
    steps = [(job["kind"], job["status"]) for job in await runs.batch_jobs(bench.core.db, run, 0)]
    assert steps == [
        ("run_ingester", "completed"),
        ("run_hooks", "failed"),
        ("run_hooks", "completed"),
        ("publish_batch", "completed"),
    ]
    after = await runs.get(bench.core.db, run.id)
    assert after is not None
    assert (after.status, after.ended_at, after.waiting_bytes) == (run.status, run.ended_at, 0)


async def test_a_batch_that_fails_again_after_its_runs_end_takes_nothing_from_what_waits(bench: Bench) -> None:
    bench.hook("picky", "import sys; sys.exit(64)")
    bench.source("numbers", config={"total": 2}, hooks=["picky"])
    run = await bench.run("numbers")

    await runs.retry_batch(bench.core, run, 0, actor="ann")
    async with bench.worker():
        after = await bench.when(run, lambda now: now.failed_batches == 1)

    assert after.waiting_bytes == 0


async def test_no_session_is_shown_with_a_job(bench: Bench) -> None:
    bench.source(
        "numbers", NUMBERS.replace('{"after": last}', '{"after": last, "cursor": "hush"}'), config={"total": 2}
    )
    run = await bench.run("numbers")

    found = await reading.page(bench.core.db, Filter(group=run.group_id), limit=10)
    shown = [job_json(job, bench.core.kinds) for job in found.jobs]
    assert {job["kind"] for job in shown} == {"run_ingester", "run_hooks", "publish_batch"}
    assert "hush" not in str(shown)
    assert "hush" in str(await runs.committed_session(bench.core.db, "numbers"))


async def test_drain_refuses_to_retry_a_batch(bench: Bench) -> None:
    bench.hook("picky", "import sys; sys.exit(64)")
    bench.source("numbers", config={"total": 2}, hooks=["picky"])
    run = await bench.run("numbers")
    await bench.core.drain(True, actor="ann", reason="upgrade")

    with pytest.raises(Draining):
        await runs.retry_batch(bench.core, run, 0, actor="ann")

    assert [batch.status for batch in await runs.batches(bench.core.db, run)] == ["failed"]


async def test_a_batch_that_is_published_while_its_run_is_dropped_leaves_no_file(bench: Bench) -> None:
    bench.source("numbers", config={"total": 1})
    run = await bench.run("numbers")
    async with bench.core.db.transaction() as tx:
        await tx.execute("UPDATE ingest_runs SET status = 'deleting'")

    async def drop() -> None:
        async with bench.core.db.transaction() as tx:
            await runs.dropped(tx, run.id)

    async def waits() -> bool:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with bench.core.db.transaction() as looking:
            return bool(await looking.fetchval(sql))

    async with bench.core.db.transaction() as tx:
        await tx.fetchrow(SQL["lock_run"], run.id)
        await tx.fetchval(SQL["insert_file"], "numbers", run.id, 1, 1, 0, 1, "ingest/numbers/1", "0" * 64)
        dropping = asyncio.create_task(drop())
        async with asyncio.timeout(60):
            while not await waits():  # noqa: ASYNC110  it is another session of the database that waits
                await asyncio.sleep(0.01)
    await dropping

    assert await runs.files(bench.core.db, "numbers") == []
    assert await runs.get(bench.core.db, run.id) is None


async def _until_published(bench: Bench, rows: int) -> None:
    async with asyncio.timeout(60):
        while len(await bench.rows("numbers")) < rows:  # noqa: ASYNC110  it is a row of the database that comes
            await asyncio.sleep(0.01)


async def test_too_many_failed_batches_stop_the_run(bench: Bench) -> None:
    bench.hook("broken", "import sys; sys.exit(1)")
    bench.source("numbers", config={"total": 50}, batch_size=1, hooks=["broken"], max_failed_batches=2)
    run = await bench.run("numbers")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "too_many_failed_batches"
    assert not await runs.batches(bench.core.db, run, statuses=["fetched", "hooked"])


async def test_a_command_that_is_not_there_stops_the_run_at_its_first_batch(bench: Bench) -> None:
    bench.hook("missing", "")
    bench.hooks["missing"]["command"] = ["/nonexistent/hook"]
    bench.source("numbers", config={"total": 50}, batch_size=1, hooks=["missing"])
    run = await bench.run("numbers")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "command_missing"


async def test_an_ingester_that_fails_lets_through_what_was_fetched(bench: Bench) -> None:
    bench.source(
        "numbers",
        "import os, sys\nif os.environ['PADDOCK_BATCH'] == '1': sys.exit(64)\n" + NUMBERS,
        config={"total": 4},
        batch_size=2,
    )
    run = await bench.run("numbers")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "bad_input"
    assert [int(row["id"]) for row in await bench.rows("numbers")] == [1, 2]


async def test_no_records_the_same_session_and_more_to_come_is_no_progress(bench: Bench) -> None:
    text = """
import os
open(os.environ["PADDOCK_OUT"] + "/records.jsonl", "w").close()
open(os.environ["PADDOCK_OUT"] + "/session.json", "w").write('{"session": 1, "has_more": true}')
"""
    bench.source("stuck", text)
    run = await bench.run("stuck")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "no_progress"
    # The first fetch moved the session from nowhere to 1, which is a batch without records.
    assert run.next_batch == 1


async def test_records_with_the_same_session_and_more_to_come_end_the_run(bench: Bench) -> None:
    """The next fetch would be given the same session, and give the same records: for ever."""
    text = """
import os
open(os.environ["PADDOCK_OUT"] + "/records.jsonl", "w").write('{"id": 1, "data": {}}\\n')
open(os.environ["PADDOCK_OUT"] + "/session.json", "w").write('{"session": 1, "has_more": true}')
"""
    bench.source("stuck", text)
    run = await bench.run("stuck")
    assert run.error is not None
    assert (run.status, run.error["code"], run.next_batch) == ("failed", "no_progress", 2)
    assert [row["id"] for row in await bench.rows("stuck")] == ["1", "1"], "what was fetched goes through"


async def test_one_fetch_of_more_batches_than_can_be_listed_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "LISTED_BYTES", 2_000)
    bench.source(
        "numbers", NUMBERS.replace('int(os.environ["PADDOCK_LIMIT"])', "50"), config={"total": 50}, batch_size=1
    )
    run = await bench.run("numbers")
    assert run.error is not None
    assert (run.status, run.error["code"]) == ("failed", "invalid_output")
    assert "batches and a session of" in run.error["message"]
    assert "batch_size" in run.error["hint"]


def test_what_can_be_listed_can_be_sent() -> None:
    batch = FetchedBatch(manifest="m" * 200, sha256="0" * 64, records=100_000, duplicates=99_999, bytes=256 << 20)
    session = '"' * 1_000
    batches: list[FetchedBatch] = []
    with contextlib.suppress(InvalidOutput):
        while len(batches) < 2_000:
            fetching.check_listed([*batches, batch], session)
            batches.append(batch)
    found = Fetched(batches=batches, secret_session=session, has_more=True, fetched_at=datetime.now(UTC), cut=True)
    assert 200_000 < len(orjson.dumps(found.model_dump(mode="json"))) <= MAX_RESULT_BYTES


async def test_a_kind_for_the_other_runtime_asks_nothing_of_the_database(bench: Bench) -> None:
    heard = Event(
        uuid4(),
        "IngesterBatchReady",
        "x",
        1,
        "ann",
        {"run": str(uuid4()), "batch": 0, "runtime": "local"},
        datetime.now(UTC),
    )
    asked: list[object] = []
    async with bench.core.db.transaction() as tx:
        with tx.connection.query_logger(asked.append):
            assert await pipeline.hooks_for(tx, heard, "kubernetes") is None
            assert await pipeline.fetch_for(tx, heard, "kubernetes") is None
    assert asked == []


async def test_cancelling_stops_what_is_at_work_and_keeps_what_was_published(bench: Bench) -> None:
    begun = bench.folder / "begun"
    waits = f"import os, time\nif os.environ['PADDOCK_BATCH'] != '0': open({str(begun)!r}, 'w'); time.sleep(600)\n"
    bench.hook("waits", waits + SEVENS)
    bench.source("numbers", config={"total": 4}, batch_size=2, hooks=["waits"])
    run = await bench.start("numbers")
    async with bench.worker():
        await _until_published(bench, 2)
        async with asyncio.timeout(60):
            while not begun.exists():  # noqa: ASYNC110  another process makes it
                await asyncio.sleep(0.01)
        await runs.cancel(bench.core, run, actor="ann", reason="enough")
        ended = await bench.when(run, lambda now: not now.live)
    assert ended.status == "cancelled"
    assert [batch.status for batch in await runs.batches(bench.core.db, run)] == ["published", "cancelled"]


async def test_the_same_record_twice_in_a_batch_is_its_last_and_is_counted(bench: Bench) -> None:
    text = """
import os
out = os.environ["PADDOCK_OUT"]
open(out + "/records.jsonl", "w").write('{"id": "a", "data": 1}\\n{"id": "b", "data": 2}\\n{"id": "a", "data": 3}\\n')
open(out + "/session.json", "w").write('{"session": null, "has_more": false}')
"""
    bench.source("twice", text)
    run = await bench.run("twice")
    assert [(row["id"], row["data"]) for row in await bench.rows("twice")] == [("b", "2"), ("a", "3")]
    assert (await runs.counts(bench.core.db, run))["published"]["duplicates"] == 1

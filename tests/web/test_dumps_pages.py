"""Dumps as the server draws them: for each person, in each state, with odd texts, and what they refuse."""

import contextlib
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.dumps import dumps
from paddock.dumps.dumps import Dump
from paddock.dumps.model import prefix_of
from paddock.dumps.pages import dump_words
from paddock.dumps.pages.dump_tables import TableProgress, Tables
from paddock.dumps.settings import DumpSettings
from paddock.jobs import schedules, wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.storage.store import open_store
from paddock.web import pages
from tests.playing import Attempt, PlayedWorker
from tests.snapshots.making import payload_of
from tests.web.signed_in import BASE, ODD, Browser, Open, row_of, schedule, words_of

OWNERS = {"analyst": "ann", "ops": "olga"}
CONTENT = b"BEGIN TRANSACTION;\nCOMMIT;\n"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    databases: dict[str, dict[str, Any]] = {
        "shop": {"type": "sqlite", "path": str(tmp_path / "shop.db"), "owners": ["ann"], "description": ODD},
        "books": {"type": "postgres", "url": "postgresql://books.example/books"},
        "lake": {"type": "duckdb", "path": str(tmp_path / "lake.db"), "owners": ["ann", "bob"]},
    }
    return Config(data=tmp_path).with_settings(DumpSettings(databases=databases))


@pytest.fixture
async def core(dsn: str, config: Config, settings: CoreSettings) -> AsyncIterator[Core]:
    async with open_core(dsn, all_kinds(config), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routes=pages.routes())


@pytest.fixture
async def open_browser(app: FastAPI, core: Core) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(role: str = "analyst", owner: str | None = None, **grants: Any) -> Browser:
            owner = owner or OWNERS[role]
            new = NewToken(name=f"{owner} {uuid4()}", role=role, owner=owner, grants=grants)  # type: ignore[arg-type]
            _, secret = await Tokens(core.db).create(new, actor="test")
            client = await stack.enter_async_context(
                httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
            )
            answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
            assert answer.status_code == 303
            return Browser(client)

        yield make


@pytest.fixture
async def ann(open_browser: Open) -> Browser:
    return await open_browser()


@pytest.fixture
async def played(core: Core) -> PlayedWorker:
    link = core.link()
    offered = wire.Register(worker_id="w", version="test", kinds=["dump:shop", "dump:lake", "dump:books"], slots=10)
    return PlayedWorker(link, (await link.register(offered)).session)


async def start(browser: Browser, core: Core, database: str = "shop", **fields: Any) -> Dump:
    """By the form."""
    where = await browser.done("/dumps/new", f"/dumps/new?database={database}", database=database, **fields)
    return await found(core, where.rpartition("/")[2])


async def found(core: Core, id: str) -> Dump:
    dump = await dumps.get(core.db, id)
    assert dump is not None
    return dump


async def report(played: PlayedWorker, attempt: Attempt, **told: Any) -> None:
    held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report=told)
    await played.link.beat(played.session, wire.Beat(holding=[held]))


async def complete(config: Config, attempt: Attempt, **fields: Any) -> None:
    """With its file where a worker leaves it."""
    id = str(payload_of(attempt)["dump_id"])
    key = f"{prefix_of(id)}/draft1.sql"
    await open_store(config.object_store).put(key, CONTENT)
    result = {
        "key": key,
        "etag": "5d41402abc4b2a76b9719d911017c592-1",
        "size": len(CONTENT),
        "part_size": 8 << 20,
        "digest": "ab" * 32,
        "rows": 1_230,
        "table_count": len(fields.get("tables") or ("orders", "another")),
        "tables": {"orders": 1_220, ODD: 10},
        "point_in_time": "2026-11-16T09:30:01.250Z",
        "restarts": 0,
        "file_name": f"shop_{id}.sql",
        "media_type": "application/sql",
        **fields,
    }
    assert await attempt.finish("done", result=result) == "accepted"


# the list


async def test_databases_are_listed_with_their_last_dump_and_how_to_begin(core: Core, ann: Browser) -> None:
    page = await ann.read("/dumps")
    text = words_of(page)
    assert "No dumps yet." in text
    assert "paddock dump lake" in text
    assert "books" not in text, "it has other owners"
    row = row_of(page, "database-shop")
    assert "SQLite" in row
    assert "none yet" in row
    dump = await start(ann, core)
    page = await ann.read("/dumps")
    assert "pending" in row_of(page, "database-shop")
    assert f'href="/dumps/{dump.id}"' in page
    assert "none yet" in row_of(page, "database-lake")


async def test_who_may_dump_nothing_is_told_how_to_get_there(open_browser: Open) -> None:
    text = words_of(await (await open_browser(owner="eve")).read("/dumps"))
    assert "No database is yours to dump." in text
    assert "paddock tokens create" in text
    assert "New dump" not in text


async def test_the_list_tells_how_far_each_is_and_what_failed(
    core: Core, config: Config, ann: Browser, played: PlayedWorker
) -> None:
    failed = await start(ann, core)
    await (await played.claim_one("dump:shop")).finish("permanent", error=wire.Error(code="broken", message=ODD))
    made = await start(ann, core, format="csv", compress="gzip", which="only", tables="orders")
    attempt = await played.claim_one("dump:shop")
    if attempt.job.cleanup_of is not None:
        await attempt.finish()
        attempt = await played.claim_one("dump:shop")
    await complete(config, attempt)
    running = await start(ann, core, "lake")
    attempt = await played.claim_one("dump:lake")
    told = {"phase": "dumping", "table": ODD, "tables_done": 2, "tables_total": 7, "rows": 1_200, "percent": 42.7}
    await report(played, attempt, **told, bytes=5_000_000, point_in_time="2026-11-16T09:30:01Z")

    page = await ann.read("/dumps")
    assert "1 under way, 1 completed and 1 failed." in words_of(page)
    assert "dumping 42 % table 3 of 7 1,200 5.0 MB" in row_of(page, f"dump-{running.id}")
    row = row_of(page, f"dump-{made.id}")
    assert "CSV, gzip, only orders" in row
    assert "completed 2 tables" in row
    assert "1,230" in row
    assert "failed" in row_of(page, f"dump-{failed.id}")
    only = await ann.read("/dumps?database=lake")
    assert f"dump-{running.id}" in only
    assert f"dump-{made.id}" not in only


async def test_older_dumps_are_on_further_pages(core: Core, ann: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.dumps.pages.dumps.PAGE_LENGTH", 2)
    made = sorted([(await start(ann, core)).id for _ in range(3)], reverse=True)
    first = await ann.read("/dumps")
    assert [id for id in made if f"dump-{id}" in first] == made[:2]
    older = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
    rest = await ann.read(older.replace("&amp;", "&"))
    assert [id for id in made if f"dump-{id}" in rest] == made[2:]
    assert "Databases" not in words_of(rest)


async def test_dumps_are_found_by_state_owner_database_and_words(
    core: Core, ann: Browser, open_browser: Open, played: PlayedWorker
) -> None:
    broken = await start(ann, core, which="only", tables="orders", format="csv")
    [attempt] = await played.claim("dump:shop")
    await attempt.finish("permanent", error=wire.Error(code="broken", message="The disk is full."))
    for cleanup in await played.claim("dump:shop"):
        await cleanup.finish()
    mine = await start(ann, core, "lake")
    bobs = await start(await open_browser(owner="bob"), core, "lake")
    by_query = {
        "status=failed": {broken.id},
        "status=pending": {mine.id, bobs.id},
        "owner=bob": {bobs.id},
        "database=shop": {broken.id},
        "q=ORDERS": {broken.id},
        "q=disk+is": {broken.id},
        "q=lake&owner=ann": {mine.id},
        "q=nonesuch": set(),
    }
    for query, wanted in by_query.items():
        page = await ann.read(f"/dumps?{query}")
        assert {id for id in (broken.id, mine.id, bobs.id) if f"dump-{id}" in page} == wanted, query
        assert "database-shop" not in page, "the list alone"
        answer = await ann.client.get(f"/export/jobs?v=2&{query}")
        assert {dump["jobId"] for dump in answer.json()["result"]} == wanted, query
    assert "No dump matches." in words_of(await ann.read("/dumps?q=nonesuch"))
    assert (await ann.client.get("/export/jobs?status=lost")).status_code == 422


async def test_without_a_store_the_page_says_what_to_set(dsn: str, config: Config, core: Core, tmp_path: Path) -> None:
    bare = config.model_copy(update={"object_store": "none"})
    app = create_app(core, bare, routes=pages.routes())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        _, secret = await Tokens(core.db).create(NewToken(name="olga", role="ops", owner="olga"), actor="test")
        await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
        for path in ("/dumps", "/dumps/new?database=shop"):
            page = await Browser(client).read(path)
            assert "set PADDOCK_OBJECT_STORE" in words_of(page)
            assert "Start the dump" not in page
            assert "New dump</a>" not in page


# who sees what


async def test_databases_and_dumps_of_others_are_not_there(core: Core, ann: Browser, open_browser: Open) -> None:
    ops = await open_browser("ops")
    dump = await start(ops, core, "books")
    assert dump.id not in await ann.read("/dumps")
    assert dump.id not in await ann.read("/dumps?database=books")
    await ann.read(f"/dumps/{dump.id}", 404)
    await ann.read("/dumps/nonsense", 404)
    await ann.read(f"/dumps/new?like={dump.id}", 404)
    await ann.read("/dumps/new?database=books", 404)
    for action in ("cancel", "retry", "delete"):
        assert (await ann.send(f"/dumps/{dump.id}/{action}", "/dumps")).status_code == 404
    assert (await ann.send("/dumps/new", "/dumps", database="books", format="sql")).status_code == 404
    assert "of olga" in row_of(await (await open_browser("ops", owner="otto")).read("/dumps"), f"dump-{dump.id}")


async def test_who_shares_a_database_sees_its_dumps_and_stops_only_their_own(
    core: Core, ann: Browser, open_browser: Open
) -> None:
    dump = await start(ann, core, "lake")
    bob = await open_browser(owner="bob")
    listed = await bob.read("/dumps")
    assert f"dump-{dump.id}" in listed
    assert 'data-live="clock"' in listed, "no stream tells bob of it"
    own = f"/dumps/{dump.id}"
    page = await bob.read(own)
    assert 'data-stream="none"' in page
    for action in ("cancel", "retry", "delete"):
        assert f"{own}/{action}" not in page
        assert await bob.refused(f"{own}/{action}", "/dumps", 403)
    assert str(dump.job_id) not in page, "the job's page is its owner's"
    assert (await found(core, dump.id)).live is not None


# one of them


def reading_of(told: Mapping[str, Any], words: str) -> Any:
    return pytest.param(told, words, id=words)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        reading_of({}, "starting It begins on w."),
        reading_of(
            {"phase": "copying", "percent": 31.4},
            "copying The database is being copied, 31 % so far: the dump is made of the copy.",
        ),
        reading_of(
            {"phase": "dumping", "table": "orders", "tables_done": 3, "tables_total": 12},
            "dumping Table orders is being written, 4 of 12.",
        ),
        reading_of(
            {"phase": "completing", "tables_done": 12, "tables_total": 12},
            "completing All is written; the file is being completed.",
        ),
        reading_of(
            {"phase": "waiting", "reason": "No room for a copy of the database: 3 GB are lacking."},
            "waiting No room for a copy of the database: 3 GB are lacking.",
        ),
        reading_of({"phase": [ODD], "tables_total": "many", "point_in_time": "then"}, "starting It begins on w."),
    ],
)
async def test_where_it_stands_is_one_sentence(
    core: Core, ann: Browser, played: PlayedWorker, told: dict[str, Any], words: str
) -> None:
    dump = await start(ann, core)
    attempt = await played.claim_one("dump:shop")
    await report(played, attempt, **told)
    assert words in words_of(await ann.read(f"/dumps/{dump.id}"))
    # Between two turns it says the same.
    await attempt.finish("again", delay_seconds=0.1)
    after = words_of(await ann.read(f"/dumps/{dump.id}"))
    assert words.partition(" on w")[0] in after
    assert (await ann.read("/dumps")).count(f"dump-{dump.id}") == 1


async def test_progress_is_shown_with_amounts_time_left_and_tables(
    core: Core, config: Config, ann: Browser, played: PlayedWorker
) -> None:
    await start(ann, core)
    await complete(
        config, await played.claim_one("dump:shop"), tables={"items": 1, "orders": 2, "people": 3, "tags": 4}
    )
    dump = await start(ann, core)
    attempt = await played.claim_one("dump:shop")
    told = {"phase": "dumping", "table": "orders", "tables_done": 1, "tables_total": 4, "rows": 120_000}
    told |= {"bytes": 8_400_000, "percent": 31.58, "eta_seconds": 125, "restarts": 2}
    await report(played, attempt, **told, point_in_time="2026-11-16T09:30:01.250Z")
    text = words_of(page := await ann.read(f"/dumps/{dump.id}"))
    assert "31.5 % about 2 min 5 s left" in text
    assert "120,000 rows 8.4 MB" in text
    assert "4 tables: 1 done, 1 at work and 2 to come." in text
    assert "Restarts 2" in text
    assert "2026-11-16 09:30:01 UTC" in text
    assert "at work" in row_of(page, "table-orders")
    assert "2 tables to come" in row_of(page, "tables-later"), "which one is written is not told"

    # With names in the report each table is known, and those to come by the dump before.
    await report(played, attempt, **told, counts={"items": 100_000, "orders": 20_000})
    page = await ann.read(f"/dumps/{dump.id}")
    assert "written 100,000" in row_of(page, "table-items")
    assert "at work 20,000" in row_of(page, "table-orders")
    for name in ("people", "tags"):
        assert "to come" in row_of(page, f"table-{name}")
    await attempt.finish("transient", error=wire.Error(code="away", message="The store is away."))
    assert "left" not in words_of(await ann.read(f"/dumps/{dump.id}")), "nobody is at it now"


def test_of_many_tables_the_one_at_work_is_in_sight() -> None:
    begun = {f"t{n}": n for n in range(901)}
    told = {"tables_done": 900, "tables_total": 1_000, "table": "t900", "counts": begun}
    lines = Tables.from_report(told).lines([f"t{n}" for n in range(1_000)])
    assert (lines[0].name, lines[0].count) == (None, 850)
    assert [line.name for line in lines if line.state == "now"] == ["t900"]
    assert [line.name for line in lines if line.state == "later"][:2] == ["t901", "t902"]
    # What an earlier dump had does not fit what is told now.
    other = Tables.from_report(told).lines(["t1", "x"])
    assert other[-1] == TableProgress("later", count=99)


async def test_a_dump_of_several_turns_has_a_rate_by_all_its_time(
    core: Core, ann: Browser, played: PlayedWorker
) -> None:
    dump = await start(ann, core)
    attempt = await played.claim_one("dump:shop")
    await report(played, attempt, phase="dumping", rows=120_000, bytes=8_400_000, percent=20, tables_total=1)
    found = await core.job(attempt.id)
    assert found is not None
    ran = replace(found, run_seconds=55.0, claimed_at=found.created_at)
    row = await dumps.get(core.db, dump.id)
    assert row is not None
    told = dump_words.progress(row, ran, found.created_at + timedelta(seconds=5))
    assert told is not None
    assert told.rate == "2,000 rows/s, 140.0 kB/s"
    assert told.left == "about 4 min left"
    again = replace(row, report={**(row.report or {}), "restarts": 1, "eta_seconds": 30})
    told = dump_words.progress(again, ran, found.created_at + timedelta(seconds=5))
    assert told is not None
    assert (told.rate, told.left) == (None, "about 30 s left"), "what was given up is no measure"


async def test_more_tables_than_are_named_are_counted(
    core: Core, config: Config, ann: Browser, played: PlayedWorker
) -> None:
    dump = await start(ann, core)
    await complete(config, await played.claim_one("dump:shop"), tables=None, table_count=5_000)
    text = words_of(await ann.read(f"/dumps/{dump.id}"))
    assert "completed 5,000 tables, 1,230 rows" in text
    assert "5,000 tables, too many to be named here." in text
    assert "5,000 tables" in row_of(await ann.read("/dumps"), f"dump-{dump.id}")


async def test_a_completed_dump_shows_its_file_and_downloads_by_cookie(
    core: Core, config: Config, ann: Browser, played: PlayedWorker
) -> None:
    dump = await start(ann, core)
    await complete(config, await played.claim_one("dump:shop"))
    text = words_of(page := await ann.read(f"/dumps/{dump.id}"))
    assert f"completed 2 tables, 1,230 rows, {len(CONTENT)} B." in text
    assert f"shop_{dump.id}.sql" in text
    assert "ab" * 32 in text
    assert "As the database was at 2026-11-16 09:30:01 UTC" in text
    assert "1,220" in row_of(page, "table-orders")
    assert f'href="/export/jobs/{dump.id}/download"' in page
    assert (await ann.client.get(f"/export/jobs/{dump.id}/download")).content == CONTENT
    assert f"/dumps/{dump.id}/cancel" not in page
    assert f"/dumps/{dump.id}/retry" not in page
    assert f"{len(CONTENT)} B, is removed for good." in page
    assert f"paddock dumps download --server={BASE} {dump.id}" in text
    assert f"{BASE}/export/jobs/{dump.id}/download -f -C - -o shop_{dump.id}.sql" in text


async def test_what_a_completed_dump_lacks_is_said(
    core: Core, config: Config, ann: Browser, played: PlayedWorker
) -> None:
    dump = await start(ann, core)
    await complete(config, await played.claim_one("dump:shop"), unreadable=["words", "notes"])
    text = words_of(await ann.read(f"/dumps/{dump.id}"))
    assert "Without words and notes: rows that nobody can read." in text


async def test_a_failed_dump_says_what_to_do_and_leads_to_its_job(
    core: Core, ann: Browser, played: PlayedWorker
) -> None:
    dump = await start(ann, core)
    error = wire.Error(code="needs_wal", message=f"No log: {ODD}", hint="Set `allow_blocking_copy`.")
    await (await played.claim_one("dump:shop")).finish("permanent", error=error)
    text = words_of(page := await ann.read(f"/dumps/{dump.id}"))
    assert "failed No log:" in text
    assert "needs_wal Set allow_blocking_copy ." in text
    assert f'href="/jobs/{dump.job_id}"' in page
    assert "tells what happened" in text
    lost = await start(ann, core, which="only", tables="nonesuch")
    missing = wire.Error(code="unknown_table", message="Table 'nonesuch' does not exist.")
    [attempt] = [one for one in await played.claim("dump:shop") if one.job.cleanup_of is None]
    await attempt.finish("permanent", error=missing)
    assert "choose tables that are there" in words_of(await ann.read(f"/dumps/{lost.id}"))


async def test_a_try_that_failed_is_told_until_it_gets_on(core: Core, ann: Browser, played: PlayedWorker) -> None:
    dump = await start(ann, core)
    error = wire.Error(code="source_locked", message="Process 42 holds it.", hint="End it.")
    await (await played.claim_one("dump:shop")).finish("transient", error=error)
    text = words_of(await ann.read(f"/dumps/{dump.id}"))
    assert "trying again It waits for its next try. Due in" in text
    assert "The last try failed. Process 42 holds it. End it." in text
    assert "trying again Process 42 holds it." in row_of(await ann.read("/dumps"), f"dump-{dump.id}")
    await core.run_now(dump.job_id, actor="test")
    attempt = await played.claim_one("dump:shop")
    assert "The last try failed." in words_of(await ann.read(f"/dumps/{dump.id}")), "nothing has come of it yet"
    await attempt.save({"copy": "c"})
    await report(played, attempt, phase="copying", percent=1)
    text = words_of(await ann.read(f"/dumps/{dump.id}"))
    assert "copying The database is being copied" in text
    assert "The last try failed." not in text


async def test_what_nobody_can_do_is_said(core: Core, ann: Browser, played: PlayedWorker) -> None:
    dump = await start(ann, core, "lake")
    assert "It waits for a free worker." in words_of(await ann.read(f"/dumps/{dump.id}"))
    await core.pause("dump:lake", actor="test", reason="x")
    assert "It waits: dumps of lake are paused." in words_of(await ann.read(f"/dumps/{dump.id}"))


async def test_without_a_worker_that_can_open_it_that_is_said(core: Core, ann: Browser) -> None:
    dump = await start(ann, core)
    assert "no live worker can open shop" in words_of(await ann.read(f"/dumps/{dump.id}"))


async def test_a_live_dump_is_cancelled_tried_again_and_deleted(core: Core, ann: Browser) -> None:
    dump = await start(ann, core)
    own = f"/dumps/{dump.id}"
    assert f"{own}/delete" not in await ann.read(own)
    assert (await ann.send(f"{own}/delete", own)).status_code == 409
    assert await ann.done(f"{own}/cancel", own, reason="wrong") == own
    page = await ann.read(own)
    assert "It was cancelled and has no file." in words_of(page)
    assert await ann.refused(f"{own}/cancel", own, 409)
    assert f"{own}/retry" in page
    assert await ann.done(f"{own}/retry", own) == own
    again = await found(core, dump.id)
    assert again.live is not None
    assert again.live != dump.job_id
    assert f'data-stream="job={again.live}"' in await ann.read(own)
    await ann.done(f"{own}/cancel", own)
    assert await ann.done(f"{own}/delete", own) == "/dumps"
    assert dump.id not in await ann.read("/dumps")
    await ann.read(own, 404)


async def test_a_region_is_drawn_alone(core: Core, ann: Browser) -> None:
    dump = await start(ann, core)
    for region in ("dump", "tables", "facts", "commands"):
        answer = await ann.client.get(f"/dumps/{dump.id}", headers={"x-paddock-regions": region})
        assert set(answer.json()["regions"]) == {"standing", region}


async def test_the_job_leads_back_to_its_dump(core: Core, ann: Browser) -> None:
    dump = await start(ann, core)
    assert f'href="/dumps/{dump.id}"' in await ann.read(f"/jobs/{dump.job_id}")


# making one


async def test_a_dump_is_made_from_the_form_and_the_same_again(core: Core, ann: Browser, open_browser: Open) -> None:
    odd = f"{ODD}, x"
    dump = await start(
        ann,
        core,
        format="sql",
        compress="zstd",
        which="but",
        tables=f"orders\r\n\r\n{odd}\r\n",
        content="schema",
        preserve_rowids="on",
        csv_safe="on",  # hidden: of another format
        no_owner="on",  # hidden: of another type
    )
    assert (dump.owner, dump.database, dump.format) == ("ann", "shop", "sql")
    assert dump.request == {
        "database": "shop",
        "format": "sql",
        "compress": "zstd",
        "excludeTables": ["orders", odd],
        "schemaOnly": True,
        "preserveRowids": True,
    }
    form = await ann.read(f"/dumps/new?like={dump.id}")
    for shown in ('value="zstd" selected', 'value="but" selected', 'value="schema" selected', ">orders\n"):
        assert shown in form, shown
    assert 'name="preserve_rowids" checked' in form
    text = words_of(await ann.read(f"/dumps/{dump.id}"))
    line = next(line for line in text.split("paddock dump ") if line.startswith("shop "))
    command = shlex.split(line.partition(" curl ")[0])
    assert command == [
        *("shop", f"--server={BASE}", "--format=sql", "--compress=zstd"),
        *("--exclude-table=orders", f"--exclude-table={odd}", "--schema-only", "--preserve-rowids"),
    ]


async def test_one_table_of_postgres_without_owners_as_an_archive(core: Core, open_browser: Open) -> None:
    ops = await open_browser("ops")
    page = await ops.read("/dumps/new?database=books")
    assert "pg_dump archive" in page
    assert "SQLite file" not in page
    dump = await start(ops, core, "books", format="custom", which="only", tables="public.orders", no_owner="on")
    job = await core.job(dump.job_id)
    assert job is not None
    assert job.payload["single"] is True
    assert job.payload["options"] == {"tables": ["public.orders"], "no_owner": True}


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"which": "only", "tables": " \n"}, 422, "Name the tables, one on each line."),
        ({"which": "only", "tables": "x" * 501}, 422, "at most 500 characters"),
        ({"format": "custom"}, 400, "A sqlite database is not exported as 'custom'"),
        ({"compress": "lzma"}, 422, "It should be"),
        ({"callback_url": "http://example.com/hook"}, 400, "callbackUrl must begin with https://"),
        ({"callback_url": "https://user:secret@example.com"}, 400, "may not hold a user name"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_lost(
    ann: Browser, core: Core, fields: dict[str, str], status: int, told: str
) -> None:
    sent: dict[str, Any] = {"database": "shop", "format": "sql", "which": "but", "tables": ODD, **fields}
    answer = await ann.send("/dumps/new", "/dumps/new?database=shop", **sent)
    assert answer.status_code == status, answer.text[-2000:]
    assert told in words_of(answer.text)
    assert await dumps.page(core.db, None) == []
    if "tables" not in fields:
        assert "long" * 40 in answer.text, "what was typed is still there"


async def test_a_problem_stands_at_its_field(ann: Browser) -> None:
    sent: dict[str, Any] = {"database": "shop", "which": "only", "tables": "x" * 501}
    answer = await ann.send("/dumps/new", "/dumps/new?database=shop", **sent)
    assert 'id="problem-tables"' in answer.text
    sent = {"database": "shop", "callback_url": "ftp://x"}
    answer = await ann.send("/dumps/new", "/dumps/new?database=shop", **sent)
    assert 'id="problem-callback_url"' in answer.text


async def test_whatever_is_wrong_is_said_at_once(ann: Browser) -> None:
    sent: dict[str, Any] = {"database": "shop", "which": "only", "tables": "", "compress": "lzma"}
    answer = await ann.send("/dumps/new", "/dumps/new?database=shop", **sent)
    assert "Name the tables, one on each line." in words_of(answer.text)
    assert 'id="problem-compress"' in answer.text


async def test_where_to_call_is_kept_and_shown_nowhere(ann: Browser, core: Core) -> None:
    dump = await start(ann, core, callback_url="https://example.com/hook?key=hidden-secret")
    row = await core.db.fetchrow(dumps.SQL["callback"], dump.id)
    assert row is not None
    assert row["callback_url"] == "https://example.com/hook?key=hidden-secret"
    for path in (f"/dumps/{dump.id}", "/dumps", f"/dumps/new?like={dump.id}", f"/jobs/{dump.job_id}"):
        assert "hidden-secret" not in await ann.read(path)


async def test_a_database_is_chosen_first_where_there_are_several(ann: Browser, open_browser: Open) -> None:
    page = await ann.read("/dumps/new")
    assert '<option value="lake">' in page
    assert "books" not in page
    assert "Start the dump" not in page
    bob = await open_browser(owner="bob")
    assert "Dump of lake" in words_of(await bob.read("/dumps/new"))


async def test_drain_mode_refuses_and_keeps_the_form(ann: Browser, core: Core) -> None:
    await core.drain(True, actor="test", reason="moving")
    answer = await ann.send("/dumps/new", "/dumps/new?database=shop", database="shop", which="but", tables="orders")
    assert answer.status_code == 503
    assert ">orders</textarea>" in answer.text


async def test_a_dump_is_scheduled_as_it_is_and_seven_stay(core: Core, ann: Browser, open_browser: Open) -> None:
    dump = await start(ann, core, format="csv", compress="gzip")
    made = await schedule(ann, f"/dumps/{dump.id}")
    assert (made.status_code, made.headers["location"]) == (303, "/schedules/shop")
    found = await schedules.get(core.db, "shop")
    assert found is not None
    assert (found.owner, found.kind) == ("ann", "scheduled_dump")
    assert found.payload == {"database": "shop", "format": "csv", "keepLast": 7, "options": {"compress": "gzip"}}
    bob = await open_browser(owner="bob")
    await bob.read(f"/schedules/-/new?of=dump:{dump.id}", 404)

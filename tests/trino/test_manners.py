"""The client against a Trino that does not behave."""

import asyncio
import json
import logging
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from paddock.engines.engine import NoAnswer, Query, QueryRefused
from paddock.engines.trino.engine import TrinoEngine
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from tests.trino.asking import Noting, read
from tests.trino.conftest import MakeEngine
from tests.trino.misbehaving import COLUMNS, QUERY, Misbehaving, cut, misbehaving, page_of, reset, silence, status

SQL = "SELECT n FROM numbers"


@pytest.fixture
def engine(bad: Misbehaving, bad_engine: MakeEngine) -> TrinoEngine:
    bad.pages = [[[0], [1]], [[2]]]
    return bad_engine()


async def numbers(engine: TrinoEngine, **given: Any) -> list[int]:
    found: list[int] = (await read(engine, SQL, **given))["n"].to_pylist()
    return found


@pytest.mark.parametrize("code", [502, 503, 504])
async def test_a_busy_server_is_asked_again(bad: Misbehaving, engine: TrinoEngine, code: int) -> None:
    bad.trouble = {
        "POST /v1/statement": [status(code), status(code)],
        "/page/0": [status(code)] * 3,
        "/page/1": [status(code)],
    }

    assert await numbers(engine) == [0, 1, 2]
    assert bad.count("GET", "/page/0") == 4


@pytest.mark.parametrize("when", ["0", "date", "nonsense"])
async def test_too_many_requests_waits_as_long_as_it_is_told(bad: Misbehaving, engine: TrinoEngine, when: str) -> None:
    after = formatdate(0, usegmt=True) if when == "date" else when
    bad.trouble = {"/page/0": [status(429, {"Retry-After": after})]}

    assert await numbers(engine) == [0, 1, 2]
    assert bad.count("GET", "/page/0") == 2


async def test_too_long_a_wait_is_the_queues_matter(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.trouble = {"/page/0": [status(429, {"Retry-After": "3600"})]}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert (told.value.code, told.value.budget) == ("engine_unavailable", "cluster")
    assert told.value.delay is not None
    assert told.value.delay.total_seconds() == 3600


async def test_a_storm_ends_our_patience(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    engine = bad_engine(patience_seconds=0.3)
    bad.pages = [[[0]]]
    bad.trouble = {"/page/0": [status(503)] * 1000}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "engine_unavailable"
    assert bad.count("DELETE", "/page/0") == 1


@pytest.mark.parametrize("honest", [True, False])
async def test_a_page_that_was_cut_is_asked_for_again(bad: Misbehaving, engine: TrinoEngine, honest: bool) -> None:
    whole = bad.page(0).body
    assert isinstance(whole, bytes)
    bad.trouble = {"/page/0": [cut(whole, honest=honest)] * 2, "/page/1": [status(200), cut(b"", honest=False)]}

    assert await numbers(engine) == [0, 1, 2]
    assert bad.count("GET", "/page/0") == 3
    assert bad.count("GET", "/page/1") == 3


async def test_pages_that_are_always_cut_are_given_up(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.trouble = {"/page/1": [status(200, text='{"id":"' + QUERY)] * 100}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "bad_page"


async def test_a_broken_connection_is_no_lost_row(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.trouble = {"POST /v1/statement": [reset], "/page/0": [reset, reset], "/page/2": [reset]}

    assert await numbers(engine) == [0, 1, 2]


async def test_the_end_is_where_there_is_no_next_and_no_state_decides_it(bad: Misbehaving, engine: TrinoEngine) -> None:
    async def finished_too_early(request: web.Request) -> web.StreamResponse:
        page = json.loads(bad.page(0).body or b"")  # type: ignore[arg-type]
        page["stats"] = {"state": "FINISHED"}
        return web.json_response(page)

    bad.trouble = {"/page/0": [finished_too_early]}

    assert await numbers(engine) == [0, 1, 2]


async def test_an_error_after_rows_fails_the_export(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.error = {"message": "gone", "errorName": "REMOTE_HOST_GONE", "errorType": "INTERNAL_ERROR"}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "remote_host_gone"


async def test_an_error_decides_even_with_rows_and_a_next_page(bad: Misbehaving, engine: TrinoEngine) -> None:
    async def both(request: web.Request) -> web.StreamResponse:
        error = {"message": "no", "errorName": "DIVISION_BY_ZERO", "errorType": "USER_ERROR"}
        return page_of(nextUri=f"{bad.url}/page/1", data=[[0]], error=error)

    bad.trouble = {"/page/0": [both]}

    with pytest.raises(QueryRefused) as told:
        await numbers(engine)

    assert told.value.code == "division_by_zero"


@pytest.mark.parametrize("where", ["POST /v1/statement", "/page/0"])
async def test_silence_before_the_first_row_is_a_cold_start(
    bad: Misbehaving, bad_engine: MakeEngine, where: str
) -> None:
    engine = bad_engine(request_timeout_seconds=0.2)
    bad.pages = [[[0]]]
    bad.trouble = {where: [silence]}

    with pytest.raises(NoAnswer) as told:
        await numbers(engine)

    assert "Timeout" in told.value.error_type


async def test_silence_after_the_first_row_is_asked_again(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    # Enough for the requests before it, however busy this process is: their silence is another one's test.
    engine = bad_engine(request_timeout_seconds=2)
    bad.pages = [[[0]], [[1]]]
    bad.trouble = {"/page/1": [silence]}

    assert await numbers(engine) == [0, 1]


async def test_a_query_that_is_gone_starts_again(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.trouble = {"/page/1": [status(404)]}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "query_lost"


async def test_nothing_is_fetched_before_the_start_was_saved(bad: Misbehaving, engine: TrinoEngine) -> None:
    seen: list[int] = []

    async def started(handle: dict[str, Any]) -> None:
        seen.append(bad.count("GET", "/page/0"))
        assert handle == {"query_id": QUERY, "next_uri": f"{bad.url}/page/0"}

    await numbers(engine, started=started)

    assert seen == [0]


async def test_leaving_early_stops_the_query(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.pages = [[[number]] for number in range(100)]
    async with engine.open(Query(SQL)) as stream:
        async for _ in stream.batches():
            break

    assert [asked.method for asked in bad.asked].count("DELETE") == 1


async def test_a_cancelled_task_still_stops_its_query(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.pages = [[[0]], [[1]]]
    bad.trouble = {"/page/1": [silence]}
    first = asyncio.Event()

    async def export() -> None:
        async with engine.open(Query(SQL)) as stream:
            async for _ in stream.batches():
                first.set()

    task = asyncio.create_task(export())
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert bad.count("DELETE", "/page/1") == 1


async def test_what_is_gone_needs_no_cancelling(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.trouble = {"DELETE /page/0": [status(404)]}

    await engine.cancel({"query_id": QUERY, "next_uri": f"{bad.url}/page/0"})
    await engine.cancel({"query_id": QUERY, "next_uri": None})

    assert bad.count("DELETE", "/page/0") == 1


@pytest.mark.parametrize("old", [False, True])
async def test_while_rows_are_written_trino_hears_of_us(bad: Misbehaving, bad_engine: MakeEngine, old: bool) -> None:
    """Before 475 there is no HEAD: the last page is read again instead."""
    engine = bad_engine(heartbeat_seconds=0.02)
    bad.pages = [[[0]], [[1]], [[2]], [[3]]]
    if old:
        bad.trouble = {f"HEAD /page/{number}": [status(405)] * 100 for number in range(5)}

    def heard() -> bool:
        heads = sum(1 for asked in bad.asked if asked.method == "HEAD")
        again = max(bad.count("GET", f"/page/{number}") for number in range(4))
        return again >= 2 if old else heads >= 2

    async with engine.open(Query(SQL)) as stream, asyncio.timeout(60):
        rows = 0
        async for batch in stream.batches():
            rows += batch.num_rows
            while not heard():  # noqa: ASYNC110  the other side sets no event
                await asyncio.sleep(0.01)

    assert rows == 4


@pytest.mark.parametrize("old", [False, True])
async def test_a_query_that_waits_for_memory_runs_and_is_kept_alive(
    bad: Misbehaving, bad_engine: MakeEngine, old: bool
) -> None:
    """Its first page, however large, stays with Trino, which gives it again."""
    engine = bad_engine(heartbeat_seconds=0.02)
    bad.pages = [None, [[number] for number in range(50_000)], [[50_000]]]
    if old:
        bad.trouble = {"HEAD /page/1": [status(405)]}

    async with engine.open(Query(SQL)) as stream, asyncio.timeout(60):
        await stream.begin()
        assert [bad.count("GET", f"/page/{number}") for number in range(3)] == [1, 1, 0]
        beats = ("GET" if old else "HEAD", "/page/1")
        before = bad.count(*beats)
        while bad.count(*beats) < before + 2:  # noqa: ASYNC110  the other side sets no event
            await asyncio.sleep(0.01)
        assert bad.count("GET", "/page/2") == 0
        rows = [value async for batch in stream.batches() for value in batch["n"].to_pylist()]

    assert rows == list(range(50_001))


async def test_a_small_first_page_is_asked_for_once(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.pages = [[[0]], [[1]]]

    assert (await read(engine, SQL))["n"].to_pylist() == [0, 1]

    assert [bad.count("GET", f"/page/{number}") for number in range(3)] == [1, 1, 1]


async def test_the_next_page_must_be_trinos(bad: Misbehaving, engine: TrinoEngine) -> None:
    async with misbehaving() as elsewhere:

        async def lured(request: web.Request) -> web.StreamResponse:
            return page_of(nextUri=f"{elsewhere.url}/page/1", data=[[0]])

        bad.trouble = {"/page/0": [lured]}

        with pytest.raises(PermanentRunnerError) as told:
            await numbers(engine)

        assert told.value.code == "engine_foreign_address"
        assert "page/1" not in str(told.value)
        # What Trino started for us is stopped where Trino is.
        assert bad.count("DELETE", "/page/0") == 1
        assert elsewhere.asked == []


async def test_other_addresses_of_the_cluster_are_named(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    async with misbehaving() as second:
        engine = bad_engine(other_urls=[second.url])
        second.pages = [[[0]], [[1]]]

        async def moved(request: web.Request) -> web.StreamResponse:
            return page_of(nextUri=f"{second.url}/page/1", columns=COLUMNS, data=[[0]])

        bad.trouble = {"/page/0": [moved]}

        assert await numbers(engine) == [0, 1]


async def test_redirects_are_followed_on_trino_only_and_not_for_ever(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.trouble = {"/page/0": [status(307, {"Location": "/page/0"})]}
    assert await numbers(engine) == [0, 1, 2]

    bad.trouble = {"/page/0": [status(307, {"Location": "/page/0"})] * 100}
    with pytest.raises(PermanentRunnerError) as told:
        await numbers(engine)
    assert told.value.code == "engine_redirects"

    async with misbehaving() as elsewhere:
        bad.trouble = {"/page/0": [status(302, {"Location": f"{elsewhere.url}/page/0"})]}
        with pytest.raises(PermanentRunnerError) as told:
            await numbers(engine)
        assert told.value.code == "engine_foreign_address"
        assert elsewhere.asked == []


async def test_each_query_carries_its_own_callers_headers(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    engine = bad_engine(requires_role=True, impersonate=True, session={"a": "b c"})
    bad.pages = [[[0]]]

    await asyncio.gather(
        *(
            read(engine, f"SELECT {n}", role=f"role.{n}", owner=f"owner{n}", job=f"job{n}", catalog="c", schema="s")
            for n in range(20)
        )
    )

    posts = [asked for asked in bad.asked if asked.method == "POST"]
    assert len(posts) == 40
    for asked in posts:
        number = asked.body.decode().replace(")", "").split("SELECT ")[-1].split()[0]
        assert asked.headers["X-Trino-Role"] == f"system=ROLE%7Brole.{number}%7D"
        assert asked.headers["X-Trino-User"] == f"owner{number}"
        assert asked.headers["X-Trino-Client-Info"] == f"job{number}"
        assert asked.headers["X-Trino-Client-Tags"] == "graph-olap-export"
        assert asked.headers["X-Trino-Source"] == "graph-olap-export-worker"
        assert asked.headers["X-Trino-Client-Capabilities"] == "PARAMETRIC_DATETIME"
        assert asked.headers["X-Trino-Session"] == "a=b%20c"
        assert (asked.headers["X-Trino-Catalog"], asked.headers["X-Trino-Schema"]) == ("c", "s")
        assert asked.headers["Accept-Encoding"] == "identity"


async def test_a_query_without_a_role_is_not_sent(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    engine = bad_engine(requires_role=True)

    for ask in (engine.describe(Query(SQL)), read(engine, SQL), engine.catalogs(Query(SQL))):
        with pytest.raises(PermanentRunnerError) as told:
            await ask
        assert told.value.code == "missing_use_case_id"
        assert str(told.value) == "Missing use case ID (X-Use-Case-Id header required)"

    with pytest.raises(PermanentRunnerError) as told:
        await engine.describe(Query(SQL, role="a,system=ROLE{admin}"))
    assert told.value.code == "bad_role"
    assert bad.asked == []


async def test_a_header_cannot_be_smuggled(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    engine = bad_engine(impersonate=True)

    with pytest.raises(PermanentRunnerError) as told:
        await engine.describe(Query(SQL, owner="me\r\nX-Trino-User: admin"))

    assert told.value.code == "bad_header"
    assert bad.asked == []


async def test_the_text_is_not_sent_alone_before_it_passed_the_gate(bad: Misbehaving, engine: TrinoEngine) -> None:
    async def refused(request: web.Request) -> web.StreamResponse:
        error = {
            "message": "line 3:1: mismatched input ')'",
            "errorName": "SYNTAX_ERROR",
            "errorType": "USER_ERROR",
            "errorLocation": {"lineNumber": 3, "columnNumber": 1},
        }
        return page_of(error=error)

    bad.trouble = {"POST /v1/statement": [refused]}

    with pytest.raises(QueryRefused) as told:
        await read(engine, "SELECT 1,")

    assert (told.value.line, told.value.column) == (1, 10)
    assert [asked.body for asked in bad.asked] == [b"SELECT * FROM (\nSELECT 1,\n) LIMIT 0"]


async def test_columns_that_change_under_us_are_not_exported(bad: Misbehaving, engine: TrinoEngine) -> None:
    async def other(request: web.Request) -> web.StreamResponse:
        columns = [{"name": "m", "type": "bigint", "typeSignature": {"rawType": "bigint", "arguments": []}}]
        return page_of(columns=columns, data=[[0]])

    bad.trouble = {"/page/0": [other]}

    with pytest.raises(QueryRefused) as told:
        await numbers(engine)

    assert told.value.code == "columns_changed"


@pytest.mark.parametrize("spooled", [False, True])
async def test_columns_that_change_in_the_middle_fail_the_export(
    bad: Misbehaving, engine: TrinoEngine, spooled: bool
) -> None:
    """A later page that calls the same digits a decimal would be read as if it had not said so."""
    bad.pages = [bad.spooled(2) if spooled else [[0], [1]], [[2]]]
    number = {"rawType": "integer", "arguments": []}

    async def other(request: web.Request) -> web.StreamResponse:
        columns = [{"name": "n", "type": "integer", "typeSignature": number}]
        return page_of(columns=columns, data=bad.spooled(1) if spooled else [[2]])

    bad.trouble = {"/page/1": [other]}

    with pytest.raises(PermanentRunnerError) as told:
        await numbers(engine)

    assert told.value.code == "columns_changed"
    assert "n integer after n bigint" in told.value.message


@pytest.mark.parametrize(
    ("code", "text", "wanted"),
    [
        (
            500,
            "io.trino.spi.security.AccessDeniedException: Access Denied: Cannot set role x\n\tat io.trino",
            "role_denied",
        ),
        (500, "java.lang.NullPointerException", "engine_error"),
        (401, "Unauthorized", "engine_login_refused"),
        (400, "Bad", "engine_error"),
    ],
)
async def test_answers_that_are_no_pages(
    bad: Misbehaving, engine: TrinoEngine, code: int, text: str, wanted: str
) -> None:
    bad.trouble = {"POST /v1/statement": [status(code, text=text)]}

    with pytest.raises(PermanentRunnerError) as told:
        await numbers(engine)

    assert told.value.code == wanted
    assert "\tat" not in str(told.value)
    assert bad.count("POST", "/v1/statement") == 1


async def test_no_secret_is_told(
    bad: Misbehaving, bad_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the login nor an address that Trino gave, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TRINO_PASSWORD", "hunter2-very-secret")
    engine = bad_engine(password_env="TRINO_PASSWORD", patience_seconds=0.1)
    bad.pages = [[[0]]]
    said = [repr(engine), repr(engine.client), repr(engine.settings)]
    leak = f"failed while reading {bad.url}/page/0?slug=abc"
    for trouble in (
        [reset] * 100,
        [status(500, text=leak)],
        [status(404, text=leak)],
        [status(307, {"Location": "http://elsewhere.invalid/page/0"})],
        [status(200, text="<html>")] * 100,
    ):
        bad.trouble = {"/page/0": list(trouble)}
        noting = Noting()
        with pytest.raises(InfrastructureError) as told:
            await read(engine, SQL, noting)
        said += [str(told.value), repr(told.value), str(told.value.hint), str(told.value.__cause__)]
    bad.error = {"message": leak, "errorName": "GENERIC_INTERNAL_ERROR", "errorType": "INTERNAL_ERROR"}
    with pytest.raises(InfrastructureError) as told:
        await read(engine, SQL)
    said += [str(told.value), caplog.text]

    assert bad.asked[0].headers["Authorization"].startswith("Basic ")
    for text in said:
        assert "hunter2" not in text
        assert "/page/0" not in text
        assert "slug" not in text


async def test_a_login_that_cannot_be_read_is_said_and_not_left_out(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    with pytest.raises(PermanentRunnerError) as told:
        await numbers(bad_engine(password_env="NOT_SET_ANYWHERE"))

    assert told.value.code == "engine_login_missing"
    assert bad.asked == []


async def test_something_else_than_trino_is_found_out(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    bad.trouble = {"/v1/info": [status(200, text="<html>Welcome</html>")]}

    [finding] = await bad_engine().check(Query(""))

    assert (finding.what, finding.ok) == ("reachable", False)
    assert "not a Trino" in finding.message

"""Exports and engines as the server draws them: for each person, in each state, with odd texts, and what they refuse."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest

from paddock.config import Config
from paddock.exports import plain
from paddock.exports.downloading import attachment
from paddock.exports.plain import Export, NewExport
from paddock.jobs import reading, wire
from paddock.jobs.core import Core
from paddock.jobs.filtering import Filter
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.scratch import Scratch
from paddock.storage.store import open_store
from tests.playing import Attempt, worker
from tests.web.signed_in import ODD, Browser, Open, answering, row_of, words_of


@pytest.fixture
def core(exports_core: Core) -> Core:
    return exports_core


async def make_export(core: Core, *, owner: str = "ann", sql: str = "SELECT 1", **request: Any) -> Export:
    asked = {"engine": "local", "sql": sql, **request}
    payload = {"engine": "local", "sql": sql}
    new = NewExport(owner=owner, role=None, payload=payload, request=asked, ttl=timedelta(days=7))
    return await plain.create(core, new)


async def claim(core: Core) -> Attempt:
    return await (await worker(core)).claim_one("export")


async def written(config: Config, tmp_path: Path, *names: str) -> dict[str, Any]:
    """A result whose files are there."""
    store, scratch = open_store(config.object_store), Scratch(tmp_path / "scratch", 1 << 20)
    draft = Draft(store, "x/exports/y", new_draft_id())
    for name in names:
        file = scratch.new(".csv")
        file.write(f"{name}\n".encode())
        file.rows = 1_250
        file.close()
        await draft.add(file, name)
    sealed = await draft.seal({})
    return {
        "rows": sealed.rows,
        "bytes": sealed.bytes,
        "files": sealed.files,
        "manifest": sealed.manifest,
        "sha256": sealed.sha256,
    }


# the list and one of them


async def test_an_export_that_waits_for_its_next_try_says_why(core: Core, ann: Browser) -> None:
    made = await make_export(core)
    await (await claim(core)).finish("transient", error=wire.Error(code="engine_away", message=f"Nobody there. {ODD}"))
    row = row_of(await ann.read("/exports"), f"export-{made.id}")
    assert "trying again" in words_of(row)
    assert "Nobody there." in words_of(row)
    assert ">running<" not in row
    assert "trying again It waits for its next try." in words_of(await ann.read(f"/exports/{made.id}"))


async def test_without_exports_the_list_says_how_to_make_one(ann: Browser) -> None:
    text = words_of(await ann.read("/exports"))
    assert "No exports yet." in text
    assert "paddock export" in text


async def test_the_list_tells_what_is_made_how_far_it_is_and_what_failed(core: Core, ann: Browser) -> None:
    failed = await make_export(core, sql=f"SELECT '{ODD}'")
    await (await claim(core)).finish("permanent", error=wire.Error(code="broken", message=ODD))
    await (await claim(core)).finish()  # its cleanup
    running = await make_export(core, sql="SELECT *\n  FROM routes", destination="lake:out")
    played = await worker(core)
    attempt = await played.claim_one("export")
    report = {"percent": 42, "rows": 1_200, "phase": ODD}
    held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report=report)
    await played.link.beat(played.session, wire.Beat(holding=[held]))
    waiting = await make_export(core, sql="SELECT 3")

    page = await ann.read("/exports")
    assert "2 running and 1 failed." in words_of(page)
    row = row_of(page, f"export-{running.id}")
    assert "SELECT * FROM routes" in row
    assert "to lake:out" in row
    assert "running 42 % 1,200 rows" in row
    assert "failed" in row_of(page, f"export-{failed.id}")
    assert "pending" in row_of(page, f"export-{waiting.id}")


async def test_others_exports_are_not_there_and_operators_see_whose_each_is(
    core: Core, ann: Browser, open_browser: Open
) -> None:
    export = await make_export(core, owner="bob")
    assert str(export.id) not in await ann.read("/exports")
    await ann.read(f"/exports/{export.id}", 404)
    await ann.read("/exports/nonsense", 404)
    await ann.read(f"/exports/new?like={export.id}", 404)
    for action in ("cancel", "retry", "delete"):
        assert (await ann.send(f"/exports/{export.id}/{action}", "/exports")).status_code == 404
    ops = await open_browser("ops")
    assert "of bob" in row_of(await ops.read("/exports"), f"export-{export.id}")
    assert "bob" in words_of(await ops.read(f"/exports/{export.id}"))


async def test_a_completed_export_shows_its_files_and_each_downloads_by_cookie(
    core: Core, exports_config: Config, ann: Browser, tmp_path: Path
) -> None:
    export = await make_export(core, format="csv", max_rows=2_500, parameters={"password": "hidden-secret"})
    result = await written(exports_config, tmp_path, "day=1/part-00000.csv", "day=2/part-00000.csv")
    why = "The engine knows no limits of rows or bytes."
    await (await claim(core)).finish("done", result={**result, "truncated": True, "direct_because": why})

    page = await ann.read(f"/exports/{export.id}")
    text = words_of(page)
    assert "completed 2,500 rows in 2 files," in text
    assert f"Cut after 2,500 rows, as asked. Written by the worker, not by the engine: {why}" in text
    assert "hidden-secret" not in page
    for name in ("day=1/part-00000.csv", "day=2/part-00000.csv"):
        assert name in text
        file = await ann.client.get(f"/api/exports/{export.id}/download", params={"file": name})
        assert file.text == f"{name}\n"
    assert f'href="/api/exports/{export.id}/download"' in page
    assert (await ann.client.get(f"/api/exports/{export.id}/download")).content[:2] == b"PK"
    assert "/cancel" not in page
    assert "/retry" not in page
    assert f'href="/exports/new?like={export.id}"' in page
    form = await ann.read(f"/exports/new?like={export.id}")
    assert "hidden-secret" not in form
    assert "Enter password again" in words_of(form)


async def test_a_name_is_shown_found_and_carried_by_downloads(
    core: Core, exports_config: Config, ann: Browser, open_browser: Open, tmp_path: Path
) -> None:
    sent: dict[str, Any] = {"engine": "local", "sql": "SELECT 1", "format": "csv"}
    assert (await ann.send("/exports/new", "/exports/new", **{**sent, "name": "x" * 201})).status_code == 422
    assert (await ann.send("/exports/new", "/exports/new", **{**sent, "name": "a\u202eb"})).status_code == 422
    made = _id(await ann.done("/exports/new", "/exports/new", **{**sent, "name": "  Läufe / 2026.v2 "}))
    await make_export(core, sql="SELECT other", engine="warehouse")
    await (await claim(core)).finish("done", result=await written(exports_config, tmp_path, "part-00000.csv"))

    assert "<h1>Läufe / 2026.v2</h1>" in await ann.read(f"/exports/{made}")
    assert "Läufe / 2026.v2" in row_of(await ann.read("/exports"), f"export-{made}")
    answer = await ann.client.head(f"/api/exports/{made}/download")
    plain_name, exact = "L_ufe _ 2026.v2.csv", "L%C3%A4ufe%20_%202026.v2.csv"
    assert answer.headers["content-disposition"] == f"attachment; filename=\"{plain_name}\"; filename*=UTF-8''{exact}"
    assert 'value="Läufe / 2026.v2"' in await ann.read(f"/exports/new?like={made}")

    found = (await ann.client.get("/api/search", params={"q": "läufe / 2026.V2", "exactly": True})).json()["data"]
    assert [(one["what"], one["id"]) for one in found] == [("export", str(made))]
    bob = await open_browser("analyst", "bob")
    assert (await bob.client.get("/api/search?q=2026")).json()["data"] == []


async def test_a_search_reads_names_and_tables_and_no_query(core: Core, ann: Browser) -> None:
    await make_export(core, sql="SELECT needle")
    payload = {"engine": "warehouse", "table": "lake.sales.Orders"}
    table = await plain.create(core, NewExport(owner="ann", role=None, payload=payload, request=payload, ttl=None))

    async def found(q: str) -> list[str]:
        return [one["id"] for one in (await ann.client.get("/api/search", params={"q": q})).json()["data"]]

    assert await found("needle") == []
    assert await found("sales.orders") == [str(table.id)]
    assert await plain.called(core.db, None, "SALES", limit=5) == await plain.called(core.db, "ann", "sales", limit=5)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("q=LÄUFE", 1),
        ("q=other", 1),
        ("status=failed", 1),
        ("status=pending", 1),
        ("engine=warehouse", 1),
        ("q=%25", 0),
    ],
)
async def test_the_list_is_narrowed(core: Core, ann: Browser, query: str, shown: int) -> None:
    await make_export(core, name="Läufe")
    await (await claim(core)).finish("permanent", error=wire.Error(code="broken", message="It broke."))
    new = {"engine": "warehouse", "sql": "SELECT other"}
    await plain.create(core, NewExport(owner="ann", role=None, payload=new, request=new, ttl=None))
    page = await ann.read(f"/exports?{query}")
    assert page.count('<tr id="export-') == shown
    assert ("No export matches." in page) == (shown == 0)
    assert len((await ann.client.get(f"/api/exports?{query}")).json()["data"]) == shown


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("routes.zip", 'attachment; filename="routes.zip"'),
        ('a"b\\c/d.csv', 'attachment; filename="a_b_c_d.csv"'),
        ("..csv", 'attachment; filename="download.csv"'),
        ("50 %.csv", 'attachment; filename="50 _.csv"'),
        ("日.csv", "attachment; filename=\"_.csv\"; filename*=UTF-8''%E6%97%A5.csv"),
        ("a/b", 'attachment; filename="a_b"'),
        ("a.b/c", 'attachment; filename="a.b_c"'),
        ("x" * 100, f'attachment; filename="{"x" * 80}"'),
        (f"a.{'x' * 100}", f'attachment; filename="a.{"x" * 78}"'),
    ],
)
def test_a_file_is_named_as_every_folder_takes_it(name: str, header: str) -> None:
    assert attachment(name) == header


def test_a_name_of_long_characters_fits_a_file_system() -> None:
    name = unquote(attachment(f"{'𝄞' * 80}.csv").partition("filename*=UTF-8''")[2])
    assert name == f"{'𝄞' * 50}.csv"
    assert len(name.encode()) < 255


async def test_a_refused_query_is_shown_at_its_place(core: Core, ann: Browser) -> None:
    export = await make_export(core, sql="SELECT 1 AS n,\n  nothing AS m")
    message = "There is no column nothing. Line 2, column 3."
    refused = wire.Error(code="query_refused", message=message, mistake=True, line=2, column=3)
    await (await claim(core)).finish("permanent", error=refused)
    page = ""
    for path in (f"/exports/{export.id}", f"/jobs/{export.job_id}"):
        page = await ann.read(path)
        assert '<span class="wrong"><span class="at">2</span>  nothing AS m\n<span class="at"></span>  ^' in page, path
    assert "Change line 2 of its query, at column 3: nothing AS m Then make a new one" in words_of(page)


@pytest.mark.parametrize(("line", "column"), [(0, 1), (9, 1), (2**40, 2**40)])
async def test_a_place_that_is_not_in_the_query_is_not_drawn(core: Core, ann: Browser, line: int, column: int) -> None:
    export = await make_export(core)
    refused = wire.Error(code="query_refused", message="No.", mistake=True, line=line, column=column)
    await (await claim(core)).finish("permanent", error=refused)
    for path in (f"/exports/{export.id}", f"/jobs/{export.job_id}"):
        assert 'class="excerpt"' not in await ann.read(path)


async def test_a_store_that_is_away_takes_only_the_files_with_it(core: Core, ann: Browser) -> None:
    export = await make_export(core)
    gone = {"rows": 1, "bytes": 1, "files": 1, "manifest": "x/exports/y/d/_manifest.json", "sha256": "ab" * 32}
    await (await claim(core)).finish("done", result=gone)
    text = words_of(await ann.read(f"/exports/{export.id}"))
    assert "The files cannot be listed now." in text
    assert "1 row in 1 file" in text


async def test_a_live_export_is_cancelled_tried_again_and_deleted(core: Core, ann: Browser) -> None:
    export = await make_export(core)
    own = f"/exports/{export.id}"
    page = await ann.read(own)
    assert "pending It waits for a free worker." in words_of(page)
    assert "/delete" not in page
    assert (await ann.send(f"{own}/delete", own)).status_code == 409
    assert await ann.done(f"{own}/cancel", own, reason="wrong") == own
    page = await ann.read(own)
    assert "It was cancelled and has no files." in words_of(page)
    assert await ann.refused(f"{own}/cancel", own, 409)
    assert "/retry" in page
    assert await ann.done(f"{own}/retry", own) == own
    again = await plain.get(core.db, export.id)
    assert again is not None
    assert again.job is not None
    assert again.job.retry_of == export.job_id
    assert f'data-stream="job={again.job.id}"' in await ann.read(own)
    await ann.done(f"{own}/cancel", own)
    assert await ann.done(f"{own}/delete", own) == "/exports"
    assert "deleting" in row_of(await ann.read("/exports"), f"export-{export.id}")
    assert "/delete" not in await ann.read(own)


async def test_a_region_reads_only_what_it_shows(core: Core, ann: Browser) -> None:
    export = await make_export(core)
    for region in ("export", "files", "facts"):
        answer = await ann.client.get(f"/exports/{export.id}", headers={"x-paddock-regions": region})
        assert set(answer.json()["regions"]) == {"standing", region}


async def test_its_job_leads_back_to_it_as_long_as_it_is_there(core: Core, ann: Browser) -> None:
    export = await make_export(core)
    link = f'<a class="id" href="/exports/{export.id}"'
    assert link in await ann.read(f"/jobs/{export.job_id}")
    async with core.db.transaction() as tx:
        await tx.execute("DELETE FROM exports")
    assert link not in await ann.read(f"/jobs/{export.job_id}")


# making one


async def test_an_export_is_made_from_the_form(core: Core, ann: Browser) -> None:
    where = await ann.done(
        "/exports/new",
        "/exports/new",
        engine="warehouse",
        role="finance",
        sql="SELECT *\r\nFROM t  ",
        parameters='most=3\r\n day = 2026-11-16 \r\n\r\ntext="3"\r\nempty=\r\nno=null',
        format="csv",
        compression="gzip",
        delimiter=";",
        partition_by="day, hour",
        max_rows="1,000",
        ttl="12h",
        destination="lake",
        prefix="out/{year}",
        if_exists="replace",
    )
    made = await plain.get(core.db, _id(where))
    assert made is not None
    assert (made.owner, made.role, made.ttl) == ("ann", "finance", timedelta(hours=12))
    assert made.request == {
        "engine": "warehouse",
        "sql": "SELECT *\nFROM t",
        "parameters": {"most": 3, "day": "2026-11-16", "text": "3", "empty": "", "no": None},
        "format": "csv",
        "options": {
            "compression": "gzip",
            "header": False,
            "delimiter": ";",
            "partition_by": ["day", "hour"],
        },
        "max_rows": 1000,
        "destination": "lake:out/{year}",
        "if_exists": "replace",
    }
    # The same again: the form is filled with what it was made from.
    form = await ann.read(f"/exports/new?like={made.id}")
    again = 'no=null\nday=2026-11-16\nmost=3\ntext="3"\nempty=</textarea>'
    for shown in (
        "SELECT *\nFROM t</textarea>",
        again.replace('"', "&#34;"),
        'value="day, hour"',
        'value="12h"',
        'value="out/{year}"',
    ):
        assert shown in form, shown


def _id(location: str) -> UUID:
    return UUID(location.rpartition("/")[2])


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"sql": "  "}, 422, "Write a query."),
        ({"parameters": "a=1\nb"}, 422, "as name=value; 'b' has no '='"),
        ({"max_rows": "many"}, 422, "It should be a whole number."),
        ({"ttl": "soon"}, 422, "Write a duration like 15m"),
        ({"format": "csv", "compression": "snappy"}, 422, "The format csv has no compression snappy"),
        ({"engine": "warehouse"}, 422, "Missing use case ID"),
        ({"engine": "warehouse", "role": "a b"}, 422, "A role has letters"),
        ({"engine": "warehouse", "role": "board"}, 403, "may not use the engine role"),
        ({"engine": "other"}, 403, "that this token may use"),
        ({"destination": "lake"}, 422, "Enter a folder"),
        ({"destination": "lake", "prefix": "../up"}, 422, "is no folder of a destination"),
        ({"destination": "sea", "prefix": "x"}, 403, "may not write to a destination"),
    ],
)
async def test_what_is_wrong_stands_at_its_field_and_nothing_is_lost(
    ann: Browser, core: Core, fields: dict[str, str], status: int, told: str
) -> None:
    sent: dict[str, Any] = {"engine": "local", "sql": f"SELECT '{ODD}'", "format": "parquet", "ttl": "7d", **fields}
    answer = await ann.send("/exports/new", "/exports/new", **sent)
    assert answer.status_code == status, answer.text[-2000:]
    assert told in words_of(answer.text)
    assert await plain.page(core.db, "ann") == []
    if sent["sql"].strip():
        assert "long" * 40 in answer.text, "what was typed is still there"


async def test_whatever_is_wrong_is_said_at_once(ann: Browser) -> None:
    wrong: dict[str, Any] = {
        "sql": " ",
        "parameters": "a=1\nb",
        "max_rows": "many",
        "ttl": "soon",
        "destination": "lake",
        "prefix": "",
    }
    answer = await ann.send("/exports/new", "/exports/new", engine="local", **wrong)
    told = words_of(answer.text)
    for sentence in (
        *("Write a query.", "'b' has no '='", "It should be a whole number.", "Write a duration like 15m"),
        "Enter a folder",
    ):
        assert sentence in told, sentence


async def test_an_engine_without_roles_is_not_sent_the_one_of_a_hidden_field(ann: Browser, core: Core) -> None:
    where = await ann.done("/exports/new", "/exports/new", engine="local", role="finance", sql="SELECT 1", ttl="7d")
    made = await plain.get(core.db, _id(where))
    assert made is not None
    assert made.role is None


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"engine": "warehouse", "mode": "unload"}, "unload"),
        ({"engine": "warehouse", "mode": "direct"}, "direct"),
        ({"engine": "warehouse", "mode": ""}, None),
        ({"engine": "warehouse", "mode": "unload", "format": "csv"}, None),
        ({"engine": "local", "mode": "unload"}, None),
    ],
)
async def test_who_writes_is_said_to_an_engine_that_can_and_only_for_parquet(
    ann: Browser, core: Core, sent: dict[str, str], told: str | None
) -> None:
    where = await ann.done("/exports/new", "/exports/new", role="finance", sql="SELECT 1", ttl="7d", **sent)
    made = await plain.get(core.db, _id(where))
    assert made is not None
    assert made.request.get("mode") == told
    [job] = (await reading.page(core.db, Filter(kind="export"))).jobs
    assert job.payload.get("mode", "direct") == (told or "direct")
    again = await ann.read(f"/exports/new?like={made.id}")
    assert ('value="unload" selected' in again) == (told == "unload")


async def test_a_mode_that_is_none_is_refused_at_its_field(ann: Browser) -> None:
    sent: dict[str, Any] = {"engine": "warehouse", "role": "finance", "sql": "SELECT 1", "mode": "by pigeon"}
    answer = await ann.send("/exports/new", "/exports/new", **sent)
    assert answer.status_code == 422
    assert 'aria-describedby="about-mode problem-mode"' in answer.text


async def test_the_form_offers_what_the_token_may_use(ann: Browser, open_browser: Open) -> None:
    page = await ann.read("/exports/new")
    [warehouse] = re.findall(r'<option value="warehouse"[^>]*>', page)
    for told in ("data-takes-role", "data-unloads", 'data-type="trino"'):
        assert told in warehouse
    for shown in (">finance</option>", ">people</option>", ">lake</option>"):
        assert shown in page
    bob = await open_browser(owner="bob", engines=["local"], engine_roles=[], destinations=[])
    page = await bob.read("/exports/new")
    assert "warehouse" not in page
    assert "Written by" not in page
    assert "lake" not in page
    assert '<input type="hidden" name="engine" value="local" data-type="duckdb"' in page
    assert "Your token may use no engine." in words_of(
        await (await open_browser(owner="eve", engines=[])).read("/exports/new")
    )


PREVIEWED = {
    "columns": [
        {"name": "id", "type": "INT64", "arrow": "int64", "native": "BIGINT"},
        {"name": ODD, "type": "STRING", "arrow": "string", "native": "VARCHAR"},
        {"name": "tags", "type": "LIST", "arrow": "list", "native": "VARCHAR[]"},
    ],
    "rows": [[1, ODD, ["a", None]], [2, None, []]],
    "cut": False,
}


async def test_a_preview_shows_rows_with_their_types_with_and_without_scripts(core: Core, ann: Browser) -> None:
    asked: list[dict[str, Any]] = []

    def answer(payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload)
        return PREVIEWED

    fields: dict[str, Any] = {
        "engine": "warehouse",
        "role": "finance",
        "sql": "SELECT *\r\nFROM t",
        "parameters": "a=1",
    }
    whole = await answering(core, answer, ann.send("/exports/preview", "/exports/new", **fields))
    piece = await answering(
        core, answer, ann.send("/exports/preview", "/exports/new", {"hx-request": "true"}, **fields)
    )
    assert "SELECT *\nFROM t</textarea>" in whole.text
    for page in (whole.text, piece.text):
        text = words_of(page)
        assert "2 rows, 3 columns." in text
        assert "BIGINT in the engine" in page
        assert "NULL" in text
        assert '["a",null]' in text
    assert "<main" not in piece.text
    assert [one["parameters"] for one in asked] == [{"a": 1}] * 2
    assert [(one["action"], one["role"], one["sql"]) for one in asked] == [
        ("preview", "finance", "SELECT *\nFROM t")
    ] * 2


async def test_a_refused_query_is_shown_with_its_line(core: Core, ann: Browser) -> None:
    refused = {"code": "sql_error", "message": f"no such column {ODD}", "hint": "Look at `x`.", "line": 2, "column": 3}
    fields: dict[str, Any] = {"engine": "local", "sql": "SELECT a,\n  b\nFROM t"}
    answer = await answering(
        core, lambda _: {"refused": refused}, ann.send("/exports/preview", "/exports/new", **fields)
    )
    text = words_of(answer.text)
    assert "Line 2, column 3. no such column" in text
    assert "Go to line 2" in text
    excerpt = answer.text.partition('class="excerpt"')[2].partition("</pre>")[0]
    assert '<span class="wrong"><span class="at">2</span>  b\n' in excerpt
    assert '<span class="at"></span>  ^\n' in excerpt


# engines


async def test_engines_are_listed_and_one_is_checked_on_demand(core: Core, ann: Browser) -> None:
    text = words_of(await ann.read("/engines"))
    assert "warehouse" in text
    assert "trino, looks in hive , needs a role" in text
    findings = [
        {"what": "connection", "ok": True, "message": "Trino 476", "hint": None},
        {"what": "role", "ok": False, "message": ODD, "hint": "Grant it."},
    ]
    page = await answering(core, lambda _: {"findings": findings}, ann.read("/engines?check=warehouse&role=finance"))
    text = words_of(page)
    assert "connection Trino 476" in text
    assert "Grant it." in text
    missing = words_of(await ann.read("/engines?check=warehouse"))
    assert "Missing use case ID" in missing
    await ann.read("/engines?check=nonesuch", 404)


async def test_an_engine_is_walked_from_catalog_to_columns_and_a_table_is_exported(core: Core, ann: Browser) -> None:
    def answer(payload: dict[str, Any]) -> dict[str, Any]:
        assert payload["role"] == "finance"
        place = (payload.get("catalog"), payload.get("schema_name"), payload.get("table"))
        found: dict[Any, dict[str, Any]] = {
            ("catalogs", (None, None, None)): {"names": ["hive", ODD]},
            ("schemas", ("hive", None, None)): {"names": ["air"]},
            ("tables", ("hive", "air", None)): {"names": ["routes/all"]},
            ("columns", ("hive", "air", "routes/all")): {"columns": PREVIEWED["columns"]},
        }
        return found[payload["action"], place]

    assert "This engine shows its contents to a role." in words_of(await ann.read("/engines/warehouse"))
    path = "/engines/warehouse?role=finance"
    for link in ("catalog=hive", "schema=air", "table=routes%2Fall"):
        page = await answering(core, answer, ann.read(path))
        found = [part.partition('"')[0] for part in page.split('href="')[1:] if link in part.partition('"')[0]]
        assert found, (path, link)
        path = found[0].replace("&amp;", "&")
    page = await answering(core, answer, ann.read(path))
    assert "3 columns." in words_of(page)
    export = next(part.partition('"')[0] for part in page.split('href="') if part.startswith("/exports/new"))
    form = await ann.read(export.replace("&amp;", "&"))
    assert "hive.air.routes/all" in words_of(form)
    assert '<option value="finance" selected>' in form
    where = await ann.done(
        "/exports/new", "/exports/new", engine="warehouse", role="finance", catalog="hive", schema="air",
        table="routes/all", ttl="",
    )  # fmt: skip
    made = await plain.get(core.db, _id(where))
    assert made is not None
    assert made.request == {"engine": "warehouse", "table": "routes/all", "catalog": "hive", "schema": "air"}
    assert made.ttl is None


async def test_an_engine_that_one_may_not_use_is_not_there(open_browser: Open) -> None:
    bob = await open_browser(owner="bob", engines=["local"])
    assert "warehouse" not in await bob.read("/engines")
    await bob.read("/engines/warehouse", 404)

"""Instances as the server draws them: for each person, in each state, with odd texts, and what their forms refuse."""

from html import escape
from io import StringIO
from typing import Any, cast
from uuid import UUID, uuid4

import orjson
import pytest
from aiohttp import web
from rich.console import Console

from paddock.config import Config
from paddock.instances import model
from paddock.instances.commands.words import harmless, sheet
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.filtering import Filter
from paddock.metrics import default
from tests.api.conftest import Clients
from tests.instances.fake_runtime import READY, FakeRuntime
from tests.instances.world import events_of, export, make_mapping, ready_snapshot, running, until, until_status
from tests.web.signed_in import ODD, Open, row_of, words_of

pytestmark = pytest.mark.usefixtures("at_work")

COUNTED = {**READY, "counts": {"nodes": {"Airport": 12_410}, "edges": {"ROUTE": 7}}, "dangling_edges": {"ROUTE": 3}}
SCHEMA = {
    "nodes": [
        {
            "label": "Airport",
            "key": {"name": "code", "type": "STRING"},
            "properties": [{"name": "name", "type": "STRING"}],
            "count": 2,
        }
    ],
    "edges": [{"type": "ROUTE", "from": "Airport", "to": "Airport", "properties": [], "count": 1}],
}
NODES = [{"_id": f"0:{n}", "_label": "Airport", "code": f"c{n}", "name": ODD} for n in range(3)]


def answering(status: int = 200, **body: Any) -> Any:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return handle


def rows(*found: list[Any], columns: tuple[str, ...] = ("n",)) -> dict[str, Any]:
    types = ["STRING"] * len(columns)
    return {"columns": columns, "column_types": types, "rows": found, "row_count": len(found), "execution_time_ms": 1.5}


async def one_running(core: Core, config: Config, runtime: FakeRuntime, clients: Clients, **body: Any) -> str:
    """Of ada; it answers with its schema and one column of nodes."""
    runtime.behaviour.phases = (COUNTED,)
    snapshot = await ready_snapshot(core, config, name=f"air {uuid4()}")
    made = await running(core, await clients("ada"), snapshot, **body)
    routes = runtime.of(made["id"]).behaviour.routes
    routes["GET /schema"] = answering(data=SCHEMA)
    routes["POST /query"] = answering(data=rows(*([node] for node in NODES)))
    return str(made["id"])


async def test_each_person_sees_what_they_may(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients, name=ODD[:200], description=ODD)
    ada, bob, eve, grace = await browse("ada"), await browse("bob"), await browse("eve"), await browse("grace")
    await ada.done(f"/instances/{id}/share", f"/instances/{id}", owner="bob")
    for person in (ada, bob, grace):
        assert "12,410" in row_of(await person.read("/instances"), f"instance-{id}")
        page = words_of(await person.read(f"/instances/{id}"))
        assert "12,410 nodes and 7 edges, ready to be queried." in page
        assert "Edges left out because an end is missing: 3 of ROUTE." in page
        asking = await person.read(f"/instances/{id}/query")
        assert "Airport" in words_of(asking)
        assert 'aria-label="Airport ROUTE Airport"' in asking, "the mapping as a picture"
    assert f"instance-{id}" not in await eve.read("/instances")
    assert f"instance-{id}" not in await grace.read("/instances?owner=bob")
    [start] = (await reading.page(core.db, Filter(kind="instance_start"))).jobs
    assert "Made for Instance" in words_of(await ada.read(f"/jobs/{start.id}"))
    for path in (f"/instances/{id}", f"/instances/{id}/query", f"/instances/{uuid4()}", "/instances/nonsense"):
        await eve.read(path, 404)
    assert "/delete" in await ada.read(f"/instances/{id}")
    assert "/delete" in await grace.read(f"/instances/{id}")
    assert f"/instances/{id}/delete" not in await bob.read(f"/instances/{id}"), "who it is shared with changes nothing"
    assert (await bob.send(f"/instances/{id}/delete", f"/instances/{id}/query")).status_code == 403
    assert (await eve.send(f"/instances/{id}/delete", "/settings")).status_code == 404
    assert (await eve.send(f"/instances/{id}/query", "/settings", query="RETURN 1")).status_code == 404


async def test_live_parts_are_rendered_alone(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada = await browse("ada")
    for path, region, text in (
        ("/instances", "rows", f"instance-{id}"),
        (f"/instances/{id}", "instance", "ready to be queried"),
        (f"/instances/{id}", "happened", "instance.running"),
    ):
        answer = await ada.client.get(path, headers={"x-paddock-regions": region})
        part = answer.text
        assert answer.status_code == 200
        assert text in part, (path, region)
        assert "<html" not in part


async def test_every_state_reads_as_a_sentence(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    ada = await browse("ada")
    assert "No instances yet." in words_of(await ada.read("/instances"))
    mapping = await make_mapping(core, name=ODD[:100])
    sent = {"mapping": str(mapping.id), "engine": "local", "name": "waiting"}
    where = await ada.done("/instances", f"/instances/new?mapping={mapping.id}", **sent)
    assert "Waiting for its snapshot." in words_of(await ada.read(where))
    await export(core, config, fail=True)
    await until_status(core, where.rpartition("/")[2], "failed")
    page = words_of(await ada.read(where))
    assert "It failed, and says why below." in page
    assert "Snapshot failed" in page
    loading = {"phase": "nodes", "tables": [{"section": "nodes", "name": "Airport", "done": 5, "rows": 10}]}
    runtime.behaviour.phases = (loading,)
    snapshot = await ready_snapshot(core, config, name="loading")
    made = (await (await clients("ada")).post("/api/instances", json={"snapshot_id": str(snapshot.id)})).json()["data"]

    async def loads() -> bool:
        found = await model.get(core.db, made["id"])
        return found is not None and (found.progress or {}).get("phase") == "nodes"

    await until("it loads", loads)
    assert "Loading nodes." in words_of(await ada.read(f"/instances/{made['id']}"))
    found = words_of(await ada.read("/instances?status=failed&q=waiting"))
    assert "waiting" in found
    assert "No instance is like that." in words_of(await ada.read("/instances?q=nonesuch"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttl", "P1M"),
        ("ttl", "soon"),
        ("memory_gb", "33"),
        ("memory_gb", "much"),
        ("wrapper_type", "falkordb"),
        ("name", "x" * 256),
    ],
)
async def test_a_form_refuses_with_a_sentence_at_its_field(core: Core, browse: Open, field: str, value: str) -> None:
    ada = await browse("ada")
    mapping = await make_mapping(core)
    sent: dict[str, Any] = {"mapping": str(mapping.id), "engine": "local", field: value}
    answer = await ada.send("/instances", f"/instances/new?mapping={mapping.id}", **sent)
    assert answer.status_code == 422
    assert "Not created yet." in words_of(answer.text)
    part = answer.text.partition(f'name="{field}"')
    assert 'aria-invalid="true"' in part[2].partition(">")[0], "the sentence stands at the field"
    assert escape(value) in part[2].partition(">")[0], "what was written stays"


async def test_forms_of_strangers_and_without_their_token_change_nothing(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada = await browse("ada")
    own = f"/instances/{id}"
    for path in (
        "extend",
        "reopen",
        "delete",
        "share",
        "unshare",
        "query",
        "expand",
        "save-query",
        "drop-query",
        "algorithm",
    ):
        answer = await ada.client.post(
            f"{own}/{path}", data={"csrf": "wrong"}, headers={"origin": "http://paddock.test"}
        )
        assert answer.status_code == 403, path
    assert runtime.of(id).asked.count(("POST", "/query", None)) == 0
    assert (await model.get(core.db, UUID(id))) is not None


async def test_the_forms_of_its_pages_refuse_at_the_field(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada, own = await browse("ada"), f"/instances/{id}"
    saved = {"name": "taken", "query": "RETURN 1"}
    await ada.done(f"{own}/save-query", f"{own}/query", **saved)
    for form, field, value, status in (
        ("extend", "ttl", "P1M", 422),
        ("extend", "ttl", "P8D", 422),
        ("extend", "ttl", "", 422),
        ("share", "owner", "", 422),
        ("share", "owner", "ada", 422),
        ("share", "owner", ODD * 20, 422),
        ("save-query", "name", "", 422),
        ("save-query", "name", "taken", 409),
        ("save-query", "query", " ", 422),
        ("algorithm", "parameters", "{", 422),
        ("algorithm", "parameters", "[1]", 422),
    ):
        page = own if form in ("extend", "share") else f"{own}/query"
        sent: dict[str, Any] = {**saved, "name": "free", field: value} if form == "save-query" else {field: value}
        answer = await ada.send(f"{own}/{form}", page, **sent)
        text = answer.text.partition("<main")[2]
        assert answer.status_code == status, (form, value)
        tag = text.partition(f'name="{field}"')[2].partition(">")[0]
        assert f'aria-invalid="true" aria-describedby="problem-{field}"' in tag, (form, value)
        assert f'id="problem-{field}"' in text, (form, value)
        kept = 'value="free"' if field == "query" else f'value="{escape(value).replace("&quot;", "&#34;")}"'
        assert kept.replace("&#x27;", "&#39;") in text, "what was written stays"
        assert "data-live=" not in text, "nothing is read anew from the form's address"
    assert (await ada.read(f"{own}/query")).count('data-write="RETURN 1"') == 1, "nothing else was saved"


async def test_an_answer_is_shown_as_table_graph_and_json(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada = await browse("ada")
    own = f"/instances/{id}/query"
    answer = await ada.send(own, own, query="MATCH (n) RETURN n", headers={"hx-request": "true"})
    assert "<html" not in answer.text, "a script gets the answer alone"
    assert "3 rows" in words_of(answer.text)
    assert escape(orjson.dumps("c2").decode(), quote=True).replace("&quot;", "&#34;") in answer.text
    whole = await ada.send(own, own, query="MATCH (n) RETURN n")
    assert "<html" in whole.text
    assert "MATCH (n) RETURN n</textarea>" in whole.text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (answering(422, error={"code": "query_failed", "message": ODD, "hint": ODD}), "long"),
        (answering(422, error={"message": {"not": "text"}}), "something that is no answer"),
        (answering(200, data={"columns": 5, "rows": "none"}), "something that is no answer"),
        (answering(200, data=[]), "something that is no answer"),
        (answering(200, data=rows(["a", "b"], columns=("n",))), "No rows."),
        (answering(200, data=rows([ODD], columns=(ODD,))), "long"),
    ],
)
async def test_whatever_an_instance_answers_is_text(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open, given: Any, sentence: str
) -> None:
    id = await one_running(core, config, runtime, clients)
    runtime.of(id).behaviour.routes["POST /query"] = given
    ada = await browse("ada")
    own = f"/instances/{id}/query"
    answer = await ada.send(own, own, query="RETURN 1", headers={"hx-request": "true"})
    assert answer.status_code == 200
    assert sentence in words_of(answer.text)


async def test_an_answer_is_downloaded_whole_as_csv(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)

    async def csv(request: web.Request) -> web.Response:
        return web.Response(text='"n"\n"1"\n', content_type="text/csv")

    runtime.of(id).behaviour.routes["POST /query"] = csv
    ada = await browse("ada")
    answer = await ada.send(f"/instances/{id}/download", f"/instances/{id}/query", query="MATCH (n) RETURN n")
    assert answer.text == '"n"\n"1"\n'
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="{UUID(id).hex}.csv"'
    [asked] = [body for method, path, body in runtime.of(id).asked if path == "/query"]
    assert "max_rows" not in asked, "a file is not cut where a page is"


async def test_an_empty_query_and_one_too_long_are_told_so(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada = await browse("ada")
    own = f"/instances/{id}/query"
    for query, sentence in (("", "Write a query."), ("x" * 70_000, "A query has at most 64 KiB.")):
        assert sentence in await ada.refused(own, own, 200, query=query)


async def test_a_node_is_expanded_by_its_key_and_only_of_labels_that_are_there(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada = await browse("ada")
    own = f"/instances/{id}/query"
    routes = runtime.of(id).behaviour.routes
    routes["POST /query"] = answering(data=rows(*([{**node, "name": "plain"}] for node in NODES)))
    answer = await ada.send(f"/instances/{id}/expand", own, label="Airport", key='"c0"')
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert [one["id"] for one in found["nodes"]] == ["0:0", "0:1", "0:2"]
    assert found["query"] == 'MATCH (a:`Airport`)-[r]-(b) WHERE a.`code` = "c0" RETURN a, r, b LIMIT 100'
    [asked] = [body for method, path, body in runtime.of(id).asked if path == "/query"]
    assert asked["parameters"] == {"key": "c0"}, "a key is a parameter, never text of the query"
    await ada.refused(f"/instances/{id}/expand", own, 404, label="A`) DELETE (b", key='"c0"')
    await ada.refused(f"/instances/{id}/expand", own, 422, label="Airport", key="{")


async def test_a_query_is_saved_with_its_mapping_and_dropped(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada = await browse("ada")
    own = f"/instances/{id}/query"
    where = await ada.done(f"/instances/{id}/save-query", own, name=ODD[:100], query="RETURN '&?#'")
    page = await ada.read(where)
    assert "RETURN &#39;&amp;?#&#39;</textarea>" in page
    assert "Saved queries" in page
    saved = page.partition("/drop-query")[2].partition('name="id" value="')[2].partition('"')[0]
    await ada.done(f"/instances/{id}/drop-query", own, id=saved)
    assert "Saved queries" not in await ada.read(own)


async def test_what_a_cluster_refused_says_who_can_mend_it(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    """On the page and on a terminal."""
    id = await one_running(core, config, runtime, clients)
    diagnosis = {"category": "pod_security", "message": "Refused.", "hint": "Mend it.", "mended_by": "operator"}
    error = {
        "code": "STARTUP_FAILED",
        "message": "Refused.",
        "hint": "Mend it.",
        "diagnosis": {**diagnosis, "words": ODD},
    }
    async with core.db.transaction() as tx:
        failed = "UPDATE instances SET status = 'failed', error = $2 WHERE id = $1"
        await tx.execute(failed, UUID(id), orjson.dumps(error).decode())
    page = await (await browse("ada")).read(f"/instances/{id}")
    assert "Who can mend it: whoever runs the cluster." in words_of(page)
    shown = (await (await clients("ada")).get(f"/api/instances/{id}")).json()["data"]
    terminal = Console(file=StringIO(), width=300)
    terminal.print(sheet(shown))
    printed = cast(StringIO, terminal.file).getvalue()
    assert "whoever runs the cluster" in printed
    assert harmless(ODD).splitlines()[0] in printed


async def test_a_query_of_the_page_counts_as_any_other(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)
    ada, path = await browse("ada"), f"/instances/{id}/query"
    before = default().instance_queries("ok")._value.get()
    runtime.of(id).headers = {"Paddock-Engine-Restarts": "1", "Paddock-Engine-Restart-Reason": "timeout"}
    await ada.send(path, path, query="RETURN 1")
    assert default().instance_queries("ok")._value.get() == before + 1
    assert (await events_of(core, id)).count("engine_restarted") == 1
    queries = [body for method, asked, body in runtime.of(id).asked if asked == "/query"]
    assert (queries[-1]["owner"], queries[-1]["max_rows"]) == ("ada", 500)
    assert str(UUID(queries[-1]["query_id"])) == queries[-1]["query_id"], "by it the query can be cancelled"


@pytest.mark.parametrize(
    ("status", "code"), [(408, "QUERY_TIMEOUT"), (422, "query_failed"), (429, "too_many_queries"), (503, "restarted")]
)
async def test_what_an_instance_refuses_is_refused_with_its_own_status(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open, status: int, code: str
) -> None:
    id = await one_running(core, config, runtime, clients)
    refusal = {"code": code, "message": "It cannot be.", "hint": "Later.", "details": {}}
    runtime.of(id).behaviour.routes["POST /query"] = answering(status, error=refusal)
    ada, path = await browse("ada"), f"/instances/{id}/query"
    answer = await ada.send(f"/instances/{id}/expand", path, label="Airport", key='"c0"')
    assert answer.status_code == status
    assert "It cannot be." in words_of((await ada.send(path, path, query="RETURN 1")).text)


async def test_a_download_that_was_cut_says_so_by_its_name(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, browse: Open
) -> None:
    id = await one_running(core, config, runtime, clients)

    async def csv(request: web.Request) -> web.Response:
        return web.Response(body=b"a\n1\n", content_type="text/csv")

    runtime.of(id).behaviour.routes["POST /query"] = csv
    ada, path = await browse("ada"), f"/instances/{id}/query"
    for told, name in (("1 of 12410", "-first-1-of-12410.csv"), ("1 of 1", ".csv")):
        runtime.of(id).headers["Paddock-Rows"] = told
        answer = await ada.send(f"/instances/{id}/download", path, query="RETURN 1")
        assert answer.headers["content-disposition"] == f'attachment; filename="{UUID(id).hex}{name}"'

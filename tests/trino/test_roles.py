"""In whose name a query runs, on a real Trino: what each carried is read back from the server."""

import asyncio

import pytest

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.trino.engine import TrinoEngine
from tests.trino.asking import ROLES, Noting, alone, make_roles, make_schema, query_info, read
from tests.trino.conftest import MakeEngine
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def secured(trino: TrinoServer, engine_of: MakeEngine) -> TrinoEngine:
    """A catalog with real roles, `exporter0` and more, granted to `lab`."""
    admin = engine_of(user="admin", role_catalog="hivesec", client_tags=["admin"])
    query = Query("", role="admin")
    with alone(trino):
        await make_roles(admin)
        await make_schema(admin, "hivesec.s", query)
        await admin.rows("CREATE TABLE IF NOT EXISTS hivesec.s.t AS SELECT 1 AS n", query)
        await admin.rows("GRANT SELECT ON hivesec.s.t TO ROLE exporter0", query)
    return engine_of(requires_role=True, role_catalog="hivesec")


async def test_fifty_roles_at_once_and_each_query_has_its_own(trino: TrinoServer, secured: TrinoEngine) -> None:
    notings = [Noting() for _ in ROLES]

    await asyncio.gather(
        *(
            read(secured, f"SELECT {number} AS n", noting, role=ROLES[number], job=f"job-{number}")
            for number, noting in enumerate(notings)
        )
    )

    for number, noting in enumerate(notings):
        session = (await query_info(trino, noting.handle["query_id"]))["session"]
        assert session["catalogRoles"] == {"hivesec": {"type": "ROLE", "role": ROLES[number]}}
        assert session["user"] == "lab"
        assert session["clientTags"] == ["graph-olap-export"]
        assert session["source"] == "graph-olap-export-worker"
        assert session["clientInfo"] == session["traceToken"] == f"job-{number}"


async def test_the_role_decides_what_may_be_read(secured: TrinoEngine) -> None:
    assert (await read(secured, "SELECT n FROM hivesec.s.t", role="exporter0"))["n"].to_pylist() == [1]

    with pytest.raises(QueryRefused) as told:
        await read(secured, "SELECT n FROM hivesec.s.t", role="exporter1")

    assert told.value.code == "role_denied"
    assert "Access Denied" in str(told.value)
    assert told.value.hint


@pytest.mark.parametrize("role_catalog", ["system", "hivesec"])
async def test_a_role_that_does_not_exist(engine_of: MakeEngine, role_catalog: str) -> None:
    """Refused before there is a query (HTTP 500), and as the query's error: one answer to the caller."""
    engine = engine_of(requires_role=True, role_catalog=role_catalog)

    with pytest.raises(QueryRefused) as told:
        await read(engine, "SELECT 1", role="nosuch")

    assert told.value.code == "role_denied"
    assert "nosuch" in str(told.value)


async def test_a_role_of_a_catalog_that_does_not_exist(engine_of: MakeEngine) -> None:
    with pytest.raises(QueryRefused) as told:
        await read(engine_of(role_catalog="nope"), "SELECT 1", role="x")

    assert told.value.code == "catalog_not_found"


async def test_a_table_that_is_denied(engine_of: MakeEngine) -> None:
    with pytest.raises(QueryRefused) as told:
        await read(engine_of(user="denied"), "SELECT * FROM nation")

    assert told.value.code == "role_denied"
    assert "Cannot select" in str(told.value)


async def test_metadata_shows_what_the_caller_may_see(secured: TrinoEngine, engine_of: MakeEngine) -> None:
    query = Query("", role="exporter1")

    assert "tpch" in await secured.catalogs(query)
    assert "tiny" in await secured.schemas(query, "tpch")
    assert "nation" in await secured.tables(query, "tpch", "tiny")
    columns = await secured.table_columns(query, "tpch", "tiny", "nation")
    assert [(column.name, column.native) for column in columns][:2] == [
        ("nationkey", "bigint"),
        ("name", "varchar(25)"),
    ]
    assert await engine_of(user="denied").tables(Query(""), "tpch", "tiny") == []
    assert await engine_of(user="nobody").catalogs(Query("")) == []


async def test_names_with_quotes_are_names(engine: TrinoEngine) -> None:
    assert engine.table_query("c", None, 'a"b') == 'SELECT * FROM "c"."a""b"'
    with pytest.raises(QueryRefused) as told:
        await engine.tables(Query(""), 'tpch" --', "tiny")
    assert told.value.code == "catalog_not_found"


async def test_check_says_what_works(engine_of: MakeEngine) -> None:
    engine = engine_of(unload_catalog="hive", unload_schema="checked")
    await make_schema(engine, "hive.checked")

    found = await engine.check(Query(""))

    assert {finding.what: finding.ok for finding in found} == {
        "reachable": True,
        "role": True,
        "spooling": True,
        "unload": True,
        "types": True,
    }
    assert "476" in found[0].message


async def test_check_says_what_does_not(engine_of: MakeEngine) -> None:
    async def found(**settings: object) -> dict[str, bool]:
        findings = await engine_of(**settings).check(Query(""))
        assert all(finding.hint for finding in findings if not finding.ok and finding.what != "role")
        return {finding.what: finding.ok for finding in findings}

    assert await found(requires_role=True) == {"reachable": True}, "the rest needs a role, and is not judged without"
    assert await found(url="http://127.0.0.1:1") == {"reachable": False}
    without = await found(encodings=[], unload_catalog="iceberg", unload_schema="x")
    assert not without["spooling"]
    assert not without["unload"]

"""An export is one query: texts that try to be something else, on a real Trino."""

import uuid

import pytest

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.trino.engine import TrinoEngine
from tests.trino.asking import read
from tests.trino.conftest import MakeEngine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def engine(engine_of: MakeEngine) -> TrinoEngine:
    return engine_of(catalog="memory", schema="default")


@pytest.fixture
async def table(engine: TrinoEngine) -> str:
    name = f"t{uuid.uuid4().hex}"
    await engine.rows(f"CREATE TABLE {name} AS SELECT 1 AS n", Query(""))
    return name


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO {t} VALUES 2",
        "DELETE FROM {t}",
        "DROP TABLE {t}",
        "SELECT 1; DROP TABLE {t}",
        "SELECT 1;\nDROP TABLE {t};",
        "SELECT 1) LIMIT 0; DROP TABLE {t}; SELECT * FROM (SELECT 1",
        "SELECT 1) LIMIT 0 --",
        "SELECT 1) /*",
        "SELECT 1 /*",
        "SELECT 1 --\n) LIMIT 0; DROP TABLE {t} --",
        "CALL system.runtime.kill_query(query_id => 'x', message => 'y')",
        "SELECT 1) AS a, (SELECT 2",
        "WITH x AS (INSERT INTO {t} VALUES 2) SELECT 1",
        "SELECT * FROM (DELETE FROM {t})",
        "EXECUTE IMMEDIATE 'DROP TABLE {t}'",
        "EXPLAIN ANALYZE DELETE FROM {t}",
        "SET SESSION query_max_run_time = '1s'",
        "CREATE TABLE other AS TABLE {t}",
        "GRANT SELECT ON {t} TO USER x",
        "PREPARE p FROM DROP TABLE {t}",
        "SHOW TABLES",
    ],
)
async def test_a_text_that_is_more_than_one_query_changes_nothing(engine: TrinoEngine, table: str, text: str) -> None:
    with pytest.raises(QueryRefused):
        await read(engine, text.format(t=table))

    assert await engine.rows(f"SELECT n FROM {table}", Query("")) == [[1]]


async def test_trino_itself_refuses_what_our_first_look_lets_through(engine: TrinoEngine, table: str) -> None:
    for text in (f"INSERT INTO {table} VALUES 2", f"DROP TABLE {table}", "CALL system.runtime.kill_query('a')"):
        with pytest.raises(QueryRefused) as told:
            await engine.rows(f"SELECT * FROM (\n{text}\n) LIMIT 0", Query(""))
        assert told.value.code == "syntax_error"


async def test_a_table_named_like_a_statement_opens_no_door(engine: TrinoEngine) -> None:
    """Inside brackets `ANALYZE x` is the table analyze, called x; alone it is a statement."""
    await engine.rows("CREATE TABLE IF NOT EXISTS analyze AS SELECT 1 AS n", Query(""))
    assert await engine.rows("SELECT * FROM (\nANALYZE x\n) LIMIT 0", Query("")) == []

    with pytest.raises(QueryRefused) as told:
        await read(engine, "ANALYZE x")

    assert told.value.code == "not_a_query"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 AS n;",
        "SELECT 1 AS n -- the end",
        "/* why */ SELECT 1 AS n",
        "(SELECT 1 AS n)",
        "WITH a AS (SELECT 1 AS n) TABLE a",
        "VALUES 1",
        "SELECT ';' AS n",
        "SELECT '--' AS n",
    ],
)
async def test_queries_pass(engine: TrinoEngine, text: str) -> None:
    assert (await read(engine, text)).num_rows == 1

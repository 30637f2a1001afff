"""Starburst's `system.unload`, as far as it can be seen without a Starburst: what is asked, and what an answer means."""

import pytest

from paddock.engines.engine import Query
from paddock.engines.trino.engine import Lost, TrinoEngine, Unloaded
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from tests.trino.asking import Noting
from tests.trino.conftest import MakeEngine
from tests.trino.misbehaving import Misbehaving

SQL = """SELECT sum("count") FROM TABLE(system.unload(input => TABLE(
SELECT n
) AS q ("number"), location => 's3://lake/it''s', format => 'PARQUET', compression => 'ZSTD'))"""


@pytest.fixture
def engine(bad_engine: MakeEngine) -> TrinoEngine:
    return bad_engine(unload_function=True)


async def begun(engine: TrinoEngine) -> JsonObject:
    return await engine.begin_unload(Query("SELECT n"), "paddock_x", "s3://lake/it's", Noting(), ["number"])


async def test_one_call_of_the_function_and_no_table(bad: Misbehaving, engine: TrinoEngine) -> None:
    handle = await begun(engine)
    bad.pages = [[], [[1200]], []]

    assert await engine.poll_unload(handle) == Unloaded(1200)
    # Followed to its end from the count on, though the turn's time is over.
    assert await engine.poll_unload(handle | {"next_uri": f"{bad.url}/page/1"}, seconds=0) == Unloaded(1200)
    await engine.drop_unload(Query(""), "paddock_x")
    posted = [asked.body.decode() for asked in bad.asked if asked.method == "POST"]
    assert [sql for sql in posted if "LIMIT 0" not in sql] == [SQL]


async def test_a_count_that_was_missed_is_not_guessed(bad: Misbehaving, engine: TrinoEngine) -> None:
    handle = await begun(engine)

    assert await engine.poll_unload(handle) == Lost()


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        ("FUNCTION_NOT_FOUND", "line 1:21: Table function 'system.unload' not registered", "unload_function_not_found"),
        ("FUNCTION_NOT_FOUND", "line 2:8: Function 'unloaded' not registered", "function_not_found"),
        ("PERMISSION_DENIED", "Access Denied: Cannot execute function system.unload", "role_denied"),
    ],
)
async def test_only_the_missing_function_itself_means_that_there_is_none(
    bad: Misbehaving, engine: TrinoEngine, name: str, message: str, code: str
) -> None:
    handle = await begun(engine)
    bad.error = {"errorName": name, "errorType": "USER_ERROR", "message": message}

    with pytest.raises(PermanentRunnerError) as told:
        await engine.poll_unload(handle)
    assert told.value.code == code

"""A schedule that could never do its work is refused when it is made or changed, and says what is wrong with it."""

from typing import Any

import httpx2
import orjson
import pytest

from paddock.jobs import asking, schedules
from paddock.jobs.core import Core
from tests.web.signed_in import Browser, Open, answering, words_of

GOOD = {"engine": "local", "sql": "SELECT 1 AS a"}
REFUSED = {"refused": {"code": "sql_refused", "message": "There is no table 'orders'.", "line": 1, "column": 15}}


@pytest.fixture
async def olga(open_browser: Open) -> Browser:
    return await open_browser("ops")


async def make(core: Core, olga: Browser, payload: dict[str, Any], answer: Any = None) -> httpx2.Response:
    fields: dict[str, Any] = {"timing": "every", "every": "1h", "timezone": "UTC", "priority": "3", "enabled": "on"}
    text = orjson.dumps(payload).decode()
    sent = olga.send("/schedules", "/schedules/-/new", name="n", kind="scheduled_export", payload=text, **fields)
    made: httpx2.Response = await answering(core, lambda question: answer or {"columns": []}, sent)
    return made


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({**GOOD, "engine": "nope"}, "There is no engine 'nope'."),
        ({**GOOD, "destination": "nope:x/{date}"}, "There is no destination 'nope'."),
        ({**GOOD, "engine": "nope", "destination": "nope:x"}, "There is no destination 'nope'."),
        ({**GOOD, "destination": "lake:x/{colour}"}, "destination"),
        ({**GOOD, "engine": "warehouse"}, "Engine 'warehouse' runs every query under a role"),
    ],
)
async def test_what_no_run_could_do_is_refused(
    exports_core: Core, open_browser: Open, payload: dict[str, Any], told: str
) -> None:
    olga = await open_browser("ops", destinations=["*"])
    answer = await make(exports_core, olga, payload)

    assert answer.status_code == 422
    assert told in words_of(answer.text)
    assert await schedules.get(exports_core.db, "n") is None


@pytest.mark.parametrize("payload", [{**GOOD, "sql": "SELECT * FROM orders"}, {"engine": "local", "table": "orders"}])
async def test_what_the_engine_refuses_is_refused(exports_core: Core, olga: Browser, payload: dict[str, Any]) -> None:
    answer = await make(exports_core, olga, payload, REFUSED)

    assert answer.status_code == 422
    assert "Engine 'local' could not check the query: There is no table 'orders'." in words_of(answer.text)


async def test_a_schedule_whose_query_the_engine_takes_is_made_and_checked_again_when_changed(
    exports_core: Core, olga: Browser
) -> None:
    assert (await make(exports_core, olga, GOOD)).status_code == 303
    made = await schedules.get(exports_core.db, "n")
    assert made is not None
    assert made.payload == GOOD

    changed: dict[str, Any] = {
        "kind": "scheduled_export",
        "timing": "every",
        "every": "1h",
        "priority": "3",
        "enabled": "on",
    }
    payload = orjson.dumps({**GOOD, "sql": "SELECT"}).decode()
    sent = olga.send("/schedules/n/edit", "/schedules/n/edit", payload=payload, **changed)
    answer = await answering(exports_core, lambda question: REFUSED, sent)
    assert answer.status_code == 422


async def test_without_a_worker_the_answer_says_that_none_could_ask(
    olga: Browser, exports_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "WORKER_SECONDS", 0)
    fields: dict[str, Any] = {
        "name": "n",
        "kind": "scheduled_export",
        "timing": "every",
        "every": "1h",
        "priority": "3",
    }
    answer = await olga.send("/schedules", "/schedules/-/new", payload=orjson.dumps(GOOD).decode(), **fields)

    assert "No live worker could ask the engine." in words_of(answer.text)
    assert await schedules.get(exports_core.db, "n") is None

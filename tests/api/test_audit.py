"""The pages of the audit log, whatever they are narrowed to, are what a look at every entry would give."""

from datetime import datetime
from itertools import product
from typing import Any

import httpx2
import pytest

from paddock.jobs.core import Core
from tests.reading.rows import run

ENTRIES = """
INSERT INTO audit_log (id, at, actor, action, subject)
SELECT paddock_id(at, i), at, (ARRAY['ann', 'bob'])[1 + i % 2], (ARRAY['cancel', 'retry', 'pause'])[1 + i % 3],
       (ARRAY['job:1', 'kind:plain'])[1 + i / 9 % 2]
FROM generate_series(1, 36) i, LATERAL (SELECT timestamptz '2026-01-01Z' + make_interval(secs => i) AS at) t
"""


@pytest.fixture
async def entries(core: Core, grace: httpx2.AsyncClient) -> list[dict[str, Any]]:
    """Newest first."""
    await run(core.db, "DELETE FROM audit_log")
    await run(core.db, ENTRIES)
    return (await grace.get("/api/audit?limit=1000")).json()["data"]  # type: ignore[no-any-return]


async def walk(client: httpx2.AsyncClient, asked: dict[str, str]) -> list[str]:
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = (await client.get("/api/audit", params={**asked, **cursor, "limit": "2"})).json()
        assert len(answer["data"]) <= 2
        found.extend(entry["id"] for entry in answer["data"])
        if answer["next_cursor"] is None:
            return found
        cursor = {"cursor": answer["next_cursor"]}


async def test_every_filter_finds_its_entries_newest_first(
    grace: httpx2.AsyncClient, entries: list[dict[str, Any]]
) -> None:
    assert [entry["at"] for entry in entries] == sorted((entry["at"] for entry in entries), reverse=True)
    assert len(entries) == 36
    since = "2026-01-01T00:00:20Z"
    for actor, action, subject, late in product(
        (None, "ann", "nobody"), (None, "retry", "nothing"), (None, "job:1", "job:9"), (None, since)
    ):
        given = {"actor": actor, "action": action, "subject": subject, "since": late}
        asked = {name: value for name, value in given.items() if value is not None}
        expected = [
            entry["id"]
            for entry in entries
            if all(entry[name] == value for name, value in asked.items() if name != "since")
            and (late is None or datetime.fromisoformat(entry["at"]) >= datetime.fromisoformat(since))
        ]
        assert await walk(grace, asked) == expected, asked

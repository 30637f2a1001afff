"""A mapping does not go under a snapshot that was made in the moment of its expiry."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from paddock.exports import mappings
from paddock.jobs.core import Core
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.snapshots.making import make_mapping, make_snapshot


async def test_a_snapshot_that_the_look_did_not_show_keeps_its_mapping(
    core: Core, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await make_mapping(core, ttl=timedelta(hours=1))
    await make_snapshot(core, made)
    await clock.advance(seconds=7_200)
    look = mappings.SQL["expired_mappings"]
    blind = replace(look, sql=look.sql.replace("NOT EXISTS", "true OR NOT EXISTS"))
    monkeypatch.setitem(cast("dict[str, Any]", mappings.SQL), "expired_mappings", blind)

    assert await end_expired(core, "mappings") == 0
    assert await mappings.get(core.db, made.id) is not None

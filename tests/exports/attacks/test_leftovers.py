"""A draft that somebody names is never a leftover, whenever the pass looks."""

import asyncio
import os
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from paddock.config import Config
from paddock.exports import leftovers, removing
from paddock.jobs.core import Core
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.store import open_store
from tests.exports.attacks.making import asked, claim
from tests.playing import Attempt
from tests.snapshots.making import payload_of, result

OLD = timedelta(days=3).total_seconds()
LOOKS = ("live_drafts", "named_manifests")


async def old_draft(attempt: Attempt, config: Config) -> Draft:
    """Of an export that runs for days."""
    draft = Draft(open_store(config.object_store), payload_of(attempt)["output"], new_draft_id())
    await attempt.save({"draft": draft.id})
    await draft.store.put(f"{draft.prefix}/part.csv", b"a")
    await draft.adopt(DraftFile("part.csv", 1, 1, None))
    assert draft.store.local is not None
    path = draft.store.local / draft.prefix / "part.csv"
    os.utime(path, (path.stat().st_mtime - OLD,) * 2)
    return draft


async def test_an_export_that_ends_while_the_pass_looks_keeps_its_files(
    core: Core, config: Config, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked(ada, format="csv")
    attempt = await claim(core)
    draft = await old_draft(attempt, config)
    fetch, looked = core.db.fetch, asyncio.Event()

    async def ends_after_the_first_look(*asked: Any) -> Any:
        found = await fetch(*asked)
        if asked[0].name in LOOKS and not looked.is_set():
            looked.set()
            await attempt.finish("done", result=result(manifest=f"{draft.prefix}/_manifest.json"))
        return found

    monkeypatch.setattr(core.db, "fetch", ends_after_the_first_look)
    await leftovers.collect(core.db, config)

    assert await draft.store.size(f"{draft.prefix}/part.csv") == 1


@pytest.mark.parametrize(("longest", "removed"), [(3600, 1), (7 * 86_400, 0)])
async def test_a_draft_may_be_as_old_as_two_of_the_longest_exports(
    core: Core, config: Config, ada: httpx2.AsyncClient, longest: int, removed: int
) -> None:
    await asked(ada, format="csv")
    attempt = await claim(core)
    await old_draft(attempt, config)
    await attempt.save({"draft": new_draft_id()})
    setting = "INSERT INTO settings (name, value, updated_by) VALUES ('export.max_duration_seconds', $1, 'grace')"
    async with core.db.transaction() as tx:
        await tx.execute(setting, str(longest))

    turn: Turn[Any] = object.__new__(Turn)  # the pass asks nothing of it
    done: Any = await removing.run_leftovers(turn, core.db, config)

    assert done.result["removed"] == removed

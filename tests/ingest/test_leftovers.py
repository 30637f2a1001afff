"""What the collector of leftovers leaves alone: whatever a live step or a batch still needs."""

from uuid import UUID

import pytest

from paddock.ingest import runs
from paddock.ingest.leftovers import kept_drafts
from paddock.storage.drafts import new_draft_id
from tests.ingest.conftest import SEVENS, Bench


def drafts(run: UUID, id: str, *steps: str) -> list[str]:
    return [f"ingest/numbers/{run}/{step}/{id}" for step in steps]


async def kept(bench: Bench, *asked: str) -> set[str]:
    return await kept_drafts(bench.core.db, list(asked))


async def save(bench: Bench, run: UUID, saved: str) -> None:
    async with bench.core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET saved = $1 WHERE payload ->> 'run_id' = $2", saved, str(run))


@pytest.mark.parametrize("name", ["draft", "transfer"])
async def test_all_batches_of_a_fetch_that_is_at_work_are_kept(bench: Bench, name: str) -> None:
    """They are in drafts of one id."""
    bench.source("numbers")
    run = await bench.start("numbers")
    ours, other = new_draft_id(), new_draft_id()
    await save(bench, run.id, f'{{"{name}": "{ours}"}}')
    mine = drafts(run.id, ours, "0/fetch", "1/fetch", "2/fetch")
    assert await kept(bench, *mine, *drafts(run.id, other, "0/fetch"), f"exports/{ours}") == set(mine)
    async with bench.core.db.transaction() as tx:
        await tx.execute("DELETE FROM jobs")
    assert await kept(bench, *mine) == set()


async def test_what_the_hooks_before_left_is_kept_while_the_next_one_runs(bench: Bench) -> None:
    bench.source("numbers")
    run = await bench.start("numbers")
    before, now = new_draft_id(), new_draft_id()
    [first, second] = drafts(run.id, before, "0/hooks") + drafts(run.id, now, "0/hooks")
    await save(bench, run.id, f'{{"draft": "{now}", "manifest": "{first}/_manifest.json"}}')
    assert await kept(bench, first, second) == {first, second}


async def test_failed_batches_keep_their_files_for_a_week_and_published_ones_theirs(bench: Bench) -> None:
    bench.hook("picky", "import os, sys; sys.exit(3) if os.environ['PADDOCK_BATCH'] == '1' else None\n" + SEVENS)
    bench.source("numbers", config={"total": 4}, batch_size=2, hooks=["picky"])
    run = await bench.run("numbers")
    published, failed = await runs.batches(bench.core.db, run)
    [file] = await runs.files(bench.core.db, "numbers")
    assert published.manifest is not None
    assert failed.manifest is not None
    assert (published.status, failed.status) == ("published", "failed")
    final, fetched, left = (key.rpartition("/")[0] for key in (file.manifest, failed.manifest, published.manifest))
    assert await kept(bench, final, fetched, left) == {final, fetched}
    async with bench.core.db.transaction() as tx:
        await tx.execute("UPDATE ingest_batches SET ended_at = ended_at - interval '8 days'")
    assert await kept(bench, final, fetched, left) == {final}

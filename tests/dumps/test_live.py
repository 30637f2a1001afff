"""A dump of a snapshot that lives only as long as its connection: one turn, whatever the store does meanwhile."""

import json
from pathlib import Path

import pytest

from paddock.dumps import patience, running, writing
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.resources import DumpResources
from paddock.dumps.source import Rows, Table
from paddock.jobs.errors import TransientResourceError
from paddock.jobs.outcomes import Again, PermanentFailure
from tests.dumps.frozen import InMemory
from tests.dumps.test_running import CONTENT, expected, files, new_job
from tests.dumps.test_running import place as place
from tests.dumps.turning import Killed, configured, one_turn, to_its_end


class LiveDatabase:
    """A `LiveSource` whose snapshot is lost after so many chunks, in each of the first so many turns."""

    def __init__(self, losses: int = 0, after: int = 20) -> None:
        self.losses, self.after = losses, after
        self.opened: list[str] = []

    async def open(self, format: Format, options: DumpOptions, draft: str) -> InMemory:
        self.opened.append(draft)
        frozen = InMemory(CONTENT, chunk_rows=50)
        if len(self.opened) > self.losses:
            return frozen
        given = frozen.rows

        async def rows(table: Table, format: Format, place: object) -> Rows:
            if len(frozen.rendered) >= self.after:
                raise TransientResourceError("The connection was lost.", code=running.LOST)
            return await given(table, format, place)

        frozen.rows = rows  # type: ignore[method-assign]
        return frozen


@pytest.fixture
def live(place: Path, monkeypatch: pytest.MonkeyPatch) -> LiveDatabase:
    source = LiveDatabase()
    monkeypatch.setattr(running, "live_source", lambda settings: source)
    monkeypatch.setattr(patience, "PAUSE", 0.0)
    return source


def on_postgres(place: Path) -> DumpResources:
    database = {"type": "postgres", "url": "postgresql://somewhere/shop"}
    return DumpResources(configured(place, dumps_databases=json.dumps({"shop": database})))


async def test_a_lost_snapshot_begins_a_new_draft_and_leaves_nothing_of_the_old(
    place: Path, live: LiveDatabase
) -> None:
    live.losses = 2
    finished = await to_its_end(new_job(), on_postgres(place))
    assert (finished.restarts, len(set(live.opened))) == (2, 3)
    assert finished.tables == {"orders": 1500, "lines": 700, "empty": 0}
    assert files(place) == [finished.key]


async def test_a_snapshot_that_is_lost_again_and_again_is_said(place: Path, live: LiveDatabase) -> None:
    live.losses = 10
    job, resources = new_job(), on_postgres(place)
    for _ in range(4):
        assert isinstance(await one_turn(job, resources), Again)
    outcome = await one_turn(job, resources)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.error.code == "snapshot_lost"
    assert len(live.opened) == 4
    await running.clean(job.turn(cleanup=True), resources)
    assert files(place) == []


async def test_a_store_that_is_away_is_waited_for_with_the_snapshot_held(place: Path, live: LiveDatabase) -> None:
    resources = on_postgres(place)
    given, failures = resources.parts.send, iter(range(3))

    async def send(key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        if number == 2 and next(failures, None) is not None:
            raise TransientResourceError("No answer.", code="store_unavailable")
        return await given(key, upload, number, offset, data)

    resources.parts.send = send  # type: ignore[method-assign]
    job = new_job()
    finished = await to_its_end(job, resources)
    assert (finished.restarts, len(live.opened)) == (0, 1)
    assert job.logged == ["The store is away; waiting for it."] * 3
    # The last line names the source's type.
    made = (place / "store" / finished.key).read_bytes()
    assert made.splitlines()[:-1] == (await expected(place)).splitlines()[:-1]


@pytest.mark.parametrize(
    ("of", "asked"), [("parts", "begin"), ("store", "put"), ("store", "delete_below"), ("parts", "complete")]
)
async def test_whatever_is_asked_of_a_store_that_is_away_is_waited_for(
    place: Path, live: LiveDatabase, monkeypatch: pytest.MonkeyPatch, of: str, asked: str
) -> None:
    monkeypatch.setattr(writing, "ROLL", 3)
    resources, job = on_postgres(place), new_job()
    live.losses = 1
    assert isinstance(await one_turn(job, resources), Again)
    given, failures = getattr(getattr(resources, of), asked), iter(range(3))

    async def away(*args: object) -> object:
        if next(failures, None) is not None:
            raise TransientResourceError("No answer.", code="store_unavailable")
        return await given(*args)

    setattr(getattr(resources, of), asked, away)
    finished = await to_its_end(job, resources)
    assert (finished.restarts, len(live.opened)) == (1, 2)
    assert job.logged[-3:] == ["The store is away; waiting for it."] * 3
    assert files(place) == [finished.key]


async def test_a_worker_that_died_with_its_snapshot_is_a_restart(place: Path, live: LiveDatabase) -> None:
    job, resources = new_job(), on_postgres(place)
    job.death.live(at=4)
    with pytest.raises(Killed):
        await one_turn(job, resources)
    job.death.live()
    finished = await to_its_end(job, resources)
    assert (finished.restarts, len(live.opened)) == (1, 2)
    assert files(place) == [finished.key]

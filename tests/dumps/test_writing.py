"""Parts and the cursor: killed anywhere, the file that is made in the end has the same bytes."""

import json
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from paddock.dumps import composing, digesting, writing
from paddock.dumps.composing import Composer, Position
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.writing import DumpDraft, PartWriter, kept_draft, read_draft
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.parts import Parts, Whole, open_parts
from paddock.storage.store import Store, open_store
from tests.dumps.frozen import InMemory, texts

SIZE = 64 << 10
TABLES = {"large": texts(3000, 1200), "small": texts(2), "other": texts(900, 400)}


class Killed(BaseException):
    pass


class Place:
    """What stays when a process dies: the store, and what was saved."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = open_store(str(folder))
        self.parts: Parts = open_parts(self.store)
        self.saved: Any = None
        self.saves = 0

    async def begin(self, made: Composer, size: int = SIZE) -> None:
        draft = DumpDraft("d1", "exports/dump_1/d1.sql", size, made.identity)
        draft.upload = await self.parts.begin(draft.key)
        self.saved = kept_draft(draft)

    async def writer(self, made: Composer, *, dies_at: int | None = None) -> PartWriter:
        async def save(kept: Any) -> None:
            self.saves += 1
            if dies_at is not None and self.saves == dies_at:
                raise Killed
            self.saved = json.loads(json.dumps(kept))

        draft = await read_draft(self.store, self.saved)
        return PartWriter(self.store, self.parts, made, draft, save, _unheard)


def _unheard(position: Position, size: int) -> None:
    pass


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "store")


def composer(format: Format = "sql", **options: Any) -> Composer:
    return Composer(InMemory(TABLES), format, DumpOptions(**options))


async def finished(place: Place, writer: PartWriter) -> tuple[Whole, bytes]:
    draft = writer._draft
    assert draft.cursor is not None
    whole = await writing.complete(place.store, place.parts, draft, writer.size)
    data = await place.store.read("exports/dump_1/d1.sql")
    assert whole.size == len(data)
    assert draft.cursor.digest == digesting.chain_of(BytesIO(data), place.saved["part_size"])
    return whole, data


async def undisturbed(folder: Path, **options: Any) -> bytes:
    place = Place(folder)
    made = composer(**options)
    await place.begin(made)
    writer = await place.writer(made)
    assert await writer.write(lambda: False)
    return (await finished(place, writer))[1]


@pytest.mark.parametrize("format", ["sql", "json", "csv"])
async def test_a_kill_after_any_part_changes_no_byte(place: Place, tmp_path: Path, format: Format) -> None:
    expected = await undisturbed(tmp_path / "other", format=format)
    made = composer(format)
    await place.begin(made)
    kills = 0
    while True:
        # Dies at every second save, so that each part is at some time the first of a new process.
        place.saves = 0
        writer = await place.writer(composer(format), dies_at=2)
        try:
            assert await writer.write(lambda: False)
            break
        except Killed:
            kills += 1
    assert kills > 5
    assert (await finished(place, writer))[1] == expected


async def test_a_slice_renders_only_what_is_not_sent_yet(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composing, "ENOUGH", 1)
    await place.begin(composer())
    frozen = InMemory(TABLES)
    while not await (writer := await place.writer(Composer(frozen, "sql", DumpOptions()))).write(lambda: True):
        pass
    await finished(place, writer)
    # Only a chunk in which a part ended is rendered again.
    assert place.saves > 10
    assert len(frozen.rendered) - len(set(frozen.rendered)) <= place.saves


async def test_the_trailer_holds_the_digest_of_all_before_it(place: Place) -> None:
    made = composer()
    await place.begin(made, size=50_000)
    writer = await place.writer(made)
    assert await writer.write(lambda: False)
    _, data = await finished(place, writer)
    said = json.loads(data.splitlines()[-1].partition(b": ")[2])
    before = data[: data.rindex(b"\n", 0, -1) + 1]
    assert len(before) > 150_000
    assert (said["bytes"], said["partSize"]) == (len(before), 50_000)
    facts = {name: value for name, value in said.items() if name != "digest"}
    assert data == before + composing.trailer(facts, digesting.chain_of(BytesIO(before), 50_000))


async def test_etags_are_rolled_into_objects_and_found_again(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await undisturbed(tmp_path / "other")
    monkeypatch.setattr(writing, "ROLL", 3)
    await place.begin(composer())
    while not await (writer := await place.writer(composer())).write(lambda: True):
        assert len(place.saved["etags"]) < 3
    assert place.saved["rolled"] > 2
    assert (await finished(place, writer))[1] == expected


async def test_a_large_cursor_is_put_aside_and_only_the_last_one_stays(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await undisturbed(tmp_path / "other")
    monkeypatch.setattr(writing, "LARGEST_CURSOR", 10)
    await place.begin(composer())
    writer = await place.writer(composer())
    assert await writer.write(lambda: False)
    assert set(place.saved["cursor"]) == {"object"}
    assert len([name async for name in keys(place.store) if "cursor-" in name]) == 1
    resumed = await place.writer(composer())
    assert await resumed.write(lambda: False)
    assert (await finished(place, resumed))[1] == expected


def test_parts_grow_with_the_database_and_are_never_too_small_for_the_store() -> None:
    assert writing.part_size(1 << 30, None, 1) == 8 << 20
    assert writing.part_size(1 << 40, None, 1) * 9_000 >= 3 << 40
    assert writing.part_size(1 << 30, 64 << 10, 5 << 20) == 5 << 20


async def test_more_parts_than_a_store_takes_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_PARTS", -990)
    await place.begin(composer())
    with pytest.raises(PermanentRunnerError, match="more parts than an object store takes"):
        await (await place.writer(composer())).write(lambda: False)


async def keys(store: Store) -> AsyncIterator[str]:
    async for entry in store.list(""):
        yield entry.key

"""Spooled results from a Trino and a store that do not behave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from paddock.engines.engine import Query
from paddock.engines.trino.engine import TrinoEngine
from paddock.jobs.errors import TransientResourceError
from tests.trino.asking import read
from tests.trino.conftest import MakeEngine
from tests.trino.misbehaving import Misbehaving, cut, inline, misbehaving, reset, status

SQL = "SELECT n FROM numbers"


@pytest.fixture
async def store(bad: Misbehaving) -> AsyncIterator[Misbehaving]:
    """Another host than Trino's."""
    async with misbehaving() as store:
        bad.storage = store
        yield store


@pytest.fixture
def engine(bad_engine: MakeEngine, store: Misbehaving) -> TrinoEngine:
    return bad_engine()


async def numbers(engine: TrinoEngine) -> list[int]:
    found: list[int] = (await read(engine, SQL))["n"].to_pylist()
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  the other side sets no event
            await asyncio.sleep(0.005)


def acks(bad: Misbehaving) -> int:
    return sum(1 for asked in bad.asked if asked.path.startswith("/ack/"))


async def test_memory_is_asked_for_all_segments_that_may_be_on_their_way(
    bad: Misbehaving, bad_engine: MakeEngine, store: Misbehaving
) -> None:
    """Only where the server does send segments: whoever offers to take them may get pages."""
    engine = bad_engine(segment_window_bytes=5 << 20)
    many = [[number] for number in range(20_000)]
    for pages, ahead in (
        ([bad.spooled(3)], 5 << 20),
        ([bad.spooled(*[1] * 1000)], 5 << 20),
        ([[[0]]], 0),
        ([many], 0),
        ([], 0),
    ):
        bad.pages = pages
        async with engine.open(Query(SQL)) as stream:
            assert await stream.begin() == ahead
    assert not any(asked.path.startswith("/segment/") for asked in store.asked)


async def test_segments_come_in_the_order_of_their_rows(bad: Misbehaving, engine: TrinoEngine) -> None:
    data = bad.spooled(3, 2, 4)
    data["segments"].reverse()
    bad.pages = [data]

    assert await numbers(engine) == list(range(9))
    await until(lambda: acks(bad) == 3)


async def test_inline_and_stored_segments_and_pages_of_both(bad: Misbehaving, engine: TrinoEngine) -> None:
    later = bad.spooled(2)
    later["segments"][0]["metadata"]["rowOffset"] = 3
    bad.pages = [{"encoding": "json", "segments": [inline(0, 3)]}, later]

    assert await numbers(engine) == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("offsets", [[0, 4], [0, 2], [1, 4], [0, 0]])
async def test_missing_and_doubled_rows_start_the_query_again(
    bad: Misbehaving, engine: TrinoEngine, offsets: list[int]
) -> None:
    bad.pages = [bad.spooled(3, 2, offsets=offsets)]

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "segments_wrong"


async def test_a_page_of_segments_that_leaves_some_out_is_noticed(bad: Misbehaving, engine: TrinoEngine) -> None:
    data = bad.spooled(3, 2, 4)
    del data["segments"][1]
    bad.pages = [data]

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "segments_wrong"


async def test_a_segment_with_other_rows_than_it_says_starts_the_query_again(
    bad: Misbehaving, engine: TrinoEngine
) -> None:
    data = bad.spooled(3, 2)
    data["segments"][0]["metadata"]["rowsCount"] = 2
    data["segments"][1]["metadata"]["rowOffset"] = 2
    bad.pages = [data]

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "segments_wrong"
    assert acks(bad) == 0


@pytest.mark.parametrize("honest", [True, False])
async def test_a_segment_that_was_cut_is_fetched_again(
    bad: Misbehaving, store: Misbehaving, engine: TrinoEngine, honest: bool
) -> None:
    bad.pages = [bad.spooled(50)]
    store.trouble = {"/segment/0": [cut(store.segments["/segment/0"], honest=honest), reset, status(503)]}

    assert await numbers(engine) == list(range(50))


async def test_a_segment_that_is_always_wrong_is_given_up(
    bad: Misbehaving, store: Misbehaving, engine: TrinoEngine
) -> None:
    bad.pages = [bad.spooled(50)]
    store.segments["/segment/0"] += b" and more" * 1000

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "segment_lost"
    assert "/segment/" not in str(told.value)


@pytest.mark.parametrize("code", [403, 404, 410])
async def test_a_segment_that_is_gone_starts_the_query_again(
    bad: Misbehaving, store: Misbehaving, engine: TrinoEngine, code: int
) -> None:
    bad.pages = [bad.spooled(2, 2)]
    store.trouble = {"/segment/1": [status(code, text="<Message>secret</Message>")]}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "segment_lost"
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("broken", ["metadata", "segments", "base64", "size"])
async def test_segments_that_are_not_described_are_not_guessed(
    bad: Misbehaving, engine: TrinoEngine, broken: str
) -> None:
    data: dict[str, Any] = {"encoding": "json", "segments": [inline(0, 3)]}
    segment = data["segments"][0]
    if broken == "metadata":
        del segment["metadata"]["rowsCount"]
    elif broken == "segments":
        data["segments"] = None
    elif broken == "base64":
        segment["data"] = "%%%"
    else:
        segment["metadata"]["segmentSize"] += 1
    bad.pages = [data]

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "bad_page"


async def test_the_store_gets_the_segments_headers_and_nothing_else_of_ours(
    bad: Misbehaving, store: Misbehaving, bad_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINO_PASSWORD", "hunter2")
    engine = bad_engine(password_env="TRINO_PASSWORD")
    bad.pages = [bad.spooled(2, 2)]
    store.trouble = {"/segment/0": [status(303, {"Location": "/segment/1"})]}
    store.segments["/segment/1"] = store.segments["/segment/0"]

    await numbers(engine)

    assert any("Authorization" in asked.headers for asked in bad.asked)
    fetched = [asked for asked in store.asked if asked.path.startswith("/segment/")]
    assert len(fetched) == 3
    for asked in fetched:
        names = {name.lower() for name in asked.headers}
        assert names == {"host", "accept", "accept-encoding", "user-agent", "x-segment-key"}
        assert asked.headers["Accept-Encoding"] == "identity"
        assert asked.headers["x-segment-key"] == "k"


async def test_a_segment_is_acknowledged_after_its_rows_were_taken(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.pages = [bad.spooled(2, 2)]

    async with engine.open(Query(SQL)) as stream:
        batches = stream.batches()
        await anext(batches)
        await until(lambda: len(bad.storage.asked if bad.storage else ()) == 2)
        assert acks(bad) == 0
        await anext(batches)
        await until(lambda: acks(bad) == 1)
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
        await until(lambda: acks(bad) == 2)

    acked = [asked for asked in bad.asked if asked.path.startswith("/ack/")]
    assert [asked.headers["x-segment-key"] for asked in acked] == ["k", "k"]


async def test_an_acknowledgement_that_fails_is_nobodys_problem(bad: Misbehaving, engine: TrinoEngine) -> None:
    bad.pages = [bad.spooled(2)]
    bad.trouble = {"/ack/segment/0": [status(500)]}

    assert await numbers(engine) == [0, 1]
    await until(lambda: acks(bad) == 1)


@pytest.mark.parametrize(("window", "most"), [(32 << 20, 8), (1, 1)])
async def test_so_many_segments_are_fetched_at_a_time_and_no_more(
    bad: Misbehaving, store: Misbehaving, bad_engine: MakeEngine, window: int, most: int
) -> None:
    engine = bad_engine(segment_window_bytes=window)
    bad.pages = [bad.spooled(*[2] * 20)]
    at_once, highest = 0, 0

    def slowly(path: str) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.StreamResponse:
            nonlocal at_once, highest
            at_once += 1
            highest = max(highest, at_once)
            # All that may be on their way arrive before the first is answered, and then some time for one too many.
            await until(lambda: highest >= most)
            await asyncio.sleep(0.02)
            at_once -= 1
            return web.Response(body=store.segments[path])

        return answer

    store.trouble = {path: [slowly(path)] for path in store.segments}

    assert await numbers(engine) == list(range(40))
    assert highest == most


async def test_endless_redirects_end(bad: Misbehaving, store: Misbehaving, engine: TrinoEngine) -> None:
    bad.pages = [bad.spooled(2)]
    store.trouble = {"/segment/0": [status(302, {"Location": "/segment/0"})] * 100}

    with pytest.raises(TransientResourceError) as told:
        await numbers(engine)

    assert told.value.code == "segment_lost"

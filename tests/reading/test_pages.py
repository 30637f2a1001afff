"""A page walks live and ended jobs together, newest first, and misses and doubles none though jobs move."""

import base64
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import read_cursor
from paddock.jobs.model import Job, JobId
from paddock.jobs.reading import Count, Filter
from tests.reading.rows import add_ended, add_kind, add_live, end_some, run


async def every_id(db: Database, asked: Filter, limit: int) -> list[UUID]:
    found: list[UUID] = []
    cursor = None
    while True:
        page = await reading.page(db, asked, limit=limit, cursor=cursor, budget=timedelta(seconds=10))
        found += [job.id for job in page.jobs]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def test_pages_over_equal_times_miss_and_double_nothing_while_jobs_end(db: Database) -> None:
    live, ended = await add_live(db, 300), await add_ended(db, 300)
    left, seen = set(live), []
    cursor: str | None = None
    while True:
        page = await reading.page(db, Filter(), limit=37, cursor=cursor)
        seen += [job.id for job in page.jobs]
        moving = random.Random(len(seen)).sample(sorted(left), min(25, len(left)))
        await end_some(db, moving)
        left -= set(moving)
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert seen == sorted(live + ended, reverse=True)


@pytest.mark.parametrize("limit", [1, 7, 250, 251, 600, 1000])
async def test_every_page_size_walks_the_same_jobs(db: Database, limit: int) -> None:
    jobs = await add_live(db, 30 if limit == 1 else 700) + await add_ended(db, 20 if limit == 1 else 600)
    assert await every_id(db, Filter(), limit) == sorted(jobs, reverse=True)


async def test_a_full_last_page_has_no_next(db: Database) -> None:
    await add_live(db, 10)
    page = await reading.page(db, Filter(), limit=10)
    assert (len(page.jobs), page.next_cursor, page.searched_back_to) == (10, None, None)


async def test_a_page_out_of_time_says_how_far_it_looked_and_goes_on_from_there(db: Database) -> None:
    [needle] = await add_ended(db, 1, owner="bob", status="completed", ago="1 hour")
    await add_ended(db, 3_000, ago="1 minute")

    ticks: Iterator[float] = iter([0.0, 1.0, 1.0, 1.0])
    asked = Filter(worker="none has it")
    page = await reading.page(db, asked, limit=10, monotonic=lambda: next(ticks))
    assert page.jobs == []
    assert page.next_cursor is not None
    assert page.searched_back_to is not None
    everything = await reading.page(db, asked, limit=10, cursor=page.next_cursor, budget=timedelta(seconds=10))
    assert (everything.jobs, everything.next_cursor) == ([], None)
    assert [job.id for job in (await reading.page(db, Filter(owner="bob"), limit=10)).jobs] == [needle]


@pytest.mark.parametrize("cursor", ["", "x", "!!", "AAAA", "é", base64.urlsafe_b64encode(b"1" * 17).decode()])
async def test_a_cursor_somebody_made_up_is_refused(db: Database, cursor: str) -> None:
    with pytest.raises(Refused) as refused:
        await reading.page(db, Filter(), limit=10, cursor=cursor)
    assert (refused.value.code, refused.value.status) == ("bad_cursor", 400)


async def test_each_filter_finds_what_a_plain_look_finds(db: Database) -> None:
    await add_kind(db, "probe")
    await add_kind(db, "export")
    group = uuid4()
    for kind in ("probe", "export"):
        for owner in ("ann", "bob"):
            await add_live(db, 5, kind=kind, owner=owner, ago="2 hours", tags=("b",) if kind == "probe" else ())
            for status in ("completed", "failed", "cancelled"):
                error = (f"code_{kind}", "It broke.") if status == "failed" else None
                tags = ("a", "b") if owner == "bob" else ()
                await add_ended(db, 5, kind=kind, owner=owner, status=status, error=error, ago="1 hour", tags=tags)
    await run(db, "UPDATE jobs SET group_id = $1 WHERE owner = 'ann'", group)
    await run(db, "UPDATE job_history SET group_id = $1, schedule = 'nightly' WHERE owner = 'bob'", group)
    session = (
        await run(
            db,
            """INSERT INTO sessions (worker_id, version, kinds, slots, expires_at)
               VALUES ('w1', '1', '{}', 1, paddock_now() + interval '1 minute') RETURNING id""",
        )
    )[0]["id"]
    await run(
        db,
        """UPDATE jobs SET status = 'claimed', attempt_id = gen_random_uuid(), session_id = $1, claimed_by = 'w1'
           WHERE kind = 'export'""",
        session,
    )
    await run(db, "UPDATE job_history SET claimed_by = 'w1' WHERE kind = 'export'")
    await run(db, "UPDATE jobs SET status = 'submitted', waiting_on = 'trino' WHERE owner = 'bob' AND kind = 'probe'")

    await run(
        db,
        """UPDATE jobs SET started_at = created_at, lost_count = 1
           WHERE id IN (SELECT DISTINCT ON (status, owner) id FROM jobs ORDER BY status, owner)""",
    )

    every = (await reading.page(db, Filter(), limit=1000, budget=timedelta(seconds=10))).jobs
    assert len(every) == 80
    cases: dict[Filter, Callable[[Job], bool]] = {
        Filter(kind="probe"): lambda job: job.kind == "probe",
        Filter(owner="bob"): lambda job: job.owner == "bob",
        Filter(status="pending"): lambda job: job.status == "pending",
        Filter(status="claimed"): lambda job: job.status == "claimed",
        Filter(status="submitted"): lambda job: job.status == "submitted",
        Filter(status="failed"): lambda job: job.status == "failed",
        Filter(status=("failed", "failed")): lambda job: job.status == "failed",
        Filter(status=("failed", "cancelled")): lambda job: job.status in ("failed", "cancelled"),
        Filter(status=("claimed", "completed")): lambda job: job.status in ("claimed", "completed"),
        Filter(group=group): lambda job: job.group_id == group,
        Filter(schedule="nightly"): lambda job: job.schedule == "nightly",
        Filter(tag="b"): lambda job: "b" in job.tags,
        Filter(tag="b", status="submitted"): lambda job: "b" in job.tags and job.status == "submitted",
        Filter(tag="b", kind="probe"): lambda job: "b" in job.tags and job.kind == "probe",
        Filter(worker="w1"): lambda job: job.claimed_by == "w1",
        Filter(retrying=True): lambda job: job.attempt_count > 1 and job.status in ("pending", "submitted"),
        Filter(retrying=True, owner="bob"): lambda job: (
            (job.owner, job.status, job.lost_count) == ("bob", "submitted", 1)
        ),
        Filter(error_code="code_probe"): lambda job: job.error_code == "code_probe",
        Filter(kind="export", owner="ann", status="completed"): lambda job: (
            (job.kind, job.owner, job.status) == ("export", "ann", "completed")
        ),
        Filter(ids=(every[3].id, every[70].id)): lambda job: job.id in (every[3].id, every[70].id),
        Filter(since=every[-1].created_at + timedelta(minutes=30)): lambda job: job.ended,
        Filter(until=every[-1].created_at + timedelta(minutes=30)): lambda job: not job.ended,
    }
    for asked, fits in cases.items():
        expected = [job.id for job in every if fits(job)]
        assert expected, asked
        assert await every_id(db, asked, 7) == expected, asked
        assert await reading.count(db, asked) == Count(len(expected), more=False), asked
        oldest_first = await reading.ids(db, asked, limit=1000)
        assert oldest_first.ids == expected[::-1], asked


async def test_housekeeping_is_left_out_unless_asked_for(db: Database) -> None:
    await add_kind(db, "figures", housekeeping=True)
    await add_kind(db, "probe")
    [pass_id], [job_id] = await add_ended(db, 1, kind="figures", ago="1 s"), await add_live(db, 1)
    assert await every_id(db, Filter(), 10) == [job_id]
    assert await every_id(db, Filter(kind="figures"), 10) == [pass_id]
    assert await every_id(db, Filter(include_housekeeping=True), 10) == [job_id, pass_id]


async def test_counts_are_exact_to_the_limit_and_then_say_more(db: Database) -> None:
    await add_live(db, 120)
    assert await reading.count(db, Filter(), at_most=120) == Count(120, more=False)
    assert await reading.count(db, Filter(), at_most=119) == Count(119, more=True)
    assert await reading.count(db, Filter(), at_most=50) == Count(50, more=True)


async def test_a_count_out_of_time_says_that_there_may_be_more(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await add_live(db, 1, owner="bob")
    await add_ended(db, 100, ago="1 hour")
    monkeypatch.setattr(reading, "COUNTING_STEP", 40)

    async def counted_in(steps: int, asked: Filter) -> Count:
        ticks: Iterator[float] = iter([0.0, *[0.5] * (steps - 1), 1.0, 1.0])
        return await reading.count(db, asked, budget=timedelta(seconds=1), monotonic=lambda: next(ticks))

    assert await counted_in(1, Filter()) == Count(40, more=True)
    assert await counted_in(2, Filter()) == Count(80, more=True)
    assert await counted_in(1, Filter(worker="none has it")) == Count(0, more=True), (
        "nobody knows yet that there is none"
    )
    assert await counted_in(3, Filter()) == Count(101, more=False)


async def test_ids_go_on_where_they_stopped(db: Database) -> None:
    jobs = await add_live(db, 45) + await add_ended(db, 40)
    first = await reading.ids(db, Filter(), limit=50)
    assert first.after is not None
    await end_some(db, jobs[:10])
    second = await reading.ids(db, Filter(), after=first.after, limit=50)
    assert [*first.ids, *second.ids] == sorted(jobs)
    assert second.after is None


async def test_what_is_newer_than_a_page_matches_its_filter_and_is_bounded(db: Database) -> None:
    await add_ended(db, 5, ago="1 hour")
    last = JobId((await add_ended(db, 1, ago="1 minute"))[0])
    failed, others = await add_ended(db, 3, status="failed", ago="1 s"), await add_live(db, 4)
    newest_first = sorted([*failed, *others], reverse=True)
    assert await reading.newer(db, Filter(), after=last) == newest_first
    assert await reading.newer(db, Filter(), after=last, limit=5) == newest_first[:5]
    assert await reading.newer(db, Filter(status="failed"), after=last) == failed[::-1]
    assert await reading.newer(db, Filter(status="failed"), after=JobId(failed[-1])) == []

    await add_ended(db, 3_000)
    ticks: Iterator[float] = iter([0.0, 1.0, 1.0])
    assert await reading.newer(db, Filter(tag="rare"), after=last, monotonic=lambda: next(ticks)) == []
    assert next(ticks) == 1.0, "it stopped after one step"


async def test_a_page_of_huge_jobs_is_cut_short_by_size(db: Database) -> None:
    await add_live(db, 30)
    await run(db, "UPDATE jobs SET payload = jsonb_build_object('x', repeat('y', 1000000))")
    page = await reading.page(db, Filter(), limit=30, budget=timedelta(seconds=10))
    assert 8 <= len(page.jobs) <= 10
    assert page.next_cursor is not None
    assert len(await every_id(db, Filter(), 30)) == 30


async def test_where_an_owners_page_stops_tells_nothing_of_others(db: Database) -> None:
    """Its cursor is an id of theirs, however little time there was and however much of others lay between."""
    broken = ("broken", "It broke.")
    own = {
        *await add_live(db, 2, owner="ann", ago="1 h"),
        *await add_ended(db, 2, owner="ann", status="failed", error=broken, ago="1 h"),
    }
    await add_live(db, 3_000, owner="bob")
    await add_ended(db, 3_000, owner="bob", status="failed", error=broken)
    for asked, matches in (
        (Filter(owner="ann"), 4),
        (Filter(owner="ann", error_code="broken"), 2),
        (Filter(owner="ann", q="broke"), 2),
        (Filter(owner="ann", tag="none"), 0),
    ):
        found, cursor = 0, None
        while found == 0 or cursor is not None:
            page = await reading.page(db, asked, limit=1, cursor=cursor, budget=timedelta(0))
            found, cursor = found + len(page.jobs), page.next_cursor
            if cursor is None:
                break
            assert read_cursor(cursor) in own
        assert found == matches

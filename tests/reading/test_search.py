"""`q` is the beginning of an id or a part of an error's text; nothing in it is a pattern."""

from dataclasses import fields

import pytest

from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.errors import Refused
from paddock.jobs.reading import Filter
from tests.reading.rows import add_ended, add_live, run

MESSAGES = {
    "100% of the disk": ["100%", "% of", "DISK"],
    "under_score": ["r_s", "_"],
    r"back\slash": ["\\", "k\\s"],
    'it\'s "quoted"': ["'s", '"quoted"', "t's \"q"],
    "Tabelle für Größe": ["GRÖSSE".replace("SS", "ß"), "für"],
    "drop table; -- jobs": ["; --"],
}


@pytest.mark.parametrize(("message", "queries"), MESSAGES.items())
async def test_hostile_text_is_only_text(db: Database, message: str, queries: list[str]) -> None:
    await add_ended(db, 3, status="failed", error=("other", "nothing of the kind here"))
    [wanted] = await add_ended(db, 1, status="failed", error=("x", message))
    for q in queries:
        found = (await reading.page(db, Filter(q=q), limit=10)).jobs
        assert [job.id for job in found] == [wanted], q
    assert (await reading.page(db, Filter(q="a%e"), limit=10)).jobs == []


@pytest.mark.parametrize("field", ["kind", "owner", "worker", "tag", "error_code", "q", "schedule"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800", "", "x" * 501])
async def test_what_no_job_can_have_is_refused_before_sql(db: Database, field: str, text: str) -> None:
    with pytest.raises(Refused) as refused:
        await reading.page(db, Filter(**{field: text}), limit=10)  # type: ignore[arg-type]  # every field here is a text
    assert refused.value.status == 422


async def test_an_unknown_status_is_refused(db: Database) -> None:
    with pytest.raises(Refused, match="no status 'done'"):
        await reading.page(db, Filter(status="done"), limit=10)


async def test_the_beginning_of_an_id_finds_it(db: Database) -> None:
    [live], [ended] = await add_live(db, 1), await add_ended(db, 1, ago="100 days")
    for wanted in (live, ended):
        for length in (10, 18, 23, 36):
            found = (await reading.page(db, Filter(q=str(wanted)[:length].upper()), limit=10)).jobs
            assert wanted in [job.id for job in found]
        assert len((await reading.page(db, Filter(q=str(wanted)), limit=10)).jobs) == 1


async def test_error_text_is_looked_for_in_the_last_week_unless_told(db: Database) -> None:
    [old] = await add_ended(db, 1, status="failed", error=("x", "deadbeef"), ago="8 days")
    assert (await reading.page(db, Filter(q="deadbeef"), limit=10)).jobs == []
    since = (await run(db, "SELECT paddock_now() - interval '9 days' AS at"))[0]["at"]
    assert [job.id for job in (await reading.page(db, Filter(q="deadbeef", since=since), limit=10)).jobs] == [old]


def test_a_filter_survives_json() -> None:
    asked = Filter.from_json({"kind": "probe", "status": ["failed"], "since": "2026-01-01T00:00:00+00:00"})
    assert Filter.from_json(asked.to_json()) == asked
    assert not asked.empty
    assert Filter(since=asked.since).empty
    with pytest.raises(Refused, match="no filter 'colour'"):
        Filter.from_json({"colour": "red"})


@pytest.mark.parametrize("field", [field.name for field in fields(Filter)])
@pytest.mark.parametrize("value", [5, [5], {"a": 1}, "\0", [None], ["x"]])
def test_a_value_that_does_not_fit_is_refused(field: str, value: object) -> None:
    with pytest.raises(Refused) as refused:
        Filter.from_json({field: value})
    assert refused.value.status == 422

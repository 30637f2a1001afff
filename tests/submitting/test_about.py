"""What a job is about: its kind says it when the job is made, it goes with the job, and free text finds it."""

from datetime import timedelta

import pytest
from pydantic import BaseModel

from paddock.api.job_json import brief_job_json
from paddock.exports.kinds import EXPORT
from paddock.jobs import reading
from paddock.jobs.about import LONGEST, about
from paddock.jobs.core import Core, declare_kinds
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from tests.playing import read, submit, worker


class Query(BaseModel):
    sql: str | None = None
    password: str = "hunter2"


async def nothing(turn: Turn[Query]) -> Outcome:
    return done()


def kind(**options: object) -> Kind:
    return Kind(name="asking", payload=Query, handler=nothing, **options)  # type: ignore[arg-type]  # fields of a kind


def broken(payload: Query) -> str:
    raise RuntimeError("no idea")


async def found(core: Core, text: str, **narrowed: str) -> list[str]:
    page = await reading.page(core.db, Filter(q=text, **narrowed), limit=10, budget=timedelta(seconds=60))  # type: ignore[arg-type]
    return [job.about or "" for job in page.jobs]


async def test_it_stands_in_lists_and_free_text_finds_it_before_and_after_the_end(core: Core) -> None:
    core.kinds.add(kind(about="sql"))
    await declare_kinds(core.db, core.kinds)
    await submit(core, n=3)
    [id] = await submit(core, "asking", payload={"sql": "SELECT *\n  FROM sales.Orders"})
    job = await read(core, id)
    assert job.about == "SELECT * FROM sales.Orders"
    assert brief_job_json(job)["about"] == job.about
    assert await found(core, "FROM SALES.orders") == [job.about]
    await (await (await worker(core)).claim_one("asking")).finish()
    ended = await read(core, job.id)
    assert (ended.status, ended.about) == ("completed", job.about)
    assert [brief.about for brief in await reading.briefs(core.db, [job.id])] == [job.about]
    for narrowed in ({}, {"owner": "ann"}, {"kind": "asking"}, {"status": "completed"}):
        assert await found(core, "sales.orders", **narrowed) == [job.about]
    assert await found(core, "customers") == []


@pytest.mark.parametrize("about_what", ["sql", lambda payload: payload.sql])
def test_it_is_one_short_line_without_secrets(about_what: object) -> None:
    said = about(
        kind(about=about_what), Query(sql="COPY t TO 's3://x'\n\tWITH (password='geheim-17')" + " and more" * 1_000)
    )
    assert said is not None
    assert said.startswith("COPY t TO 's3://x' WITH (")
    assert "geheim-17" not in said
    assert "\n" not in said
    assert len(said) == LONGEST
    assert said.endswith("…")
    # A text that no database stores makes no job fail.
    assert about(kind(about=about_what), Query(sql="a\0b")) == "a\ufffdb"


def test_a_field_that_is_named_like_a_secret_is_not_shown() -> None:
    assert about(kind(about="password"), Query()) is None


@pytest.mark.parametrize("about_what", [None, "sql", broken])
def test_a_kind_that_does_not_say_it_makes_its_jobs_all_the_same(about_what: object) -> None:
    assert about(kind(about=about_what), Query()) is None


def test_a_field_that_is_not_there_is_a_mistake_of_the_kind() -> None:
    with pytest.raises(ValueError, match="Kind 'asking' is about 'query', which is no field of its payload"):
        kind(about="query")


def test_an_export_is_about_its_query_and_a_part_of_a_snapshot_tells_its_name() -> None:
    made = {"engine": "duckdb", "output": "x"}
    for payload, line in (
        ({"sql": "SELECT 1"}, "SELECT 1"),
        ({"table": "orders"}, "orders"),
        ({"sql": "SELECT 1", "name": "Person"}, "Person: SELECT 1"),
    ):
        assert about(EXPORT, EXPORT.payload.model_validate(made | payload)) == line

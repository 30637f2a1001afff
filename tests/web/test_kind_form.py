"""A job of any kind by a form made from its schema: empty, or filled in as another job was."""

from collections.abc import AsyncIterator
from html import unescape
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from paddock.jobs import reading
from paddock.jobs.core import Core, open_core
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Job
from paddock.jobs.turn import Turn
from paddock.web import kind_form
from tests.kinds import TEST_KINDS
from tests.playing import submit, worker
from tests.web.signed_in import words_of
from tests.web.test_jobs import Browser, People

ODD = '</script><b>&amp;"\u202e 🐎'


class Inner(BaseModel):
    n: int


class Order(BaseModel):
    """One field of each shape."""

    model_config = ConfigDict(extra="forbid")

    rows: int = Field(ge=1, description="How many rows.")
    share: float = 0.5
    what: Literal["all", "some"] = "all"
    dry: bool = False
    note: str | None = None
    title: str = Field(default="untitled", max_length=50)
    password: str | None = None
    inner: Inner | None = None
    tags: list[str] = Field(default_factory=list)


async def nothing(turn: Turn[Order]) -> None: ...


ORDER = Kind(name="order", payload=Order, handler=nothing, submit=frozenset({"analyst", "ops", "admin"}))
MENDING = Kind(name="mending", payload=Order, handler=nothing, submit=frozenset({"ops", "admin"}))
FORM = "/kinds/order/submit"


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([*TEST_KINDS, ORDER, MENDING])) as opened:
        yield opened


@pytest.fixture
async def people(core: Core) -> AsyncIterator[People]:
    made = People(core)
    yield made
    for client in made.opened:
        await client.aclose()


@pytest.fixture
async def ann(people: People) -> Browser:
    return await people("analyst", "ann")


async def jobs_of(core: Core) -> list[Job]:
    return list((await reading.page(core.db, Filter(kind="order"))).jobs)


def sent(**fields: str) -> dict[str, Any]:
    return {f"payload-{name}": value for name, value in fields.items()}


def test_each_field_has_the_shape_of_its_type() -> None:
    shapes = {field.name: field.shape for field in kind_form.fields_of(ORDER)}
    assert shapes == {
        "rows": "number",
        "share": "number",
        "what": "choice",
        "dry": "boolean",
        "note": "long",
        "title": "text",
        "password": "long",
        "inner": "json",
        "tags": "json",
    }


async def test_what_is_entered_becomes_the_payload_and_what_is_empty_has_its_default(core: Core, ann: Browser) -> None:
    page = await ann.get(FORM)
    for words in ("How many rows. Needed.", "Empty: 0.5.", "rows", "untitled"):
        assert words in words_of(page) or words in page, words
    form = sent(rows="3", share="", what="some", dry="true", note=ODD, inner='{"n": 1}', tags='["a"]')
    answer = await ann.send(FORM, {**form, "priority": "4", "tags": "one, two"})
    [job] = await jobs_of(core)
    assert answer.headers["location"] == f"/jobs/{job.id}"
    assert job.payload == {
        "rows": 3,
        "what": "some",
        "dry": True,
        "note": ODD,
        "inner": {"n": 1},
        "tags": ["a"],
    }
    assert (job.owner, job.priority, job.tags) == ("ann", 4, ["one", "two"])


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({}, "payload-rows", "missing"),
        ({"rows": "0"}, "payload-rows", "1"),
        ({"rows": "many"}, "payload-rows", "whole number"),
        ({"rows": "1", "tags": "a"}, "payload-tags", "Write JSON"),
        ({"rows": "1", "inner": '{"n": "x"}'}, "payload-inner", "inner.n: "),
    ],
)
async def test_what_is_wrong_stands_at_its_field_and_nothing_is_lost(
    core: Core, ann: Browser, fields: dict[str, str], field: str, told: str
) -> None:
    page = (await ann.send(FORM, {**sent(note=ODD, **fields), "priority": "3"}, status=422)).text
    wrong = page.partition(f'id="problem-{field}"')[2].partition("</p>")[0]
    assert told.lower() in unescape(wrong).lower(), wrong or words_of(page)
    assert "🐎" in page
    assert "</script><b>" not in page
    assert await jobs_of(core) == []


async def test_a_job_that_ended_is_repeated_with_changes(core: Core, ann: Browser) -> None:
    payload = {"rows": 7, "note": f"line\n{ODD}", "inner": {"n": 2}, "password": "hush-hush"}
    [id] = await submit(core, "order", payload=payload, owner="ann", tags=["t"])
    assert "Repeat with changes" not in await ann.get(f"/jobs/{id}"), "it has not ended"
    await (await (await worker(core)).claim_one("order")).finish("permanent")

    page = await ann.get(f"/jobs/{id}")
    assert f'href="{FORM}?like={id}">Repeat with changes' in page
    page = await ann.get(f"{FORM}?like={id}")
    assert 'value="7"' in page
    assert "line\n&lt;/script" in page
    assert "hush-hush" not in page
    assert "Enter it again" in words_of(page)
    await ann.send(FORM, {**sent(rows="8", password="new"), "priority": "3", "tags": "t"})
    again = (await jobs_of(core))[0]
    assert (again.payload, again.retry_of) == ({"rows": 8, "password": "new"}, None)


async def test_what_one_may_not_submit_or_see_has_no_form(core: Core, people: People, ann: Browser) -> None:
    [id] = await submit(core, "order", payload={"rows": 1}, owner="bob")
    for path in ("/kinds/mending/submit", "/kinds/nothing/submit", f"{FORM}?like={id}", f"{FORM}?like=x"):
        await ann.get(path, status=404)
    await ann.send("/kinds/mending/submit", sent(rows="1"), status=404)
    assert "/submit" not in await ann.get("/kinds/mending")
    assert f'href="{FORM}"' in await ann.get("/kinds/order")
    await ann.send(FORM, {**sent(rows="1"), "priority": "1"}, status=403)
    olga = await people()
    await olga.send("/kinds/mending/submit", {**sent(rows="1"), "priority": "1"})

"""A capability of another package that cannot be had, or whose names are taken, stops nobody else: it is left out whole, and
`broken()` says why."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from paddock import capability
from paddock.api.app import create_app
from paddock.capability import Capability, Command, NavigationEntry
from paddock.cli.commands import sections
from paddock.config import Config
from paddock.doctor.examining import all_checks
from paddock.exports import examining, leftovers
from paddock.jobs.core import Core
from paddock.known_kinds import all_kinds, worker_kinds, worker_resources
from paddock.storage.drafts import new_draft_id
from paddock.storage.store import open_store
from paddock.web import navigation, pages

HERE = "tests.extending.mill"
Declare = Callable[..., None]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Declares `mill` beside the built-in capabilities, as a package from outside would."""

    def declared(**parts: Any) -> None:
        mill = Capability("mill", "Mill", HERE, **parts)
        loaded = ({**{one.name: one for one in capability.capabilities()}, "mill": mill}, dict[str, str]())
        monkeypatch.setattr("paddock.capability._loaded", lambda: loaded)

    return declared


NOWHERE, BROKEN = "tests.extending.nowhere:there", f"{HERE}:broken"


@pytest.mark.parametrize(
    ("part", "value", "look"),
    [
        ("kinds", NOWHERE, all_kinds),
        ("kinds", BROKEN, all_kinds),
        ("kinds", BROKEN, worker_kinds),
        ("internal_kinds", BROKEN, all_kinds),
        ("resources", NOWHERE, lambda _: worker_resources()),
        ("resources", BROKEN, lambda _: worker_resources()),
        ("pages", [NOWHERE], lambda _: pages.routes()),
        ("pages", [BROKEN], lambda _: pages.routes()),
        ("routers", [NOWHERE], lambda _: capability.routers()),
        ("checks", {"hay": NOWHERE}, lambda _: all_checks()),
    ],
)
def test_a_part_that_cannot_be_had_leaves_it_out(
    declare: Declare, part: str, value: Any, look: Callable[[Config], Any]
) -> None:
    declare(**{part: value})
    look(Config())
    assert "mill" in capability.broken()
    assert "mill" not in {one.name for one in capability.capabilities()}


def test_a_kind_of_a_taken_name_takes_none_of_the_others_in(declare: Declare) -> None:
    declare(kinds=f"{HERE}:taken_kinds")
    known = all_kinds(Config())
    assert "neigh" not in known, "all of them or none"
    assert known["probe"].handler.__module__ == "paddock.jobs.probe"
    assert "declared twice" in capability.broken()["mill"]


def test_a_command_of_a_taken_name_leaves_all_the_others_working(declare: Declare) -> None:
    declare(commands=[Command("jobs", f"{HERE}:broken", "Whatever.")])
    assert [command.name for section in sections() for command in section.commands].count("jobs") == 1
    assert "there is a command 'jobs' already" in capability.broken()["mill"]


def test_a_check_of_a_taken_name_replaces_none(declare: Declare) -> None:
    declare(checks={"database": f"{HERE}:broken"})
    assert all_checks()["database"].__module__ == "paddock.doctor.on_database"
    assert "there is a check 'database' already" in capability.broken()["mill"]


def test_of_two_pages_with_one_key_the_first_has_it(declare: Declare) -> None:
    declare(navigation=[NavigationEntry("/mill", "Mill", "groups", "j")])
    groups = navigation.groups.__wrapped__()
    assert [entry.path for group in groups for entry in group if entry.key == "j"] == ["/jobs"]
    assert "/mill" in {entry.path for group in groups for entry in group}


async def test_an_internal_route_without_roles_answers_nobody(declare: Declare, core: Core) -> None:
    declare(internal_routes=f"{HERE}:internal_routes")
    app = create_app(core, Config())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://paddock.test") as anybody:
        assert (await anybody.get("/internal/mill")).status_code in (401, 403)


async def test_nothing_is_collected_while_a_capability_is_missing(declare: Declare, core: Core, tmp_path: Path) -> None:
    """What it keeps in the store nobody else knows."""
    config = Config(data=tmp_path / "data", object_store=str(tmp_path / "store"))
    store = open_store(config.object_store)
    theirs = f"mill/{new_draft_id()}/part.parquet"
    await store.put(theirs, b"hay")
    os.utime(tmp_path / "store" / theirs, (1_000_000_000, 1_000_000_000))
    async with core.db.transaction() as tx:
        await tx.execute(
            "INSERT INTO schema_migrations (capability, version, name, checksum) VALUES ('mill', 1, '0001_hay', '')"
        )

    assert await leftovers.collect(core.db, config) == {"removed": 0, "bytes": 0, "waiting_for": ["mill"]}
    [finding] = [one async for one in examining.leftovers(core, config)]
    assert (finding.level, "mill" in finding.message) == ("warning", True)
    declare(kept_drafts=f"{HERE}:nowhere")
    assert await leftovers.collect(core.db, config) == {"removed": 0, "bytes": 0, "waiting_for": ["mill"]}
    assert await store.read(theirs) == b"hay"


def test_one_of_our_own_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    exports = next(one for one in capability.capabilities() if one.name == "exports")
    broken = exports._replace(kinds=f"{HERE}:nowhere")
    monkeypatch.setattr("paddock.capability._loaded", lambda: ({"exports": broken}, {}))
    with pytest.raises(AttributeError):
        all_kinds(Config())

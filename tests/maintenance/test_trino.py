"""Rewrites by Trino: what it does to our tables, and how what it does is ended by somebody else."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from paddock.engines.engine import Query
from paddock.engines.settings import Secret
from paddock.engines.trino import client
from paddock.engines.trino.engine import TrinoEngine
from paddock.engines.trino.rewriting import TrinoRewriter
from paddock.engines.trino.statement import Statement, submit
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Again, Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import checking, running
from paddock.maintenance.model import TableName
from paddock.maintenance.remote import rewriting
from tests.maintenance.lake import Link, make_table, opened, rows_of, some_rows, turn_for
from tests.ports import free_ports
from tests.trino.asking import query_ended, query_status
from tests.trino.configuring import S3_KEY, S3_SECRET, WAREHOUSE
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CREDENTIAL, SECRET = "TEST_TRINO_LAKE_CREDENTIAL", "TEST_TRINO_LAKE_SECRET"
NOW: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0}}
REWRITES = ["rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests"]


@dataclass
class Scene:
    server: TrinoServer
    settings: CatalogSettings
    name: str

    def rewriter(self, **changes: Any) -> TrinoRewriter:
        return TrinoRewriter("cluster", self.server.settings(**changes))

    @contextmanager
    def rewriting(self, **changes: Any) -> Iterator[TrinoRewriter]:
        made = self.rewriter(**changes)
        try:
            yield made
        finally:
            made.close()

    def make(self, files: int = 6, **properties: str) -> Table:
        return make_table(self.settings, files, properties, name=self.name)

    def now(self) -> Table:
        return opened(self.settings).load_table(f"sales.{self.name}")

    def maintain(self, table: Table, actions: list[str], link: Link | None = None, **more: Any) -> Any:
        rewriter = more.pop("rewriter", None)
        own = None if rewriter is not None else self.rewriter()
        try:
            return running.maintain(self.turn(table, actions, link, **more), self.settings, rewriter or own)
        finally:
            if own is not None:
                own.close()

    def turn(self, table: Table, actions: list[str], link: Link | None = None, **more: Any) -> Any:
        name = TableName(catalog="lake", namespace=("sales",), name=self.name)
        return turn_for(table, actions, link or Link(), name=name, **more)

    def delete_some(self) -> None:
        """By Trino, which writes position deletes."""
        with self.rewriting() as rewriter:
            rewriter.rows(f'DELETE FROM lake.sales."{self.name}" WHERE id % 10 = 3')
        assert self.now().inspect.delete_files().num_rows > 0

    def seen_by_trino(self) -> list[list[object]]:
        with self.rewriting() as rewriter:
            return rewriter.rows(f'SELECT id, city, price FROM lake.sales."{self.name}" ORDER BY id')

    def same_rows(self, rows: list[dict[str, Any]]) -> bool:
        return self.seen_by_trino() == [list(row.values()) for row in rows] and rows_of(self.now()) == rows


@pytest.fixture(scope="module", autouse=True)
def has_nodes(trino: TrinoServer) -> None:
    """A Trino that has just started answers before it has found itself to run queries on."""
    rewriter, end = TrinoRewriter("cluster", trino.settings()), time.monotonic() + 120
    while True:
        try:
            rewriter.rows("SELECT count(*) FROM tpch.tiny.nation")
            break
        except InfrastructureError:
            assert time.monotonic() < end
    rewriter.close()


@pytest.fixture
def scene(trino: TrinoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv(CREDENTIAL, f"{S3_KEY}:{S3_SECRET}")
    monkeypatch.setenv(SECRET, S3_SECRET)
    uri, name = f"http://127.0.0.1:{trino.ports.lake}", f"orders_{uuid.uuid4().hex[:8]}"
    settings = CatalogSettings(
        type="rest",
        properties={
            "uri": uri,
            "oauth2-server-uri": f"{uri}/v1/oauth/tokens",
            "warehouse": f"s3://{WAREHOUSE}/",
            "s3.endpoint": f"http://127.0.0.1:{trino.ports.s3}",
            "s3.access-key-id": S3_KEY,
            "s3.region": "us-east-1",
        },
        secrets={"credential": Secret(env=CREDENTIAL), "s3.secret-access-key": Secret(env=SECRET)},
        rewrites="cluster",
        engine_catalog="lake",
    ).with_engine("trino")
    yield Scene(trino, settings, name)
    with suppress(NoSuchTableError):
        opened(settings).drop_table(f"sales.{name}")


def outcomes(done: Any) -> dict[str, dict[str, Any]]:
    assert isinstance(done, Done), done
    return {each["action"]: each for each in done.result["outcomes"]}


def test_trino_rewrites_and_we_expire_and_everybody_reads_the_same_rows(scene: Scene) -> None:
    scene.make(6)
    scene.delete_some()
    rows = rows_of(scene.now())
    assert scene.same_rows(rows), "Trino reads what we wrote"

    ended = outcomes(scene.maintain(scene.now(), [*REWRITES, "expire_snapshots"], **NOW))

    assert {action: each["outcome"] for action, each in ended.items()} == {
        "rewrite_data_files": "success",
        "rewrite_position_delete_files": "skipped",
        "rewrite_manifests": ended["rewrite_manifests"]["outcome"],
        "expire_snapshots": "success",
    }
    assert "Folded" in ended["rewrite_position_delete_files"]["message"]
    rewritten = ended["rewrite_data_files"]
    assert (rewritten["files_before"], rewritten["files_after"]) == (6, 1)
    [ours] = rewritten["details"]["since"]
    assert ours["made_by"] == "ours"
    after = scene.now()
    assert list(after.metadata.refs) == ["main"]
    assert after.inspect.delete_files().num_rows == 0
    assert scene.same_rows(rows)
    assert outcomes(scene.maintain(after, ["rewrite_data_files"]))["rewrite_data_files"]["outcome"] == "skipped"


def test_trino_reads_what_we_rewrote_ourselves(scene: Scene) -> None:
    scene.make(6)
    scene.delete_some()
    rows = rows_of(scene.now())
    embedded = scene.settings.model_copy(update={"rewrites": "embedded", "engine_catalog": None}).with_engine(
        "embedded"
    )

    done = running.maintain(
        scene.turn(scene.now(), ["rewrite_data_files", "rewrite_manifests", "expire_snapshots"], **NOW), embedded
    )

    assert outcomes(done)["rewrite_data_files"]["outcome"] == "success"
    assert scene.same_rows(rows)


def test_a_dry_run_estimates_and_asks_nobody(scene: Scene) -> None:
    table = scene.make(6)
    with scene.rewriting(url="http://127.0.0.1:9", patience_seconds=0) as nobody:
        done = outcomes(scene.maintain(table, REWRITES, dry_run=True, rewriter=nobody))

    assert done["rewrite_data_files"]["details"] == {
        "rewritten_files": 6,
        "rewritten_bytes": table.inspect.files()["file_size_in_bytes"].to_pandas().sum(),
        "new_files": 1,
    }
    assert done["rewrite_position_delete_files"]["outcome"] == "skipped"
    assert scene.now().metadata == table.metadata


# Ended by somebody else


def held_by_an_earlier_attempt(scene: Scene, sql: str, *, to_its_end: bool = False) -> JsonObject:
    """The identity of a query that somebody sent who is gone now."""

    async def begin() -> JsonObject:
        engine = TrinoEngine("cluster", scene.server.settings())
        try:
            statement: Statement = await submit(engine.client, sql, engine.call(Query("")))
            identity: JsonObject = {"query_id": statement.id, "next_uri": statement.next_uri}
            while statement.next_uri is not None:
                await statement.advance()
                if not to_its_end and statement.progress.phase not in ("queued", "starting"):
                    break
            return identity
        finally:
            await engine.close()

    return asyncio.run(begin())


ENDLESS = "SELECT count(*) FROM tpch.sf100.lineitem a, tpch.sf100.lineitem b WHERE a.partkey + b.partkey = -1"


def saved_remote(table: Table, identity: JsonObject, action: str = "rewrite_data_files") -> Link:
    snapshot = table.metadata.current_snapshot_id
    return Link(
        {"remote": {"engine": "cluster", "action": action, "snapshot_id": snapshot, "began": 0, "identity": identity}}
    )


@pytest.mark.parametrize("how", ["by its address", "by its id"])
def test_what_a_dead_attempt_began_is_ended_before_the_next_one_begins(scene: Scene, how: str) -> None:
    table = scene.make(4)
    rows = rows_of(table)
    identity = held_by_an_earlier_attempt(scene, ENDLESS)
    if how == "by its id":  # its address is too old
        identity["next_uri"] = f"{scene.server.url}/v1/statement/executing/{identity['query_id']}/nobody/0"

    ended = outcomes(scene.maintain(table, ["rewrite_data_files"], saved_remote(table, identity)))

    info = asyncio.run(query_ended(scene.server, identity["query_id"]))
    assert info["errorCode"]["name"] in ("USER_CANCELED", "ADMINISTRATIVELY_KILLED")
    assert ended["rewrite_data_files"]["files_after"] == 1
    assert scene.same_rows(rows)


def test_what_a_dead_attempt_had_finished_is_not_done_again(scene: Scene) -> None:
    table = scene.make(4)
    identity = held_by_an_earlier_attempt(
        scene, f'ALTER TABLE lake.sales."{scene.name}" EXECUTE optimize', to_its_end=True
    )
    landed = scene.now().metadata.current_snapshot_id
    assert landed != table.metadata.current_snapshot_id

    ended = outcomes(scene.maintain(table, ["rewrite_data_files"], saved_remote(table, identity)))

    assert scene.now().metadata.current_snapshot_id == landed
    assert ended["rewrite_data_files"]["outcome"] == "success"
    assert ended["rewrite_data_files"]["details"]["snapshots"] == [landed]


def test_a_cleanup_ends_the_query_takes_the_tag_and_tells_what_landed(scene: Scene) -> None:
    table = scene.make(4)
    identity = held_by_an_earlier_attempt(scene, ENDLESS)
    link = saved_remote(table, identity)
    scene.now().append(some_rows(1000))
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "paddock-fence-dead").commit()

    with scene.rewriting() as rewriter:
        done = running.clean_up(
            scene.turn(table, ["rewrite_data_files"], link, cleanup=True),
            scene.settings,
            rewriter,
        )

    assert isinstance(done, Done)
    assert done.result["remote"]["ended"] == "closed"
    assert [each["made_by"] for each in done.result["remote"]["snapshots"]] == ["foreign"]
    assert list(scene.now().metadata.refs) == ["main"]
    assert asyncio.run(query_ended(scene.server, identity["query_id"]))["state"] == "FAILED"


def test_a_query_that_trino_does_not_know_is_over(scene: Scene) -> None:
    identity = {"query_id": "20200101_000000_00000_aaaaa", "next_uri": f"{scene.server.url}/v1/statement/queued/x/y/1"}
    with scene.rewriting() as rewriter:
        assert rewriter.end(identity) == "unknown"


@pytest.mark.parametrize("cleanup", [True, False])
def test_while_nobody_answers_the_lock_is_held_until_the_limit_has_passed(
    scene: Scene, cleanup: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(client, "POST_PATIENCE", 0.1)
    table = scene.make(2)
    [port] = free_ports(1)
    link = saved_remote(table, {"query_id": "q", "next_uri": f"http://127.0.0.1:{port}/v1/statement/queued/x/y/1"})
    run = running.clean_up if cleanup else running.maintain

    with scene.rewriting(url=f"http://127.0.0.1:{port}", patience_seconds=0) as away:
        later: Any = run(scene.turn(table, ["rewrite_data_files"], link, cleanup=cleanup), scene.settings, away)
        assert later == Again(
            timedelta(seconds=30), "stopping, engine unreachable", saved=later.saved, progress=False
        ), later
        assert later.saved["remote"]["identity"]["query_id"] == "q"

        passed = scene.turn(table, ["rewrite_data_files"], link, cleanup=cleanup)
        passed._age = (rewriting.LIMIT + rewriting.BEYOND_LIMIT).total_seconds()
        if cleanup:
            done: Any = run(passed, scene.settings, away)
            assert done.result["remote"]["ended"] == "unreachable until past its limit"
        else:
            with pytest.raises(TransientResourceError) as refused:  # it goes on to its own rewrite, and nobody is there
                run(passed, scene.settings, away)
            assert refused.value.code == "engine_unavailable"
            assert link.saved["remote"] is None


# What Trino refuses


def test_without_the_right_the_action_fails_and_says_what_to_ask_for(scene: Scene) -> None:
    table = scene.make(4)
    with scene.rewriting(user="denied") as denied, pytest.raises(PermanentRunnerError) as failed:
        scene.maintain(table, [*REWRITES, "expire_snapshots"], rewriter=denied)

    assert failed.value.code == "role_denied"
    assert failed.value.hint == rewriting.HINTS["role_denied"]
    assert "Access Denied" in failed.value.message
    assert list(scene.now().metadata.refs) == ["main"]


def test_a_rewrite_past_its_limit_is_ended_by_trino(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in a queue behind another one, which counts."""
    table = scene.make(4)
    monkeypatch.setattr(rewriting, "LIMIT", timedelta(seconds=2))
    source = f"held-{scene.name}"

    async def begin_other(engine: TrinoEngine) -> Statement:
        statement = await submit(engine.client, ENDLESS, engine.call(Query("")))
        while statement.progress.phase in ("queued", "starting"):
            await statement.advance()
        return statement

    other = scene.rewriter(source=source, client_tags=[])
    running_first = other._wait(begin_other(other._engine))
    try:
        with scene.rewriting(source=source, client_tags=[]) as late, pytest.raises(PermanentRunnerError) as failed:
            scene.maintain(table, ["rewrite_data_files"], rewriter=late)
    finally:
        other._wait(running_first.stop())
        other.close()

    assert failed.value.code == "exceeded_time_limit"
    assert failed.value.hint == rewriting.HINTS["exceeded_time_limit"]
    assert scene.now().metadata.current_snapshot_id == table.metadata.current_snapshot_id


def test_an_attempt_that_lost_its_job_sends_no_query(scene: Scene) -> None:
    table = scene.make(4)
    link, seen = Link(), []

    def lose(state: JsonObject) -> None:
        if state.get("remote"):
            seen.append(state["remote"]["identity"]["query_id"])
            link.stale = True

    link.on_save = lose
    with pytest.raises(StaleAttempt):
        scene.maintain(table, ["rewrite_data_files"], link)

    # Stopped before it ran at all, and so forgotten.
    assert asyncio.run(query_status(scene.server, seen[0])) == 410
    assert scene.now().metadata.current_snapshot_id == table.metadata.current_snapshot_id


def test_a_check_tells_whether_the_engine_sees_the_same_table(scene: Scene) -> None:
    scene.make(1)

    def engine_finding(settings: CatalogSettings) -> JsonObject:
        with scene.rewriting() as rewriter:
            found = checking.findings("lake", settings, rewriter)
        return found[-1]

    assert engine_finding(scene.settings)["ok"], engine_finding(scene.settings)
    elsewhere = replace_catalog(scene.settings, "iceberg")
    wrong = engine_finding(elsewhere)
    assert (wrong["what"], wrong["ok"]) == ("engine", False)


def replace_catalog(settings: CatalogSettings, engine_catalog: str) -> CatalogSettings:
    return settings.model_copy(update={"engine_catalog": engine_catalog})

"""Rewrites by Spark over HiveServer2's Thrift protocol: one real server for all of them."""

import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from paddock.engines.rewriting import TableStatement
from paddock.engines.spark.rewriting import SparkRewriter
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Again, Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import checking, running
from paddock.maintenance.iceberg.manifests import entries_of
from paddock.maintenance.model import TableName
from paddock.maintenance.remote import rewriting
from tests.maintenance import rest
from tests.maintenance.lake import Link, make_table, opened, rows_of, turn_for
from tests.maintenance.spark import SparkServer, spark_server
from tests.storage.servers import new_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NOW: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0, "min_input_files": 2}}
REWRITES = ["rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests"]
HOUR = timedelta(hours=1)
# Sleeps on the server, and takes no processor.
LONG = TableStatement("SELECT reflect('java.lang.Thread', 'sleep', id + 300000) FROM range(1)")


@dataclass
class Scene:
    server: SparkServer
    lake: CatalogSettings

    @property
    def rewriter(self) -> SparkRewriter:
        return SparkRewriter("cluster", self.server.settings())

    @property
    def by_spark(self) -> CatalogSettings:
        more = {"rewrites": "cluster", "engine_catalog": "lake"}
        return self.lake.model_copy(update=more).with_engine("spark")

    def sql(self, text: str) -> list[list[object]]:
        return self.rewriter.rows(text)

    def now(self, name: str) -> Table:
        return opened(self.lake).load_table(f"sales.{name}")

    def maintain(self, name: str, actions: list[str], link: Link | None = None, **more: Any) -> Any:
        return running.maintain(self.turn(name, actions, link, **more), self.by_spark, self.rewriter)

    def turn(self, name: str, actions: list[str], link: Link | None = None, **more: Any) -> Any:
        table = TableName(catalog="lake", namespace=("sales",), name=name)
        return turn_for(self.now(name), actions, link or Link(), name=table, **more)

    def ids_by_spark(self, name: str) -> list[int]:
        return [int(str(row[0])) for row in self.sql(f"SELECT id FROM lake.sales.`{name}` ORDER BY id")]

    def begun(self, statement: TableStatement = LONG) -> tuple[JsonObject, threading.Thread, list[Exception]]:
        """A statement that runs on the server, with its identity."""
        seen: list[JsonObject] = []
        ends: list[Exception] = []
        told = threading.Event()

        def tell(report: JsonObject) -> None:
            told.set()

        def run() -> None:
            try:
                self.rewriter.run(statement, HOUR, seen.append, tell)
            except Exception as end:
                ends.append(end)

        thread = threading.Thread(target=run)
        thread.start()
        assert told.wait(60)
        return seen[0], thread, ends


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, rest.rest_lake() as lake, new_place("spark", 1) as place:
        for name, value in rest.ENVIRONMENT.items():
            patch.setenv(name, value)
        with spark_server(place.folder, lake, ("test", "testsecret")) as server:
            yield Scene(server, lake.settings)


def outcomes(done: Any) -> dict[str, dict[str, Any]]:
    assert isinstance(done, Done), done
    return {each["action"]: each for each in done.result["outcomes"]}


def test_spark_rewrites_and_we_expire_and_both_read_the_same_rows(scene: Scene) -> None:
    merging = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    make_table(scene.lake, 6, merging, name="orders")
    scene.sql("DELETE FROM lake.sales.orders WHERE id % 10 = 3")
    table = scene.now("orders")
    rows = rows_of(table)
    assert table.inspect.delete_files().num_rows > 0

    ended = outcomes(scene.maintain("orders", [*REWRITES, "expire_snapshots"], **NOW))

    assert ended["rewrite_data_files"]["outcome"] == "success", ended
    assert (ended["rewrite_data_files"]["files_before"], ended["rewrite_data_files"]["files_after"]) == (6, 1)
    assert {each["made_by"] for each in ended["rewrite_data_files"]["details"]["since"]} == {"ours"}
    assert ended["rewrite_position_delete_files"]["outcome"] in ("success", "skipped")
    assert ended["expire_snapshots"]["outcome"] == "success"
    after = scene.now("orders")
    assert list(after.metadata.refs) == ["main"]
    assert rows_of(after) == rows
    assert scene.ids_by_spark("orders") == [row["id"] for row in rows]
    assert outcomes(scene.maintain("orders", ["rewrite_data_files"]))["rewrite_data_files"]["outcome"] == "skipped"
    assert checking.findings("lake", scene.by_spark, scene.rewriter)[-1]["ok"]


@pytest.mark.long
def test_a_v3_table_of_sparks_is_cleaned_by_us_and_reads_as_before(scene: Scene) -> None:
    merging = {"write.delete.mode": "merge-on-read", "write.data.path": "s3://lake/vectors"}
    make_table(scene.lake, 2, merging, name="vectors")
    scene.sql("ALTER TABLE lake.sales.vectors SET TBLPROPERTIES ('format-version' = '3')")
    puffins: list[set[str]] = []
    for digit in (2, 4, 6, 8):  # of whose snapshots an expiry keeps three
        scene.sql(f"DELETE FROM lake.sales.vectors WHERE id % 10 = {digit}")
        puffins.append(vectors_of(scene.now("vectors")))
    before = scene.now("vectors")
    assert before.metadata.format_version == 3
    assert len(puffins[0] | puffins[-1]) == len(puffins[0]) + len(puffins[-1]) > 1

    cleaning = ["expire_snapshots", "remove_orphan_files"]
    old: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0, "older_than_hours": 0}}
    ended = outcomes(scene.maintain("vectors", cleaning, **old))

    assert [each["outcome"] for each in ended.values()] == ["success", "success"], ended
    after = scene.now("vectors")
    assert not any(after.io.new_input(path).exists() for path in puffins[0])
    assert all(after.io.new_input(path).exists() for path in puffins[-1])
    left = [id for id in range(20) if id % 10 not in (2, 4, 6, 8)]
    assert scene.ids_by_spark("vectors") == [row["id"] for row in rows_of(after)] == left


def vectors_of(table: Table) -> set[str]:
    """The Puffin files that main's deletion vectors are in."""
    main = table.current_snapshot()
    assert main is not None
    deletes = [each for each in main.manifests(table.io) if each.content == ManifestContent.DELETES]
    return {entry.data_file.file_path for each in deletes for entry in entries_of(each, table.io)}


@pytest.mark.long
def test_spark_reads_and_changes_what_we_rewrote_ourselves(scene: Scene) -> None:
    make_table(scene.lake, 6, name="ours")
    ours = ["rewrite_data_files", "rewrite_manifests", "expire_snapshots"]

    done = outcomes(running.maintain(scene.turn("ours", ours, **NOW), scene.lake))

    assert done["rewrite_data_files"]["outcome"] == "success"
    assert scene.ids_by_spark("ours") == list(range(60))
    scene.sql("DELETE FROM lake.sales.ours WHERE id >= 50")
    assert [row["id"] for row in rows_of(scene.now("ours"))] == list(range(50))


def test_what_a_dead_attempt_began_is_ended_by_the_handle_of_its_session(scene: Scene) -> None:
    identity, thread, ends = scene.begun()

    assert scene.rewriter.end(identity) == "closed"

    thread.join(60)
    assert len(ends) == 1, "the statement did not end by itself"
    assert scene.rewriter.end(identity) == "unknown"


@pytest.mark.long
def test_the_next_attempt_ends_the_session_of_the_last_and_rewrites_itself(scene: Scene) -> None:
    make_table(scene.lake, 4, name="heir")
    identity, thread, _ = scene.begun()
    remote = {
        "engine": "cluster",
        "action": "rewrite_data_files",
        "snapshot_id": scene.now("heir").metadata.current_snapshot_id,
        "began": 0,
        "identity": identity,
    }

    done = outcomes(scene.maintain("heir", ["rewrite_data_files"], Link({"remote": remote}), **NOW))

    thread.join(60)
    assert done["rewrite_data_files"]["files_after"] == 1
    assert [row["id"] for row in rows_of(scene.now("heir"))] == list(range(40))


@pytest.mark.long
def test_spark_ends_a_statement_at_its_time_limit(scene: Scene) -> None:
    with pytest.raises(PermanentRunnerError) as failed:
        scene.rewriter.run(LONG, timedelta(seconds=1), lambda identity: None, lambda report: None)
    assert failed.value.code == "exceeded_time_limit"


@pytest.mark.long
def test_a_catalog_that_spark_does_not_have_is_told_in_one_line(scene: Scene) -> None:
    make_table(scene.lake, 2, name="elsewhere")
    wrong = scene.by_spark.model_copy(update={"engine_catalog": "nowhere"})
    with pytest.raises(PermanentRunnerError) as failed:
        running.maintain(scene.turn("elsewhere", ["rewrite_data_files"]), wrong, scene.rewriter)
    assert "\n" not in failed.value.message
    assert "Exception" not in failed.value.message
    assert failed.value.code == "procedure_not_found"
    assert list(scene.now("elsewhere").metadata.refs) == ["main"]


class Stopped(BaseException):
    """As the worker ends a handler that blocks."""


def test_a_signal_ends_a_call_that_the_server_does_not_answer(scene: Scene) -> None:
    def stop(number: int, frame: object) -> None:
        raise Stopped

    waiting = threading.Thread(target=signal_once_blocked)
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(Stopped):
            scene.rewriter.run(LONG, HOUR, lambda identity: freeze(scene, waiting), lambda report: None)
    finally:
        scene.server.process.send_signal(signal.SIGCONT)
        waiting.join(60)
        signal.signal(signal.SIGUSR1, before)


def freeze(scene: Scene, waiting: threading.Thread) -> None:
    scene.server.process.send_signal(signal.SIGSTOP)
    waiting.start()


def signal_once_blocked() -> None:
    main = threading.main_thread().ident or 0
    while Path(sys._current_frames()[main].f_code.co_filename).name != "TSocket.py":
        pass
    signal.pthread_kill(main, signal.SIGUSR1)


# The last one: the server is gone after it.
def test_a_killed_server_is_asked_again_and_a_cleanup_holds_the_lock_meanwhile(scene: Scene) -> None:
    make_table(scene.lake, 2, name="orphaned")
    link = Link()

    def kill(state: JsonObject) -> None:
        if state.get("remote") and scene.server.process.poll() is None:
            scene.server.process.kill()
            scene.server.process.wait()

    link.on_save = kill
    with pytest.raises(TransientResourceError) as failed:
        scene.maintain("orphaned", ["rewrite_data_files"], link)
    assert failed.value.code == "engine_unavailable"
    assert link.saved["remote"]["identity"]

    turn = scene.turn("orphaned", ["rewrite_data_files"], link, cleanup=True)
    later = running.clean_up(turn, scene.by_spark, scene.rewriter)
    assert isinstance(later, Again)
    assert later.waiting_on == rewriting.UNREACHABLE

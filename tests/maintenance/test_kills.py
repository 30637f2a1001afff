"""A worker that is killed in the middle of maintenance: every row is there, the fence tag is gone, the lock is free."""

from collections.abc import Iterator

import psutil
import pytest

from tests.cli.conftest import Terminal
from tests.maintenance.lake import rows_of
from tests.maintenance.place import Place, place


@pytest.fixture(scope="module")
def paddock() -> Iterator[Place]:
    with place() as running:
        yield running


def kill_worker(place: Place) -> None:
    worker = place.up.child("worker")
    family = [worker, *worker.children(recursive=True)]
    for process in family:
        process.kill()
    psutil.wait_procs(family, timeout=60)


@pytest.mark.parametrize(("name", "where"), [("in_a_bin", "-00000.parquet"), ("before_a_commit", "snap-")])
def test_a_worker_killed_in_a_rewrite_loses_no_row_and_leaves_neither_tag_nor_lock(
    paddock: Place, name: str, where: str
) -> None:
    paddock.new_table(name)
    before = rows_of(paddock.table(name))
    paddock.hold(where)
    job = paddock.maintain(name, "rewrite_data_files", "expire_snapshots")
    paddock.until_held()
    kill_worker(paddock)
    assert any(ref.startswith("paddock-fence-") for ref in paddock.table(name).metadata.refs)
    paddock.let_go()

    ended = paddock.ended(job)

    assert ended["status"] == "completed", ended
    assert ended["turn_count"] > 1
    table = paddock.table(name)
    assert rows_of(table) == before
    assert table.inspect.files().num_rows == 1
    assert list(table.metadata.refs) == ["main"]
    assert paddock.ended(paddock.maintain(name, "expire_snapshots"))["status"] == "completed"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "where"),
    [
        # The table's own writes make eleven metadata files, 00000 to 00010.
        ("before_its_tag", "00011-"),
        ("after_its_tag", "reading 00011-"),
        ("before_the_expiry", "00012-"),
        ("after_the_expiry", "reading 00012-"),
    ],
)
def test_a_worker_killed_in_an_expiry_loses_no_row_and_no_ref(paddock: Place, name: str, where: str) -> None:
    paddock.new_table(name)
    before = rows_of(paddock.table(name))
    paddock.hold(where)
    now = {"confirm": True, "options": {"max_snapshot_age_hours": 0}}
    job = paddock.maintain(name, "expire_snapshots", **now)
    paddock.until_held()
    kill_worker(paddock)
    paddock.let_go()

    ended = paddock.ended(job)

    assert ended["status"] == "completed", ended
    table = paddock.table(name)
    assert rows_of(table) == before
    assert list(table.metadata.refs) == ["main"]
    assert len(table.metadata.snapshots) == 3
    for snapshot in table.metadata.snapshots:
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def test_a_job_cancelled_in_a_rewrite_is_cleaned_up_before_its_lock_is_free(paddock: Place) -> None:
    paddock.new_table("cancelled")
    before = rows_of(paddock.table("cancelled"))
    paddock.hold("-00000.parquet")
    job = paddock.maintain("cancelled", "rewrite_data_files")
    paddock.until_held()
    paddock.client.request("POST", f"/api/jobs/{job['id']}/cancel", body={})
    paddock.let_go()

    assert paddock.ended(job)["status"] == "cancelled"
    cleanup = paddock.cleanup_of(job)

    assert cleanup["result"] == {"deleted_files": 0, "outcomes": [], "snapshots": []}
    table = paddock.table("cancelled")
    assert rows_of(table) == before
    assert list(table.metadata.refs) == ["main"]
    assert table.inspect.files().num_rows == 10
    assert paddock.ended(paddock.maintain("cancelled", "rewrite_data_files"))["status"] == "completed"


# The command line, of the same Paddock


def test_the_commands_from_a_first_look_to_the_history(paddock: Place, capsys: pytest.CaptureFixture[str]) -> None:
    paddock.new_table("by_hand")
    run = Terminal(paddock.up.data, capsys)

    assert "by_hand" in {each["name"] for each in run("tables", "list", "--output", "json").json}
    shown = run("tables", "show", "sales.by_hand")
    assert shown.code == 0
    assert "10 files" in shown.out
    planned = run("tables", "plan", "sales.by_hand", "--actions", "rewrite_data_files")
    assert planned.code == 0, planned
    assert "1 partition, 10 files" in planned.out
    assert paddock.table("by_hand").inspect.files().num_rows == 10
    actions = ("--actions", "rewrite_data_files,expire_snapshots")
    done = run("tables", "maintain", "sales.by_hand", *actions, "--wait")
    assert done.code == 0, done
    assert "10 files became 1" in done.out
    history = run("tables", "history", "sales.by_hand", "--output", "json").json
    assert [each["action"] for each in history] == ["expire_snapshots", "rewrite_data_files"]
    assert "maintained only when asked for" in run("tables", "why", "sales.by_hand").out
    looked = run("tables", "look", "sales.by_hand", "--output", "json").json
    assert looked["figures"]["data_files"] == 1


def test_catalogs_are_listed_and_checked(paddock: Place, capsys: pytest.CaptureFixture[str]) -> None:
    paddock.new_table("checked", files=1)
    run = Terminal(paddock.up.data, capsys)
    [lake] = run("catalogs", "list", "--output", "json").json
    assert (lake["name"], lake["type"]) == ("lake", "sql")
    checked = run("catalogs", "check", "--output", "json")
    assert checked.code == 0, checked
    assert [each["what"] for each in checked.json] == ["load", "list", "table", "tag", "store"]
    assert all(each["ok"] for each in checked.json)


def test_commands_say_what_is_wrong_and_exit_by_it(paddock: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = Terminal(paddock.up.data, capsys)
    assert run("tables", "show", "orders").code == 2
    assert run("tables", "show", "sales.nobody").code == 3
    assert "rewrite_data_files" in run("tables", "maintain", "sales.nobody", "--actions", "vacuum").err
    assert run("tables", "maintain", "sales.nobody", "--option", "older").code == 2
    elsewhere = run("tables", "maintain", "sales.nobody", "--catalog", "nowhere")
    assert (elsewhere.code, "no catalog 'nowhere'" in elsewhere.err) == (3, True), elsewhere
    paddock.new_table("dropped", files=1)
    paddock.catalog.drop_table("sales.dropped")
    ended = run("tables", "maintain", "sales.dropped", "--actions", "expire_snapshots", "--wait")
    assert ended.code == 1, ended

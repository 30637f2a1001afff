"""Plain exports as people use them: over HTTP and by the command line, against a whole Paddock."""

import csv
import io
import zipfile
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from paddock.client import PaddockError
from tests.exports.place import ROWS, Place
from tests.processes.running import wait_for

pytestmark = pytest.mark.slow


def refusal(place: Place, **body: object) -> PaddockError:
    with pytest.raises(PaddockError) as refused:
        place.client.request("POST", "/api/exports", body=body)
    return refused.value


def test_a_query_becomes_a_typed_file_on_the_disk(place: Place) -> None:
    done = place.paddock("export", "SELECT * FROM 'people.csv'", "-e", "local", "--to", "people.parquet")

    assert done.returncode == 0, done.stderr
    table = pq.read_table(place.folder / "people.parquet")
    assert table.schema.names == ["id", "name", "score"]
    assert table.column("id").to_pylist() == list(range(ROWS))
    assert table.column("score").to_pylist() == [number / 4 for number in range(ROWS)]
    assert f"{ROWS:,} rows" in done.stdout.decode()
    assert not list(place.folder.glob("*.partial-*"))


def test_standard_output_gets_the_bytes_and_nothing_else(place: Place) -> None:
    done = place.paddock(
        "export", "SELECT 1 AS a, NULL AS b, 'x,\"y\"' AS c", "-e", "local", "--to", "-", "--format", "csv"
    )

    assert list(csv.reader(io.StringIO(done.stdout.decode()))) == [["a", "b", "c"], ["1", "", 'x,"y"']]


def test_json_lines_with_a_parameter(place: Place) -> None:
    sql = "SELECT id, name FROM 'people.csv' WHERE id < $most ORDER BY id"
    done = place.paddock("export", sql, "-e", "local", "--to", "few.jsonl", "--param", "most=3")

    assert done.returncode == 0, done.stderr
    lines = (place.folder / "few.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["id"] for line in lines] == [0, 1, 2]


def test_sqlite_is_an_engine_like_the_others(place: Place) -> None:
    done = place.paddock("export", "SELECT id, name, photo FROM person", "-e", "app", "--to", "app.parquet")

    assert done.returncode == 0, done.stderr
    table = pq.read_table(place.folder / "app.parquet")
    assert table.column("photo").to_pylist() == [bytes([number]) for number in range(9)]


def test_who_writes_may_be_asked_for_and_the_result_says_why_it_was_another(place: Place) -> None:
    for asked, because in (("direct", None), ("unload", "Engine 'local' (duckdb) writes no files itself.")):
        done = place.paddock("export", "SELECT 1 AS n", "-e", "local", "--mode", asked, "-o", "json")

        assert done.returncode == 0, done.stderr
        made = orjson.loads(done.stdout)
        assert made["request"].get("mode") == asked
        result = place.client.request("GET", f"/api/jobs/{made['job_id']}")["data"]["result"]
        assert (result["mode"], result.get("direct_because")) == ("direct", because)


def test_nothing_found_is_a_typed_empty_file(place: Place) -> None:
    export = place.export(sql="SELECT id, name FROM 'people.csv' WHERE false")

    assert (export["status"], export["rows"], export["files"]) == ("completed", 0, 1)
    body = b"".join(place.client.download(f"/api/exports/{export['id']}/download"))
    assert pq.read_table(io.BytesIO(body)).schema.names == ["id", "name"]


def test_a_download_goes_on_where_it_broke(place: Place) -> None:
    export = place.export(sql="SELECT * FROM 'people.csv'")
    path = f"/api/exports/{export['id']}/download"

    whole = b"".join(place.client.download(path))

    assert len(whole) == export["bytes"]
    assert b"".join(place.client.download(path, start=1000)) == whole[1000:]
    assert b"".join(place.client.download(path, start=len(whole) - 1)) == whole[-1:]


def test_partitions_are_folders_and_come_as_a_zip(place: Place) -> None:
    export = place.export(sql="SELECT name, id FROM 'people.csv'", options={"partition_by": ["name"]})

    assert (export["files"], export["rows"]) == (7, ROWS)
    body = b"".join(place.client.download(f"/api/exports/{export['id']}/download"))
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        rows = sum(pq.read_table(io.BytesIO(archive.read(name))).num_rows for name in names)
    assert names == sorted(names)
    assert {name.split("/")[0].partition("=")[0] for name in names} == {"name"}
    assert rows == ROWS


def test_rows_are_cut_and_it_says_so(place: Place) -> None:
    export = place.export(sql="SELECT * FROM 'people.csv'", max_rows=10)

    assert export["rows"] == 10
    assert place.client.get(export["job_id"])["result"]["truncated"] is True


def test_an_export_that_grows_too_large_fails(place: Place) -> None:
    export = place.export(sql="SELECT range AS a FROM range(1000000)", max_bytes=1000)

    assert (export["status"], export["error"]["code"]) == ("failed", "export_too_large")


def test_what_is_wrong_with_a_query_is_said_in_words(place: Place) -> None:
    export = place.export(sql="SELECT nothing FROM 'people.csv'")

    assert export["status"] == "failed"
    assert "nothing" in export["error"]["message"]
    with pytest.raises(PaddockError, match="has no files"):
        place.client.request("GET", f"/api/exports/{export['id']}/files")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"engine": "local"}, "sql or table"),
        ({"engine": "local", "sql": "SELECT 1", "table": "t"}, "sql or table"),
        ({"engine": "local", "sql": "SELECT 1", "format": "xml"}, "format"),
        ({"engine": "local", "sql": "SELECT 1", "ttl": "soon"}, "duration"),
        ({"engine": "local", "sql": "SELECT 1", "options": {"csv_safe": True}}, "csv_safe"),
        ({"engine": "local", "sql": "SELECT 1", "destination": "lake:../x"}, "destination"),
        ({"sql": "SELECT 1"}, "engine"),
    ],
)
def test_a_wrong_request_names_its_field(place: Place, body: dict[str, object], field: str) -> None:
    refused = refusal(place, **body)

    assert refused.status == 422
    assert field in refused.message


def test_an_engine_is_used_only_with_leave(place: Place) -> None:
    stranger = place.token("stranger")

    with pytest.raises(PaddockError) as refused:
        stranger.request("POST", "/api/exports", body={"engine": "local", "sql": "SELECT 1"})

    assert (refused.value.status, refused.value.code) == (403, "engine_not_allowed")
    assert stranger.request("GET", "/api/engines")["data"] == []


def test_an_owner_sees_their_own_exports_only(place: Place) -> None:
    ada = place.token("ada", engines=["local"])
    bob = place.token("bob", engines=["local"])

    mine = place.export(ada, sql="SELECT 1 AS a")

    assert [export["id"] for export in ada.request("GET", "/api/exports")["data"]] == [mine["id"]]
    assert bob.request("GET", "/api/exports")["data"] == []
    for path in ("", "/files", "/download"):
        with pytest.raises(PaddockError) as refused:
            bob.request("GET", f"/api/exports/{mine['id']}{path}")
        assert refused.value.status == 404


def test_the_same_key_makes_one_export(place: Place) -> None:
    body = {"engine": "local", "sql": "SELECT 1 AS a"}

    first = place.client.request("POST", "/api/exports", body=body, idempotency_key="once")["data"]
    second = place.client.request("POST", "/api/exports", body=body, idempotency_key="once")["data"]

    assert first["id"] == second["id"]


def test_a_deleted_export_takes_its_files_along(place: Place) -> None:
    export = place.export(sql="SELECT 1 AS a")
    assert any(export["id"] in name for name in place.files())

    place.client.request("DELETE", f"/api/exports/{export['id']}")

    def gone() -> bool:
        try:
            place.client.request("GET", f"/api/exports/{export['id']}")
        except PaddockError as refused:
            return refused.status == 404
        return False

    wait_for("the export is gone", gone)
    assert not any(export["id"] in name for name in place.files())


def test_a_failed_export_leaves_no_file(place: Place) -> None:
    export = place.export(sql="SELECT CASE WHEN range = 400000 THEN error('no') ELSE 'x' END AS a FROM range(500000)")

    assert export["status"] == "failed"
    assert not any(export["id"] in name for name in place.files())


def test_a_question_is_answered_by_a_worker(place: Place) -> None:
    ask = place.client.request
    described = ask("POST", "/api/engines/local/describe", body={"sql": "SELECT 1::BIGINT AS a, 'x' AS a"})["data"]
    shown = ask("POST", "/api/engines/local/preview", body={"sql": "FROM 'people.csv' ORDER BY id", "rows": 2})["data"]

    assert [(column["name"], column["type"]) for column in described["columns"]] == [("a", "INT64"), ("a_1", "STRING")]
    assert shown["rows"] == [[0, "name 0", 0.0], [1, "name 1", 0.25]]
    with pytest.raises(PaddockError) as refused:
        ask("POST", "/api/engines/local/describe", body={"sql": "DROP TABLE x"})
    assert refused.value.status == 422
    for sql in ("SELECT CAST('x' AS INTEGER)", "FROM 'nowhere.csv'", "SELECT TIME '24:00:00' AS t"):
        with pytest.raises(PaddockError) as refused:
            ask("POST", "/api/engines/local/preview", body={"sql": sql})
        assert (refused.value.status, sql) == (422, sql)


def test_the_data_folder_is_nobodys_to_read(place: Place) -> None:
    earlier = place.export(sql="SELECT 'secret' AS a")
    [file] = [name for name in place.files() if earlier["id"] in name and name.endswith(".parquet")]

    export = place.export(engine="everything", sql=f"SELECT * FROM '{place.up.data / 'objects' / file}'")

    assert export["status"] == "failed"
    assert "Permission denied" in export["error"]["message"]


def test_tables_are_found_by_browsing(place: Place) -> None:
    def browse(**asked: str) -> list[str]:
        found: list[str] = place.client.request("GET", "/api/engines/app/browse", params=asked)["data"]["names"]
        return found

    [catalog] = browse()
    schema = browse(catalog=catalog)[0]

    assert browse(catalog=catalog, schema=schema) == ["person"]


def test_a_destination_gets_the_files_and_then_the_manifest(place: Place) -> None:
    export = place.export(sql="SELECT * FROM 'people.csv'", destination="lake:people/{year}")

    assert export["status"] == "completed"
    names = [name for name in place.files("lake") if name.startswith("people/")]
    assert [Path(name).name for name in names] == [f"{export['job_id']}-0.parquet", "_manifest.json"]
    manifest = names[-1]
    content = orjson.loads((place.folder / "lake" / manifest).read_bytes())
    [file] = content["files"]
    assert pq.read_table((place.folder / "lake" / manifest).parent / file["name"]).num_rows == ROWS

    with pytest.raises(PaddockError) as refused:
        place.export(sql="SELECT 1 AS a", destination="lake:people/{year}")
    assert (refused.value.status, refused.value.code) == (409, "destination_not_empty")
    assert refused.value.details["holder"] == export["job_id"]

    replaced = place.export(sql="SELECT 1 AS a", destination="lake:people/{year}", if_exists="replace")
    assert replaced["status"] == "completed"
    left = [name for name in place.files("lake") if name.startswith("people/") and name.endswith(".parquet")]
    assert [Path(name).name for name in left] == [f"{replaced['job_id']}-0.parquet"]


def test_a_used_destination_names_its_holder_to_those_who_may_know(place: Place) -> None:
    body = {"engine": "local", "sql": "SELECT 1 AS a", "destination": "lake:held"}
    first = place.client.request("POST", "/api/exports", body=body, idempotency_key="held")["data"]
    assert place.ended(first["id"])["status"] == "completed"
    other = place.token("neighbour", engines=["local"], destinations=["lake"])

    with pytest.raises(PaddockError) as refused:
        other.request("POST", "/api/exports", body=body)
    assert (refused.value.status, refused.value.code) == (409, "destination_not_empty")
    assert first["job_id"] not in f"{refused.value.details}{refused.value}"

    again = place.client.request("POST", "/api/exports", body=body, idempotency_key="held")["data"]
    assert again["id"] == first["id"], "the same request again, not a second one"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"job": 7}', '{"job": "x", "files": []}'])
def test_a_destination_that_somebody_else_uses_is_refused_at_once(place: Place, content: str) -> None:
    folder = place.folder / "lake" / "used"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_manifest.json").write_text(content)

    with pytest.raises(PaddockError) as refused:
        place.export(sql="SELECT 1 AS a", destination="lake:used")
    assert (refused.value.status, refused.value.code) == (409, "destination_not_empty")
    assert "holder" not in refused.value.details


def test_what_a_later_job_delivered_is_not_overwritten_by_an_earlier_one(place: Place) -> None:
    (place.folder / "lake" / "later").mkdir(parents=True)
    manifest = place.folder / "lake" / "later" / "_manifest.json"
    manifest.write_text('{"job": "ffffffff-0000-7000-8000-000000000000", "files": []}')

    export = place.export(sql="SELECT 1 AS a", destination="lake:later", if_exists="replace")

    assert (export["status"], export["error"]["code"]) == ("failed", "destination_superseded")
    assert "ffffffff" in manifest.read_text()


def test_a_destination_paddock_did_not_write_is_not_replaced(place: Place) -> None:
    (place.folder / "lake" / "theirs").mkdir(parents=True)
    (place.folder / "lake" / "theirs" / "notes.txt").write_text("mine")

    export = place.export(sql="SELECT 1 AS a", destination="lake:theirs", if_exists="replace")

    assert (export["status"], export["error"]["code"]) == ("failed", "destination_not_ours")
    assert (place.folder / "lake" / "theirs" / "notes.txt").read_text() == "mine"


def test_a_schedule_makes_a_new_export_each_time(place: Place) -> None:
    payload = {"engine": "local", "sql": "SELECT 1 AS a", "destination": "lake:nightly/{date}", "if_exists": "replace"}
    body = {"name": "nightly", "kind": "scheduled_export", "cron": "30 2 * * *", "payload": payload}
    place.client.request("POST", "/api/schedules", body=body)

    exports = []
    for key in ("one", "two"):
        run = place.client.request("POST", "/api/schedules/nightly/run", idempotency_key=key)["data"]
        made = place.client.wait(run["id"])
        assert made["error_message"] is None
        exports.append(place.ended(made["result"]["export"]))

    assert [export["status"] for export in exports] == ["completed", "completed"]
    assert exports[0]["id"] != exports[1]["id"]


def test_a_schedule_is_checked_by_the_engine_and_tells_of_an_export_that_failed(place: Place) -> None:
    def create(sql: str, name: str) -> str:
        payload = orjson.dumps({"engine": "local", "sql": sql}).decode()
        return place.paddock("schedules", "create", name, "scheduled_export", payload, "--every", "1d").stderr.decode()

    assert "nowhere" in create("SELECT * FROM nowhere", "wrong")
    assert create("SELECT error('on the way') AS a FROM range(3)", "failing") == ""
    run = place.client.request("POST", "/api/schedules/failing/run", idempotency_key="once")["data"]
    export = place.ended(place.client.wait(run["id"])["result"]["export"])

    assert export["status"] == "failed"
    assert "the export job it made failed: " in " ".join(place.paddock("why", run["id"]).stdout.decode().split())
    listed = place.paddock("schedules", "list").stdout.decode()
    assert f"failed export {export['id']}" in listed
    assert "wrong" not in listed
    place.client.request("DELETE", "/api/schedules/failing")


def test_a_schedule_of_what_its_maker_may_not_use_is_refused(place: Place) -> None:
    operator = place.token("operator", "ops")
    body = {"name": "sly", "kind": "scheduled_export", "every": "1h", "payload": {"engine": "local", "sql": "SELECT 1"}}

    with pytest.raises(PaddockError) as refused:
        operator.request("POST", "/api/schedules", body=body)

    assert (refused.value.status, refused.value.code) == (403, "engine_not_allowed")


def test_what_a_schedule_exports_is_its_owners_alone_to_change(place: Place) -> None:
    payload = {"engine": "local", "sql": "SELECT 1 AS a"}
    body = {"name": "theirs", "kind": "scheduled_export", "every": "1h", "payload": payload, "enabled": False}
    place.client.request("POST", "/api/schedules", body=body)
    other = place.token("other", "ops", engines=["local"])

    with pytest.raises(PaddockError) as refused:
        other.request("PATCH", "/api/schedules/theirs", body={"payload": {**payload, "sql": "SELECT 2 AS a"}})

    assert (refused.value.status, refused.value.code) == (403, "not_your_schedule")
    other.request("PATCH", "/api/schedules/theirs", body={"every": "2h"})


def test_a_retry_needs_the_engine_still(place: Place) -> None:
    before = place.token("eve", engines=["local"])
    export = place.export(before, sql="SELECT nothing")
    after = place.token("eve-later", owner="eve")

    with pytest.raises(PaddockError) as refused:
        after.request("POST", f"/api/jobs/{export['job_id']}/retry", body={})

    assert (refused.value.status, refused.value.code) == (403, "engine_not_allowed")

"""What catalogs and stores say when something is wrong, and what that means: refused, unknown, away, or for somebody to mend."""

import json
import time
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from pydantic import ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadataV2

from paddock.engines.settings import Secret
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import checking, committing
from paddock.maintenance.iceberg.committing import CommitUnknown, Conflict
from paddock.maintenance.iceberg.opening import load, open_catalog, translated
from paddock.maintenance.iceberg.store import Bucket, LocalFiles, open_table_store
from paddock.maintenance.policy import PolicyDefaults
from tests.maintenance.lake import NAME, make_table, opened
from tests.storage.servers import ACCOUNT, ACCOUNT_KEY, BUCKET, Server


def unreadable() -> ValidationError:
    with pytest.raises(ValidationError) as found:
        TableMetadataV2.model_validate({})
    return found.value


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (ValueError("Cannot remove a ref that is gone"), Conflict),
        (json.JSONDecodeError("Expecting value", "<html>", 0), CommitUnknown),
        (unreadable(), CommitUnknown),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), CommitUnknown),
        (ConnectionError("reset"), CommitUnknown),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_an_answer_that_cannot_be_read_is_no_refusal(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch, said: Exception, means: type[Exception]
) -> None:
    """The commit may have been done: what took it for refused would do it again, or delete what it wrote."""
    table, catalog = make_table(lake, 1), opened(lake)

    def fail(*arguments: object) -> None:
        raise said

    monkeypatch.setattr(catalog, "commit_table", fail)
    with pytest.raises(means):
        committing.commit(catalog, table, (), ())


@pytest.mark.parametrize(
    ("said", "means", "code"),
    [
        (GenericError("Error after 10 retries in 3 min"), TransientResourceError, "catalog_unavailable"),
        (FileNotFoundError("s3://lake/x.avro"), TransientResourceError, "file_missing"),
        (obstore.exceptions.PermissionDeniedError("403"), PermanentRunnerError, "store_denied"),
        (obstore.exceptions.UnauthenticatedError("401"), PermanentRunnerError, "store_denied"),
        (PermissionError("denied"), PermanentRunnerError, "store_denied"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_a_stores_failure_is_told_by_what_can_be_done_about_it(
    said: Exception, means: type[InfrastructureError], code: str
) -> None:
    with pytest.raises(means) as told, translated("lake"):
        raise said
    assert told.value.code == code


@pytest.mark.parametrize("damage", ["missing", "corrupt", "empty"])
def test_metadata_that_is_not_there_or_is_none_is_no_catalog_that_is_away(lake: CatalogSettings, damage: str) -> None:
    path = Path(make_table(lake, 1).metadata_location.removeprefix("file://"))
    if damage == "missing":
        path.unlink()
    else:
        path.write_text("{" if damage == "corrupt" else "{}")
    with pytest.raises(PermanentRunnerError) as told:
        load(opened(lake), NAME)
    assert told.value.code == "table_invalid"
    assert "metadata file" in told.value.message


# The check


def checked(lake: CatalogSettings, **more: Any) -> list[tuple[str, bool]]:
    return [(each["what"], each["ok"]) for each in checking.findings("lake", lake, **more)]


def test_a_check_sets_a_tag_and_takes_it_away_beside_the_fence_of_a_job(lake: CatalogSettings) -> None:
    committing.turn_fence(opened(lake), make_table(lake, 1), "paddock-fence-of-a-job")
    assert checked(lake, tag=True) == [(what, True) for what in ("load", "list", "table", "tag", "store")]
    assert refs(lake) == {"main", "paddock-fence-of-a-job"}


def refs(lake: CatalogSettings, table: str = "sales.orders") -> set[str]:
    return set(opened(lake).load_table(table).metadata.refs)


def test_a_check_commits_nothing_where_no_tag_was_asked_for(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake, 1)

    def fail(*arguments: object) -> None:
        pytest.fail("it committed")

    monkeypatch.setattr(SqlCatalog, "commit_table", fail)
    assert checked(lake) == [(what, True) for what in ("load", "list", "table", "store")]


def test_a_check_tries_its_tag_on_a_table_that_is_maintained(lake: CatalogSettings) -> None:
    def versions(name: str) -> int:
        return len(opened(lake).load_table(f"sales.{name}").metadata.metadata_log)

    kept_out = make_table(lake, 1, {"paddock.maintenance_enabled": "false"}, name="a")
    make_table(lake, 0, name="b")
    make_table(lake, 1, name="c")
    before = {name: versions(name) for name in "abc"}
    [told] = [each for each in checking.findings("lake", lake, tag=True) if each["what"] == "tag"]
    assert (told["ok"], told["message"].split()[0]) == (True, "sales.c")
    assert {name: versions(name) - before[name] for name in "abc"} == {"a": 0, "b": 0, "c": 2}
    nothing = lake.model_copy(update={"policy": PolicyDefaults(maintenance_enabled=False)})
    [told] = [each for each in checking.findings("lake", nothing, tag=True) if each["what"] == "tag"]
    assert (told["ok"], told["message"].split(":")[0]) == (True, "Not tried")
    assert kept_out.metadata_location == opened(lake).load_table("sales.a").metadata_location


def test_what_checks_that_died_have_left_goes_with_the_next_one(lake: CatalogSettings) -> None:
    catalog = opened(lake)
    at_work = f"{checking.CHECK_PREFIX}{int(time.time())}-0123456789ab"
    make_table(lake, 1)
    for tag in (f"{checking.CHECK_PREFIX}0123456789ab", f"{checking.CHECK_PREFIX}1700000000-0123456789ab", at_work):
        committing.set_check_tag(catalog, catalog.load_table("sales.orders"), tag, ())
    assert len(refs(lake)) == 4
    assert all(ok for _, ok in checked(lake, tag=True))
    assert refs(lake) == {"main", at_work}


def test_a_catalog_that_takes_no_tag_is_told_by_the_check(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake, 1)

    def refuse(*arguments: object) -> None:
        raise CommitFailedException("no tags here")

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    problem = checking.findings("lake", lake, tag=True)[-1]
    assert (problem["what"], problem["ok"]) == ("tag", False)
    assert "fence = false" in problem["hint"]
    assert all(ok for _, ok in checked(lake.model_copy(update={"fence": False}), tag=True))


def test_a_check_for_somebody_with_one_database_tells_of_no_other(lake: CatalogSettings) -> None:
    make_table(lake, 1)
    [_, listed] = checking.findings("lake", lake, None, ["hr"])
    assert (listed["what"], listed["message"]) == ("list", "0 tables.")
    assert len(checked(lake, databases=["sales"])) == 4


# The store


class Deletes:
    """A bucket that names the first key that is missing and leaves the rest, as Azure and GCS do."""

    def __init__(self, keys: set[str]) -> None:
        self.keys = keys

    def delete(self, store: object, keys: Any) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            if key not in self.keys:
                raise FileNotFoundError(key)
            self.keys.remove(key)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket({"s3.region": "us-east-1"}, "s3a://lake/sales")


def test_a_file_that_is_gone_already_does_not_keep_the_rest_of_its_batch(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Deletes({"a", "b", "c"})
    monkeypatch.setattr(obstore, "delete", there.delete)
    bucket.delete(["s3://lake/a", "s3://lake/gone", "s3a://lake/b", "s3://lake/c"])
    assert there.keys == set()


def test_a_key_that_cannot_be_named_is_left_and_files_in_other_buckets_are_not(bucket: Bucket) -> None:
    assert not bucket.can_delete("s3://lake/sales//data/1.parquet")
    assert not bucket.can_delete("file:///lake/sales/1.parquet")
    assert not bucket.can_delete("gs://lake/sales/1.parquet")
    assert bucket.can_delete("s3n://lake/sales/data/1.parquet")
    assert bucket.can_delete("s3://another/sales/data/1.parquet")
    assert not LocalFiles().can_delete("s3://lake/sales/1.parquet")
    assert LocalFiles().can_delete("file:/lake/sales/1.parquet")


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PermanentRunnerError) as refused:
        open_table_store({}, "hdfs://lake/sales")
    assert refused.value.code == "store_unknown"


def test_a_container_of_azure_is_listed_and_deleted_from(azure_server: Server) -> None:
    properties = {
        "adls.account-name": ACCOUNT,
        "adls.account-key": ACCOUNT_KEY,
        "adls.blob-storage-authority": azure_server.endpoint.removeprefix("http://").removesuffix(f"/{ACCOUNT}"),
        "adls.blob-storage-scheme": "http",
    }
    home = f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net/lake/orders"
    store = open_table_store(properties, home)
    assert isinstance(store, Bucket)
    for name in ("orders/a.parquet", "orders/b.parquet", "orders_too/c.parquet"):
        obstore.put(store._store(home), f"lake/{name}", b"x")

    listed = list(store.list(home))
    assert [each.location for each in listed] == [f"{home}/a.parquet", f"{home}/b.parquet"]
    assert store.modified(f"{home}/a.parquet") == listed[0].modified
    store.delete([f"{home}/gone.parquet", f"{home}/a.parquet", f"{home}/b.parquet"])
    assert list(store.list(home)) == []


def test_a_secret_that_the_worker_does_not_have_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    settings = CatalogSettings(
        type="rest", properties={"uri": "http://127.0.0.1:1"}, secrets={"credential": Secret(env="NO_SUCH_SECRET")}
    )
    with pytest.raises(PermanentRunnerError) as refused:
        open_catalog("lake", settings)
    assert refused.value.code == "catalog_login_missing"
    assert "NO_SUCH_SECRET" in refused.value.message


def test_a_server_that_is_not_there_is_told_in_a_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = CatalogSettings(type="rest", properties={"uri": "http://127.0.0.1:1"})
    with pytest.raises(TransientResourceError) as away:
        open_catalog("lake", settings)
    assert away.value.code == "catalog_unavailable"
    assert away.value.message.endswith("127.0.0.1:1: [Errno 111] Connection refused")

"""Google Cloud Storage: what is its own. What every store does alike, it does with the others."""

import pytest

from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.parts import open_parts
from paddock.storage.store import CHUNK, Source, Store, open_store
from tests.storage.gcs import new_key, service_account
from tests.storage.looking import keys
from tests.storage.servers import BUCKET, Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def test_a_missing_bucket_is_named(gcs_server: Server) -> None:
    store = open_store(gcs_server.url.replace(BUCKET, "elsewhere"), environ=gcs_server.environ)

    for attempt in (
        store.put("x", b""),
        store.create("x", b""),
        anext(store.list()),
        store.delete(["x"]),
        open_parts(store).begin("x"),
    ):
        with pytest.raises(PermanentRunnerError, match="elsewhere") as refused:
            await attempt
        assert refused.value.code == "store_no_bucket"


async def test_a_key_that_nobody_knows_is_denied(gcs_server: Server) -> None:
    environ = {**gcs_server.environ, "GOOGLE_SERVICE_ACCOUNT_KEY": service_account(new_key())}
    store = open_store(gcs_server.url, environ=environ)

    for attempt in (store.put("x", b""), store.read_range("x", 0, 1), anext(store.list()), store.delete(["x"])):
        with pytest.raises(PermanentRunnerError, match="401 Unauthorized") as refused:
            await attempt
        assert refused.value.code == "store_denied"
        assert "PRIVATE KEY" not in f"{refused.value}{refused.value.hint}"


async def test_an_upload_that_fails_is_not_seen(gcs_server: Server) -> None:
    store = open_store(f"{gcs_server.url}/failing", environ=gcs_server.environ)

    with pytest.raises(OSError, match="no more"):
        store.backend.write("x", failing_after(2), 4 * CHUNK)

    assert await keys(store, unfinished=True) == []


async def test_uploads_that_were_killed_are_left_to_a_rule_of_the_bucket(
    gcs_server: Server, azure_server: Server, folder: Store
) -> None:
    assert await open_store(gcs_server.url, environ=gcs_server.environ).needs_lifecycle_rule()
    assert not await open_store(azure_server.url, environ=azure_server.environ).needs_lifecycle_rule()
    assert not await folder.needs_lifecycle_rule()


def failing_after(parts: int) -> Source:
    left = iter(range(parts))

    def read(length: int) -> bytes:
        if next(left, None) is None:
            raise OSError("no more")
        return b"x" * length

    return read

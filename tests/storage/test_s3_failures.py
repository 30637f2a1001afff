"""What is said when a store refuses, dies or never answers, and that nothing of it is left to see."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.storage import remote
from paddock.storage.buckets import bucket_of
from paddock.storage.store import CHUNK, Source, Store, open_store
from tests.storage.gcs import GCS_PORTS, gcs_at
from tests.storage.servers import (
    BUCKET,
    WEED_PORTS,
    Place,
    Server,
    aws_environ,
    azure_at,
    new_place,
    seaweed_at,
)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    (tmp_path / "large").write_bytes(os.urandom(CHUNK) * 4)
    return tmp_path / "large"


def before_part(store: Store, number: int, happens: Callable[[], object]) -> None:
    """Something happens before an upload reads this part of its file."""
    write = store._backend.write

    def interrupted(key: str, source: Source, size: int) -> None:
        done = 0

        def read(length: int) -> bytes:
            nonlocal done
            if done == number * CHUNK:
                happens()
            data = source(length)
            done += len(data)
            return data

        write(key, read, size)

    store._backend.write = interrupted  # type: ignore[method-assign]


def open_uploads(store: Store, server: Server) -> int:
    """Of this store: others use the bucket too."""
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="testsecret",
        region_name="us-east-1",
    )
    try:
        prefix = store.url.removeprefix(f"s3://{BUCKET}/")
        return len(client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", []))
    finally:
        client.close()


async def refusal(store: Store) -> InfrastructureError:
    with pytest.raises(InfrastructureError) as refused:
        await store.check()
    return refused.value


async def test_wrong_credentials_are_denied_and_not_repeated(s3_server: Server) -> None:
    for environ in (
        aws_environ(s3_server.endpoint, "wrongsecret"),
        {**s3_server.environ, "AWS_ACCESS_KEY_ID": "nobodyknown"},
    ):
        problem = await refusal(open_store(s3_server.url, environ=environ))

        assert isinstance(problem, PermanentRunnerError)
        assert problem.code == "store_denied"
        assert "credentials" in str(problem.hint)
        assert "wrongsecret" not in f"{problem}{problem.hint}"
        assert "nobodyknown" not in f"{problem}{problem.hint}"


async def test_wrong_credentials_are_denied_by_azure(azure_server: Server) -> None:
    environ = {**azure_server.environ, "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}

    problem = await refusal(open_store(azure_server.url, environ=environ))

    assert (problem.code, "d3Jvbmc" in str(problem)) == ("store_denied", False)


@pytest.mark.parametrize("kind", ["moto", "azure"])
async def test_a_missing_bucket_is_named(request: pytest.FixtureRequest, kind: str) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    store = open_store(server.url.replace(BUCKET, "elsewhere"), environ=server.environ)

    assert (await refusal(store)).code == "store_no_bucket"
    for attempt in (store.create("x", b""), anext(store.list())):
        with pytest.raises(PermanentRunnerError, match="elsewhere") as refused:
            await attempt
        assert refused.value.code == "store_no_bucket"


async def test_a_store_that_is_not_there_is_tried_again_later() -> None:
    store = open_store("s3://lake/x", environ=aws_environ("http://127.0.0.1:1"))

    problem = await refusal(store)

    assert isinstance(problem, TransientResourceError)
    assert (problem.code, problem.budget) == ("store_unavailable", "cluster")


async def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(remote.CLIENT, "timeout", timedelta(milliseconds=300))
    monkeypatch.setitem(remote.RETRY, "retry_timeout", timedelta(milliseconds=300))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = aws_environ(f"http://127.0.0.1:{silent.getsockname()[1]}")
        store = open_store("s3://lake/x", environ=environ)

        for attempt in (store.put("x", b""), store.size("x"), store.delete(["x"])):
            with pytest.raises(TransientResourceError, match="no answer in time") as refused:
                await attempt
            assert refused.value.code == "store_unavailable"


@pytest.mark.slow
@pytest.mark.timeout(900)  # one of the servers is built once, by Go
@pytest.mark.parametrize(
    ("start", "ports"),
    [(seaweed_at, len(WEED_PORTS)), (azure_at, 1), (gcs_at, GCS_PORTS)],
    ids=["s3", "azure", "gcs"],
)
async def test_a_server_that_dies_during_an_upload_leaves_nothing_to_see(
    large: Path, start: Callable[[Place], AbstractContextManager[Server]], ports: int
) -> None:
    with new_place("dying", ports) as place:
        with start(place) as server:
            store = open_store(server.url, environ=server.environ)
            before_part(store, 2, server.kill)

            with pytest.raises(TransientResourceError) as refused:
                await store.upload("x", large)
            assert refused.value.code == "store_unavailable"

        with start(place) as server:
            store = open_store(server.url, environ=server.environ)
            assert await store.size("x") is None
            assert [entry async for entry in store.list()] == []
            await store.upload("x", large)
            assert await store.size("x") == 4 * CHUNK


async def test_a_cancelled_upload_is_aborted(s3: Store, s3_server: Server, large: Path) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reading.set()
        go_on.wait()

    before_part(s3, 2, hold)
    upload = asyncio.create_task(s3.upload("x", large))
    await asyncio.to_thread(reading.wait)
    begun = open_uploads(s3, s3_server)

    upload.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await upload

    assert begun == 1
    assert open_uploads(s3, s3_server) == 0
    assert await s3.size("x") is None


async def test_a_file_that_cannot_be_read_to_its_end_aborts_the_upload(
    s3: Store, s3_server: Server, large: Path
) -> None:
    before_part(s3, 1, lambda: os.truncate(large, CHUNK))

    with pytest.raises(TransientResourceError) as refused:
        await s3.upload("x", large)

    assert refused.value.code == "upload_incomplete"
    assert open_uploads(s3, s3_server) == 0
    assert await s3.size("x") is None


async def test_a_read_error_of_the_disk_is_the_disks_own(s3: Store, s3_server: Server, large: Path) -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    before_part(s3, 1, fail)

    with pytest.raises(OSError, match="Input/output error"):
        await s3.upload("x", large)

    assert open_uploads(s3, s3_server) == 0


def test_a_signature_in_a_librarys_error_goes_no_further() -> None:
    environ = {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_SAS_TOKEN": "sig=s3cr3t"}
    backend = remote.RemoteBackend(bucket_of("az://lake/x", environ))
    text = "Error performing PUT https://a.blob/lake/x?sig=s3cr3t - Server returned: 403 Forbidden: <Code>AuthFailed</Code>"

    problem = backend._classified("x", PermissionError(text), writing=True)

    assert "s3cr3t" not in f"{problem}{problem.hint}"
    assert "403 Forbidden, AuthFailed" in str(problem)

"""Uploads by parts to S3: what is said when it refuses, dies or never answers, and as whom it is asked."""

import hashlib
import logging
import os
import socket
import uuid
from pathlib import Path

import pytest

from paddock.config import ConfigError
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.storage import s3_uploads
from paddock.storage.failures import UploadGone, denied
from paddock.storage.parts import etag_of, open_parts
from paddock.storage.s3_uploads import S3Uploads
from paddock.storage.store import Store, open_store
from tests.storage.looking import keys
from tests.storage.servers import BUCKET, WEED_PORTS, Server, aws_environ, new_place, seaweed_at

SIZE = 5 << 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_uploads, "FIRST_PAUSE", 0.001)


async def test_wrong_credentials_are_denied(s3_server: Server) -> None:
    for environ in (
        aws_environ(s3_server.endpoint, "wrongsecret"),
        {**s3_server.environ, "AWS_ACCESS_KEY_ID": "nobodyknown"},
    ):
        parts = open_parts(open_store(s3_server.url, environ=environ))

        for attempt in (parts.begin("a/x"), parts.send("a/x", "id", 1, 0, b""), parts.abort("a")):
            with pytest.raises(PermanentRunnerError) as refused:
                await attempt
            assert refused.value.code == "store_denied"
            said = f"{refused.value}{refused.value.hint}"
            assert "403" in said
            assert "wrongsecret" not in said
            assert "nobodyknown" not in said


async def test_a_missing_bucket_is_named(moto_server: Server) -> None:
    store = open_store(moto_server.url.replace(BUCKET, "elsewhere"), environ=moto_server.environ)

    for attempt in (open_parts(store).begin("a/x"), open_parts(store).abort("a")):
        with pytest.raises(PermanentRunnerError, match="elsewhere") as refused:
            await attempt
        assert refused.value.code == "store_no_bucket"


async def test_a_store_that_is_not_there_is_tried_again_later() -> None:
    parts = open_parts(open_store("s3://lake/x", environ=aws_environ("http://127.0.0.1:1")))

    with pytest.raises(TransientResourceError, match="no connection") as refused:
        await parts.begin("x")

    assert (refused.value.code, refused.value.budget) == ("store_unavailable", "cluster")


async def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_uploads, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(s3_uploads, "TRY_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = aws_environ(f"http://127.0.0.1:{silent.getsockname()[1]}")
        parts = open_parts(open_store("s3://lake/x", environ=environ))

        with pytest.raises(TransientResourceError, match="no answer in time") as refused:
            await parts.send("x", "id", 1, 0, b"x")

    assert refused.value.code == "store_unavailable"


async def test_without_credentials_that_is_what_is_said(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_aws(monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    parts = open_parts(open_store(f"{s3_server.url}?endpoint={s3_server.endpoint}"))

    with pytest.raises(TransientResourceError, match="no credentials in the environment"):
        await parts.begin("x")


async def test_our_own_environment_is_used_and_the_files_of_the_home_folder_are_not(
    s3_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_aws(monkeypatch)
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:1\nregion = mars\n")
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "missing")
    store = open_store(f"{s3_server.url}/{uuid.uuid4()}")

    await open_parts(store).begin("a/x")

    assert await keys(store, unfinished=True) == ["a/x"]
    await store.delete_below("a")


async def test_an_endpoint_in_the_url_is_used(s3_server: Server) -> None:
    environ = {**s3_server.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    parts = open_parts(open_store(f"{s3_server.url}/{uuid.uuid4()}?endpoint={s3_server.endpoint}", environ=environ))

    await parts.begin("a/x")

    assert await parts.abort("a") == 1


async def test_an_endpoint_that_is_none_is_refused() -> None:
    environ = {**aws_environ("http://127.0.0.1:1"), "AWS_ENDPOINT_URL": "not an address"}

    with pytest.raises(ConfigError, match="endpoint"):
        await open_parts(open_store("s3://lake/x", environ=environ)).begin("x")


@pytest.mark.slow
async def test_an_upload_goes_on_after_its_server_died(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_place("weed", len(WEED_PORTS)) as place:
        with seaweed_at(place) as server:
            parts = open_parts(open_store(server.url, environ=server.environ))
            upload = await parts.begin("a/x")
            first = await parts.send("a/x", upload, 1, 0, b"1" * SIZE)
            server.kill()
            with pytest.raises(TransientResourceError) as refused:
                await parts.send("a/x", upload, 2, SIZE, b"2")
            assert refused.value.code == "store_unavailable"

        with seaweed_at(place) as server:
            store = open_store(server.url, environ=server.environ)
            assert await keys(store) == []
            second = await parts.send("a/x", upload, 2, SIZE, b"2")
            whole = await parts.complete("a/x", upload, [first, second], SIZE + 1)
            assert await store.read("a/x") == b"1" * SIZE + b"2"
            assert whole.size == SIZE + 1


async def test_what_arrives_is_what_was_sent(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = open_parts(s3)
    upload = await parts.begin("a/x")

    class Flawed:
        def __init__(self, data: bytes, usedforsecurity: bool) -> None:
            pass

        def digest(self) -> bytes:
            return b"0" * 16

    monkeypatch.setattr(hashlib, "md5", Flawed)
    with pytest.raises(TransientResourceError, match="BadDigest"):
        await parts.send("a/x", upload, 1, 0, b"damaged")
    monkeypatch.undo()
    assert await parts.abort("a") == 1


async def test_another_content_of_the_same_size_is_not_taken_for_ours(s3: Store) -> None:
    parts = open_parts(s3)
    lost, upload = await parts.begin("a/x"), await parts.begin("a/x")
    await parts.complete("a/x", upload, [await parts.send("a/x", upload, 1, 0, b"theirs")], 6)

    with pytest.raises(UploadGone):
        await parts.complete("a/x", lost, [etag_of(b"not it")], 6)


async def test_many_uploads_are_listed_by_pages(s3: Store) -> None:
    parts = open_parts(s3)
    for number in range(5):
        await parts.begin(f"a/{number}")
    uploads = S3Uploads(s3.backend.bucket)  # type: ignore[attr-defined]
    uploads._client().meta.events.register(
        "provide-client-params.s3.ListMultipartUploads", lambda params, **_: {**params, "MaxUploads": 2}
    )

    assert sorted(upload.key for upload in uploads.open("a/")) == [f"a/{number}" for number in range(5)]
    assert await parts.abort("a") == 5


async def test_who_may_not_list_uploads_still_deletes(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: S3Uploads, prefix: str) -> None:
        raise denied(s3.url, "403 Forbidden, AccessDenied")

    assert not await s3.needs_lifecycle_rule()
    monkeypatch.setattr(S3Uploads, "open", refused)
    await s3.put("a/x", b"x")

    await s3.delete_unfinished(["a/x"])
    assert (await s3.delete_below("a")).count == 1
    assert await keys(s3, unfinished=True) == []
    assert await s3.needs_lifecycle_rule()


async def test_uploads_of_some_keys_are_removed_and_no_others(s3: Store) -> None:
    parts = open_parts(s3)
    for key in ("a/x", "a/xy", "a/b/z", "b/x"):
        await parts.begin(key)

    await s3.delete_unfinished(["a/x", "a/b/z", "a/missing"])
    await s3.delete_unfinished([])

    assert await keys(s3, unfinished=True) == ["a/xy", "b/x"]
    assert await parts.abort("a") + await parts.abort("b") == 2


async def test_no_signature_is_logged(s3: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    await open_parts(s3).abort("a")

    assert "Signature" not in caplog.text


def forget_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)

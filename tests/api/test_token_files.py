"""Tokens out of a folder: good as long as their file is there, and never given up by who only sees an older state of it."""

from pathlib import Path

import asyncpg
import pytest

from paddock.api.token_files import ACTOR, TokenFiles, TokenFilesError, read_token_files
from paddock.api.tokens import Tokens, new_secret
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.serve import ServeError, serve
from tests.conftest import DatabaseClock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "..data").mkdir()  # as a mounted Secret has one
    return tmp_path


@pytest.fixture
def tokens(core: Core, clock: DatabaseClock) -> Tokens:
    return Tokens(core.db)


def put(folder: Path, file: str, secret: str | None = None) -> str:
    secret = secret or new_secret()
    (folder / file).write_text(secret + "\n")
    return secret


async def role_of(tokens: Tokens, secret: str) -> str | None:
    tokens.forget()
    caller = await tokens.by_secret(secret)
    return None if caller is None else caller.role


async def test_a_file_is_a_token_of_its_name_and_role(folder: Path, tokens: Tokens) -> None:
    secrets = {role: put(folder, f"the.{role}.{role}") for role in ("worker", "analyst", "ops", "admin")}
    await TokenFiles(folder, tokens).sync()
    for role, secret in secrets.items():
        caller = await tokens.by_secret(secret)
        assert caller is not None
        assert (caller.name, caller.role, caller.kinds) == (f"the.{role}", role, None)
        assert caller.may_use("engines", "warehouse") is (role != "analyst"), "an analyst's are granted by name"


async def test_the_one_before_is_good_for_ten_minutes(folder: Path, tokens: Tokens, clock: DatabaseClock) -> None:
    files = TokenFiles(folder, tokens)
    before = put(folder, "export-worker.worker")
    await files.sync()
    await clock.advance(minutes=60)
    after = put(folder, "export-worker.worker")
    await files.sync()
    await clock.advance(minutes=9)
    await files.sync()
    assert (await role_of(tokens, before), await role_of(tokens, after)) == ("worker", "worker")
    await clock.advance(minutes=2)
    assert (await role_of(tokens, before), await role_of(tokens, after)) == (None, "worker")
    put(folder, "export-worker.worker", before)
    await files.sync()
    assert await role_of(tokens, before) == "worker", "it was put back"


async def test_what_is_gone_is_revoked_and_good_again_when_it_is_back(folder: Path, tokens: Tokens) -> None:
    files = TokenFiles(folder, tokens)
    kept, gone = put(folder, "root.admin"), put(folder, "ann.ops")
    await files.sync()
    (folder / "ann.ops").unlink()
    await files.sync()
    assert (await role_of(tokens, kept), await role_of(tokens, gone)) == ("admin", None)
    put(folder, "ann.ops", gone)
    await files.sync()
    assert await role_of(tokens, gone) == "ops"
    (folder / "root.admin").unlink()
    await files.sync()
    assert await role_of(tokens, kept) == "admin", "the last one stays, or nobody could make another"


async def test_what_a_person_revoked_stays_revoked(
    folder: Path, tokens: Tokens, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    secret = put(folder, "ann.ops")
    await TokenFiles(folder, tokens).sync()
    await tokens.revoke(await connection.fetchval("SELECT id FROM tokens"), actor="root")
    await TokenFiles(folder, tokens).sync()
    assert await role_of(tokens, secret) is None


async def test_a_control_plane_that_sees_an_older_folder_gives_nothing_up(
    tmp_path: Path, tokens: Tokens, clock: DatabaseClock
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for each in (old, new):
        each.mkdir()
    before = put(old, "w.worker")
    late, early = TokenFiles(old, tokens), TokenFiles(new, tokens)
    await late.sync()
    await clock.advance(minutes=1)
    after, added = put(new, "w.worker"), put(new, "ann.ops")
    for files in (early, late, early, late):
        await files.sync()
    await clock.advance(minutes=2)
    assert [await role_of(tokens, one) for one in (before, after, added)] == ["worker", "worker", "ops"]
    put(old, "w.worker", after)
    put(old, "ann.ops", added)
    await late.sync()
    await early.sync()
    await clock.advance(minutes=11)
    assert [await role_of(tokens, one) for one in (before, after, added)] == [None, "worker", "ops"]


async def test_what_was_gone_before_this_start_is_revoked_once_everybody_must_know(
    folder: Path, tokens: Tokens, clock: DatabaseClock
) -> None:
    put(folder, "root.admin")
    gone = put(folder, "ann.ops")
    await TokenFiles(folder, tokens).sync()
    (folder / "ann.ops").unlink()
    await TokenFiles(folder, tokens).sync()
    assert await role_of(tokens, gone) == "ops", "it may be younger than what this one sees"
    await clock.advance(minutes=11)
    await TokenFiles(folder, tokens).sync()
    assert await role_of(tokens, gone) is None


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["ann"], "has no role: name it like ann.worker"),
        (["ann.boss"], "has no role"),
        ([".ops", "ann.ops", "ann.admin"], "two tokens for ann, ann.admin and ann.ops"),
    ],
)
async def test_a_wrong_file_is_a_sentence_at_the_start(folder: Path, files: list[str], said: str) -> None:
    secrets = [put(folder, file) for file in files]
    with pytest.raises(TokenFilesError, match=said) as raised:
        await serve(Config(database_url="postgresql://nobody@localhost:1/none", port=0, tokens_dir=folder))  # type: ignore[arg-type]
    assert not any(secret in str(raised.value) for secret in secrets)


def test_other_wrong_files_are_sentences_too(folder: Path) -> None:
    put(folder, "ann.ops", "hunter2hunter2")
    with pytest.raises(TokenFilesError, match="holds no token") as raised:
        read_token_files(folder)
    assert "hunter2" not in str(raised.value)
    put(folder, "bob.ops", put(folder, "ann.ops"))
    with pytest.raises(TokenFilesError, match=r"ann\.ops and bob\.ops .* hold the same token"):
        read_token_files(folder)
    with pytest.raises(TokenFilesError, match="cannot be read"):
        read_token_files(folder / "nowhere")


async def test_a_scaled_kind_that_is_none_is_a_sentence() -> None:
    config = Config(database_url="postgresql://nobody@localhost:1/none", port=0, scaled_kinds=("exprot",))  # type: ignore[arg-type]
    with pytest.raises(ServeError, match="PADDOCK_SCALED_KINDS names exprot"):
        await serve(config)


async def test_who_made_them_is_told(folder: Path, tokens: Tokens) -> None:
    put(folder, "ann.ops")
    await TokenFiles(folder, tokens).sync()
    [shown] = await tokens.page(None, 10)
    assert shown["created_by"] == ACTOR

"""Passwords, tokens and certificates, on a real Trino."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from paddock.engines.settings import TrinoSettings
from paddock.jobs.errors import PermanentRunnerError
from tests.trino.asking import Noting, query_info, read
from tests.trino.configuring import JWT_KEY, PASSWORD, write_certificate
from tests.trino.conftest import MakeEngine
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def token(user: str) -> str:
    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    text = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + b"." + part(json.dumps({"sub": user}).encode())
    return (text + b"." + part(hmac.digest(base64.b64decode(JWT_KEY), text, hashlib.sha256))).decode()


async def test_a_password_over_tls_with_an_authority_of_our_own(
    trino: TrinoServer, engine_of: MakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRINO_PASSWORD", PASSWORD)
    # What other programs are told to trust is no matter of ours.
    write_certificate(tmp_path / "server.pem", tmp_path / "other.pem")
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(tmp_path / "other.pem"))
    engine = engine_of(
        url=trino.https_url,
        ca_file=trino.ca_file,
        password_env="TRINO_PASSWORD",
        session={
            "spooling_inlining_enabled": "false",
            "spooling_initial_segment_size": "16kB",
            "spooling_max_segment_size": "16kB",
        },
    )
    noting = Noting()

    assert (await read(engine, "SELECT * FROM orders", noting)).num_rows == 15000
    assert (await query_info(trino, noting.handle["query_id"]))["session"]["principal"] == "lab"
    await engine.cancel(noting.handle)


async def test_a_token_from_a_file_that_is_read_each_time(
    trino: TrinoServer, engine_of: MakeEngine, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("stale")
    engine = engine_of(url=trino.https_url, ca_file=trino.ca_file, token_file=file)
    with pytest.raises(PermanentRunnerError) as told:
        await read(engine, "SELECT 1")
    assert told.value.code == "engine_login_refused"

    file.write_text(token("lab") + "\n")

    assert (await read(engine, "SELECT 1")).num_rows == 1


async def test_a_wrong_password(trino: TrinoServer, engine_of: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINO_PASSWORD", "wrong-password")
    engine = engine_of(url=trino.https_url, ca_file=trino.ca_file, password_env="TRINO_PASSWORD")

    with pytest.raises(PermanentRunnerError) as told:
        await read(engine, "SELECT 1")

    assert told.value.code == "engine_login_refused"
    assert "wrong-password" not in str(told.value)


async def test_a_certificate_that_nobody_vouches_for(trino: TrinoServer, engine_of: MakeEngine) -> None:
    with pytest.raises(PermanentRunnerError) as told:
        await read(engine_of(url=trino.https_url), "SELECT 1")

    assert told.value.code == "engine_certificate"
    assert "ca_file" in str(told.value.hint)


async def test_queries_run_as_their_owner_where_that_is_configured(
    trino: TrinoServer, engine_of: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINO_PASSWORD", PASSWORD)
    settings = {"url": trino.https_url, "ca_file": trino.ca_file, "password_env": "TRINO_PASSWORD", "impersonate": True}
    noting = Noting()

    await read(engine_of(**settings, user="admin"), "SELECT 1", noting, owner="alice")

    session = (await query_info(trino, noting.handle["query_id"]))["session"]
    assert (session["user"], session["principal"]) == ("alice", "admin")
    with pytest.raises(PermanentRunnerError) as told:
        await read(engine_of(**settings, user="lab"), "SELECT 1", owner="alice")
    assert "impersonate" in str(told.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://trino.example.com", "password_env": "X"},
        {"url": "https://a", "other_urls": ["http://b"], "token_env": "X"},
        {"url": "ftp://trino"},
        {"url": "https://me:secret@trino"},
        {"url": "trino:8080"},
    ],
)
def test_addresses_that_would_give_a_secret_away(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as told:
        TrinoSettings.model_validate(settings)
    assert "secret@" not in str(told.value)

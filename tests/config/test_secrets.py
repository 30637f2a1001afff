import subprocess
import sys
from pathlib import Path

import pytest

from paddock.config import ConfigError, known_settings, load

SECRETS = {"database_url", "token", "metrics_token", "starburst_password"}
SET = {
    "PADDOCK_DATABASE_URL": "postgresql://paddock:hunter2@db/paddock",
    "PADDOCK_TOKEN": "pdk_hunter2",
    "PADDOCK_METRICS_TOKEN": "hunter2",
    "STARBURST_PASSWORD": "hunter2",
    "STARBURST_URL": "https://svc:hunter2@starburst",
}


def test_no_secret_is_explained_or_printed(tmp_path: Path) -> None:
    config = load(SET, tmp_path)

    shown = {name: (text, source) for name, text, source in config.explain()}

    assert list(shown) == list(known_settings())
    for name in SECRETS:
        assert shown[name][0] == "********"
    assert shown["starburst_url"] == ("https://***@starburst", "STARBURST_URL")
    assert "hunter2" not in f"{shown} {config!r} {config}"


def test_the_list_of_secrets_is_the_secret_settings() -> None:
    assert {name for name, setting in known_settings().items() if setting.secret} == SECRETS


def test_explain_shows_values_as_one_would_write_them(tmp_path: Path) -> None:
    config = load({"PADDOCK_KIND_CONCURRENCY": "a=1,b=2", "PADDOCK_ALLOWED_HOSTS": "x,y"}, tmp_path)

    shown = {name: text for name, text, _ in config.explain()}

    assert shown["kind_concurrency"] == "a=1,b=2"
    assert shown["allowed_hosts"] == "x,y"
    assert shown["webhook_allow_private"] == "false"
    assert shown["beat_seconds"] == "10"
    assert shown["internal_port"] == "-"


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pdk_first\n")
    config = load({"PADDOCK_TOKEN_FILE": "token"}, tmp_path)

    first = config.bearer_token()
    (tmp_path / "token").write_text("pdk_second\n")
    second = config.bearer_token()

    assert first is not None
    assert second is not None
    assert (first.get_secret_value(), second.get_secret_value()) == ("pdk_first", "pdk_second")


def test_a_token_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    config = load({"PADDOCK_TOKEN_FILE": "token"}, tmp_path)

    with pytest.raises(ConfigError, match=r"PADDOCK_TOKEN_FILE names .*token, which cannot be read"):
        config.bearer_token()
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match=r"PADDOCK_TOKEN_FILE names .*token, which is empty"):
        config.bearer_token()


def test_importing_the_configuration_brings_nothing_heavy() -> None:
    heavy = "{'pydantic_settings', 'structlog', 'prometheus_client', 'asyncio', 'rich'}"
    code = f"import paddock.config, sys; print(sorted({heavy} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"

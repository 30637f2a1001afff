"""What `paddock.toml` may not say about sources and hooks: one sentence that names it, at the start."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from paddock.config import Config, ConfigError, load
from paddock.ingest.source_settings import runtime_of, sources_from
from paddock.work import work

DIGEST = f"registry.example/orders@sha256:{'a' * 64}"


def configured(folder: Path, source: dict[str, Any], hook: dict[str, Any] | None = None, **more: str) -> Config:
    tables = {"orders": {"command": ["fetch"], **source}}
    hooks = {"check": {"command": ["check"]} if hook is None else hook}
    environ = {"PADDOCK_INGEST_SOURCES": json.dumps(tables), "PADDOCK_INGEST_HOOKS": json.dumps(hooks), **more}
    return load(environ, folder)


ON_CLUSTER = {"runtime": "kubernetes", "image": DIGEST, "hooks": ["check"]}


@pytest.mark.parametrize(
    ("source", "hook", "words"),
    [
        pytest.param({"command": []}, None, "it needs a command, or an image", id="neither command nor image"),
        pytest.param({"image": "orders:latest"}, None, "name an image by its digest", id="image by tag"),
        pytest.param({"hooks": ["gone"]}, None, "names the hook 'gone', which is not in", id="unknown hook"),
        pytest.param({"hooks": ["check", "check"]}, None, "name each hook once", id="hook twice"),
        pytest.param(
            {"hooks": ["check"]},
            {"command": ["check"], "protocol": "files"},
            r"ingest\.hooks\.check\.protocol",
            id="protocol of a hook",
        ),
        pytest.param({"protocol": "csv"}, None, r"ingest\.sources\.orders\.protocol", id="unknown protocol"),
        pytest.param({"colour": 1}, None, r"ingest\.sources\.orders\.colour", id="unknown key"),
        pytest.param({"timeout": "soon"}, None, r"ingest\.sources\.orders\.timeout", id="no duration"),
        pytest.param({"memory_max": 2**24}, None, "memory_max should not be less", id="least above most memory"),
        pytest.param({"secrets": {"A": {"env": "A", "file": "/a"}}}, None, "name env, or file", id="two places"),
        pytest.param({"secrets": {"A": {"secret": "a"}}}, None, "secret and key", id="a Secret without a key"),
        pytest.param(
            {"secrets": {"A": {"secret": "a", "key": "b"}}},
            None,
            r"secrets\.A should name env or file",
            id="Secret here",
        ),
        pytest.param({"runtime": "kubernetes"}, None, "orders needs an image", id="no image on Kubernetes"),
        pytest.param(ON_CLUSTER, None, r"ingest\.hooks\.check needs an image", id="a hook without an image"),
        pytest.param(
            {**ON_CLUSTER, "hooks": [], "secrets": {"A": {"env": "A"}}},
            None,
            r"secrets\.A should name secret and key",
            id="env on Kubernetes",
        ),
        pytest.param(
            {**ON_CLUSTER, "hooks": [], "command": [], "protocol": "singer"},
            None,
            "needs a command",
            id="a tap's command",
        ),
        pytest.param({"image": DIGEST, "command": []}, None, "orders needs a command", id="only an image here"),
    ],
)
def test_a_bad_entry_is_named(source: dict[str, Any], hook: dict[str, Any] | None, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        sources_from(configured(tmp_path, source, hook))


def test_where_steps_run_is_the_installations_choice_unless_the_source_says_it(tmp_path: Path) -> None:
    here = configured(tmp_path, {"runtime": "local"}, PADDOCK_RUNTIME="kubernetes")
    assert runtime_of(here, sources_from(here)["orders"]) == "local"
    there = configured(tmp_path, {"image": DIGEST}, PADDOCK_RUNTIME="kubernetes")
    assert runtime_of(there, sources_from(there)["orders"]) == "kubernetes"
    with pytest.raises(ConfigError, match="orders needs an image"):
        sources_from(configured(tmp_path, {}, PADDOCK_RUNTIME="kubernetes"))


@pytest.mark.parametrize("where", ["source", "hook"])
async def test_a_worker_without_a_secret_ends_at_its_start(where: str, tmp_path: Path) -> None:
    secrets = {"secrets": {"API_TOKEN": {"env": "NOBODY_SET_THIS"}}}
    config = configured(
        tmp_path,
        {"hooks": ["check"], **(secrets if where == "source" else {})},
        {"command": ["check"], **(secrets if where == "hook" else {})},
    ).model_copy(update={"server": "http://127.0.0.1:1", "token": SecretStr("never-sent")})
    with pytest.raises(ConfigError, match=r"secrets\.API_TOKEN is not there: .* the variable NOBODY_SET_THIS"):
        await work(config)

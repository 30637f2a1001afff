import logging
from pathlib import Path

import pytest

from paddock.config import ConfigError, load
from paddock.exports.settings import ExportSettings


def refusal(environ: dict[str, str], cwd: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load(environ, cwd)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    assert refused.value.code == "bad_config"
    return sentence


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("PADDOCK_PROT", "PADDOCK_PORT"),
        ("PADDOCK_DATABSE_URL", "PADDOCK_DATABASE_URL"),
        ("PADDOCK_port", "PADDOCK_PORT"),
        ("PADDOCK_BEAT", "PADDOCK_BEAT_SECONDS"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_one(tmp_path: Path, key: str, suggestion: str) -> None:
    sentence = refusal({key: "s3cr3t-value"}, tmp_path)

    assert sentence.startswith(f"{key} is not a setting")
    assert f"did you mean {suggestion}?" in sentence
    assert "s3cr3t-value" not in sentence


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PADDOCK_PORT", "http"),
        ("PADDOCK_PORT", "65536"),
        ("PADDOCK_PORT", "-1"),
        ("PADDOCK_PORT", "80.5"),
        ("PADDOCK_WORKER_PORT", "tcp"),
        ("PADDOCK_BEAT_SECONDS", "0"),
        ("PADDOCK_BEAT_SECONDS", "-3"),
        ("PADDOCK_BEAT_SECONDS", "nan"),
        ("PADDOCK_LEASE_SECONDS", "inf"),
        ("PADDOCK_RESCUE_SECONDS", "1s"),
        ("PADDOCK_CONCURRENCY", "0"),
        ("PADDOCK_HISTORY_DAYS", "0"),
        ("PADDOCK_MAX_BODY_BYTES", "1MiB"),
        ("PADDOCK_LOG_LEVEL", "loud"),
        ("PADDOCK_LOG_FORMAT", "xml"),
        ("PADDOCK_WEBHOOK_ALLOW_PRIVATE", "maybe"),
        ("PADDOCK_SERVER", "control-plane:8080"),
        ("PADDOCK_PUBLIC_URL", "ftp://paddock"),
        ("PADDOCK_TRUSTED_PROXIES", "proxy.corp"),
        ("PADDOCK_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("PADDOCK_OTEL_ENDPOINT", "http://"),
        ("PADDOCK_KIND_CONCURRENCY", "export"),
        ("PADDOCK_KIND_CONCURRENCY", "export=0"),
        ("PADDOCK_KIND_CONCURRENCY", "{"),
        ("PADDOCK_WORKER_KINDS", "[1, 2"),
        ("PADDOCK_WORKER_ID", "x" * 254),
        ("LOG_LEVEL", "loud"),
        ("GRAPH_OLAP_PORT", "x"),
    ],
)
def test_a_bad_value_is_named_as_it_was_set(tmp_path: Path, key: str, value: str) -> None:
    sentence = refusal({key: value}, tmp_path)

    assert sentence.startswith(f"{key} ({value[:200]}) has a bad value")


@pytest.mark.parametrize("value", ["mysql://u:hunter2@host/db", "hunter2"])
def test_a_bad_secret_is_not_shown(tmp_path: Path, value: str) -> None:
    sentence = refusal({"PADDOCK_DATABASE_URL": value}, tmp_path)

    assert sentence == "PADDOCK_DATABASE_URL has a bad value: it should be a URL that begins with postgresql://."


def test_a_password_inside_another_url_is_not_shown(tmp_path: Path) -> None:
    assert "hunter2" not in refusal({"PADDOCK_SERVER": "ftp://u:hunter2@host"}, tmp_path)


def test_one_lost_beat_must_not_end_a_session(tmp_path: Path) -> None:
    sentence = refusal({"PADDOCK_LEASE_SECONDS": "29"}, tmp_path)

    assert sentence.startswith("PADDOCK_LEASE_SECONDS (29) must be at least three times beat_seconds, by default (10)")
    assert load({"PADDOCK_LEASE_SECONDS": "30"}, tmp_path).lease_seconds == 30


def test_two_listeners_cannot_share_a_port(tmp_path: Path) -> None:
    sentence = refusal({"PADDOCK_METRICS_PORT": "8080"}, tmp_path)

    assert sentence.startswith("PADDOCK_METRICS_PORT (8080) must differ from port, by default (8080)")
    assert load({"PADDOCK_PORT": "0", "PADDOCK_METRICS_PORT": "0"}, tmp_path).metrics_port == 0


def test_an_unknown_older_variable_warns_and_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="paddock.config"):
        load({"GRAPH_OLAP_PROT": "s3cr3t-value", "GRAPH_OLAP_ZZZZ": "1"}, tmp_path)

    assert [record.getMessage() for record in caplog.records] == [
        "GRAPH_OLAP_PROT is not a setting and is ignored; did you mean PADDOCK_PORT?",
        "GRAPH_OLAP_ZZZZ is not a setting and is ignored.",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PADDOCK_SERVICE_HOST", "10.0.0.1"),
        ("PADDOCK_SERVICE_PORT", "8080"),
        ("PADDOCK_SERVICE_PORT_HTTP", "8080"),
        ("PADDOCK_PORT", "tcp://10.0.0.1:8080"),
        ("PADDOCK_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("PADDOCK_PORT_8080_TCP_PROTO", "tcp"),
        ("PADDOCK_PORT_8080_TCP_PORT", "8080"),
        ("PADDOCK_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("PADDOCK_WORKER_PORT", "tcp://10.0.0.1:8080"),
        ("PADDOCK_WORKER_SERVICE_HOST", "10.0.0.1"),
        ("PADDOCK_POSTGRES_PORT_5432_TCP", "tcp://10.0.0.1:5432"),
        ("GRAPH_OLAP_PORT", "tcp://10.0.0.1:8080"),
        ("GRAPH_OLAP_SERVICE_HOST", "10.0.0.1"),
    ],
)
def test_what_kubernetes_adds_for_a_service_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    config = load({key: value}, tmp_path)

    assert (config.port, config.worker_port) == (8080, 8080)
    assert not caplog.records


@pytest.mark.parametrize("key", ["PADDOCK_PORTS", "PADDOCK_SERVICE", "PADDOCK_EXTRA_PORT"])
def test_what_only_looks_like_a_service_link_is_refused(tmp_path: Path, key: str) -> None:
    assert key in refusal({key: "1"}, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "prot in {path} is not a setting; did you mean port?"),
        ("[log]\nlevle = 1", "log.levle in {path} is not a setting; did you mean log.level?"),
        ("[zzzz]\nx = 1", "zzzz in {path} is not a setting."),
        ("port = true", "port in {path} (true) has a bad value: it should be a number, not true or false."),
        ("port = ", "{path} is not valid TOML: Invalid value (at end of document)."),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "paddock.toml"
    path.write_text(text)

    assert refusal({}, tmp_path) == said.format(path=path)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.toml"

    assert refusal({"PADDOCK_CONFIG": str(path)}, tmp_path) == f"PADDOCK_CONFIG names {path}, which does not exist."
    assert "cannot be read" in refusal({"PADDOCK_CONFIG": str(tmp_path)}, tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_bytes(b"\xff\xfe")

    assert refusal({}, tmp_path).endswith("is not UTF-8 text.")


def test_an_unknown_argument_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prot is not a setting; did you mean port\?"):
        load({}, tmp_path, {"prot": 1})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s3://lake", "s3://lake"),
        ("s3://lake", "s3://lake/x/y"),
        ("s3://lake/x/y/", "s3://lake//x"),
        ("file:///srv/la%20ke", "/srv/la ke/x"),
        ("lake", "here/../lake/x"),
        ("lake/x", "link"),
    ],
)
def test_a_destination_inside_another_is_refused(tmp_path: Path, first: str, second: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to("lake")
    (tmp_path / "paddock.toml").write_text(f'[destinations.a]\nurl = "{first}"\n[destinations.b]\nurl = "{second}"\n')

    assert "destinations.b and destinations.a must be places of their own" in refusal({}, tmp_path)


def test_a_destination_around_the_object_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text('object_store = "all/objects"\n[destinations.a]\nurl = "all"\n')

    assert "object_store" in refusal({}, tmp_path)


def test_destinations_side_by_side_are_fine(tmp_path: Path) -> None:
    urls = ["s3://lake/a", "s3://lake/ab", "s3://other/a", "gs://lake/a", "s3://lake/a?endpoint=http://x", "/srv/a"]
    tables = [f'[destinations.d{number}]\nurl = "{url}"\n' for number, url in enumerate(urls)]
    (tmp_path / "paddock.toml").write_text("".join(tables))

    assert len(load({}, tmp_path).of(ExportSettings).destinations) == len(urls)

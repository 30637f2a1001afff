from pathlib import Path

import pytest

from paddock.config import Config, ConfigError, known_settings, load, tables_of
from paddock.config.names import OLDER_NAMES, TABLES
from paddock.exports.settings import ExportSettings
from paddock.jobs import durations
from paddock.storage.store import open_store


def test_argument_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text("port = 1001\nconcurrency = 2\nhistory_days = 3\n")
    environ = {"PADDOCK_PORT": "1002", "PADDOCK_CONCURRENCY": "4"}

    config = load(environ, tmp_path, {"port": 1003})

    assert (config.port, config.source("port")) == (1003, "argument")
    assert (config.concurrency, config.source("concurrency")) == (4, "PADDOCK_CONCURRENCY")
    assert (config.history_days, config.source("history_days")) == (3, str(tmp_path / "paddock.toml"))
    assert (config.beat_seconds, config.source("beat_seconds")) == (10, "default")


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    assert load({"PADDOCK_PORT": "1002"}, tmp_path, {"port": None}).port == 1002


def test_a_blank_value_counts_as_not_given(tmp_path: Path) -> None:
    config = load({"PADDOCK_PORT": "", "PADDOCK_TOKEN": " \n"}, tmp_path)

    assert config.port == 8080
    assert config.token is None


def test_the_config_file_can_be_elsewhere_and_its_folders_start_there(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "p.toml").write_text('data = "here"\ntoken_file = "t"\n')

    config = load({"PADDOCK_CONFIG": "etc/p.toml"}, tmp_path)

    assert config.data == tmp_path / "etc" / "here"
    assert config.token_file == tmp_path / "etc" / "t"
    assert config.object_store == (tmp_path / "etc" / "here" / "objects").as_uri()


def test_by_default_everything_is_kept_in_the_data_folder(tmp_path: Path) -> None:
    config = load({}, tmp_path)

    assert config.data == tmp_path / "paddock-data"
    assert config.object_store == (tmp_path / "paddock-data" / "objects").as_uri()
    assert config.source("data") == config.source("object_store") == "default"


def test_an_object_store_is_a_url_or_a_folder(tmp_path: Path) -> None:
    assert load({"PADDOCK_OBJECT_STORE": "s3://bucket/x"}, tmp_path).object_store == "s3://bucket/x"
    assert load({"PADDOCK_OBJECT_STORE": "files"}, tmp_path).object_store == (tmp_path / "files").as_uri()


def test_there_may_be_no_object_store(tmp_path: Path) -> None:
    config = load({"PADDOCK_OBJECT_STORE": "none"}, tmp_path)

    assert (config.object_store, config.has_store) == ("none", False)
    assert load({}, tmp_path).has_store
    with pytest.raises(ConfigError, match="PADDOCK_OBJECT_STORE"):
        open_store(config.object_store)


@pytest.mark.parametrize(
    "text",
    [
        'log_level = "debug"\nworker_kinds = ["export"]\nkind_concurrency = {export = 4}\n',
        '[log]\nlevel = "debug"\n[worker]\nkinds = ["export"]\n[worker.kind_concurrency]\nexport = 4\n',
        '[log]\nlog_level = "debug"\n[worker]\nworker_kinds = ["export"]\n[kind_concurrency]\nexport = 4\n',
    ],
)
def test_settings_may_stand_flat_or_in_their_table(tmp_path: Path, text: str) -> None:
    (tmp_path / "paddock.toml").write_text(text)

    config = load({}, tmp_path)

    assert config.log_level == "debug"
    assert config.worker_kinds == ("export",)
    assert config.kind_concurrency == {"export": 4}


def test_a_setting_given_twice_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text('log_level = "debug"\n[log]\nlevel = "info"\n')

    with pytest.raises(ConfigError, match=r"log\.level in .* and log_level in .* set the same thing"):
        load({}, tmp_path)


def test_every_setting_has_one_table() -> None:
    known = known_settings()
    tables = tables_of(known.values())

    assert sorted(
        [
            *(name for names in tables.values() for name in names),
            *("engines", "destinations", "catalogs", "runtime_kubernetes"),
        ]
    ) == sorted(known)
    assert all(known[name].table == table for table, names in tables.items() for name in names)
    assert not tables.keys() & known.keys()
    assert {name for names in TABLES.values() for name in names} <= Config.model_fields.keys()


def test_the_worker_is_called_after_its_host(tmp_path: Path) -> None:
    named = load({"HOSTNAME": "export-worker-abc12"}, tmp_path)
    told = load({"HOSTNAME": "export-worker-abc12", "PADDOCK_WORKER_ID": "me"}, tmp_path)

    assert (named.worker_id, named.source("worker_id")) == ("export-worker-abc12", "HOSTNAME")
    assert told.worker_id == "me"
    assert load({}, tmp_path).worker_id.startswith("worker-")


@pytest.mark.parametrize(
    ("older", "value", "setting", "expected"),
    [
        ("CONTROL_PLANE_URL", "http://control-plane:8080/", "server", "http://control-plane:8080"),
        ("LOG_LEVEL", "WARN", "log_level", "warning"),
        ("POLL_INTERVAL_SECONDS", "7", "poll_interval_seconds", 7),
        ("EMPTY_POLL_BACKOFF", "11", "empty_poll_backoff", 11),
        ("STARBURST_URL", "https://starburst:443", "starburst_url", "https://starburst:443"),
        ("STARBURST_USER", "svc", "starburst_user", "svc"),
        ("STARBURST_CLIENT_TAGS", "a, b", "starburst_client_tags", ("a", "b")),
        ("STARBURST_SOURCE", "exports", "starburst_source", "exports"),
        ("EXPORT_BUCKET", "acme-exports", "export_bucket", "acme-exports"),
        ("GRAPH_OLAP_LOG_LEVEL", "debug", "log_level", "debug"),
        ("GRAPH_OLAP_CONTROL_PLANE_URL", "http://cp", "server", "http://cp"),
    ],
)
def test_older_names_still_work(tmp_path: Path, older: str, value: str, setting: str, expected: object) -> None:
    config = load({older: value}, tmp_path)

    assert getattr(config, setting) == expected
    assert config.source(setting) == older


@pytest.mark.parametrize(
    ("older", "value", "setting", "expected"),
    [
        ("DIRECT_EXPORT", "false", "direct_export", False),
        ("GCP_PROJECT", "acme", "gcp_project", "acme"),
        ("GRAPH_OLAP_DIRECT_EXPORT", "false", "direct_export", False),
    ],
)
def test_older_names_of_a_capability_still_work(
    tmp_path: Path, older: str, value: str, setting: str, expected: object
) -> None:
    config = load({older: value}, tmp_path)

    assert getattr(config.of(ExportSettings), setting) == expected
    assert config.source(setting) == older


def test_the_older_password_is_a_secret(tmp_path: Path) -> None:
    password = load({"STARBURST_PASSWORD": "hunter2"}, tmp_path).starburst_password

    assert password is not None
    assert password.get_secret_value() == "hunter2"


def test_every_older_name_leads_to_a_setting() -> None:
    assert set(OLDER_NAMES.values()) <= Config.model_fields.keys()


def test_our_names_beat_older_ones_and_older_ones_beat_the_file(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text('log_level = "critical"\n')
    environ = {"LOG_LEVEL": "error"}
    assert load(environ, tmp_path).log_level == "error"
    environ["GRAPH_OLAP_LOG_LEVEL"] = "warning"
    assert load(environ, tmp_path).log_level == "warning"
    environ["PADDOCK_LOG_LEVEL"] = "debug"
    assert load(environ, tmp_path).log_level == "debug"


def test_durations_are_durations() -> None:
    config = Config(beat_seconds=2.5, history_days=2)

    assert config.beat.total_seconds() == 2.5
    assert config.lease.total_seconds() == 60
    assert config.history_kept.days == 2


@pytest.mark.parametrize("text", ["PT24H", "P7D", "PT36H", "PT90M", "PT61S"])
def test_durations_are_written_as_people_do(text: str) -> None:
    assert durations.written(durations.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"), [("export=4, dump=1", {"export": 4, "dump": 1}), ('{"export": 4}', {"export": 4})]
)
def test_limits_by_kind_in_the_environment(tmp_path: Path, text: str, expected: dict[str, int]) -> None:
    assert load({"PADDOCK_KIND_CONCURRENCY": text}, tmp_path).kind_concurrency == expected


@pytest.mark.parametrize("text", ["a,b", " a , b ,", '["a", "b"]'])
def test_lists_in_the_environment(tmp_path: Path, text: str) -> None:
    assert load({"PADDOCK_WORKER_KINDS": text}, tmp_path).worker_kinds == ("a", "b")

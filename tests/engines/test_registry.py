"""Engines by name: what the configuration says, and what other packages add."""

from pathlib import Path

import pytest

from paddock.config import Config, ConfigError, load
from paddock.engines.registry import Engines, settings_from
from paddock.engines.settings import DuckdbSettings, TrinoSettings
from paddock.exports.request import one_engine
from paddock.jobs.errors import PermanentRunnerError, Refused
from paddock.known_kinds import all_kinds


def test_without_a_word_there_is_duckdb_in_the_folder_where_it_runs() -> None:
    [(name, settings)] = settings_from(Config()).items()

    assert name == "duckdb"
    assert isinstance(settings, DuckdbSettings)
    assert settings.roots == (Path(),)


def test_paths_start_at_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text('[engines.app]\ntype = "sqlite"\npath = "here/app.db"\n')

    settings = settings_from(load({}, tmp_path))["app"]

    assert getattr(settings, "path") == tmp_path / "here" / "app.db"  # noqa: B009  of one type among several


def test_the_older_variables_make_an_engine(tmp_path: Path) -> None:
    told = {"STARBURST_URL": "https://sb:443", "STARBURST_USER": "me", "STARBURST_PASSWORD": "hush"}

    settings = settings_from(load(told, tmp_path))["starburst"]

    assert isinstance(settings, TrinoSettings)
    assert (settings.url, settings.user, settings.requires_role) == ("https://sb:443", "me", True)
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"type": "oracle"}, "engines.x"),
        ({"type": "sqlite"}, "engines.x.path"),
        ({"type": "trino", "url": "http://t", "pasword_env": "P"}, "engines.x.pasword_env"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(table: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        settings_from(Config(engines={"x": table}))


@pytest.mark.parametrize("table", ["engines.x", "destinations.x"])
def test_a_table_that_is_wrong_stops_the_control_plane_at_its_start(tmp_path: Path, table: str) -> None:
    (tmp_path / "paddock.toml").write_text(f'[{table}]\ntype = "postgres"\n')
    with pytest.raises(ConfigError, match=f"{table}.url in paddock.toml has a bad value: it is missing"):
        all_kinds(load({}, tmp_path))


def test_an_engine_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(PermanentRunnerError, match="no engine 'nonesuch'"):
        Engines.from_config(Config())["nonesuch"]


def test_another_package_brings_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oracle_engine.py").write_text("def make(name, settings):\n    return (name, settings.host)\n")
    installed = tmp_path / "oracle_engine-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: oracle-engine\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[paddock.engines]\noracle = oracle_engine:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    engines = Engines.from_config(Config(engines={"old": {"type": "oracle", "host": "db"}}))

    assert engines["old"] == ("old", "db")  # type: ignore[comparison-overlap]


def test_the_built_in_duckdb_stays_beside_others_until_one_takes_its_place() -> None:
    shop = {"type": "postgres", "url": "postgresql://reader@db/shop"}
    assert sorted(settings_from(Config(engines={"shop": shop}))) == ["duckdb", "shop"]
    narrow = {"type": "duckdb", "roots": ["/srv/data"]}
    assert sorted(settings_from(Config(engines={"shop": shop, "local": narrow}))) == ["local", "shop"]
    assert sorted(settings_from(Config(engines={"duckdb": shop}))) == ["duckdb"]
    assert sorted(settings_from(Config(starburst_url="https://trino.example"))) == ["starburst"]


def test_a_query_that_names_no_engine_is_asked_which() -> None:
    mine = list(settings_from(Config(engines={"shop": {"type": "postgres", "url": "postgresql://reader@db/shop"}})))
    with pytest.raises(Refused, match=r"engine: Name one of shop, duckdb\."):
        one_engine(None, mine)
    assert one_engine(None, ["shop"]) == "shop"

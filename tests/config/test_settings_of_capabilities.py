"""A capability of another package brings its settings: they are read, refused, shown and described like all others."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from paddock import capability
from paddock.cli.config import show_config
from paddock.config import Config, ConfigError, known_settings, load, tables_of
from paddock.dumps.settings import DumpSettings
from scripts import reference

DECLARATION = """
from paddock.capability import Capability

GREETER = Capability(name="greeter", title="Greetings", package="greeter", settings="greeter_settings:GreeterSettings")
"""
SETTINGS = """
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from paddock.config import Config, ConfigError, Setting, Settings
from paddock.config.values import Count, Tables


class GreeterSettings(Settings):
    greeting: str = "Hello"
    times: Count = 1
    password: SecretStr | None = None  # None: it greets everybody
    log_file: Annotated[Path | None, Setting("greeting_log", older=("HELLO_LOG",))] = None
    people: Annotated[Tables, Setting(paths=("picture",))] = Field(default_factory=dict)
    rooms: Annotated[Tables, Setting("rooms", at_top=True)] = Field(default_factory=dict)

    def check(self, config: Config) -> None:
        if self.times > config.concurrency:
            raise ConfigError("greeter_times must not be more than concurrency.")
"""
Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package `greeter` beside Paddock, with this text as the module of its settings."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    point = EntryPoint("greeter", "greeter_capability:GREETER", capability.GROUP)

    def put(settings: str) -> None:
        (folder / "greeter_capability.py").write_text(DECLARATION)
        (folder / "greeter_settings.py").write_text(settings)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(capability, "entry_points", lambda group: EntryPoints([point]))
        for module in ("greeter_capability", "greeter_settings"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        capability._loaded.cache_clear()

    yield put
    monkeypatch.undo()
    capability._loaded.cache_clear()


@pytest.fixture
def greeter(install: Install) -> None:
    install(SETTINGS)


def of_greeter(config: Config) -> Any:
    return config.of(capability.load("greeter_settings:GreeterSettings"))


def refusal(environ: dict[str, str], folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load(environ, folder)
    return str(refused.value)


@pytest.mark.usefixtures("greeter")
def test_a_setting_comes_from_its_variable_or_its_table(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text('greeter_times = 3\n[greeter]\ngreeting = "Moin"\n')

    config = load({"PADDOCK_GREETER_TIMES": "2"}, tmp_path)

    assert (of_greeter(config).greeting, config.source("greeter_greeting")) == ("Moin", str(tmp_path / "paddock.toml"))
    assert (of_greeter(config).times, config.source("greeter_times")) == (2, "PADDOCK_GREETER_TIMES")
    assert (of_greeter(config).password, config.source("greeter_password")) == (None, "default")
    assert of_greeter(load({}, tmp_path, {"greeter_times": 4})).times == 4


@pytest.mark.usefixtures("greeter")
@pytest.mark.parametrize("variable", ["PADDOCK_GREETING_LOG", "HELLO_LOG", "GRAPH_OLAP_HELLO_LOG"])
def test_a_field_may_have_another_name_outside_and_older_ones(tmp_path: Path, variable: str) -> None:
    config = load({variable: "log.txt"}, tmp_path)

    assert of_greeter(config).log_file == tmp_path / "log.txt"
    assert config.source("greeting_log") == variable


@pytest.mark.usefixtures("greeter")
def test_named_tables_stand_in_its_table_or_at_the_top_and_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "paddock.toml").write_text(
        '[greeter.people.ada]\npicture = "ada.png"\ntitle = "Lady"\n[rooms.hall]\npicture = "hall.png"\n'
    )

    settings = of_greeter(load({"PADDOCK_CONFIG": "etc/paddock.toml"}, tmp_path))

    assert settings.people == {"ada": {"picture": str(tmp_path / "etc" / "ada.png"), "title": "Lady"}}
    assert settings.rooms == {"hall": {"picture": "hall.png"}}


@pytest.mark.usefixtures("greeter")
def test_a_bad_value_is_told_by_the_name_it_was_written_under_with_those_of_the_core(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text("[greeter]\ntimes = 0\n")

    told = refusal({"PADDOCK_PORT": "x"}, tmp_path)

    assert "PADDOCK_PORT (x) has a bad value: it should be a whole number." in told
    assert f"greeter.times in {tmp_path / 'paddock.toml'} (0) has a bad value: it should be at least 1." in told


@pytest.mark.usefixtures("greeter")
def test_its_own_check_sees_the_other_settings(tmp_path: Path) -> None:
    assert "must not be more than concurrency" in refusal({"PADDOCK_GREETER_TIMES": "11"}, tmp_path)
    assert of_greeter(load({"PADDOCK_GREETER_TIMES": "11", "PADDOCK_CONCURRENCY": "11"}, tmp_path)).times == 11


@pytest.mark.usefixtures("greeter")
def test_a_name_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    assert refusal({"PADDOCK_GREETER_TIME": "2"}, tmp_path).endswith("did you mean PADDOCK_GREETER_TIMES?")
    (tmp_path / "paddock.toml").write_text("[greeter]\ntime = 2\n")
    assert refusal({}, tmp_path).endswith("did you mean greeter.times?")


@pytest.mark.usefixtures("greeter")
def test_it_is_shown_with_its_source_and_its_secret_is_masked(tmp_path: Path) -> None:
    config = load({"PADDOCK_GREETER_PASSWORD": "hunter2", "PADDOCK_GREETER_TIMES": "2"}, tmp_path)

    shown = {name: (text, source) for name, text, source in config.explain()}

    assert shown["greeter_password"] == ("********", "PADDOCK_GREETER_PASSWORD")
    assert shown["greeter_times"] == ("2", "PADDOCK_GREETER_TIMES")
    assert shown["greeter_greeting"] == ("Hello", "default")
    assert "hunter2" not in f"{config!r} {shown}"
    assert known_settings()["greeter_password"].secret
    in_table = ["greeter_greeting", "greeter_times", "greeter_password", "greeting_log", "greeter_people"]
    assert tables_of(known_settings().values())["greeter"] == in_table


@pytest.mark.usefixtures("greeter")
def test_the_command_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDOCK_GREETER_TIMES", "2")

    show_config(output="json")

    rows = json.loads(capsys.readouterr().out)
    assert {"name": "greeter_times", "value": "2", "source": "PADDOCK_GREETER_TIMES"} in rows


@pytest.mark.usefixtures("greeter")
def test_a_bad_secret_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text("[greeter]\npassword = 424242\n")

    told = refusal({}, tmp_path)

    assert f"greeter.password in {tmp_path / 'paddock.toml'} has a bad value" in told
    assert "424242" not in told


@pytest.mark.usefixtures("greeter")
def test_the_reference_describes_it() -> None:
    page = reference.configuration()

    assert "| `PADDOCK_GREETER_GREETING` | `greeter.greeting` | `Hello` |  |  |" in page
    assert "| `PADDOCK_GREETER_PASSWORD` | `greeter.password` | - |  | it greets everybody |" in page
    assert "| `PADDOCK_GREETING_LOG` | `greeter.greeting_log` | - | `HELLO_LOG` |  |" in page
    assert "| `PADDOCK_ROOMS` | `rooms` | - |  |  |" in page


FIELD = "from paddock.config import Settings, Setting\nfrom typing import Annotated\nclass GreeterSettings(Settings):\n"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("import nonesuch_module", "ModuleNotFoundError: No module named 'nonesuch_module'"),
        ("raise SystemExit('not here')", "SystemExit: not here"),
        (
            "GreeterSettings = 3",
            "TypeError: greeter_settings:GreeterSettings is no subclass of paddock.config.Settings",
        ),
        (f'{FIELD}    x: Annotated[int, Setting("port")] = 1', "ValueError: there is a setting 'port' already"),
        (f'{FIELD}    x: Annotated[int, Setting(older=("LOG_LEVEL",))] = 1', "LOG_LEVEL is the older name of another"),
        (
            f'{FIELD}    x: Annotated[int, Setting("greeter")] = 1',
            "ValueError: 'greeter' would be a table and a setting",
        ),
        (f'{FIELD}    x: Annotated[int, Setting("log")] = 1', "ValueError: 'log' would be a table and a setting"),
    ],
)
def test_a_capability_with_unusable_settings_is_left_out_alone(
    tmp_path: Path, install: Install, caplog: pytest.LogCaptureFixture, settings: str, why: str
) -> None:
    install(settings)
    (tmp_path / "paddock.toml").write_text('[greeter]\ngreeting = "Moin"\n')

    with caplog.at_level(logging.WARNING):
        config = load({"PADDOCK_GREETER_TIMES": "2", "PADDOCK_DUMPS_KEEP_DAYS": "3"}, tmp_path)

    assert config.of(DumpSettings).keep_days == 3
    assert why in capability.broken()["greeter"]
    assert [one.name for one in capability.capabilities()] == [
        capability.load(target).name for target in capability.BUILT_IN
    ]
    assert not [item for item in config.explain() if item.name.startswith("greeter")]
    assert "PADDOCK_GREETER_TIMES is ignored: the capability 'greeter' cannot be loaded." in caplog.text
    assert f"greeter in {tmp_path / 'paddock.toml'} is ignored" in caplog.text


def test_a_configuration_made_in_code_has_defaults_and_takes_others(tmp_path: Path) -> None:
    plain = Config(data=tmp_path)

    changed = plain.with_settings(DumpSettings(keep_days=2))

    assert (plain.of(DumpSettings).keep_days, changed.of(DumpSettings).keep_days) == (7, 2)
    assert (changed.data, changed.source("dumps_keep_days"), plain.source("dumps_keep_days")) == (
        tmp_path,
        "argument",
        "default",
    )

"""From what was given to a configuration that may be used."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from paddock.config.checking import check_relations, sentences
from paddock.config.model import Config
from paddock.config.refusing import ConfigError
from paddock.config.settings import KnownSetting, Settings, known_settings
from paddock.config.sources import Given, Known, from_arguments, from_environment, from_file
from paddock.config.values import NO_STORE


def load(
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """An override that is None was not given: flags of the command line can be passed as they are."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    given: dict[str, Given] = {"data": Given("paddock-data", "default", "data", cwd)}
    if hostname := environ.get("HOSTNAME", "").strip():
        given["worker_id"] = Given(hostname, "HOSTNAME", "HOSTNAME", cwd)
    known = known_settings()
    layers = (
        from_file(known, environ, cwd),
        from_environment(known, environ, cwd),
        from_arguments(known, overrides or {}, cwd),
    )
    for layer in layers:
        given.update({name: item for name, item in layer if item.value is not None and item.value != ""})
    held, wrong = _validated(known, given)
    if wrong:
        raise ConfigError(" ".join(wrong))
    [config] = (model for model in held if isinstance(model, Config))
    settings = [model for model in held if isinstance(model, Settings)]
    config = config.with_settings(*settings)
    config._sources.update({name: item.source for name, item in given.items()})
    check_relations(config, given)
    for each in settings:
        each.check(config)
    return config


def _validated(known: Known, given: Mapping[str, Given]) -> tuple[list[BaseModel], list[str]]:
    """The models with their values, and what is wrong with any of them."""
    held, wrong = [], []
    for model in dict.fromkeys(setting.model for setting in known.values()):
        settings = {setting.field: setting for setting in known.values() if setting.model is model}
        values = {
            field: _placed(setting, given[setting.name]) for field, setting in settings.items() if setting.name in given
        }
        try:
            held.append(model.model_validate(values))
        except ValidationError as invalid:
            # Only our sentences go on: pydantic's own text could show what a secret was set to.
            wrong += sentences(invalid, settings, given)
    return held, wrong


def _placed(setting: KnownSetting, item: Given) -> Any:
    """A relative folder starts where it was written: at the file that names it, or where the command runs."""
    if setting.paths and isinstance(item.value, dict):
        return {key: _placed_table(table, setting.paths, item.base) for key, table in item.value.items()}
    store = setting.name == "object_store" and "://" not in str(item.value) and item.value != NO_STORE
    if (setting.path or store) and isinstance(item.value, str | Path):
        path = item.base / Path(item.value).expanduser()
        return str(path) if store else path
    return item.value


def _placed_table(table: Any, paths: Sequence[str], base: Path) -> Any:
    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(one) for one in value]
        return str(base / Path(value).expanduser()) if isinstance(value, str) else value

    if not isinstance(table, dict):
        return table

    def is_path(key: str, value: Any) -> bool:
        """A url may be a folder, like the object store's."""
        return key in paths and (key != "url" or (isinstance(value, str) and "://" not in value))

    return {key: placed(value) if is_path(key, value) else value for key, value in table.items()}

"""From what was given to a configuration that may be used."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paddock.config.checking import check_relations, first_error
from paddock.config.model import Config
from paddock.config.names import NAMED_TABLES, PATHS_IN_TABLES
from paddock.config.sources import Given, from_arguments, from_environment, from_file
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
    for layer in (from_file(environ, cwd), from_environment(environ, cwd), from_arguments(overrides or {}, cwd)):
        given.update({name: item for name, item in layer if item.value is not None and item.value != ""})
    try:
        config = Config.model_validate({name: _placed(name, item) for name, item in given.items()})
    except ValidationError as invalid:
        # `from None`: pydantic's own text could show what a secret was set to.
        raise first_error(invalid, given) from None
    config._sources.update({name: item.source for name, item in given.items()})
    check_relations(config, given)
    return config


def _placed(name: str, item: Given) -> Any:
    """A relative folder starts where it was written: at the file that names it, or where the command runs."""
    if name in NAMED_TABLES and isinstance(item.value, dict):
        return {key: _placed_table(table, item.base) for key, table in item.value.items()}
    store = name == "object_store" and "://" not in str(item.value) and item.value != NO_STORE
    relative = name in ("data", "token_file", "scratch") or store
    if relative and isinstance(item.value, str | Path):
        path = item.base / Path(item.value).expanduser()
        return str(path) if name == "object_store" else path
    return item.value


def _placed_table(table: Any, base: Path) -> Any:
    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(one) for one in value]
        return str(base / Path(value).expanduser()) if isinstance(value, str) else value

    if not isinstance(table, dict):
        return table

    def is_path(key: str, value: Any) -> bool:
        """A destination's url may be a folder, like the object store's."""
        return key in PATHS_IN_TABLES or (key == "url" and isinstance(value, str) and "://" not in value)

    return {key: placed(value) if is_path(key, value) else value for key, value in table.items()}

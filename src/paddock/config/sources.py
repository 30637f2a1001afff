"""What the file, the environment and the arguments give, each value with the name it was written under."""

import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from paddock.capability import broken
from paddock.config.names import OLDER_PREFIX, PREFIX
from paddock.config.refusing import ConfigError, nearest, why
from paddock.config.settings import KnownSetting, tables_of

# What Kubernetes adds for a service called `paddock` or `paddock-worker`, see `enableServiceLinks`.
SERVICE_LINK = re.compile(r".*_SERVICE_HOST|.*_SERVICE_PORT(_\w+)?|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

log = logging.getLogger(__name__)


Known = Mapping[str, KnownSetting]


class Given(NamedTuple):
    value: Any
    source: str  # for `explain`
    called: str  # for error sentences: the name as it was written
    base: Path  # relative folders start here


def from_arguments(known: Known, overrides: Mapping[str, Any], cwd: Path) -> Iterator[tuple[str, Given]]:
    for name, value in overrides.items():
        if name not in known:
            raise ConfigError(f"{name} is not a setting{nearest(name, known)}")
        yield name, Given(value, "argument", f"--{name.replace('_', '-')}", cwd)


def from_environment(known: Known, environ: Mapping[str, str], cwd: Path) -> list[tuple[str, Given]]:
    """Least first: older names, then GRAPH_OLAP_*, then PADDOCK_*."""
    older_names = {variable: setting.name for setting in known.values() for variable in setting.older}
    bare, older, ours = [], [], []
    for key, value in environ.items():
        item = Given(value.strip(), key, key, cwd)
        if key in older_names:
            bare.append((older_names[key], item))
        elif key.startswith(PREFIX):
            name = key.removeprefix(PREFIX).lower()
            if _is_service_link(key, value) or key == "PADDOCK_CONFIG":
                continue
            if name not in known and _is_of_broken(name, key):
                continue
            if name not in known or key != PREFIX + name.upper():
                raise ConfigError(f"{key} is not a setting{nearest(name, map(_variable, known), PREFIX)}")
            ours.append((name, item))
        elif key.startswith(OLDER_PREFIX) and not _is_service_link(key, value):
            rest = key.removeprefix(OLDER_PREFIX)
            name = older_names.get(rest, rest.lower())
            if name in known:
                older.append((name, item))
            else:
                log.warning("%s is not a setting and is ignored%s", key, nearest(name, map(_variable, known), PREFIX))
    return bare + older + ours


def _is_service_link(key: str, value: str) -> bool:
    return bool(SERVICE_LINK.fullmatch(key) or (key.endswith("_PORT") and SERVICE_LINK_ADDRESS.match(value)))


def from_file(known: Known, environ: Mapping[str, str], cwd: Path) -> list[tuple[str, Given]]:
    named = environ.get("PADDOCK_CONFIG", "").strip()
    path = cwd / Path(named or "paddock.toml").expanduser()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            raise ConfigError(f"PADDOCK_CONFIG names {path}, which does not exist.") from None
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} {why(error)}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    found: dict[str, Given] = {}
    for called, name, value in _keys_of_file(known, content, path):
        if name in found:
            raise ConfigError(f"{called} and {found[name].called} set the same thing: keep one of them.")
        found[name] = Given(value.strip() if isinstance(value, str) else value, str(path), called, path.parent)
    return list(found.items())


def _keys_of_file(known: Known, content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    tables = tables_of(known.values())
    for key, value in content.items():
        if isinstance(value, dict) and key in tables:
            group = tables[key]
            for inner, inner_value in value.items():
                name = f"{key}_{inner}" if f"{key}_{inner}" in group else inner
                if name not in group:
                    keys = [f"{key}.{name.removeprefix(f'{key}_')}" for name in group]
                    suggestion = nearest(inner, keys, f"{key}.")
                    raise ConfigError(f"{key}.{inner} in {path} is not a setting{suggestion}")
                yield f"{key}.{inner} in {path}", name, inner_value
        elif isinstance(value, dict) and value and all(f"{key}_{inner}" in known for inner in value):
            # A table in a table is one setting, like `[runtime.kubernetes]`.
            for inner, inner_value in value.items():
                yield f"{key}.{inner} in {path}", f"{key}_{inner}", inner_value
        elif key in known:
            yield f"{key} in {path}", key, value
        elif not _is_of_broken(key, f"{key} in {path}"):
            raise ConfigError(f"{key} in {path} is not a setting{nearest(key, {*known, *tables})}")


def _is_of_broken(name: str, called: str) -> bool:
    """A capability that cannot be loaded takes nobody else with it: its settings stop no start."""
    for missing in broken():
        if name == missing or name.startswith(f"{missing}_"):
            log.warning("%s is ignored: the capability '%s' cannot be loaded.", called, missing)
            return True
    return False


def _variable(name: str) -> str:
    return PREFIX + name.upper()

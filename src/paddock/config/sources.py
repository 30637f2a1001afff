"""What the file, the environment and the arguments give, each value with the name it was written under."""

import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from paddock.config.model import SETTINGS
from paddock.config.names import OLDER_NAMES, OLDER_PREFIX, PREFIX, TABLES
from paddock.config.refusing import ConfigError, nearest, why

# What Kubernetes adds for a service called `paddock` or `paddock-worker`, see `enableServiceLinks`.
SERVICE_LINK = re.compile(r".*_SERVICE_HOST|.*_SERVICE_PORT(_\w+)?|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

log = logging.getLogger(__name__)


class Given(NamedTuple):
    value: Any
    source: str  # for `explain`
    called: str  # for error sentences: the name as it was written
    base: Path  # relative folders start here


def from_arguments(overrides: Mapping[str, Any], cwd: Path) -> Iterator[tuple[str, Given]]:
    for name, value in overrides.items():
        if name not in SETTINGS:
            raise ConfigError(f"{name} is not a setting{nearest(name, SETTINGS)}")
        yield name, Given(value, "argument", f"--{name.replace('_', '-')}", cwd)


def from_environment(environ: Mapping[str, str], cwd: Path) -> list[tuple[str, Given]]:
    """Least first: older names, then GRAPH_OLAP_*, then PADDOCK_*."""
    bare, older, ours = [], [], []
    for key, value in environ.items():
        item = Given(value.strip(), key, key, cwd)
        if key in OLDER_NAMES:
            bare.append((OLDER_NAMES[key], item))
        elif key.startswith(PREFIX):
            name = key.removeprefix(PREFIX).lower()
            if _is_service_link(key, value) or key == "PADDOCK_CONFIG":
                continue
            if name not in SETTINGS or key != PREFIX + name.upper():
                raise ConfigError(f"{key} is not a setting{nearest(name, map(_variable, SETTINGS), PREFIX)}")
            ours.append((name, item))
        elif key.startswith(OLDER_PREFIX) and not _is_service_link(key, value):
            rest = key.removeprefix(OLDER_PREFIX)
            name = OLDER_NAMES.get(rest, rest.lower())
            if name in SETTINGS:
                older.append((name, item))
            else:
                log.warning(
                    "%s is not a setting and is ignored%s", key, nearest(name, map(_variable, SETTINGS), PREFIX)
                )
    return bare + older + ours


def _is_service_link(key: str, value: str) -> bool:
    return bool(SERVICE_LINK.fullmatch(key) or (key.endswith("_PORT") and SERVICE_LINK_ADDRESS.match(value)))


def from_file(environ: Mapping[str, str], cwd: Path) -> list[tuple[str, Given]]:
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
    for called, name, value in _keys_of_file(content, path):
        if name in found:
            raise ConfigError(f"{called} and {found[name].called} set the same thing: keep one of them.")
        found[name] = Given(value.strip() if isinstance(value, str) else value, str(path), called, path.parent)
    return list(found.items())


def _keys_of_file(content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and key in TABLES:
            group = TABLES[key]
            for inner, inner_value in value.items():
                name = f"{key}_{inner}" if f"{key}_{inner}" in group else inner
                if name not in group:
                    known = [f"{key}.{name.removeprefix(f'{key}_')}" for name in group]
                    suggestion = nearest(inner, known, f"{key}.")
                    raise ConfigError(f"{key}.{inner} in {path} is not a setting{suggestion}")
                yield f"{key}.{inner} in {path}", name, inner_value
        elif key in SETTINGS:
            yield f"{key} in {path}", key, value
        else:
            raise ConfigError(f"{key} in {path} is not a setting{nearest(key, {*SETTINGS, *TABLES})}")


def _variable(name: str) -> str:
    return PREFIX + name.upper()

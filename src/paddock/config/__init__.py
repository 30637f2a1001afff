"""The effective configuration: arguments, then the environment, then `paddock.toml`, then defaults.

Every value remembers where it came from. Whatever is wrong stops the start with one sentence that names the
variable or key as the person wrote it; a secret's value is never part of that sentence. A blank value counts as
not given, because that is what an optional key of a ConfigMap turns into.

Plain pydantic and tomllib instead of pydantic-settings: that package costs another 100 ms at every start of the
command line, and it keeps neither the source of a value nor the older names apart.
"""

from paddock.config.checking import overlap
from paddock.config.loading import load
from paddock.config.model import Config, Explained
from paddock.config.names import OLDER_PREFIX, PREFIX
from paddock.config.refusing import ConfigError, bad_table
from paddock.config.settings import KnownSetting, Setting, Settings, known_settings, tables_of
from paddock.config.values import NO_STORE

__all__ = [
    "NO_STORE",
    "OLDER_PREFIX",
    "PREFIX",
    "Config",
    "ConfigError",
    "Explained",
    "KnownSetting",
    "Setting",
    "Settings",
    "bad_table",
    "known_settings",
    "load",
    "overlap",
    "tables_of",
]

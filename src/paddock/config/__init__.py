"""The effective configuration: arguments, then the environment, then `paddock.toml`, then defaults.

Every value remembers where it came from. Whatever is wrong stops the start with one sentence that names the
variable or key as the person wrote it; a secret's value is never part of that sentence. A blank value counts as
not given, because that is what an optional key of a ConfigMap turns into.

Plain pydantic and tomllib instead of pydantic-settings: that package costs another 100 ms at every start of the
command line, and it keeps neither the source of a value nor the older names apart.
"""

from paddock.config.checking import overlap
from paddock.config.loading import load
from paddock.config.model import SECRETS, SETTINGS, Config, Explained
from paddock.config.names import NAMED_TABLES, OLDER_NAMES, OLDER_PREFIX, PREFIX, TABLES
from paddock.config.refusing import ConfigError
from paddock.config.values import NO_STORE

__all__ = [
    "NAMED_TABLES",
    "NO_STORE",
    "OLDER_NAMES",
    "OLDER_PREFIX",
    "PREFIX",
    "SECRETS",
    "SETTINGS",
    "TABLES",
    "Config",
    "ConfigError",
    "Explained",
    "load",
    "overlap",
]

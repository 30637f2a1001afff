"""What no DuckDB of ours does, whoever asks it and for what."""

from collections.abc import Mapping
from typing import Any

# It loads no extension by itself, keeps no secret, reads no variable of Python, and holds no file of somebody else's query.
CLOSED: Mapping[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
    "enable_external_file_cache": False,
}

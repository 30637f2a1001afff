"""Whether people may make, retry and cancel snapshots themselves: `explicit_snapshots`."""

from collections.abc import Mapping

from paddock.api.errors import ApiError
from paddock.config import Config
from paddock.exports.settings import ExportSettings


def closed_wholes(config: Config) -> Mapping[str, ApiError]:
    return {} if config.of(ExportSettings).explicit_snapshots else {"snapshot": _explicit_off()}


def check_explicit(config: Config) -> None:
    if not config.of(ExportSettings).explicit_snapshots:
        raise _explicit_off()


def _explicit_off() -> ApiError:
    return ApiError(
        403,
        "explicit_snapshots_off",
        "Here snapshots are made, retried and cancelled only with the instances that need them.",
        hint="Make an instance of the mapping instead; the setting is PADDOCK_EXPLICIT_SNAPSHOTS.",
    )

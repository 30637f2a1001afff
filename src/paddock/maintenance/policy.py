"""How a table is to be kept: by its own property, else by its catalog, else by the default. Each value says whose it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MIB = 1 << 20
OWN, OTHERS = "paddock.", "snowpack."
# Also read under the name that another maintainer gave them.
SHARED = frozenset(
    (
        *("maintenance_enabled", "maintenance_cadence_hours", "target_file_size_bytes"),
        *("max_snapshot_age_days", "min_input_files"),
    )
)


class PolicyDefaults(BaseModel):
    """What a catalog says for all its tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    maintenance_enabled: bool | None = None
    maintenance_cadence_hours: float | None = Field(default=None, gt=0, le=24 * 365)
    target_file_size_bytes: int | None = Field(default=None, ge=MIB, le=8192 * MIB)
    max_snapshot_age_days: float | None = Field(default=None, ge=1, le=3650)
    min_input_files: int | None = Field(default=None, ge=2, le=100_000)
    delete_file_threshold: int | None = Field(default=None, ge=1, le=1_000_000)
    remove_orphans: bool | None = None


DEFAULTS: Mapping[str, Any] = {
    "maintenance_enabled": True,
    "maintenance_cadence_hours": 6.0,
    "target_file_size_bytes": 512 * MIB,
    "max_snapshot_age_days": 5.0,
    "min_input_files": 5,
    "delete_file_threshold": 5,
    "remove_orphans": False,
}
WRITERS_TARGET = "write.target-file-size-bytes"
EXCLUDED = "compaction_skip"


@dataclass(frozen=True, slots=True)
class Policy:
    values: Mapping[str, Any]
    # Of each value: the property that says it, `catalog` or `default`.
    sources: Mapping[str, str]
    # Properties that cannot be read, and why.
    problems: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def json_object(self) -> dict[str, Any]:
        return {name: {"value": value, "source": self.sources[name]} for name, value in self.values.items()}


def policy_of(properties: Mapping[str, str], catalog: PolicyDefaults) -> Policy:
    values, sources = dict(DEFAULTS), dict.fromkeys(DEFAULTS, "default")
    problems: dict[str, str] = {}
    for name, value in catalog.model_dump(exclude_none=True).items():
        values[name], sources[name] = value, "catalog"
    if WRITERS_TARGET in properties:
        _take("target_file_size_bytes", WRITERS_TARGET, properties, values, sources, problems)
    for name in DEFAULTS:
        prefixes = (OTHERS, OWN) if name in SHARED else (OWN,)
        for prefix in prefixes:
            if prefix + name in properties:
                _take(name, prefix + name, properties, values, sources, problems)
    if properties.get(EXCLUDED, "").strip().lower() == "true":
        values["maintenance_enabled"], sources["maintenance_enabled"] = False, EXCLUDED
    return Policy(values, sources, problems)


def _take(
    name: str,
    key: str,
    properties: Mapping[str, str],
    values: dict[str, Any],
    sources: dict[str, str],
    problems: dict[str, str],
) -> None:
    text = properties[key].strip()
    try:
        read = PolicyDefaults.model_validate({name: text})
    except ValidationError:
        problems[key] = f"The property {key} is '{text[:100]}', which is no value of it; {values[name]} is used."
        return
    values[name], sources[name] = getattr(read, name), key

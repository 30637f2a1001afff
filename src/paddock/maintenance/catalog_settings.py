"""The catalogs whose tables are maintained, as `[catalogs.X]` names them. A request names one; addresses and credentials
stand only here, and only workers read the credentials.

    [catalogs.lake]
    type = "rest"
    properties = { uri = "https://catalog.example.com", warehouse = "s3://lake" }
    secrets = { token = { env = "LAKE_TOKEN" } }
"""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from paddock.config import Config, ConfigError, bad_table
from paddock.engines.registry import rewriters_from
from paddock.engines.settings import Secret, SparkSettings, TrinoSettings
from paddock.field_errors import field_errors
from paddock.maintenance.policy import PolicyDefaults
from paddock.maintenance.settings import MaintenanceSettings

EMBEDDED = "embedded"
CatalogName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
# By PyIceberg's own names: what unlocks something is no plain property.
SECRET_NAMES = re.compile(
    r"(^|[.-])(token|credential|password|secret|session-token|sas-token|account-key)$|secret|access-key$"
)
NAME: TypeAdapter[str] = TypeAdapter(CatalogName)


class CatalogSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    # `rest` and `sql` are tested; others go to PyIceberg as they are.
    type: str = Field(min_length=1, max_length=100)
    description: str = ""
    properties: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, Secret] = Field(default_factory=dict)
    # Where data files and manifests are rewritten: here, or by an engine of type spark or trino.
    rewrites: str = EMBEDDED
    # What that engine calls this catalog, and the role it works under where it wants one.
    engine_catalog: str | None = Field(default=None, min_length=1, max_length=200)
    engine_role: str | None = None
    _engine_type: str = PrivateAttr(default=EMBEDDED)
    # Maintained without being asked.
    databases: tuple[str, ...] = ()
    # Besides ops and admin: whose tokens may maintain its tables.
    owners: tuple[str, ...] = ()
    # False for catalogs that have no tags: then nothing on the table itself stops an attempt that lost its job.
    fence: bool = True
    # Of the maintenance that nobody asked for, at once.
    max_jobs: int = Field(default=2, ge=1, le=100)
    policy: PolicyDefaults = Field(default_factory=PolicyDefaults)

    @model_validator(mode="after")
    def _engine_knows_it(self) -> "CatalogSettings":
        if self.rewrites == EMBEDDED and (self.engine_catalog is not None or self.engine_role is not None):
            raise ValueError("engine_catalog and engine_role are for rewrites by an engine: name it in rewrites")
        if self.rewrites != EMBEDDED and not self.engine_catalog:
            raise ValueError(f"what '{self.rewrites}' calls this catalog is missing: name it in engine_catalog")
        return self

    @property
    def engine_type(self) -> str:
        """`embedded`, `spark` or `trino`."""
        return self._engine_type

    def with_engine(self, type: str) -> "CatalogSettings":
        copy = self.model_copy()
        copy._engine_type = type
        return copy

    @field_validator("properties")
    @classmethod
    def _no_secrets(cls, properties: dict[str, str]) -> dict[str, str]:
        for name, value in properties.items():
            if SECRET_NAMES.search(name.lower()):
                raise ValueError(f"'{name}' unlocks something: it stands in secrets, as an env or a file")
            if "://" in value and urlsplit(value).password:
                raise ValueError(f"'{name}' holds a password: put the whole of it into secrets, as an env or a file")
        return properties

    @field_validator("secrets")
    @classmethod
    def _somewhere(cls, secrets: dict[str, Secret]) -> dict[str, Secret]:
        for name, secret in secrets.items():
            if (secret.env is None) == (secret.file is None):
                raise ValueError(f"'{name}' names either env, a variable, or file")
        return secrets

    def all_properties(self, name: str) -> dict[str, str]:
        """With the secrets, for PyIceberg. Only a worker calls this."""
        found = {key: secret.read(f"{key} of catalog '{name}'") for key, secret in self.secrets.items()}
        return {"type": self.type, **self.properties, **{key: value for key, value in found.items() if value}}


def catalogs_from(config: Config) -> dict[str, CatalogSettings]:
    found: dict[str, CatalogSettings] = {}
    for name, table in config.of(MaintenanceSettings).catalogs.items():
        try:
            NAME.validate_python(name)
        except ValidationError:
            raise ConfigError(
                f"[catalogs.{name}]: a catalog's name has lower-case letters, digits, _ and -, at most 63 of them."
            ) from None
        try:
            found[name] = CatalogSettings.model_validate(table)
        except ValidationError as invalid:
            raise bad_table(f"catalogs.{name}", field_errors(invalid)) from None
    if all(each.rewrites == EMBEDDED for each in found.values()):
        return found
    engines = rewriters_from(config)
    return {name: _with_engine(name, settings, engines) for name, settings in found.items()}


def _with_engine(
    name: str, settings: CatalogSettings, engines: Mapping[str, SparkSettings | TrinoSettings]
) -> CatalogSettings:
    if settings.rewrites == EMBEDDED:
        return settings
    engine = engines.get(settings.rewrites)
    if engine is None:
        known = ", ".join([EMBEDDED, *engines])
        raise ConfigError(
            f"catalogs.{name}.rewrites in paddock.toml names no engine of type spark or trino: it is "
            f"'{settings.rewrites}', and there are {known}."
        )
    if isinstance(engine, TrinoSettings) and engine.requires_role and settings.engine_role is None:
        raise ConfigError(
            f"catalogs.{name}.engine_role in paddock.toml is missing: the engine '{settings.rewrites}' wants a role."
        )
    return settings.with_engine(engine.type)

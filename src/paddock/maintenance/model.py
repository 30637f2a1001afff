"""What maintenance is asked for, what it is told, and what each action leaves in its job's result."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from paddock.jobs.model import JsonObject

MAINTENANCE_PREFIX = "maintenance:"
TABLES_PREFIX = "tables:"
FENCE_PREFIX = "paddock-fence-"
KEEP_PREFIX = "paddock-keep-"

Action = Literal[
    "rewrite_data_files",
    "rewrite_position_delete_files",
    "rewrite_manifests",
    "expire_snapshots",
    "remove_orphan_files",
]
# Always in this order: a rewrite makes old files unneeded, only an expiry frees them, and what is reachable is least at the end.
ACTIONS: tuple[Action, ...] = (
    "rewrite_data_files",
    "rewrite_position_delete_files",
    "rewrite_manifests",
    "expire_snapshots",
    "remove_orphan_files",
)
REWRITES = frozenset(ACTIONS[:3])

GIB = 1 << 30
FLOOR_HOURS = 24
# Between the levels of a namespace, where they are one text: no name holds it.
LEVELS = "\x1f"

Hours = Annotated[float, Field(ge=0, le=24 * 3650, allow_inf_nan=False)]


def is_removable(ref: str) -> bool:
    """Whether a request may name this ref as one to remove: main is the table itself, and a fence is its holder's."""
    return ref != "main" and not ref.startswith(FENCE_PREFIX)


class Options(BaseModel):
    """What may be said about actions; each belongs to the one named beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # rewrite_data_files
    target_file_size_bytes: int | None = Field(default=None, ge=1 << 20, le=8 * GIB)
    min_input_files: int | None = Field(default=None, ge=2, le=100_000)
    max_bytes: int = Field(default=20 * GIB, ge=1 << 20, le=1 << 50)
    # expire_snapshots
    max_snapshot_age_hours: Hours | None = None
    min_snapshots_to_keep: int | None = Field(default=None, ge=1, le=1_000_000)
    remove_refs: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = Field(default=(), max_length=100)
    # remove_orphan_files
    older_than_hours: Hours | None = None

    @field_validator("remove_refs")
    @classmethod
    def _not_what_holds_the_table(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not is_removable(name):
                raise ValueError(f"the ref '{name}' is never removed: it holds the table's history or a job's work")
        return names

    @property
    def below_floor(self) -> list[str]:
        ages = {
            "max_snapshot_age_hours": self.max_snapshot_age_hours,
            "older_than_hours": self.older_than_hours,
        }
        return [name for name, hours in ages.items() if hours is not None and hours < FLOOR_HOURS]


Name = Annotated[str, Field(min_length=1, max_length=500)]


class TableName(BaseModel):
    """A table of a catalog."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    catalog: str
    namespace: tuple[Name, ...] = Field(min_length=1, max_length=20)
    name: Name

    @property
    def database(self) -> str:
        return ".".join(self.namespace)

    @property
    def identifier(self) -> tuple[str, ...]:
        return (*self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.name}"


class MaintenancePayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table: TableName
    uuid: str
    actions: tuple[Action, ...] = Field(min_length=1)
    options: Options = Field(default_factory=Options)
    dry_run: bool = False
    # Goes below floors and past guards; only operators may say so.
    confirm: bool = False
    # Of the other tables that are known: no file inside one of these is an orphan of this table.
    other_locations: tuple[str, ...] = ()

    @property
    def lock_key(self) -> str | None:
        return None if self.dry_run else f"table:{self.uuid}"


class LookPayload(BaseModel):
    """A look at one table, or at the next page of all of them. It changes nothing, so a worker does what it knows of one that
    a control plane of a later version asks for; what is new there is sent only where it is needed. What narrows
    the answer must not be such a field: a worker that does not know it would tell too much."""

    model_config = ConfigDict(extra="ignore")

    catalog: str
    table: TableName | None = None
    # Whether a very large table is read whole; of a check, whether a tag is set and taken away again.
    deep: bool = False
    # The first job of a round, and the last table that its pages have seen; None: this is the first.
    round: str | None = None
    after: tuple[str, ...] | None = None
    # No look at all: only what works.
    check: bool = False
    # Of a check: only of these databases may be told. None: of all.
    databases: tuple[str, ...] | None = None


class Outcome(BaseModel):
    """What became of one action."""

    model_config = ConfigDict(extra="ignore")

    action: Action
    outcome: Literal["success", "skipped", "failed"]
    message: str
    error: str | None = None
    files_before: int | None = None
    files_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    bytes_freed: int | None = None
    elapsed_seconds: float = 0
    # What else is worth knowing: snapshots gone, refs put back, paths of a dry run.
    details: JsonObject = Field(default_factory=dict)
    # Codes of what somebody must look at, like `ref_lost`.
    alarms: list[str] = Field(default_factory=list)

    def json_object(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)


def namespace_of(text: str) -> tuple[str, ...]:
    """Levels come joined by the unit separator, or by dots where no name has one. A single level that has dots comes with the
    separator behind it."""
    return tuple(text.removesuffix(LEVELS).split(LEVELS) if LEVELS in text else text.split("."))


def database_text(namespace: tuple[str, ...]) -> str:
    """What `namespace_of` reads."""
    if not any("." in level for level in namespace):
        return ".".join(namespace)
    return LEVELS.join(namespace) + (LEVELS if len(namespace) == 1 else "")


def lock_key(payload: MaintenancePayload) -> str | None:
    return payload.lock_key

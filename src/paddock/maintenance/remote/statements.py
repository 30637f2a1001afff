"""What Spark and Trino are told: statements from the typed options, every name quoted."""

from collections.abc import Callable, Mapping

from paddock.engines.rewriting import TableStatement
from paddock.engines.trino.literals import quoted_name
from paddock.maintenance.iceberg.planning import SMALL_SHARE
from paddock.maintenance.model import Action, Options, TableName
from paddock.maintenance.policy import Policy

Render = Callable[[str, TableName, Options, Policy], TableStatement]
# For options that an engine has no word for.
IGNORED: Mapping[str, tuple[str, ...]] = {"trino": ("min_input_files", "max_bytes"), "spark": ("max_bytes",)}


def statement_for(
    engine: str, action: Action, catalog: str, table: TableName, options: Options, policy: Policy
) -> TableStatement | None:
    """None: another statement of this engine does that too."""
    render = STATEMENTS[engine].get(action)
    return None if render is None else render(catalog, table, options, policy)


def ignored_options(engine: str, action: Action, options: Options) -> list[str]:
    if action != "rewrite_data_files":
        return []
    plain = Options()
    return [name for name in IGNORED[engine] if getattr(options, name) != getattr(plain, name)]


def current_snapshot(engine: str, catalog: str, table: TableName) -> str:
    """A query for the snapshot that the engine sees on main."""
    if engine == "trino":
        name = quoted_name(catalog, table.database, f"{table.name}$refs")
    else:
        name = _ticked(catalog, *table.identifier, "refs")
    return f"SELECT snapshot_id FROM {name} WHERE name = 'main'"  # noqa: S608  every name is quoted


def _target(options: Options, policy: Policy) -> int:
    return int(options.target_file_size_bytes or policy["target_file_size_bytes"])


# Trino


def _optimize(catalog: str, table: TableName, options: Options, policy: Policy) -> TableStatement:
    target = _target(options, policy)
    # What the embedded engine calls small.
    small = int(SMALL_SHARE * target)
    return TableStatement(
        f"ALTER TABLE {quoted_name(catalog, table.database, table.name)}"
        f" EXECUTE optimize(file_size_threshold => '{small}B')",
        {f"{catalog}.target_max_file_size": f"{target}B"},
    )


def _optimize_manifests(catalog: str, table: TableName, options: Options, policy: Policy) -> TableStatement:
    return TableStatement(f"ALTER TABLE {quoted_name(catalog, table.database, table.name)} EXECUTE optimize_manifests")


# Spark


def _ticked(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _call(catalog: str, procedure: str, table: TableName, arguments: str = "") -> TableStatement:
    more = f", {arguments}" if arguments else ""
    return TableStatement(
        f"CALL {_ticked(catalog)}.system.{procedure}(table => {_text(_ticked(*table.identifier))}{more})"
    )


def _rewrite_data_files(catalog: str, table: TableName, options: Options, policy: Policy) -> TableStatement:
    said = {
        "target-file-size-bytes": _target(options, policy),
        "min-input-files": options.min_input_files or policy["min_input_files"],
        "delete-file-threshold": policy["delete_file_threshold"],
    }
    pairs = ", ".join(f"'{name}', '{int(value)}'" for name, value in said.items())
    return _call(catalog, "rewrite_data_files", table, f"options => map({pairs})")


def _rewrite_position_deletes(catalog: str, table: TableName, options: Options, policy: Policy) -> TableStatement:
    return _call(catalog, "rewrite_position_delete_files", table)


def _rewrite_manifests(catalog: str, table: TableName, options: Options, policy: Policy) -> TableStatement:
    return _call(catalog, "rewrite_manifests", table, "use_caching => false")


STATEMENTS: Mapping[str, Mapping[Action, Render]] = {
    "trino": {"rewrite_data_files": _optimize, "rewrite_manifests": _optimize_manifests},
    "spark": {
        "rewrite_data_files": _rewrite_data_files,
        "rewrite_position_delete_files": _rewrite_position_deletes,
        "rewrite_manifests": _rewrite_manifests,
    },
}

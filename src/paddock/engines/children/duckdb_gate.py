"""Proves that a text is exactly one query, of functions that only read.

DuckDB's own parser decides: one statement, of type SELECT. That is not enough: `SELECT * FROM enable_logging(...)`
is one, and it writes. So the parsed text is walked, and a function that stands where a table may stand must be in the
list of those that only read. A function that is new in the next DuckDB is refused until somebody has looked at it.
"""

import json
from collections.abc import Iterator
from typing import Any

import _duckdb as duckdb

from paddock.engines.children.wire import Failure

TABLE_FUNCTIONS = frozenset(
    [
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "repeat_row",
        "summary",
        "histogram",
        "histogram_values",
        "test_all_types",
        "read_csv",
        "read_csv_auto",
        "sniff_csv",
        "read_text",
        "read_blob",
        "glob",
        "read_json",
        "read_json_auto",
        "read_json_objects",
        "read_json_objects_auto",
        "json_each",
        "json_tree",
        "read_ndjson",
        "read_ndjson_auto",
        "read_ndjson_objects",
        "read_parquet",
        "parquet_scan",
        "parquet_schema",
        "parquet_metadata",
        "parquet_file_metadata",
        "parquet_kv_metadata",
        "parquet_full_metadata",
        "parquet_bloom_probe",
        "duckdb_columns",
        "duckdb_constraints",
        "duckdb_functions",
        "duckdb_indexes",
        "duckdb_keywords",
        "duckdb_schemas",
        "duckdb_sequences",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
        "pragma_table_info",
        "pragma_version",
        "pg_timezone_names",
        "icu_calendar_names",
    ]
)
# Functions of values: these write, or tell what the text has no business with.
NEVER = frozenset({"write_log", "nextval", "getenv", "which_secret", "json_serialize_plan", "current_setting"})
# Views of DuckDB's own that tell where files lie on this machine.
HIDDEN_VIEWS = frozenset({"duckdb_databases", "duckdb_logs", "pg_settings", "pragma_database_list"})


def prove(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """Its tree, if it is one."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise _not_one_query(sql, statements)
    tree = _tree(connection, sql)
    for node in nodes(tree):
        _look_at(node)
    top = tree["statements"][0]["node"]
    if top.get("from_table", {}).get("type") == "SHOW_REF" and sql.lstrip().split(None, 1)[0].lower() != "from":
        raise Failure(
            "query_refused",
            "DESCRIBE, SHOW and SUMMARIZE are no queries of their own here.",
            hint="Put it in parentheses: SELECT * FROM (SUMMARIZE ...).",
            refused=True,
        )
    return tree


def without_end(sql: str) -> str:
    """Without the semicolons and comments after it, so that it can stand in parentheses."""
    raw = sql.encode()
    tokens = [offset for offset, _ in duckdb.tokenize(sql)]
    ends = len(raw)
    while tokens and raw[tokens[-1] : tokens[-1] + 1] == b";":
        ends = tokens.pop()
    return raw[:ends].decode()


def _not_one_query(sql: str, statements: list[duckdb.Statement]) -> Failure:
    found = [statement.type.name for statement in statements]
    if not found:
        return Failure("query_refused", "There is no query in the text.", refused=True)
    if found == ["CREATE", "SELECT"] and not statements[0].query:
        return Failure(
            "query_refused",
            "PIVOT without its values needs two statements; an export is one query.",
            hint="Name the values: PIVOT ... ON column IN ('a', 'b').",
            refused=True,
        )
    if len(found) > 1:
        return Failure("query_refused", f"An export is one query; the text has {len(found)} statements.", refused=True)
    return Failure(
        "query_refused",
        f"An export is a query that reads (SELECT); this is {found[0].replace('_', ' ')}.",
        refused=True,
    )


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = connection.execute(
        "SELECT json_serialize_sql($sql::VARCHAR, skip_null := true, skip_empty := true)", {"sql": sql}
    ).fetchone()
    assert row is not None
    try:
        tree = json.loads(row[0])
    except RecursionError:
        raise Failure("query_refused", "The query is nested too deeply.", refused=True) from None
    if tree["error"]:
        raise Failure("query_refused", f"The query cannot be checked: {tree['error_message']}", refused=True)
    return tree


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _look_at(node: dict[str, Any]) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        name = str(node["function"].get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS:
            raise _function_refused(name)
    if node.get("type") == "BASE_TABLE" and str(node.get("table_name", "")).lower() in HIDDEN_VIEWS:
        raise _function_refused(str(node["table_name"]).lower())
    if node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in NEVER:
        raise _function_refused(str(node["function_name"]).lower())


def _function_refused(name: str) -> Failure:
    return Failure(
        "function_refused",
        f"{name} is not available to queries: it does more than read data, or tells about this machine.",
        refused=True,
    )

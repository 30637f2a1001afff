"""What is one query that only reads, and what is not. DuckDB's own parser is asked, in this process: nothing runs."""

import duckdb
import pytest

from paddock.engines.children.duckdb_errors import explained
from paddock.engines.children.duckdb_gate import TABLE_FUNCTIONS, prove, without_end
from paddock.engines.children.wire import Failure

# Not of those: they write, tell of the process, or run what was not looked at.
REFUSED = """
    arrow_scan arrow_scan_dumb checkpoint disable_logging disable_profiling duckdb_approx_database_count
    duckdb_connection_count duckdb_coordinate_systems duckdb_databases duckdb_dependencies duckdb_extensions
    duckdb_external_file_cache duckdb_log_contexts duckdb_logs duckdb_logs_parsed duckdb_memory duckdb_optimizers
    duckdb_prepared_statements duckdb_profiling_settings duckdb_secret_types duckdb_secrets duckdb_settings
    duckdb_table_sample duckdb_temporary_files duckdb_variables enable_logging enable_profiling force_checkpoint
    json_execute_serialized_sql pandas_scan pragma_collations pragma_database_size pragma_metadata_info
    pragma_platform pragma_show pragma_storage_info pragma_user_agent python_map_function query query_table
    read_duckdb seq_scan test_vector_types truncate_duckdb_logs which_secret
"""
CONNECTION = duckdb.connect(":memory:", config={"errors_as_json": True})


def refused(sql: str) -> object:
    try:
        prove(CONNECTION, sql)
    except Failure as failure:
        return failure.facts["code"]
    except duckdb.Error as problem:
        return explained(problem, sql, 0).facts["code"]
    return None


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'out.csv'",
        "COPY (SELECT 1) TO '/tmp/paddock-breakout.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
        "EXPORT DATABASE 'dump'",
        "ATTACH 'new.duckdb'",
        "ATTACH 'flights.csv' AS f (READ_ONLY)",
        "CREATE TABLE t AS SELECT 1",
        "CREATE TEMP VIEW v AS SELECT 1",
        "CREATE MACRO m() AS TABLE SELECT 1",
        "CREATE SECRET (TYPE s3)",
        "INSERT INTO t VALUES (1)",
        "DELETE FROM t",
        "UPDATE t SET x = 1",
        "DROP TABLE t",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '/tmp/evil.duckdb_extension'",
        "SET threads = 8",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "CALL enable_logging()",
        "USE memory",
        "CHECKPOINT",
        "VACUUM",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO 'out.csv'",
        "SELECT 1 /* one */ ; /* two */ DROP TABLE t; --",
        "SELECT 1) TO 'out.csv' --",
        "SELECT 1) TO PROGRAM 'sh' --",
        "SELECT 1::HUGEINT) AS q(c0); COPY (SELECT 1) TO 'out.csv' --",
        "SELECT 1::HUGEINT /* the comment goes on",
        "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
        "WITH new AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM new",
        "WITH out AS (COPY (SELECT 1) TO 'out.csv') SELECT 1",
        "",
        ";",
        "-- nothing",
    ],
)
def test_only_one_query_that_reads_is_run(sql: str) -> None:
    assert refused(sql) == "query_refused"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM enable_logging(storage = 'file', storage_path = 'logs')",
        "SELECT * FROM Enable_Logging()",
        'SELECT * FROM main."enable_logging"()',
        "SELECT (SELECT count(*) FROM enable_logging('QueryLog'))",
        "WITH t AS (FROM enable_logging()) SELECT 1 WHERE EXISTS (FROM t)",
        "SELECT * FROM enable_profiling()",
        "SELECT * FROM checkpoint()",
        "SELECT * FROM force_checkpoint()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('t')",
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM which_secret('s3://bucket/x', 's3')",
        "SELECT * FROM read_duckdb('x.duckdb')",
        "SELECT * FROM arrow_scan(1, 2, 3)",
        "SELECT * FROM pandas_scan(1)",
        "SELECT * FROM seq_scan()",
        "SELECT * FROM python_map_function()",
        "SELECT * FROM duckdb_logs()",
        "SELECT * FROM sqlite_scan('x.db', 't')",
        "SELECT * FROM postgres_scan('host=localhost', 'public', 't')",
        "SELECT write_log('x')",
        "SELECT nextval('s')",
        "SELECT getenv('HOME')",
        "SELECT current_setting('allowed_directories')",
        "SELECT Current_Setting('temp_directory')",
        "SELECT * FROM duckdb_databases",
        "SELECT name, setting FROM pg_catalog.pg_settings",
        "SELECT path FROM main.duckdb_databases AS d",
        "SELECT * FROM pragma_database_list",
        "SELECT list_transform([1], x -> write_log('x'))",
    ],
)
def test_functions_that_do_more_than_read_are_refused(sql: str) -> None:
    assert refused(sql) == "function_refused"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select 1;",
        " ; SELECT 1 ; -- the end",
        "FROM 'flights.csv' SELECT count(*)",
        "(SELECT 1 ORDER BY 1)",
        "VALUES (1), (2)",
        "TABLE t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t",
        "WITH c AS MATERIALIZED (SELECT 1) FROM c",
        "SELECT * FROM (SUMMARIZE 'flights.csv')",
        "PIVOT t ON kind IN ('a', 'b') USING sum(x)",
        "UNPIVOT t ON a, b",
        "SELECT * EXCLUDE (a) REPLACE (b + 1 AS b) FROM t QUALIFY row_number() OVER () < 3",
        "SELECT [x + 1 for x in l], list_transform(l, lambda x: x + 1) FROM t",
        "SELECT * FROM t ASOF JOIN u ON t.a >= u.a POSITIONAL JOIN v",
        "SELECT * FROM t USING SAMPLE 10%",
        "SELECT $day::DATE, $n + 1",
        "SELECT * FROM read_csv('x.csv', header = true), unnest([1, 2]) u(x), range(3)",
        "SELECT 'DROP TABLE t; COPY' AS \"a;b\" -- ; COPY t TO 'x'",
        "SELECT enable_logging FROM t AS enable_logging",
    ],
)
def test_queries_pass(sql: str) -> None:
    assert refused(sql) is None


@pytest.mark.parametrize("sql", ["SUMMARIZE t", "DESCRIBE t", "SHOW TABLES", "DESCRIBE SELECT 1"])
def test_what_describes_goes_into_parentheses(sql: str) -> None:
    with pytest.raises(Failure) as caught:
        prove(CONNECTION, sql)
    assert "parentheses" in str(caught.value.facts["hint"])


def test_a_pivot_without_values_says_what_is_missing() -> None:
    with pytest.raises(Failure) as caught:
        prove(CONNECTION, "PIVOT (SELECT 1 AS a) ON a")
    assert "Name the values" in str(caught.value.facts["hint"])


def test_nesting_without_end_is_refused_and_does_not_crash() -> None:
    assert refused("SELECT " + "abs(" * 900 + "1" + ")" * 900) == "query_refused"
    assert refused("SELECT " + "abs(" * 50_000 + "1" + ")" * 50_000) == "query_refused"


@pytest.mark.parametrize(
    ("sql", "bare"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT 1;", "SELECT 1"),
        ("SELECT 'é;' ; -- end;", "SELECT 'é;' "),
        ("SELECT 1 /* ; */ ; /* ; */ ;", "SELECT 1 /* ; */ "),
        ("SELECT $$;$$", "SELECT $$;$$"),
    ],
)
def test_what_stands_after_a_query_is_cut_off(sql: str, bare: str) -> None:
    assert without_end(sql) == bare


def test_every_table_function_was_looked_at() -> None:
    """A new version of DuckDB that brings a function makes this fail: look at what it does, then list it."""
    found = CONNECTION.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
    ).fetchall()
    assert {name for (name,) in found} - TABLE_FUNCTIONS == set(REFUSED.split())

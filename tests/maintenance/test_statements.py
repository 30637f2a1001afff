"""What engines are told: from the typed options only, with every name quoted; and what their failures mean."""

import sys
from collections.abc import Callable

import pytest

from paddock.engines.settings import SparkSettings
from paddock.engines.spark.errors import failure
from paddock.engines.spark.rewriting import SparkRewriter
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.maintenance.model import ACTIONS, REWRITES, Action, Options, TableName
from paddock.maintenance.policy import PolicyDefaults, policy_of
from paddock.maintenance.remote.statements import current_snapshot, ignored_options, statement_for

POLICY = policy_of({}, PolicyDefaults())
TABLE = TableName(catalog="lake", namespace=("sales", 'e"u'), name="or`d'ers\\")

NO_TABLE = (
    "org.apache.hive.service.cli.HiveSQLException: Error running query: [TABLE_OR_VIEW_NOT_FOUND]"
    " org.apache.spark.sql.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found."
    "\n\tat org.apache.spark.Foo.bar(Foo.scala:1)"
)


def told(engine: str, action: Action, options: Options | None = None) -> str | None:
    statement = statement_for(engine, action, 'la`k"e', TABLE, options or Options(), POLICY)
    return None if statement is None else statement.sql


def test_spark_is_called_by_procedures_with_names_in_ticks_and_texts_escaped() -> None:
    name = "'`sales`.`e\"u`.`or``d\\'ers\\\\`'"
    assert told("spark", "rewrite_data_files", Options(target_file_size_bytes=1 << 20, min_input_files=3)) == (
        f'CALL `la``k"e`.system.rewrite_data_files(table => {name},'
        " options => map('target-file-size-bytes', '1048576', 'min-input-files', '3', 'delete-file-threshold', '5'))"
    )
    assert told("spark", "rewrite_position_delete_files") == (
        f'CALL `la``k"e`.system.rewrite_position_delete_files(table => {name})'
    )
    assert told("spark", "rewrite_manifests") == (
        f'CALL `la``k"e`.system.rewrite_manifests(table => {name}, use_caching => false)'
    )
    assert current_snapshot("spark", "lake", TABLE) == (
        "SELECT snapshot_id FROM `lake`.`sales`.`e\"u`.`or``d'ers\\`.`refs` WHERE name = 'main'"
    )


def test_trino_is_told_in_double_quotes_and_folds_position_deletes() -> None:
    name = '"la`k""e"."sales.e""u"."or`d\'ers\\"'
    small = Options(target_file_size_bytes=1 << 20)
    assert told("trino", "rewrite_data_files", small) == (
        f"ALTER TABLE {name} EXECUTE optimize(file_size_threshold => '786432B')"
    )
    assert told("trino", "rewrite_position_delete_files") is None
    assert told("trino", "rewrite_manifests") == f"ALTER TABLE {name} EXECUTE optimize_manifests"


@pytest.mark.parametrize("engine", ["spark", "trino"])
def test_only_rewrites_run_there(engine: str) -> None:
    assert [action for action in ACTIONS if told(engine, action) is not None and action not in REWRITES] == []


def test_an_option_without_a_word_for_it_is_told() -> None:
    asked = Options(min_input_files=2, max_bytes=1 << 30)
    assert ignored_options("trino", "rewrite_data_files", asked) == ["min_input_files", "max_bytes"]
    assert ignored_options("spark", "rewrite_data_files", asked) == ["max_bytes"]
    assert ignored_options("spark", "rewrite_data_files", Options()) == []


@pytest.mark.parametrize(
    ("said", "code", "passes"),
    [
        (NO_TABLE, "table_or_view_not_found", False),
        ("org.apache.iceberg.exceptions.CommitFailedException: Cannot commit: stale", "commit_conflict", True),
        ("Error: org.apache.iceberg.exceptions.ForbiddenException: no grant", "role_denied", False),
        ("java.lang.IllegalArgumentException: Invalid table\n\tat x.y.CommitFailedException", "spark_failed", False),
        ("Session does not exist!", "session_lost", True),
    ],
)
def test_what_spark_says_is_one_line_with_one_meaning(said: str, code: str, passes: bool) -> None:
    problem = failure(said)
    assert problem.code == code
    assert isinstance(problem, TransientResourceError) is passes
    assert "\n" not in problem.message
    assert "Exception" not in problem.message


@pytest.mark.parametrize(
    "ask",
    [
        lambda rewriter: rewriter.rows("SELECT 1"),
        lambda rewriter: rewriter.end({"guid": "00", "secret": "00"}),
    ],
    ids=["rows", "end"],
)
def test_a_worker_without_sparks_client_says_how_to_get_it(
    ask: Callable[[SparkRewriter], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "impala"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "impala", None)
    with pytest.raises(PermanentRunnerError) as missing:
        ask(SparkRewriter("cluster", SparkSettings(type="spark", url="thrift://127.0.0.1:1")))
    assert missing.value.code == "driver_missing"
    assert "pip install 'paddock[spark]'" in str(missing.value.hint)

"""The intervals: their names, their older names, and what is no interval."""

import pytest

from paddock.background.settings import BackgroundSettings
from paddock.config import ConfigError, load


def test_both_names_set_an_interval() -> None:
    ours = load(environ={"PADDOCK_RECONCILIATION_JOB_INTERVAL_SECONDS": "600"})
    older = load(environ={"GRAPH_OLAP_SCHEMA_CACHE_JOB_INTERVAL_SECONDS": "3600"})
    assert ours.of(BackgroundSettings).reconciliation == 600
    assert older.of(BackgroundSettings).schema_cache == 3600
    assert older.of(BackgroundSettings).export_reconciliation == 5


@pytest.mark.parametrize("value", ["0", "five", "-5", "2.5"])
def test_what_is_no_whole_number_of_seconds_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(ConfigError, match="PADDOCK_LIFECYCLE_JOB_INTERVAL_SECONDS"):
        load(environ={"PADDOCK_LIFECYCLE_JOB_INTERVAL_SECONDS": value})

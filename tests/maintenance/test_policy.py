"""How a table is to be kept: whose word counts, under which name, and what becomes of a word that is none."""

import pytest

from paddock.maintenance.policy import DEFAULTS, MIB, PolicyDefaults, policy_of

NOBODY = PolicyDefaults()
CATALOG = PolicyDefaults(min_input_files=9, target_file_size_bytes=64 * MIB, maintenance_enabled=False)


def test_nobody_says_anything() -> None:
    policy = policy_of({}, NOBODY)
    assert dict(policy.values) == dict(DEFAULTS)
    assert set(policy.sources.values()) == {"default"}
    assert not policy.problems


def test_the_table_goes_before_its_catalog_and_that_before_the_default() -> None:
    policy = policy_of({"paddock.min_input_files": "3"}, CATALOG)
    assert (policy["min_input_files"], policy.sources["min_input_files"]) == (3, "paddock.min_input_files")
    assert (policy["target_file_size_bytes"], policy.sources["target_file_size_bytes"]) == (64 * MIB, "catalog")
    assert (policy["maintenance_enabled"], policy.sources["maintenance_enabled"]) == (False, "catalog")
    assert policy.sources["maintenance_cadence_hours"] == "default"
    shown = policy.json_object()["min_input_files"]
    assert shown == {"value": 3, "source": "paddock.min_input_files"}


@pytest.mark.parametrize(
    ("properties", "value", "source"),
    [
        ({}, 64 * MIB, "catalog"),
        ({"write.target-file-size-bytes": "2097152"}, 2 * MIB, "write.target-file-size-bytes"),
        (
            {"write.target-file-size-bytes": "2097152", "snowpack.target_file_size_bytes": "3145728"},
            3 * MIB,
            "snowpack.target_file_size_bytes",
        ),
        (
            {"snowpack.target_file_size_bytes": "3145728", "paddock.target_file_size_bytes": "4194304"},
            4 * MIB,
            "paddock.target_file_size_bytes",
        ),
    ],
)
def test_of_several_names_for_one_thing_ours_counts_most(properties: dict[str, str], value: int, source: str) -> None:
    policy = policy_of(properties, CATALOG)
    assert (policy["target_file_size_bytes"], policy.sources["target_file_size_bytes"]) == (value, source)


@pytest.mark.parametrize("name", ["delete_file_threshold", "remove_orphans"])
def test_what_another_maintainer_never_had_is_not_read_under_its_name(name: str) -> None:
    assert policy_of({f"snowpack.{name}": "1"}, NOBODY).sources[name] == "default"


@pytest.mark.parametrize(
    "name",
    [
        *("maintenance_enabled", "maintenance_cadence_hours", "target_file_size_bytes"),
        *("max_snapshot_age_days", "min_input_files"),
    ],
)
def test_the_names_of_another_maintainer_are_read_too(name: str) -> None:
    text = "false" if name == "maintenance_enabled" else "2097152" if name == "target_file_size_bytes" else "7"
    assert policy_of({f"snowpack.{name}": text}, NOBODY).sources[name] == f"snowpack.{name}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maintenance_enabled", "perhaps"),
        ("maintenance_cadence_hours", "0"),
        ("maintenance_cadence_hours", "nan"),
        ("target_file_size_bytes", "512MB"),
        ("max_snapshot_age_days", "0.5"),
        ("min_input_files", "1"),
        ("delete_file_threshold", "-1"),
        ("remove_orphans", ""),
    ],
)
def test_a_bad_value_is_told_and_the_next_word_counts(name: str, text: str) -> None:
    policy = policy_of({f"paddock.{name}": text}, NOBODY)
    assert policy[name] == DEFAULTS[name]
    assert policy.sources[name] == "default"
    assert f"paddock.{name}" in policy.problems[f"paddock.{name}"]


def test_blanks_around_a_value_do_not_matter() -> None:
    assert policy_of({"paddock.maintenance_enabled": " FALSE "}, NOBODY)["maintenance_enabled"] is False


def test_a_table_that_another_maintainer_skips_is_excluded_whatever_else_it_says() -> None:
    policy = policy_of({"compaction_skip": "true", "paddock.maintenance_enabled": "true"}, NOBODY)
    assert (policy["maintenance_enabled"], policy.sources["maintenance_enabled"]) == (False, "compaction_skip")
    assert policy_of({"compaction_skip": "no"}, NOBODY)["maintenance_enabled"] is True

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paddock.exports.writing.names import file_names
from paddock.exports.writing.options import OutputOptions, ending, problems


def test_checking_a_request_does_not_load_arrow() -> None:
    code = "import sys, paddock.exports.writing.options, paddock.exports.writing.names; print('pyarrow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    "given_options",
    [
        {"unknown": 1},
        {"delimiter": "ab"},
        {"delimiter": "."},
        {"delimiter": '"'},
        {"null": 'a"'},
        {"null": "a\n"},
        {"null": "a\n\n"},
        {"null": ";", "delimiter": ";"},
        {"partition_by": ["a", "A"]},
        {"partition_by": [""]},
        {"file_bytes": 10},
        {"compression": "lzo"},
        {"level": 0},
        {"level": 10},
    ],
)
def test_options_that_make_no_sense_are_refused(given_options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OutputOptions.model_validate(given_options)


def test_options_of_another_format_are_said() -> None:
    assert problems("parquet", OutputOptions(delimiter=";")) == [
        "The option delimiter belongs to the format csv, not to parquet."
    ]
    assert problems("jsonl", OutputOptions(encoding="compact", compression="snappy")) == [
        "The option encoding belongs to the format parquet, not to jsonl.",
        "The format jsonl has no compression snappy; it has none, gzip, zstd.",
    ]
    assert problems("parquet", OutputOptions(level=1, compression="gzip")) == [
        "The option level belongs to the compression zstd, not to gzip."
    ]
    assert problems("csv", OutputOptions(level=1, compression="zstd")) == [
        "The option level belongs to the format parquet, not to csv."
    ]
    assert problems("parquet", OutputOptions(level=9)) == []
    assert problems("csv", OutputOptions(delimiter=";", compression="gzip", csv_safe=True)) == []


def test_a_file_is_named_for_what_it_is() -> None:
    assert ending("parquet", OutputOptions(compression="gzip")) == ".parquet"
    assert ending("csv", OutputOptions()) == ".csv"
    assert ending("jsonl", OutputOptions(compression="zstd")) == ".jsonl.zst"


def test_repeated_names() -> None:
    assert file_names(["a", "a", "a_1", "A", ""]) == ["a", "a_2", "a_1", "A_3", "column_5"]


@given(st.lists(st.sampled_from(["a", "A", "a_1", "a_1_1", "", "column_1", "b"]), max_size=12))
def test_names_are_unique_and_the_first_keeps_its_own(columns: list[str]) -> None:
    names = file_names(columns)

    assert len({name.lower() for name in names}) == len(columns)
    for position, name in enumerate(columns):
        if name and name.lower() not in [earlier.lower() for earlier in columns[:position]]:
            assert names[position] == name or f"column_{columns.index('') + 1}".lower() == name.lower()

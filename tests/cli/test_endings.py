"""A file holds what its ending says, or is refused before anything is asked of a server."""

from pathlib import Path

import pytest

from paddock.cli import app
from paddock.cli.downloading import wanted
from paddock.cli.errors import CommandFailed
from tests.cli.test_downloading import Hostile
from tests.cli.test_downloading import hostile as hostile
from tests.cli.test_replacing import download

SQL = "SELECT 1 AS n"
EXPORTS = ".parquet, .csv, .jsonl, .ndjson; .csv, .jsonl and .ndjson also with .gz or .zst"
DUMPS = ".sql, .json, .csv, .zip, .db, .sqlite, .dump; .sql, .json, .csv, .db and .sqlite also with .gz or .zst"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that is refused as wrong usage."""
    assert app.run(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["x.xlsx", "t.txt", "data.json", "x.gz", "x.parquet.gz", "x.csv.bz2", "v1.2"])
@pytest.mark.parametrize("command", [("export", SQL), ("exports", "download", "ID")])
def test_an_export_is_written_to_no_other_ending(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, command: tuple[str, ...]
) -> None:
    refused = said(capsys, *command, "--to", name)
    assert f"the ending of {name}." in refused
    assert EXPORTS in refused
    assert f"{name}/" in refused
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["x.parquet", "x.txt", "x.gz", "x.zip.zst", "x.dump.gz", "x.csv.bz2"])
@pytest.mark.parametrize("command", [("dump", "shop"), ("dumps", "download", "ID")])
def test_a_dump_is_written_to_no_other_ending(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, command: tuple[str, ...]
) -> None:
    refused = said(capsys, *command, "-o", name)
    assert f"the ending of {name}." in refused
    assert DUMPS in refused


@pytest.mark.parametrize(
    "words",
    [
        ("export", SQL, "--to", "x.csv", "--format", "parquet"),
        ("export", SQL, "--to", "x.csv", "--option", "compression=gzip"),
        ("export", SQL, "--to", "x.csv.gz", "--option", "compression=zstd"),
        ("dump", "shop", "-o", "x.json", "--format", "sql"),
        ("dump", "shop", "-o", "x.sql", "--compress", "zstd"),
        ("dump", "shop", "-o", "x.sql.gz", "--compress", "zstd"),
    ],
)
def test_an_ending_and_an_option_agree(here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert "Change one of the two" in said(capsys, *words)


def test_one_table_is_a_csv_and_several_a_zip(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "x.zip says zip" in said(capsys, "dump", "shop", "-o", "x.zip", "--table", "a")
    assert "x.csv says csv" in said(capsys, "dump", "shop", "-o", "x.csv", "--table", "a", "--table", "b")


def test_a_name_that_is_empty_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "name is missing" in said(capsys, "dump", "shop", "--table", "")
    assert "name is missing" in said(capsys, "dump", "shop", "--exclude-table", "a", "--exclude-table", "")
    assert "Say what to export" in said(capsys, "export", "--table", "")
    assert "Say what to export" in said(capsys, "export", "")


def test_a_folder_is_named_with_a_slash_or_is_there(here: Path) -> None:
    (here / "v1.2").mkdir()
    assert not wanted("v1.2").single
    assert not wanted("v1.3/").single
    assert wanted("N.CSV.GZ").single


def test_a_file_of_another_format_is_not_downloaded_under_this_ending(hostile: Hostile, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"is \.parquet") as refused:
        download(hostile, tmp_path / "n.csv", {"part-00000.parquet": b"one"})
    assert str(refused.value.hint).endswith(f"--to {tmp_path}/n.parquet")
    download(hostile, tmp_path / "n.ndjson.gz", {"part-00000.jsonl.gz": b"one"})
    assert [path.name for path in tmp_path.iterdir()] == ["n.ndjson.gz"]

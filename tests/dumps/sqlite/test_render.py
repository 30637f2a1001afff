"""The renderer as a process of its own, for who has nothing but the file."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

ROWS = [(number, f"it's {number}", bytes([number % 256]) * (number % 9_000)) for number in range(1, 900)]


def render(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "paddock.dumps.sqlite.render", *words], capture_output=True, check=False
    )


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with apsw.Connection(str(path)) as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, content BLOB)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    database.close()
    return path


def test_sql_loads_back(shop: Path) -> None:
    loaded = apsw.Connection(":memory:")
    loaded.execute(render(str(shop)).stdout.decode())

    assert loaded.execute("SELECT * FROM t").fetchall() == ROWS


def test_json_and_csv_read_back(shop: Path) -> None:
    rows = json.loads("[" + render(str(shop), "--format", "json").stdout.decode().replace("}{", "},{") + "]")
    lines = list(csv.reader(io.StringIO(render(str(shop), "--format", "csv").stdout.decode(), newline="")))

    assert [(row["id"], row["name"], bytes.fromhex(row["content"]["$hex"])) for row in rows] == ROWS
    assert [(int(id), name, bytes.fromhex(content[2:])) for id, name, content in lines] == ROWS


@pytest.mark.parametrize("words", [(), ("a.db", "--format", "xml"), ("a.db", "b.db")])
def test_other_words_are_answered_with_the_right_ones(words: tuple[str, ...]) -> None:
    answered = render(*words)

    assert (answered.returncode, answered.stderr[:6]) == (1, b"Usage:")

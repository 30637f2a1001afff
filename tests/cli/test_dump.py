"""`paddock dump` and `paddock dumps` against a running Paddock."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from paddock.cli import resuming
from paddock.client import Client
from tests.cli.conftest import Said, Terminal, interrupted
from tests.cli.dumping import CONFIGURATION, ORDERS, Cutting, cutting, write_databases
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for

pytestmark = pytest.mark.slow

ID = re.compile(r"export_[0-9]{8}-[0-9]{6}_[0-9a-z]{6}")


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with data_folder() as data:
        write_databases(data.parent)
        (data.parent / "paddock.toml").write_text(CONFIGURATION)
        with running_up(data, "--port", "0") as running:
            running.child("worker")
            yield running


@pytest.fixture
def dumped(terminal: Terminal) -> Callable[..., str]:
    """Makes a dump and tells its id."""

    def make(*words: str) -> str:
        said = terminal("dump", *(words or ("shop",)), "-o", "name")
        assert said.code == 0, said.err
        return said.out.strip()

    return make


def loaded(file: Path) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for _ in connection.execute(file.read_text("utf-8")):
        pass
    return connection


def test_a_dump_ends_as_a_file_that_loads_back(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal("dump", "shop", "-o", str(tmp_path / "shop.sql"))

    assert said.code == 0, said.err
    assert f"{tmp_path}/shop.sql   60,050 rows in 2 tables   " in said.out
    assert " UTC   " in said.out
    assert "downloading" in said.err
    assert loaded(tmp_path / "shop.sql").execute("SELECT count(*) FROM orders").get == ORDERS
    assert [path.name for path in tmp_path.iterdir()] == ["shop.sql"]


@pytest.mark.parametrize(
    ("file", "table", "begins"),
    [
        ("shop.json", None, b'{\n"customer": [\n'),
        ("shop.zip", None, b"PK\3\4"),
        ("shop.db", None, b"SQLite format 3\0"),
        ("shop.sql.zst", None, b"\x28\xb5\x2f\xfd"),
        ("customer.csv", "customer", b"id,name\r\n"),
        ("customer.json.gz", "customer", b"\x1f\x8b"),
    ],
)
def test_the_ending_of_the_file_names_the_format(
    terminal: Terminal, tmp_path: Path, file: str, table: str | None, begins: bytes
) -> None:
    options = ["--table", table] if table else []
    made = terminal("dump", "shop", *options, "-o", str(tmp_path / file))
    checked = terminal("dump", "verify", str(tmp_path / file), data=False)

    assert made.code == 0, made.err
    assert (tmp_path / file).read_bytes().startswith(begins)
    assert checked.code == 0, checked.err
    assert "is whole" in checked.out


def test_several_tables_are_no_csv(terminal: Terminal, tmp_path: Path) -> None:
    refused = terminal("dump", "shop", "-o", str(tmp_path / "shop.csv.gz"))
    assert (refused.code, list(tmp_path.iterdir())) == (1, [])
    [words] = re.findall(r"Download it with: paddock (dumps download \S+ -o \S+/shop.zip)\n", refused.err)

    assert terminal(*words.split()).code == 0
    assert (tmp_path / "shop.zip").read_bytes().startswith(b"PK\3\4")


def test_tables_that_a_file_lacks_are_named(terminal: Terminal, tmp_path: Path) -> None:
    lacking = terminal("dump", "indexed", "-o", str(tmp_path / "indexed.json"))
    assert (lacking.code, "It lacks tables whose rows nobody can read: words\n" in lacking.err) == (0, True)
    assert "lacks" not in terminal("dump", "indexed", "-o", str(tmp_path / "indexed.sql")).err


def test_tables_that_a_dump_lacks_are_shown_later_too(terminal: Terminal, dumped: Callable[..., str]) -> None:
    lacking = terminal("dumps", "show", dumped("indexed", "--format", "json"))
    assert re.search(r"lacks +words \(nobody can read their rows\)", lacking.out)
    assert "lacks" not in terminal("dumps", "show", dumped("indexed")).out


def test_a_file_without_counts_is_compared_with_what_the_server_says(
    terminal: Terminal, dumped: Callable[..., str], tmp_path: Path
) -> None:
    id, file, told = dumped("shop", "--format", "json"), tmp_path / "shop.json", tmp_path / "told.json"
    terminal("dumps", "download", id, "-o", str(file))
    told.write_text(terminal("dumps", "show", id, "-o", "json").out)

    whole = terminal("dump", "verify", str(file), "--told", str(told), data=False)
    told.write_text(told.read_text().replace(f'"orders": {ORDERS}', f'"orders": {ORDERS + 1}'))
    differs = terminal("dump", "verify", str(file), "--expected", str(told), data=False)
    useless = terminal("dump", "verify", str(file), "--expected", str(file), data=False)

    assert (whole.code, whole.err) == (0, "")
    assert (differs.code, f"differs: the dump says {ORDERS + 1:,}" in differs.out) == (1, True), differs.out
    assert (useless.code, "does not have the rows and the digest" in useless.err) == (1, True), useless.err


def test_options_reach_the_dump(terminal: Terminal, tmp_path: Path) -> None:
    terminal("dump", "shop", "--schema-only", "--exclude-table", "orders", "-o", str(tmp_path / "a.sql"))
    assert "CREATE TABLE customer" in (tmp_path / "a.sql").read_text()
    assert "INSERT" not in (tmp_path / "a.sql").read_text()
    assert "orders" not in (tmp_path / "a.sql").read_text()

    terminal("dump", "shop", "--data-only", "--table", "customer", "-o", str(tmp_path / "b.sql"))
    assert "INSERT" in (tmp_path / "b.sql").read_text()
    assert "CREATE" not in (tmp_path / "b.sql").read_text()


def test_a_dump_to_standard_output_is_the_dump_alone(up: Up, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paddock.cli", "dump", "shop", "--table", "customer", "--format", "csv", "-o", "-"]
    done = subprocess.run(
        [*command, "--data", str(up.data)], capture_output=True, env=clean_environment(), cwd=tmp_path, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b'id,name\r\n0,"it\'s; 0"\r\n')
    assert done.stdout.count(b"\r\n") == 51


def test_a_file_that_is_there_is_not_written_over(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text("precious")

    refused = terminal("dump", "empty", "-o", str(tmp_path / "shop.sql"))
    assert refused.code == 2
    assert "is there already" in refused.err
    assert (tmp_path / "shop.sql").read_text() == "precious"

    assert terminal("dump", "empty", "-o", str(tmp_path / "shop.sql"), "--force").code == 0
    assert "CREATE TABLE bare" in (tmp_path / "shop.sql").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere"], 3, "Database 'nowhere' does not exist."),
        (["shop", "--table", "nothing"], 3, "Table 'nothing' does not exist."),
        (["shop", "--format", "custom"], 2, "not exported as 'custom'"),
        (["shop", "--format", "json", "--schema-only"], 2, "schemaOnly and dataOnly are for"),
        (["shop", "-o", "/nowhere/at/all.sql"], 2, "/nowhere/at is not a folder"),
        (["shop", "--no-wait", "-o", "x.sql"], 2, "nothing to write yet"),
        (["shop", "-o", "-", "-o", "json"], 2, "no room for an answer"),
        (["shop", "-o", "a.sql", "-o", "b.sql"], 2, "one FILE"),
        ([""], 3, "Database '' does not exist."),
    ],
)
def test_what_cannot_be_is_a_sentence(terminal: Terminal, words: list[str], code: int, said: str) -> None:
    answer = terminal("dump", *words)

    assert answer.code == code
    assert said in answer.err


def test_a_dump_that_fails_says_why(terminal: Terminal) -> None:
    answer = terminal("dump", "broken")

    assert answer.code == 1
    assert "failed: The database broken.db is not a SQLite database" in answer.err
    assert "paddock why" in answer.err


def test_a_started_dump_is_listed_shown_and_removed(terminal: Terminal) -> None:
    started = terminal("dump", "shop", "--table", "customer", "--no-wait")
    [id] = ID.findall(started.out)
    assert terminal("dumps", "watch", id).code == 0

    assert id in terminal("dumps", "list", "-o", "name").lines
    [listed] = [line for line in terminal("dumps", "list").lines if id in line]
    assert "completed" in listed
    assert "customer" in listed
    assert terminal("dumps", "list", "--database", "empty", "-o", "name").out.find(id) == -1
    shown = terminal("dumps", "show", id)
    assert re.search(r"rows\s+50\n", shown.out)
    assert re.search(r"as of\s+20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", shown.out)
    assert terminal("dumps", "show", id, "-o", "json").json["tables"] == {"customer": 50}
    assert terminal("dumps", "show", id, "-o", "yaml").yaml["jobId"] == id

    refused = terminal("dumps", "cancel", id)
    assert refused.code == 4
    assert f"paddock dumps rm {id}" in refused.err
    assert terminal("dumps", "rm", id).code == 0
    assert terminal("dumps", "show", id).code == 3


def test_a_list_goes_over_pages(
    terminal: Terminal, dumped: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {dumped("empty", "--format", "json") for _ in range(3)}
    monkeypatch.setattr("paddock.dumps.commands.dumps.PAGE", 2)

    listed = terminal("dumps", "list", "--database", "empty", "--limit", "1000", "-o", "name").lines
    assert made <= set(listed)
    assert listed == sorted(listed, key=lambda id: id[:-7], reverse=True)
    assert terminal("dumps", "list", "--database", "empty", "--limit", "3", "-o", "name").lines == listed[:3]


def test_a_dump_that_waits_is_cancelled_and_not_removed(terminal: Terminal) -> None:
    [id] = ID.findall(terminal("dump", "elsewhere", "--no-wait").out)

    refused = terminal("dumps", "rm", id)
    assert refused.code == 4
    assert f"paddock dumps cancel {id}" in refused.err
    assert terminal("dumps", "cancel", id).code == 0
    wait_for("it is cancelled", lambda: terminal("dumps", "show", id, "-o", "json").json["status"] == "cancelled")
    ended = terminal("dumps", "download", id)
    assert ended.code == 1
    assert "cancelled" in ended.err


def test_ctrl_c_tells_how_to_go_on(up: Up, tmp_path: Path) -> None:
    said = interrupted(up, tmp_path, "waiting", "dump", "elsewhere", "-o", "x.sql")
    [id, *_] = ID.findall(said)
    assert f"paddock dumps download {id} -o x.sql" in said
    assert f"paddock dumps cancel {id}" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("database", "why"),
    [("away", "PostgreSQL did not answer"), ("elsewhere", "no live worker offers the kind 'dump:elsewhere'")],
)
def test_a_database_that_cannot_be_reached_is_said_while_it_waits(
    up: Up, terminal: Terminal, tmp_path: Path, database: str, why: str
) -> None:
    said = interrupted(up, tmp_path, why, "dump", database, "-o", "x.sql")

    [id, *_] = ID.findall(said)
    assert why in said
    if database == "away":
        assert why in terminal("dumps", "show", id, "-o", "json").json["waitingReason"]
    assert terminal("dumps", "cancel", id).code == 0


def test_doctor_asks_every_engine_database_and_destination(up: Up, terminal: Terminal) -> None:
    """Here, where some of each cannot be reached."""
    assert terminal("jobs", "submit", "probe", "--wait").code == 0, "a worker is there"
    told = terminal("doctor", "--no-probe")

    assert told.code == 1
    for line in (
        r"✗ engines .*ledger: connection: .*NOT_SET_ANYWHERE, which is not set\.",
        r"✗ engines .*cluster: reachable: .*cannot be reached",
        r"✓ engines .*files answers ",
        r"✗ databases .*away: PostgreSQL did not answer",
        r"! databases .*elsewhere was not checked: no live worker offers dump:elsewhere\.",
        r"✓ databases .*shop can be dumped by ",
        r"! destinations .*lake cannot be written from the control plane",
    ):
        assert re.search(rf"^{line}", told.out, re.MULTILINE), told.out
    assert "Error:" not in told.out
    assert "doctor" not in terminal("dumps", "list").out


# Downloads


def through(proxy: Cutting, up: Up, terminal: Terminal, *words: str) -> Said:
    token = up.data / "admin.token"
    return terminal(*words, "--server", proxy.url, "--token-file", str(token), data=False)


def test_a_download_that_breaks_goes_on_where_it_broke(
    up: Up, terminal: Terminal, dumped: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "FIRST_PAUSE", 0.0)
    id = dumped()
    assert terminal("dumps", "download", id, "-o", str(tmp_path / "whole.sql")).code == 0

    with cutting(Cutting(up.address["url"], [1_000_000, 2_000_000, 1 << 40])) as proxy:
        said = through(proxy, up, terminal, "dumps", "download", id, "-o", str(tmp_path / "broken.sql"))

    assert said.code == 0, said.err
    assert (tmp_path / "broken.sql").read_bytes() == (tmp_path / "whole.sql").read_bytes()
    assert [(asked, status) for asked, _, status in proxy.ranges] == [
        (None, 200),
        ("bytes=1000000-", 206),
        ("bytes=3000000-", 206),
    ]
    assert proxy.ranges[1][1] is not None


def test_what_an_earlier_download_left_is_gone_on_with(
    up: Up, terminal: Terminal, dumped: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "FIRST_PAUSE", 0.0)
    id = dumped()
    target = tmp_path / "shop.sql"
    with cutting(Cutting(up.address["url"], [1_500_000, 0])) as proxy:
        broken = through(proxy, up, terminal, "dumps", "download", id, "-o", str(target))
    assert broken.code == 1
    assert not target.exists()
    [partial] = tmp_path.iterdir()
    assert partial.stat().st_size == 1_500_000

    with cutting(Cutting(up.address["url"], [1 << 40])) as proxy:
        assert through(proxy, up, terminal, "dumps", "download", id, "-o", str(target)).code == 0
    assert [asked for asked, _, _ in proxy.ranges] == ["bytes=1500000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["shop.sql"]
    assert loaded(target).execute("SELECT count(*) FROM orders").get == ORDERS


def test_ctrl_c_during_a_download_tells_how_to_go_on_with_it(
    up: Up, terminal: Terminal, dumped: Callable[..., str], tmp_path: Path
) -> None:
    id, held = dumped(), threading.Event()
    words = ["dumps", "download", id, "-o", "my shop.sql", "--force"]
    with cutting(Cutting(up.address["url"], [1_500_000], held=held)) as proxy:
        asked = ["--server", proxy.url, "--token-file", str(up.data / "admin.token")]
        said = interrupted(up, tmp_path, "downloading", *words, *asked)
        held.set()

    assert f"`paddock dumps download {id} -o 'my shop.sql' --force` resumes it." in said
    assert "cancel" not in said
    assert "Traceback" not in said
    [partial] = tmp_path.glob("my shop.sql.partial-*")
    assert 0 < partial.stat().st_size <= 1_500_000


def test_what_was_changed_meanwhile_is_not_taken_for_the_dump(
    terminal: Terminal, up: Up, dumped: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "FIRST_PAUSE", 0.0)
    id = dumped()
    target = tmp_path / "shop.sql"
    with cutting(Cutting(up.address["url"], [1_500_000, 0])) as proxy:
        through(proxy, up, terminal, "dumps", "download", id, "-o", str(target))
    [partial] = tmp_path.iterdir()
    with partial.open("r+b") as file:
        file.seek(700_000)
        file.write(b"~~~~")

    spoilt = terminal("dumps", "download", id, "-o", str(target))
    assert spoilt.code == 1
    assert "did not arrive as it was sent" in spoilt.err
    assert not list(tmp_path.iterdir())
    assert terminal("dumps", "download", id, "-o", str(target)).code == 0


def test_a_link_in_the_place_of_the_partial_file_is_not_followed(
    up: Up, terminal: Terminal, dumped: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "FIRST_PAUSE", 0.0)
    id = dumped()
    target = tmp_path / "shop.sql"
    with cutting(Cutting(up.address["url"], [1_500_000, 0])) as proxy:
        through(proxy, up, terminal, "dumps", "download", id, "-o", str(target))
    [partial] = tmp_path.iterdir()
    partial.unlink()
    (tmp_path / "precious").write_text("precious")
    partial.symlink_to(tmp_path / "precious")

    said = terminal("dumps", "download", id, "-o", str(target))
    assert said.code == 1
    assert "cannot be written" in said.err
    assert (tmp_path / "precious").read_text() == "precious"


def test_two_downloads_do_not_write_to_one_file(
    up: Up, terminal: Terminal, dumped: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(resuming, "FIRST_PAUSE", 0.0)
    id = dumped()
    target = tmp_path / "shop.sql"
    with cutting(Cutting(up.address["url"], [1_500_000, 0])) as proxy:
        through(proxy, up, terminal, "dumps", "download", id, "-o", str(target))
    [partial] = tmp_path.iterdir()

    with partial.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        said = terminal("dumps", "download", id, "-o", str(target))
    assert said.code == 1
    assert "Another process is downloading" in said.err


def test_a_download_into_a_folder_gets_the_dumps_name(
    terminal: Terminal, dumped: Callable[..., str], tmp_path: Path
) -> None:
    id = dumped("empty")

    assert terminal("dumps", "download", id, "-o", str(tmp_path)).code == 0
    assert [path.name for path in tmp_path.iterdir()] == [f"empty_{id}.sql"]


def test_a_dump_of_a_database_that_one_may_have_is_downloaded_though_its_job_is_hidden(
    up: Up, client: Client, terminal: Terminal, dumped: Callable[..., str], tmp_path: Path
) -> None:
    id = dumped("empty")
    made = client.request("POST", "/api/tokens", body={"name": "ada", "role": "analyst", "databases": ["empty"]})
    (tmp_path / "token").write_text(made["data"]["token"])
    os.chmod(tmp_path / "token", 0o600)
    asked = ["--server", up.address["url"], "--token-file", str(tmp_path / "token")]

    said = terminal("dumps", "download", id, "-o", str(tmp_path / "empty.sql"), *asked, data=False)

    assert said.code == 0, said.err
    assert "CREATE TABLE bare" in (tmp_path / "empty.sql").read_text()
    refused = terminal("dump", "shop", *asked, data=False)
    assert refused.code == 3

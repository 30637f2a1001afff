"""What cannot be dumped whole is refused, in words that say what to do."""

from pathlib import Path
from typing import Any, get_args

import pytest

from paddock.dumps.model import Format
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.dumps.postgres.conftest import Connection, Place
from tests.dumps.postgres.dumping import dumped

FORMATS: list[Format] = [format for format in get_args(Format) if format != "sqlite"]
pytestmark = pytest.mark.parametrize("format", FORMATS)


async def test_rows_that_a_policy_hides(admin: Connection, source: Place, format: Format) -> None:
    await admin.execute(
        "CREATE TABLE secrets AS SELECT i FROM generate_series(1, 100) i; GRANT SELECT ON secrets TO reader;"
        "ALTER TABLE secrets ENABLE ROW LEVEL SECURITY; CREATE POLICY half ON secrets USING (i % 2 = 0)"
    )

    with pytest.raises(PermanentRunnerError) as refused:
        await dumped(source.settings("reader"), format)

    assert refused.value.code == "row_security"
    assert "'secrets'" in refused.value.message
    assert "BYPASSRLS" in (refused.value.hint or "")


async def test_rows_that_the_login_may_not_read(admin: Connection, source: Place, format: Format) -> None:
    await admin.execute("CREATE TABLE mine (a int); CREATE TABLE theirs (a int); GRANT SELECT ON mine TO reader")

    with pytest.raises(PermanentRunnerError) as refused:
        await dumped(source.settings("reader"), format)

    assert refused.value.code == "access_denied"
    assert "theirs" in refused.value.message
    await dumped(source.settings("reader"), format, exclude_tables=["theirs"])


@pytest.mark.parametrize("option", ["tables", "exclude_tables"])
async def test_a_table_that_is_not_there(admin: Connection, source: Place, format: Format, option: str) -> None:
    await admin.execute('CREATE TABLE "Things" (a int)')

    options: dict[str, Any] = {option: ["Things", "things"]}

    with pytest.raises(PermanentRunnerError) as refused:
        await dumped(source.settings(), format, **options)

    assert (refused.value.code, refused.value.message) == ("unknown_table", "Table 'things' does not exist.")


async def test_a_table_that_somebody_holds(admin: Connection, source: Place, format: Format) -> None:
    await admin.execute("CREATE TABLE held (a int)")
    async with admin.transaction():
        await admin.execute("LOCK TABLE held IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(TransientResourceError) as waited:
            await dumped(source.settings(lock_timeout_seconds=0.05), format)

    assert waited.value.code == "lock_timeout"


async def test_a_wrong_password(source: Place, tmp_path: Path, format: Format) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("swordfish")

    with pytest.raises(PermanentRunnerError) as refused:
        await dumped(source.settings(password_file=wrong), format)

    assert refused.value.code == "login_refused"
    assert "swordfish" not in refused.value.message


async def test_a_server_that_is_not_there(source: Place, format: Format) -> None:
    with pytest.raises(TransientResourceError) as away:
        await dumped(source.settings(url="postgresql://boss@127.0.0.1:1/paddock"), format)

    assert away.value.code == "database_unavailable"

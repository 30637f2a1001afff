"""The rights that docs/dumps.md names are enough to dump everything."""

import re
from pathlib import Path

from tests.dumps.postgres.conftest import PASSWORD, Connection, Place
from tests.dumps.postgres.dumping import dumped

DOCS = Path(__file__).parents[3] / "docs" / "dumps.md"
TABLES = """
CREATE SCHEMA closed;
CREATE TABLE closed.secrets (id serial PRIMARY KEY, owner text);
INSERT INTO closed.secrets (owner) VALUES ('a'), ('b');
ALTER TABLE closed.secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY nobody ON closed.secrets USING (false);
CREATE MATERIALIZED VIEW closed.seen AS SELECT count(*) FROM closed.secrets;
"""


async def test_the_rights_in_the_docs_are_enough(admin: Connection, source: Place) -> None:
    [rights] = re.findall(r"```sql\n(CREATE ROLE paddock_dumps .*?)```", DOCS.read_text(), re.DOTALL)
    await admin.execute(TABLES)
    await admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    await admin.execute(rights.replace("...", PASSWORD).replace("DATABASE books", f"DATABASE {source.name}"))
    try:
        for format in ("sql", "custom", "json", "csv"):
            whole = await dumped(source.settings("paddock_dumps"), format)
            assert whole.counts["closed.secrets"] == 2, format
    finally:
        await admin.execute("DROP OWNED BY paddock_dumps; DROP ROLE paddock_dumps")

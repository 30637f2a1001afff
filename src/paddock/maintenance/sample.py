"""A table that wants maintenance, to try things on: `python -m paddock.maintenance.sample FOLDER`.

A catalog in SQLite, its files beside it, and in it `sales.orders`: 200 small files. What stands in `paddock.toml` for it is printed.
"""

import random
import sys
from pathlib import Path

CATALOG = "lake"
TABLE = "sales.orders"
# Beside it in the demo, which leaves it for people to bring in order.
ANOTHER = "sales.returns"
FILES, COMMITS, ROWS = 200, 10, 20_000
SMALL = "write.target-file-size-bytes"


def settings_of(folder: Path) -> str:
    """For `paddock.toml`."""
    home = folder.absolute()
    return (
        f"[catalogs.{CATALOG}]\n"
        'type = "sql"\n'
        f'properties = {{ uri = "sqlite:///{home}/catalog.db", warehouse = "{home.as_uri()}/warehouse" }}\n'
    )


def make_table(folder: Path, files: int = FILES, *, name: str = TABLE) -> str:
    """The name of the table, which is made below this folder."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    home = folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{home}/catalog.db", warehouse=f"{home.as_uri()}/warehouse")
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    chance = random.Random(20261116)
    first, rows = 0, max(ROWS // COMMITS, files)
    table = None
    for _ in range(COMMITS):
        ids = range(first, first + rows)
        content = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "city": pa.array([chance.choice(("Oslo", "Lima", "Kyiv", "Accra", "Quito")) for _ in ids]),
                "price": pa.array([round(chance.uniform(1, 500), 2) for _ in ids]),
            }
        )
        if table is None:
            # Files of this size are cut from each commit; afterwards the table says nothing about it.
            each = content.nbytes * COMMITS // files + content.nbytes // rows
            table = catalog.create_table(name, content.schema, properties={SMALL: str(each)})
        table.append(content)
        first += rows
    assert table is not None
    with table.transaction() as change:
        change.remove_properties(SMALL)
    catalog.engine.dispose()
    return name


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "lake")
    make_table(place)
    sys.stdout.write(settings_of(place))

"""Names of tables, as people write them and as PostgreSQL's programs take them."""

import re

from paddock.engines.children.quoting import quoted

_IDENTIFIER = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


def name_of(schema: str, table: str) -> str:
    """`table` in public, else `schema.table`. A part with a dot or a quote in it stands in quotes: two tables never
    have the same name."""
    return _part(table) if schema == "public" else f"{_part(schema)}.{_part(table)}"


def _part(name: str) -> str:
    return quoted(name) if "." in name or '"' in name else name


def full(schema: str, table: str) -> str:
    """For SQL, and as a pattern for pg_dump: in quotes it takes every character for itself."""
    return f"{quoted(schema)}.{quoted(table)}"


def from_sql(qualified: str) -> str:
    """`public."a b"`, as pg_dump writes it."""
    schema, table = [given.replace('""', '"') if given else plain for given, plain in _IDENTIFIER.findall(qualified)]
    return name_of(schema, table)

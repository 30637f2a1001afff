"""The tables there are, and those of them that a dump is about."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paddock.dumps.model import DumpOptions
from paddock.dumps.postgres.names import full, name_of
from paddock.engines.postgres.session import Connection
from paddock.jobs.errors import PermanentRunnerError

# Foreign tables are among them because they can be partitions; their rows are never read. What an extension made, it
# makes again. Large values count four times: they are packed.
_RELATIONS = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS "table", c.relkind::text AS kind,
       c.reltuples::float8 AS rows,
       pg_catalog.pg_table_size(c.oid)
         + 3 * coalesce(pg_catalog.pg_relation_size(nullif(c.reltoastrelid, 0)), 0) AS bytes,
       pg_catalog.row_security_active(c.oid) AS row_security,
       (SELECT i.inhparent::int8 FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid AND c.relispartition) AS parent,
       EXISTS (SELECT FROM pg_catalog.pg_partitioned_table t JOIN pg_catalog.pg_opclass o ON o.oid = ANY (t.partclass)
               JOIN pg_catalog.pg_am a ON a.oid = o.opcmethod AND a.amname = 'hash'
               WHERE t.partrelid = c.oid AND o.opcname = 'enum_ops'
                 AND o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace) AS hashes_enum
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                  WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname <> 'public', n.nspname, c.relname
"""
# `type` is what a domain stands for. `plain`: its JSON can hold no line end, because no json is in it.
_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attrelid, a.attnum, a.attname, a.attgenerated, a.atttypid AS type
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = ANY ($1::int8[]::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.attrelid, b.attnum, b.attname, b.attgenerated, t.typbasetype
    FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT b.attrelid::int8 AS oid, b.attname::text AS name, b.attgenerated::text <> '' AS generated,
       t.typname::text AS type,
       t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AS built_in,
       t.typcategory::text AS category,
       t.typname <> 'json' AND t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace
         AND t.typtype = 'b' AND t.typelem = 0 OR t.typtype = 'e' AS plain
FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.type AND t.typtype <> 'd'
ORDER BY b.attrelid, b.attnum
"""
# Categories of types whose text is never empty and never what people wrote: numbers, dates, times, booleans, geometry,
# networks, arrays, ranges, rows.
_NO_TEXT = ("N", "D", "T", "B", "G", "I", "A", "R", "C")


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    generated: bool
    type: str
    plain: bool
    text: bool


@dataclass(frozen=True, slots=True)
class Relation:
    oid: int
    schema: str
    table: str
    kind: str
    rows: int | None
    bytes: int
    row_security: bool
    parent: int | None
    # Partitioned by the hash of an enum, which is another one in each database.
    hashes_enum: bool = False
    columns: Sequence[RelationColumn] = field(default=())

    @property
    def name(self) -> str:
        return name_of(self.schema, self.table)

    @property
    def full(self) -> str:
        return full(self.schema, self.table)

    @property
    def foreign(self) -> bool:
        return self.kind == "f"

    @property
    def partitioned(self) -> bool:
        return self.kind == "p"


async def relations(connection: Connection) -> list[Relation]:
    return [
        Relation(
            oid=row["oid"],
            schema=row["schema"],
            table=row["table"],
            kind=row["kind"],
            # -1: never counted.
            rows=int(row["rows"]) if row["rows"] >= 0 else None,
            # A table that is dropped right now has none.
            bytes=row["bytes"] or 0,
            row_security=bool(row["row_security"]),
            parent=row["parent"],
            hashes_enum=row["hashes_enum"],
        )
        for row in await connection.fetch(_RELATIONS)
    ]


async def columns(connection: Connection, of: Iterable[Relation]) -> dict[int, list[RelationColumn]]:
    found: dict[int, list[RelationColumn]] = {relation.oid: [] for relation in of}
    for row in await connection.fetch(_COLUMNS, list(found)):
        built_in = row["built_in"]
        found[row["oid"]].append(
            RelationColumn(
                row["name"],
                row["generated"],
                row["type"] if built_in else "",
                plain=row["plain"],
                text=not built_in or row["category"] not in _NO_TEXT,
            )
        )
    return found


def chosen(all_of_them: Sequence[Relation], options: DumpOptions) -> list[Relation]:
    """A partitioned table stands for its partitions too."""
    named = _below(all_of_them, _named(all_of_them, options.tables)) if options.tables else None
    excluded = _below(all_of_them, _named(all_of_them, options.exclude_tables))
    return [
        relation
        for relation in all_of_them
        if relation.oid not in excluded and (named is None or relation.oid in named)
    ]


def as_people_see_them(all_of_them: Sequence[Relation], picked: Sequence[Relation]) -> list[Relation]:
    """What JSON and CSV are written of: a partitioned table is one table, unless some partition of it is left out or
    is a foreign table. Then the others stand for themselves."""
    oids = {relation.oid for relation in picked if not relation.foreign}
    children: dict[int, list[Relation]] = {}
    for relation in all_of_them:
        if relation.parent is not None:
            children.setdefault(relation.parent, []).append(relation)

    def whole(relation: Relation) -> bool:
        return relation.oid in oids and all(whole(child) for child in children.get(relation.oid, ()))

    by_oid = {relation.oid: relation for relation in all_of_them}

    def hidden(relation: Relation) -> bool:
        parent = by_oid.get(relation.parent) if relation.parent is not None else None
        return parent is not None and (whole(parent) or hidden(parent))

    return [
        relation
        for relation in picked
        if not relation.foreign and not hidden(relation) and (not relation.partitioned or whole(relation))
    ]


def counted_as(all_of_them: Sequence[Relation], picked: Sequence[Relation]) -> dict[int, Relation]:
    """Under which table the rows of each are counted: their own, or its outermost one where they may come into another
    partition when they are loaded. pg_dump writes those for the outermost table too."""
    by_oid = {relation.oid: relation for relation in all_of_them}
    there = {relation.oid for relation in picked}

    def outermost(relation: Relation) -> Relation:
        above, moves = relation, False
        while above.parent is not None and above.parent in by_oid:
            above = by_oid[above.parent]
            moves = moves or above.hashes_enum
        return above if moves and above.oid in there else relation

    return {
        relation.oid: outermost(relation) for relation in picked if not relation.foreign and not relation.partitioned
    }


def _named(all_of_them: Sequence[Relation], names: Sequence[str]) -> list[Relation]:
    if not names:
        return []
    exact = {relation.name: relation for relation in all_of_them}
    spoken: dict[str, list[Relation]] = {}
    for relation in all_of_them:
        spoken.setdefault(f"{relation.schema}.{relation.table}", []).append(relation)
        if relation.schema == "public":
            spoken.setdefault(relation.table, []).append(relation)
    return [exact.get(name) or _only(name, spoken) for name in names]


def _only(name: str, spoken: Mapping[str, Sequence[Relation]]) -> Relation:
    found = spoken.get(name, ())
    if len(found) == 1:
        return found[0]
    if found:
        others = " or ".join(f"'{relation.name}'" for relation in found)
        raise PermanentRunnerError(f"Table '{name}' may be {others}: say which.", code="unknown_table")
    raise PermanentRunnerError(f"Table '{name}' does not exist.", code="unknown_table")


def _below(all_of_them: Sequence[Relation], given: Collection[Relation]) -> set[int]:
    oids = {relation.oid for relation in given}
    grown = True
    while grown:
        children = {relation.oid for relation in all_of_them if relation.parent in oids}
        grown = not children <= oids
        oids |= children
    return oids

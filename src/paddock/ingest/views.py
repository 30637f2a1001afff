"""The published files of a source as SQL for DuckDB."""

from collections.abc import Sequence

from paddock.engines.children.quoting import literal, quoted


def view_of(source: str, paths: Sequence[str], *, every_version: bool) -> str:
    """Quoted names only: a source and a path may hold anything that a file name may."""
    listed = ",\n    ".join(map(literal, paths))
    name = quoted(source)
    newest = (
        ""
        if every_version
        else "\nQUALIFY row_number() OVER (PARTITION BY stream, id ORDER BY run_id DESC, batch DESC, position DESC) = 1"
    )
    return f"CREATE OR REPLACE VIEW {name} AS\nSELECT * FROM read_parquet([\n    {listed}\n], union_by_name = true){newest};\n"

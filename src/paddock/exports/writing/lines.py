"""Batches as lines of CSV or JSON. How single values look is said in `text`.

CSV: text is always in quotes, numbers, dates and booleans never; NULL is the bare null text. So NULL, the empty text and
a text that looks like a number stay apart for every reader that minds quotes (PostgreSQL's COPY, DuckDB and Arrow with
the matching option do). Nested values are their JSON. Lines end with a line feed.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from paddock.exports.writing.options import Format, OutputOptions
from paddock.exports.writing.text import TEXT, is_binary, is_nested, is_text, json_object, plain_text

# What a spreadsheet takes for the beginning of a formula.
FORMULA = r"\A[=+\-@\t\r]"


class Lines(Protocol):
    def header(self, names: Sequence[str]) -> bytes: ...

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """One text for each row, its line end included."""


class JsonLines:
    def header(self, names: Sequence[str]) -> bytes:
        return b""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        objects = json_object(batch.schema.names, batch.columns)
        return pc.binary_join_element_wise(objects, pa.scalar("\n", TEXT), pa.scalar("", TEXT))


class CsvLines:
    def __init__(self, options: OutputOptions) -> None:
        self._options = options

    def header(self, names: Sequence[str]) -> bytes:
        if not self._options.header:
            return b""
        cells = _quoted(self._safe(pa.array(names, TEXT))).to_pylist()
        return (self._options.delimiter.join(cells) + "\n").encode()

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        cells = [self._cells(column) for column in batch.columns]
        rows = pc.binary_join_element_wise(*cells, pa.scalar(self._options.delimiter, TEXT))
        return pc.binary_join_element_wise(rows, pa.scalar("\n", TEXT), pa.scalar("", TEXT))

    def _cells(self, column: pa.Array) -> pa.Array:
        text = plain_text(column)
        if needs_quotes(column.type):
            text = _quoted(self._safe(text))
        elif self._options.null:
            # A number may look like the null text too: `0` for NULL makes the number "0".
            same = pc.equal(text, pa.scalar(self._options.null, TEXT))
            text = pc.if_else(same, _quoted(text), text)
        return text.fill_null(self._options.null)

    def _safe(self, text: pa.Array) -> pa.Array:
        if not self._options.csv_safe:
            return text
        marked = pc.binary_join_element_wise(pa.scalar("'", TEXT), text, pa.scalar("", TEXT))
        return pc.if_else(pc.match_substring_regex(text, FORMULA), marked, text)


def _quoted(text: pa.Array) -> pa.Array:
    quote = pa.scalar('"', TEXT)
    return pc.binary_join_element_wise(quote, pc.replace_substring(text, '"', '""'), quote, pa.scalar("", TEXT))


def needs_quotes(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        return needs_quotes(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return not isinstance(type, pa.UuidType) and needs_quotes(type.storage_type)
    return is_text(type) or is_binary(type) or is_nested(type)


def lines_of(file_format: Format, options: OutputOptions) -> Lines:
    return CsvLines(options) if file_format == "csv" else JsonLines()

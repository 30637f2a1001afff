"""From what Trino sends to record batches, by encoding: another encoding is another `Decoder`."""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from paddock.engines.trino.casting import awkward, needs_pairs
from paddock.engines.trino.decoding.by_csv import ByCsv, is_flat
from paddock.engines.trino.decoding.by_objects import ByObjects
from paddock.engines.trino.decoding.pages import decompress as decompress
from paddock.engines.trino.decoding.pages import split_page as split_page
from paddock.engines.trino.decoding.problems import BadPage as BadPage
from paddock.engines.trino.decoding.problems import NotAsPairs
from paddock.engines.trino.types import TrinoColumn, check


class Decoder(Protocol):
    def decode(self, rows: bytes) -> pa.RecordBatch:
        """Of the text `[[...],...]`. Takes its time: call it on a thread."""


def decoder_for(columns: Sequence[TrinoColumn], encoding: str = "json") -> Decoder:
    """`encoding` is what is inside the compression: `json+zstd` holds json."""
    if encoding.partition("+")[0] != "json":
        raise BadPage(f"The server sends '{encoding}', which was not asked for.")
    check(columns)
    for column in columns:
        if needs_pairs(column.signature):
            raise NotAsPairs(column.name, column.native, awkward(column))
    return ByCsv(columns) if is_flat(columns) else ByObjects(columns)

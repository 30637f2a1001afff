"""What the ending of a file's name promises: a format, and how it is compressed. A file holds what its ending says, or is
not written."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from paddock.cli.errors import CommandFailed, wrong_usage

PACKED = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class Ending:
    text: str
    format: str
    compression: str | None = None

    def same_as(self, other: "Ending") -> bool:
        """`.ndjson` and `.jsonl` promise the same."""
        return (self.format, self.compression) == (other.format, other.compression)


@dataclass(frozen=True, slots=True)
class Endings:
    """The endings there are. Formats in `closed` compress by themselves, so that nothing follows their ending."""

    formats: Mapping[str, str]
    closed: Sequence[str]

    def find(self, name: str) -> Ending | None:
        *_, before, last = ["", "", *PurePath(name).suffixes]
        packed = last if last.lower() in PACKED else ""
        plain = before if packed else last
        format = self.formats.get(plain.lower())
        if format is None or (packed and format in self.closed):
            return None
        return Ending(f"{plain}{packed}", format, PACKED.get(packed.lower()))

    def of(self, path: PurePath, hint: str = "") -> Ending | None:
        """None where the name has no ending at all; one that promises nothing known is refused."""
        found = self.find(path.name)
        if found is None and path.suffix:
            raise wrong_usage(f"No file is written with the ending of {path.name}.", f"{self}{hint}")
        return found

    def __str__(self) -> str:
        packable = [ending for ending, format in self.formats.items() if format not in self.closed]
        return (
            f"The endings there are: {', '.join(self.formats)}; "
            f"{', '.join(packable[:-1])} and {packable[-1]} also with .gz or .zst behind them."
        )

    def check(self, path: PurePath, sent: str, again: str) -> None:
        """The file that the server has under the name `sent` may be written to `path`; `again` is the command that
        downloads it, without the name to give."""
        promised, held = self.find(path.name), self.find(sent)
        if promised is None or held is None or promised.same_as(held):
            return
        better = shlex.quote(str(path.with_name(path.name.removesuffix(promised.text) + held.text)))
        raise CommandFailed(
            f"The file is {held.text}, which {path.name} would not say.", hint=f"Download it with: {again} {better}"
        )


EXPORTS = Endings({".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}, closed=["parquet"])
QUERIES = Endings(
    {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".json": "json"}, closed=["parquet", "arrow"]
)
# A zip is what several tables are as CSV.
DUMPS = Endings(
    {
        ".sql": "sql",
        ".json": "json",
        ".csv": "csv",
        ".zip": "zip",
        ".db": "sqlite",
        ".sqlite": "sqlite",
        ".dump": "custom",
    },
    closed=["zip", "custom"],
)


def agreed(path: PurePath, promised: str, option: str, asked: str | None) -> str:
    """What the ending says, unless an option says something else: then one of the two is a mistake."""
    if asked not in (None, promised):
        raise wrong_usage(f"{path.name} says {promised}, and {option} says {asked}.", "Change one of the two.")
    return promised

"""How far a dump is, table by table: written, at work, to come; by their names where those are told or known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.amounts import listed
from paddock.web.words import number, plural

# Written tables by their names; those before are counted, so that the one at work is in sight.
MOST_DONE = 50


@dataclass(frozen=True, slots=True)
class TableProgress:
    """`state` is done, now or later. Without a `name` it stands for `count` tables whose names are not known."""

    state: str
    name: str | None = None
    rows: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Tables:
    done: int
    total: int
    # Those begun, in order, with their rows so far; empty where the report has no names.
    begun: Mapping[str, int]
    table: str | None = None

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> "Tables":
        total, done = _count(report.get("tables_total")), _count(report.get("tables_done"))
        counts, table = report.get("counts"), report.get("table")
        begun = {str(name): _count(rows) for name, rows in counts.items()} if isinstance(counts, dict) else {}
        return cls(min(done, total), total, begun, table if isinstance(table, str) and done < total else None)

    def lines(self, known: Sequence[str]) -> list[TableProgress]:
        """`known`: names an earlier dump or the request has; believed only where they fit what is told now."""
        named = [name for name in self.begun if name != self.table][: self.done]
        done = [TableProgress("done", name, self.begun[name]) for name in named[-MOST_DONE:]]
        if self.done > len(done):
            done.insert(0, TableProgress("done", count=self.done - len(done)))
        now = [] if self.table is None else [TableProgress("now", self.table, self.begun.get(self.table))]
        left = self.total - self.done - len(now)
        coming = [name for name in known if name != self.table and name not in self.begun]
        if len(named) == self.done and len(coming) == left:
            return [*done, *now, *(TableProgress("later", name) for name in coming)]
        return [*done, *now, *([TableProgress("later", count=left)] if left > 0 else [])]

    @property
    def foreseeable(self) -> bool:
        """Whether names of an earlier dump could tell which are to come."""
        return bool(self.total) and (bool(self.begun) or not self.done)

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The bar: done, at work, to come."""
        if not self.total:
            return []
        one = 1000 / self.total
        return [
            {"status": "completed", "at": 0, "size": round(self.done * one, 2)},
            {"status": "claimed", "at": round(self.done * one, 2), "size": round(one, 2) if self.table else 0},
        ]

    @property
    def words(self) -> str:
        later = self.total - self.done - (self.table is not None)
        counts = [f"{number(self.done)} done", *(["1 at work"] if self.table else []), f"{number(later)} to come"]
        return f"{plural(self.total, 'table')}: {listed(counts)}"


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

"""The walk below every list of jobs: in id order, along the best index, in steps of bounded cost.

Each step is one statement over live and ended jobs, hence one snapshot. It takes the next rows in id order, at most as many
as its size, and applies the filter to those: what a step costs never depends on how rare a match is. Where several walks
are merged (one in each kind and status), each reads as many rows as the step takes: a step is shorter the more there are,
so that together they read at most `MOST_WALKED`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, Statement, statements
from paddock.jobs.filtering import GREATEST_ID, LEAST_ID, SEARCHED_DAYS, Filter, id_range, least_id
from paddock.jobs.model import TERMINAL
from paddock.jobs.reports import RESULT_FIGURES

SQL = statements("paddock.jobs.sql", "reading.sql")
# So many pending jobs of one kind are read whole and sorted: far cheaper than looking for them among all others.
FEW = 5_000
# What the walks of one step may read together.
MOST_WALKED = 20_000

# As the indexes of such jobs have it, word for word.
RETRYING = "j.attempt_id IS NULL AND j.failure_count + j.cluster_count + j.lost_count > 0"

# In the index by owner and error code the owner has a collation of its own, or two indexes would begin alike.
OWNER_ALONE = 'owner COLLATE "C"'
# So has the tag in the indexes that begin with another column, or a walk of one tag would be taken through them.
TAG_WITHIN = 'tag COLLATE "C"'

Order = Literal["ASC", "DESC"]
Output = Literal["whole_rows", "only_ids", "only_count"]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step found; `edge` is the last id it looked at, `ended` says that nothing is left."""

    rows: Sequence[asyncpg.Record]
    edge: UUID | None
    ended: bool


class Scan:
    """A walk in id order between two ids, which moves on with each step."""

    def __init__(
        self, db: Database, asked: Filter, sources: tuple[str, ...], walks: int, low: UUID, high: UUID
    ) -> None:
        self._db = db
        self._asked = asked
        self._sources = sources
        self._walks = walks
        self._low = low
        self._high = high

    @classmethod
    async def start(
        cls, db: Database, asked: Filter, *, after: UUID | None = None, before: UUID | None = None
    ) -> "Scan":
        low, high = after or LEAST_ID, before or GREATEST_ID
        if asked.id_prefix is not None:
            least, greatest = id_range(asked.id_prefix)
            # Both ends of a walk are excluded, those of a prefix are not.
            low, high = max(low, UUID(int=max(0, least.int - 1))), min(high, _next(greatest))
        since = asked.since
        if since is None and asked.text is not None:
            since = await db.fetchval(SQL["clock"]) - SEARCHED_DAYS
        if since is not None:
            low = max(low, least_id(since))
        if asked.until is not None:
            high = min(high, least_id(asked.until))
        few = False
        if asked.kind is not None and asked.live:
            few = await db.fetchval(SQL["pending_of_kind"], asked.kind, FEW + 1) <= FEW
        ended = _ended_sources(asked)
        walks = await _count_walks(db, asked, ended)
        return cls(db, asked, _live_sources(asked, few) + ended, walks, low, high)

    async def step(self, order: Order, size: int, output: Output, want: int) -> Step:
        if not self._sources or self._low >= self._high:
            return Step([], None, True)
        # Halved, not divided: each size is a statement of its own.
        while size > 1 and size * self._walks > MOST_WALKED:
            size //= 2
        rows = await self._db.fetch(scan_statement(self._sources, order, size, output), *self._arguments(want))
        looked, edge = rows[0]["looked"], rows[0]["edge"]
        matches = rows if output == "only_count" else [row for row in rows if row["id"] is not None]
        full = output != "only_count" and len(matches) == want
        if full:
            edge = matches[-1]["id"]
        if order == "DESC":
            self._high = edge or self._high
        else:
            self._low = edge or self._low
        passed = self._low >= self._high
        return Step(matches, edge, passed or (looked < size and not full))

    def _arguments(self, want: int) -> list[object]:
        asked = self._asked
        return [
            self._low,
            self._high,
            asked.kind,
            list(asked.statuses),
            asked.owner,
            asked.group,
            asked.worker,
            asked.tag,
            asked.error_code,
            asked.text,
            asked.schedule,
            None if asked.ids is None else list(asked.ids),
            asked.include_housekeeping
            or asked.kind is not None
            or asked.ids is not None
            or asked.id_prefix is not None,
            want,
            asked.include_cleanups,
        ]


def _live_sources(asked: Filter, few_of_kind: bool) -> tuple[str, ...]:
    """Which rows of `jobs` a step reads. Where no index fits, the walk along the primary key and its budget do."""
    if not asked.live:
        return ()
    if asked.retrying:
        # First: nothing else looks at the counters.
        form = "along_guarded" if asked.owner is None else "along_owner_guarded"
        return (f"{form} jobs {RETRYING}",)
    if asked.ids is not None:
        return ("among jobs j.id = ANY ($12)",)
    if asked.owner is not None:
        # Before all others: where a walk of theirs stops must tell an owner nothing of other people's jobs.
        return ("along_key jobs owner $5",)
    if asked.group is not None:
        return ("along_key jobs group_id $6",)
    if asked.schedule is not None:
        return ("along_key jobs schedule $11",)
    if asked.worker is not None:
        held_by = "j.session_id = ANY (ARRAY(SELECT id FROM sessions WHERE worker_id = $7))"
        return (f"among jobs j.attempt_id IS NOT NULL AND {held_by}",)
    if asked.live == ("claimed",):
        return ("among jobs j.attempt_id IS NOT NULL",)
    if asked.live == ("submitted",):
        return ("among jobs j.attempt_id IS NULL AND j.lane = 0 AND j.kind = ANY (ARRAY(SELECT name FROM kinds))",)
    if asked.error_code is not None:
        # Only what has an error is worth a place in a step.
        return ("along_guarded jobs j.error_code IS NOT NULL",)
    if few_of_kind:
        of_kind = "j.kind = $3 AND ($8::text IS NULL OR $8 = ANY (j.tags))"
        return (f"among jobs j.attempt_id IS NULL AND {of_kind}", f"among jobs j.attempt_id IS NOT NULL AND {of_kind}")
    if asked.tag is not None:
        return ("along_keys job_tags tag=$8",)
    return ("along jobs ",)


def _ended_sources(asked: Filter) -> tuple[str, ...]:
    """Which rows of the history a step reads: by an index of any two of owner, tag, error code, kind and status."""
    if not asked.ended:
        return ()
    if asked.ids is not None:
        return ("among job_history j.id = ANY ($12)",)
    sorts = "along_sorts" if asked.kind is None else "along_sort"
    if asked.owner is not None:
        if asked.tag is not None:
            return (f"along_keys job_history_tags owner=$5,{TAG_WITHIN}=$8",)
        if asked.error_code is not None:
            return (f"along_keys job_history {OWNER_ALONE}=$5,error_code=$9",)
        return (f"{sorts} job_history owner=$5",)
    if asked.group is not None:
        return ("along_key job_history group_id $6",)
    if asked.schedule is not None:
        return ("along_key job_history schedule $11",)
    if asked.tag is not None:
        if asked.error_code is not None:
            return (f"along_keys job_history_tags error_code=$9,{TAG_WITHIN}=$8",)
        return (f"{sorts} job_history_tags tag=$8",)
    if asked.error_code is not None:
        return (f"{sorts} job_history error_code=$9",)
    if asked.kind is not None or len(asked.ended) < len(TERMINAL):
        return (f"{sorts} job_history ",)
    return ("along job_history ",)


async def _count_walks(db: Database, asked: Filter, ended: tuple[str, ...]) -> int:
    """How many walks of the history a step merges. A kind that comes after this was counted makes a step longer, not wrong."""
    form, table, keys = ended[0].split(" ", 2) if ended else ("", "", "")
    if form == "along_sort":
        return len(asked.ended)
    if form != "along_sorts":
        return 1
    key, _, _ = keys.partition("=")
    kinds: int = await db.fetchval(_counting_kinds(table, key), *([getattr(asked, key)] if key else []))
    return kinds * len(asked.ended)


@cache
def _counting_kinds(table: str, key: str) -> Statement:
    sorts = _sorts_there_are(table, [f"j.{key}"], ["$1"]) if key else _sorts_there_are(table, [], [])
    return Statement("count_kinds", _filled("count_kinds", sorts=sorts), "relaxed")


@cache
def scan_statement(sources: tuple[str, ...], order: Order, size: int, output: Output) -> Statement:
    """One of a few dozen texts: where to look, in which order, how far, and what to answer."""
    output_text = _filled(output, live_row=SQL["live_row"].sql, ended_row=SQL["ended_row"].sql)
    parts = [_source_text(source, order) for source in sources]
    reverse, bound = ("ASC", "j.id < $2") if order == "DESC" else ("DESC", "j.id > $1")
    text = _filled("scan", sources=" UNION ALL ".join(parts), output=output_text)
    text = text.replace("{bound}", bound).replace("{order}", order).replace("{reverse}", reverse)
    return Statement(f"scan_{output}", text.replace("{step}", str(size)), "relaxed")


def _source_text(source: str, order: Order) -> str:
    form, table, rest = source.split(" ", 2)
    completed = "j.completed_at" if table.startswith("job_history") else "NULL::timestamptz AS completed_at"
    parts = {"columns": f"{SQL['looked_at'].sql}, {completed}", "table": table}
    if form == "along_owner_guarded":
        owner_bound = "(j.owner, j.id) < ($5, $2)" if order == "DESC" else "(j.owner, j.id) > ($5, $1)"
        return _filled(form, guard=rest, key_bound=owner_bound, **parts)
    if form == "along_key":
        key, value = rest.split(" ")
        key_bound = f"(j.{key}, j.id) < ({value}, $2)" if order == "DESC" else f"(j.{key}, j.id) > ({value}, $1)"
        return _filled(form, key=key, value=value, key_bound=key_bound, **parts)
    if form not in ("along_keys", "along_sorts", "along_sort"):
        return _filled(form, guard=rest, **parts)
    if not table.endswith("_tags"):
        return _walk(form, rest, order, **parts)
    walk = _walk(form, rest, order, columns=f"j.id, {completed}", table=table)
    others = SQL["looked_at"].sql.removeprefix("j.id, ")
    return _filled("tagged", walk=walk, others=others, jobs=SQL[f"jobs_of_{table}"].sql)


def _walk(form: str, keys: str, order: Order, *, columns: str, table: str) -> str:
    """A walk within one value of each of the keys; and unless they are all, in each kind and status."""
    known = [key.partition("=")[::2] for key in keys.split(",") if key]
    names, values = [f"j.{name}" for name, _ in known], [value for _, value in known]
    whole = [*names, "j.id"] if form == "along_keys" else [*names, "j.kind", "j.status", "j.id"]
    within = values if form == "along_keys" else [*values, "k.kind", "u.status"]
    row, least, most = (", ".join(part) for part in (whole, [*within, "$1"], [*within, "$2"]))
    between = f"{_keyed(names)} AND ({row}) > ({least}) AND ({row}) < ({most})"
    parts = {"columns": columns, "table": table, "between": between, "keys": keys}
    parts["ordered"] = ", ".join(f"{name} {order}" for name in whole)
    if form == "along_keys":
        return _filled(form, **parts)
    sorts = _sorts_there_are(table, names, values) if form == "along_sorts" else "(SELECT $3::text AS kind)"
    return _filled("along_sorts", sorts=sorts, **parts)


def _sorts_there_are(table: str, names: Sequence[str], values: Sequence[str]) -> str:
    return _filled(
        "sorts_there_are",
        table=table,
        keyed=_keyed(names),
        heads=", ".join([*names, "j.kind"]),
        least=", ".join([*values, "''"]),
        following=", ".join([*values, "s.kind"]),
        same=" AND ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True)) or "true",
    )


def _keyed(names: Sequence[str]) -> str:
    """Some of the indexes hold only rows that have a key, and the planner wants to be told so."""
    return " AND ".join(f"{name} IS NOT NULL" for name in names) or "true"


@cache
def jobs_by_id() -> Statement:
    text = _filled("jobs_by_id", live_row=SQL["live_row"].sql, ended_row=SQL["ended_row"].sql)
    return Statement("jobs_by_id", text, "relaxed")


@cache
def briefs_by_id() -> Statement:
    """The same columns; those that may be large are never fetched, but for the few numbers of a result."""
    text = jobs_by_id().sql.replace("j.payload", "'{}'::jsonb AS payload").replace("j.saved,", "NULL::jsonb AS saved,")
    figures = _filled("result_figures", names=", ".join(f"'{name}'" for name in RESULT_FIGURES))
    text = text.replace("j.result", f"({figures}) AS result").replace("j.errors", "NULL::jsonb AS errors")
    return Statement("briefs_by_id", text, "relaxed")


def _filled(name: str, **parts: str) -> str:
    text = "\n".join(line for line in SQL[name].sql.splitlines() if not line.startswith("--"))
    for part, content in parts.items():
        text = text.replace(f"{{{part}}}", content)
    return text


def _next(job_id: UUID) -> UUID:
    return UUID(int=min(job_id.int + 1, GREATEST_ID.int))

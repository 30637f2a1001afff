"""Dumps: the databases one may have, the dumps of them, and one of those with its progress, its file and what can be
done. Whose a dump is decides who may stop or delete it; whose its database is, who sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.edge import root_of
from paddock.api.errors import ApiError
from paddock.api.keyset import cursor_after
from paddock.api.pagination import read_cursor
from paddock.api.plane import ControlPlane
from paddock.api.services.submitting import check_retry
from paddock.api.tokens import Caller
from paddock.dumps import dumps
from paddock.dumps.answering import snapshot_age
from paddock.dumps.database_settings import DatabaseSettings, databases_from
from paddock.dumps.databases import databases_of
from paddock.dumps.dumps import Dump
from paddock.dumps.pages import dump_commands, dump_words
from paddock.dumps.pages.dump_tables import TableProgress, Tables
from paddock.dumps.request import NO_STORE
from paddock.dumps.service import own_dump, visible_databases, visible_dump
from paddock.dumps.settings import DumpSettings
from paddock.jobs import reading
from paddock.jobs.figures.overviews import SQL as OVERVIEWS
from paddock.jobs.figures.overviews import KindSeen
from paddock.jobs.model import Job, JobId
from paddock.log import masked
from paddock.web import job_actions
from paddock.web.frame import back, clean, field, form, page, plane_of, render
from paddock.web.standing import standing_of

PAGE_LENGTH = 50
FILTERS = ("q", "status", "database", "owner")
STATUSES = (("pending", "under way"), "completed", "failed", "cancelled")
MOST_TABLES = 200
# Of the newest dumps of one database, for its last file and its last tables.
MOST_LOOKED_AT = 20


def routes() -> list[Route]:
    return [
        page("/dumps", show, PEOPLE),
        page("/dumps/{dump_id}", show_one, PEOPLE),
        form("/dumps/{dump_id}/cancel", cancel, PEOPLE),
        form("/dumps/{dump_id}/retry", retry, PEOPLE),
        form("/dumps/{dump_id}/delete", delete, PEOPLE),
    ]


@dataclass(frozen=True, slots=True)
class Listed:
    """A database, the newest dump of it, and the newest that has a file."""

    name: str
    settings: DatabaseSettings
    last: Dump | None
    good: Dump | None


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    cursor = request.query_params.get("cursor") or None
    asked = {name: clean(request.query_params.get(name) or "")[:500] or None for name in FILTERS}
    named, narrowed = asked["database"], any(asked.values())
    before: str | None = None if cursor is None else read_cursor(cursor, str)
    found = await dumps.page(
        plane.core.db,
        visible_databases(plane, caller, named),
        status=asked["status"],
        owner=asked["owner"],
        text=asked["q"],
        before=before,
        limit=PAGE_LENGTH,
    )
    databases = await _listed(plane, caller, found, short=cursor is not None or narrowed)
    return await render(
        request,
        caller,
        "dumps.html",
        databases=databases,
        no_store=None if plane.config.has_store else NO_STORE,
        found=found,
        words=dump_words,
        summary=dump_words.summary(found),
        jobs=await _at_work(plane, [*found, *(one.last for one in databases if one.last)]),
        unheard=any(dump.live is not None and not caller.sees(dump.owner) for dump in found),
        asked=asked,
        narrowed=narrowed,
        statuses=STATUSES,
        cursor=cursor,
        next_cursor=cursor_after(found, PAGE_LENGTH),
    )


async def _at_work(plane: ControlPlane, found: Sequence[Dump]) -> Mapping[JobId, Job]:
    live = {dump.live for dump in found if dump.live is not None}
    return {job.id: job for job in await reading.jobs(plane.core.db, list(live))} if live else {}


async def _listed(plane: ControlPlane, caller: Caller, found: Sequence[Dump], *, short: bool) -> list[Listed]:
    """By the newest dumps, which were read anyway: where those are not all, a database is asked for its own. `short`:
    only their names are shown."""
    settings = databases_from(plane.config)
    listed = []
    for name in databases_of(plane.config, caller):
        own = [dump for dump in found if dump.database == name]
        if not short and len(found) == PAGE_LENGTH and not any(map(_has_file, own)):
            own = await dumps.page(plane.core.db, [name], limit=MOST_LOOKED_AT)
        listed.append(Listed(name, settings[name], next(iter(own), None), next(filter(_has_file, own), None)))
    return listed


def _has_file(dump: Dump) -> bool:
    return dump.status == "completed"


async def show_one(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    dump = await visible_dump(plane, caller, request.path_params["dump_id"])
    job = await plane.core.job(dump.live or dump.job_id)
    now: datetime = await plane.core.db.fetchval(OVERVIEWS["clock"])
    kind = await _kind(plane, job)
    tables = Tables.from_report(dump.report or {}) if dump.live is not None else None
    return await render(
        request,
        caller,
        "dump.html",
        dump=dump,
        asked=masked(dump.request),
        words=dump_words,
        job=job,
        mine=caller.sees(dump.owner),
        sentence=dump_words.sentence(dump, job, kind),
        trouble=dump_words.trouble(job),
        advice=dump_words.advice(job),
        progress=dump_words.progress(dump, job, now),
        snapshot_age=snapshot_age(dump, plane.config),
        tables=tables,
        lines=_ended_lines(dump) if tables is None else await _lines(plane, dump, tables),
        most=MOST_TABLES,
        keep_days=plane.config.of(DumpSettings).keep_days,
        can=await _possible(request, caller, dump, job, now),
        commands=dump_commands.commands(_server(request), dump),
    )


async def _kind(plane: ControlPlane, job: Job | None) -> KindSeen | None:
    """Asked only while it waits: whether anybody can take it."""
    if job is None or job.status != "pending":
        return None
    return next((kind for kind in await reading.kinds(plane.core.db) if kind.name == job.kind), None)


async def _lines(plane: ControlPlane, dump: Dump, tables: Tables) -> list[TableProgress]:
    return tables.lines(await _table_names(plane, dump) if tables.foreseeable else [])


async def _table_names(plane: ControlPlane, dump: Dump) -> Sequence[str]:
    """The names of its tables, as far as they can be foreseen: those asked for, else those of the last whole dump."""
    asked = dump.request
    if asked.get("table") or asked.get("tables"):
        return [asked["table"]] if asked.get("table") else asked["tables"]
    newest = await dumps.page(plane.core.db, [dump.database], limit=MOST_LOOKED_AT)
    last = next((one for one in newest if one.tables and not dump_words.chosen(one)), None)
    without = set(asked.get("excludeTables") or ())
    return sorted(set(last.tables or ()) - without) if last is not None else []


def _ended_lines(dump: Dump) -> list[TableProgress]:
    return [TableProgress("done", name, rows) for name, rows in sorted((dump.tables or {}).items())]


async def _possible(
    request: Request, caller: Caller, dump: Dump, job: Job | None, now: datetime
) -> job_actions.Possible | None:
    """What its owner can do with its job; nothing with one that has left the history."""
    if job is None or dump.shown_status == "completed" or not caller.sees(dump.owner):
        return None
    drained = (await standing_of(request)).drained
    return job_actions.possible(plane_of(request), caller, job, drained=drained, now=now)


def _server(request: Request) -> str:
    """The address that people reach us by."""
    public = plane_of(request).config.public_url
    return (public or str(request.base_url).rstrip("/") + root_of(request.scope)).rstrip("/")


# What people do


async def _own(request: Request, caller: Caller) -> Dump:
    return await own_dump(plane_of(request), caller, request.path_params["dump_id"])


async def cancel(request: Request, caller: Caller) -> Response:
    plane, dump = plane_of(request), await _own(request, caller)
    reason = await field(request, "reason") or "from the dashboard"
    verdict = (
        "finished"
        if dump.live is None
        else (await plane.core.cancel([dump.live], actor=caller.actor, reason=reason))[dump.live]
    )
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The dump had ended already; nothing was cancelled.")
    return back(request, f"/dumps/{dump.id}", "The dump was cancelled; what it had begun is removed.")


async def retry(request: Request, caller: Caller) -> Response:
    plane, dump = plane_of(request), await _own(request, caller)
    job = await plane.core.job(dump.job_id)
    if job is not None:
        check_retry(plane, caller, job)
    reason = await field(request, "reason") or "from the dashboard"
    await plane.core.retry(dump.job_id, actor=caller.actor, reason=reason)
    return back(request, f"/dumps/{dump.id}", "A new job retries it, from a new point in time.")


async def delete(request: Request, caller: Caller) -> Response:
    plane, dump = plane_of(request), await _own(request, caller)
    live = await dumps.delete(plane.core, dump.id, actor=caller.actor)
    if live is not None:
        raise ApiError(409, "dump_runs", "It is being made: cancel it first.")
    return back(request, "/dumps", "The dump was deleted; its file is removed in a moment.")

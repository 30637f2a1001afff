"""A new dump: of which database, as what, and which of its tables."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.tokens import Caller
from paddock.dumps import dumps, looking
from paddock.dumps.database_settings import databases_from
from paddock.dumps.databases import databases_of
from paddock.dumps.model import FORMATS
from paddock.dumps.pages import dump_form, dump_words
from paddock.dumps.pages.dump_form import Form
from paddock.dumps.pages.dumps import MOST_LOOKED_AT
from paddock.dumps.request import NO_STORE
from paddock.dumps.service import prepare_dump, visible_dump
from paddock.dumps.settings import DumpSettings
from paddock.jobs.errors import Refused
from paddock.web.form_problems import status_of
from paddock.web.frame import back, form, page, plane_of, render


def routes() -> list[Route]:
    """Before `/dumps/{dump_id}`, which would take it for an id."""
    return [page("/dumps/new", show, PEOPLE), form("/dumps/new", create, PEOPLE)]


async def show(request: Request, caller: Caller) -> Response:
    like = request.query_params.get("like")
    if like:
        return await _show(request, caller, dump_form.like(await visible_dump(plane_of(request), caller, like)))
    return await _show(request, caller, Form(database=request.query_params.get("database") or ""))


async def create(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    asked = dump_form.filled(dict(await request.form()))
    try:
        known = databases_from(plane.config).get(asked.database)
        body = dump_form.request_of(asked, "" if known is None else known.type)
        new = prepare_dump(plane, caller, body)
        await looking.refuse_unknown_tables(plane.config, new.database, new.options)
        made = await dumps.create(plane.core, new)
    except (ApiError, Refused) as error:
        return await _show(request, caller, asked.refused(error), status=status_of(error))
    return back(request, f"/dumps/{made.id}")


async def _show(request: Request, caller: Caller, asked: Form, *, status: int = 200) -> Response:
    """Without a database it is chosen first: what can be asked for depends on what it is."""
    plane = plane_of(request)
    mine = databases_of(plane.config, caller)
    if not asked.database and len(mine) == 1:
        asked = replace(asked, database=mine[0])
    if asked.database and asked.database not in mine:
        raise ApiError(404, "not_found", f"Database '{asked.database[:100]}' does not exist.")
    settings = databases_from(plane.config)
    chosen = settings[asked.database] if asked.database else None
    newest = await dumps.page(plane.core.db, [asked.database], limit=MOST_LOOKED_AT) if chosen else []
    return await render(
        request,
        caller,
        "dump_new.html",
        status=status,
        form=asked,
        databases=[(name, settings[name]) for name in mine],
        chosen=chosen,
        formats={name: dump_words.FORMATS[name] for name in FORMATS[chosen.type]} if chosen else {},
        words=dump_words,
        choices=dump_form,
        tables=next((sorted(one.tables) for one in newest if one.tables and not dump_words.chosen(one)), []),
        keep_days=plane.config.of(DumpSettings).keep_days,
        no_store=None if plane.config.has_store else NO_STORE,
    )

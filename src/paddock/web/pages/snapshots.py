"""Snapshots: the list, one of them with each part's progress, and making one of a mapping's version."""

from dataclasses import fields, replace
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.errors import ApiError
from paddock.api.ids import optional_id
from paddock.api.keyset import read_place
from paddock.api.pagination import write_cursor
from paddock.api.parts import check_explicit
from paddock.api.tokens import Caller, may_use
from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.mapping_routes import visible_mapping
from paddock.exports.mappings import Mapping
from paddock.exports.routes import allowed_engine
from paddock.exports.snapshot_routes import SnapshotBody, asked_snapshot, visible_snapshot
from paddock.exports.snapshot_states import STATUSES, Snapshot
from paddock.jobs.errors import Refused
from paddock.web import snapshot_words
from paddock.web.engine_choice import engines_of, mode_for, role_for, roles_of
from paddock.web.form_problems import as_refusal, by_field, status_of
from paddock.web.frame import back, clean, field, form, page, plane_of, render
from paddock.web.snapshot_words import Form
from paddock.web.standing import standing_of

PAGE_LENGTH = 50
NAMES = frozenset(one.name for one in fields(Form) if one.name != "problems")


def routes() -> list[Route]:
    return [
        page("/snapshots", show),
        form("/snapshots", create),
        page("/snapshots/new", show_new),
        page("/snapshots/{snapshot_id}", show_one),
        form("/snapshots/{snapshot_id}/retry", retry),
        form("/snapshots/{snapshot_id}/cancel", cancel),
        form("/snapshots/{snapshot_id}/delete", delete),
    ]


async def show(request: Request, caller: Caller) -> Response:
    asked = request.query_params
    cursor, text = asked.get("cursor") or None, clean(asked.get("q") or "")[:255]
    status, mapping = clean(asked.get("status") or ""), clean(asked.get("mapping") or "")
    found = await snapshot_states.page(
        plane_of(request).core.db,
        caller.scope,
        mapping_id=optional_id(mapping or None, "mapping"),
        statuses=[status] if status in STATUSES else None,
        text=text or None,
        before=read_place(cursor),
        limit=PAGE_LENGTH,
    )
    return await render(
        request,
        caller,
        "snapshots.html",
        snapshots=found,
        asked={"q": text, "status": status, "mapping": mapping},
        statuses=STATUSES,
        cursor=cursor,
        next_cursor=write_cursor(found[-1].id) if len(found) == PAGE_LENGTH else None,
    )


async def show_one(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _snapshot(request, caller)
    parts = await snapshot_states.parts(plane.core.db, found)
    mapping = await mappings.get(plane.core.db, found.mapping_id)
    return await render(
        request,
        caller,
        "snapshot.html",
        snapshot=found,
        parts=snapshot_words.shown(parts),
        pieces=snapshot_words.bar(parts),
        done=sum(part.status == "completed" for part in parts),
        sentence=snapshot_words.sentence(found, parts),
        mapping=mapping if mapping is not None and caller.sees(mapping.owner) else None,
        manifest=await snapshot_states.manifest(plane.core.db, found) if found.status == "ready" else None,
        can=await _possible(request, caller, found),
    )


async def _possible(request: Request, caller: Caller, found: Snapshot) -> dict[str, bool]:
    """Only what would work: not every place lets people make snapshots, and what was granted may have been taken."""
    config = plane_of(request).config
    may = (
        config.explicit_snapshots
        and any(engine.name == found.engine for engine in engines_of(config, caller))
        and (found.role is None or may_use(caller.engine_roles, found.role))
    )
    drained = (await standing_of(request)).drained
    return {
        "cancel": config.explicit_snapshots and found.live,
        "retry": may and not drained and found.status in ("failed", "cancelled"),
        "delete": not found.live and found.status != "deleting",
    }


async def show_new(request: Request, caller: Caller) -> Response:
    check_explicit(plane_of(request).config)
    asked = request.query_params
    return await _show_form(request, caller, await _mapping(request, caller, asked), Form())


async def create(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    values = dict(await request.form())
    mapping = await _mapping(request, caller, values)
    texts: dict[str, Any] = {name: clean(str(values.get(name) or "")) for name in NAMES}
    asked = Form(**texts)
    try:
        engines = engines_of(plane.config, caller)
        role = role_for(engines, asked.engine, asked.role)
        meant = replace(asked, mode=mode_for(engines, asked.engine, asked.mode))
        new = await asked_snapshot(plane, caller, _body(meant, mapping), role)
        made = await snapshots.create(plane.core, new, actor=caller.actor)
    except (ApiError, Refused) as error:
        refused = replace(asked, problems=by_field(error, NAMES))
        return await _show_form(request, caller, mapping, refused, status=status_of(error))
    return back(request, f"/snapshots/{made.id}")


def _body(asked: Form, mapping: Mapping) -> SnapshotBody:
    given = {name: getattr(asked, name) for name in NAMES - {"role"}}
    body: dict[str, Any] = {name: text for name, text in given.items() if text}
    try:
        return SnapshotBody.model_validate({**body, "mapping_id": mapping.id, "mapping_version": mapping.version})
    except ValidationError as error:
        raise as_refusal(error) from None


async def _mapping(request: Request, caller: Caller, values: Any) -> Mapping:
    number = str(values.get("version") or "")
    version = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None
    return await visible_mapping(plane_of(request), caller, str(values.get("mapping") or ""), version)


async def _show_form(request: Request, caller: Caller, mapping: Mapping, asked: Form, *, status: int = 200) -> Response:
    return await render(
        request,
        caller,
        "snapshot_new.html",
        status=status,
        mapping=mapping,
        form=asked,
        engines=engines_of(plane_of(request).config, caller),
        roles=roles_of(caller),
    )


async def retry(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    check_explicit(plane.config)
    found = await _snapshot(request, caller)
    # Either may have been taken from them since.
    allowed_engine(plane.config, caller, found.engine, found.role)
    await snapshots.retry(plane.core, found, actor=caller.actor)
    return back(request, f"/snapshots/{found.id}", "What failed or was cancelled is made again.")


async def cancel(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    check_explicit(plane.config)
    found = await _snapshot(request, caller)
    reason = await field(request, "reason") or "from the dashboard"
    await snapshots.cancel(plane.core, found, actor=caller.actor, reason=reason)
    return back(request, f"/snapshots/{found.id}", "The snapshot is cancelled.")


async def delete(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _snapshot(request, caller)
    await snapshots.delete(plane.core, found.id, actor=caller.actor)
    return back(request, "/snapshots", f"{found.name} is deleted; its files go in a moment.")


async def _snapshot(request: Request, caller: Caller) -> Snapshot:
    return await visible_snapshot(plane_of(request), caller, request.path_params["snapshot_id"])

"""Snapshots: the list, one of them with each part's progress, and making one of a mapping's version."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.ids import optional_id
from paddock.api.keyset import cursor_after, read_place
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.explicit import check_explicit
from paddock.exports.mapping_service import visible_mapping
from paddock.exports.mappings import Mapping
from paddock.exports.pages import snapshot_words
from paddock.exports.pages.engine_choice import engines_of, mode_for, role_for, roles_of
from paddock.exports.pages.snapshot_words import Form
from paddock.exports.settings import ExportSettings
from paddock.exports.snapshot_service import (
    SnapshotBody,
    changeable_snapshot,
    prepare_snapshot,
    retry_snapshot,
    visible_snapshot,
)
from paddock.exports.snapshot_states import STATUSES, Snapshot, SnapshotPart
from paddock.jobs import reading
from paddock.jobs.errors import Refused
from paddock.log import masked
from paddock.web.faults import Fault, fault_of_job
from paddock.web.form_problems import as_refusal, by_field, status_of
from paddock.web.frame import back, clean, field, form, page, plane_of, render
from paddock.web.standing import standing_of

PAGE_LENGTH = 50
MOST_FAULTS = 3
NAMES = frozenset(one.name for one in fields(Form) if one.name != "problems")


def routes() -> list[Route]:
    return [
        page("/snapshots", show, PEOPLE),
        form("/snapshots", create, PEOPLE),
        page("/snapshots/new", show_new, PEOPLE),
        page("/snapshots/{snapshot_id}", show_one, PEOPLE),
        form("/snapshots/{snapshot_id}/retry", retry, PEOPLE),
        form("/snapshots/{snapshot_id}/cancel", cancel, PEOPLE),
        form("/snapshots/{snapshot_id}/delete", delete, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    asked = request.query_params
    cursor, text = asked.get("cursor") or None, clean(asked.get("q") or "")[:255]
    owner = clean(asked.get("owner") or "")[:500]
    status, mapping = clean(asked.get("status") or ""), clean(asked.get("mapping") or "")
    found = await snapshot_states.page(
        plane_of(request).core.db,
        caller.scope or owner or None,
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
        asked={"q": text, "status": status, "mapping": mapping, "owner": owner},
        statuses=STATUSES,
        cursor=cursor,
        next_cursor=cursor_after(found, PAGE_LENGTH),
    )


async def show_one(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _snapshot(request, caller)
    parts = await snapshot_states.parts(plane.core.db, found)
    mapping = await mappings.get(plane.core.db, found.mapping_id)
    shown = mapping if mapping is not None and caller.sees(mapping.owner) else None
    return await render(
        request,
        caller,
        "snapshot.html",
        snapshot=found,
        parts=snapshot_words.parts_with_progress(parts),
        faults=await _faults(plane, parts),
        pieces=snapshot_words.bar(parts),
        done=sum(part.status == "completed" for part in parts),
        sentence=snapshot_words.sentence(found, parts),
        mapping=shown,
        manifest=await snapshot_states.manifest(plane.core.db, found) if found.status == "ready" else None,
        can=await _possible(request, caller, found, shown),
    )


async def _faults(plane: ControlPlane, parts: Sequence[SnapshotPart]) -> dict[str, Fault]:
    """Where in the queries of parts that were refused, by the part's name."""
    failed = {part.job_id: part.name for part in parts if part.status == "failed"}
    jobs = await reading.jobs(plane.core.db, list(failed)[:MOST_FAULTS]) if failed else []
    told = {failed[job.id]: fault_of_job(job.errors[-1], masked(job.payload)) for job in jobs if job.errors}
    return {name: fault for name, fault in told.items() if fault is not None}


async def _possible(request: Request, caller: Caller, found: Snapshot, mapping: Mapping | None) -> dict[str, bool]:
    """Only what would work: not every place lets people make snapshots, and what was granted may have been taken."""
    config = plane_of(request).config
    may = (
        config.of(ExportSettings).explicit_snapshots
        and any(engine.name == found.engine for engine in engines_of(config, caller))
        and (found.role is None or caller.may_use("engine_roles", found.role))
    )
    drained = (await standing_of(request)).drained
    return {
        "schedule": may and mapping is not None,
        "cancel": config.of(ExportSettings).explicit_snapshots and found.live,
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
        new = await prepare_snapshot(plane, caller, _body(meant, mapping), role)
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
    found = await changeable_snapshot(plane, caller, request.path_params["snapshot_id"])
    await retry_snapshot(plane, caller, found)
    return back(request, f"/snapshots/{found.id}", "What failed or was cancelled is retried.")


async def cancel(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await changeable_snapshot(plane, caller, request.path_params["snapshot_id"])
    reason = await field(request, "reason") or "from the dashboard"
    await snapshots.cancel(plane.core, found, actor=caller.actor, reason=reason)
    return back(request, f"/snapshots/{found.id}", "The snapshot is cancelled.")


async def delete(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _snapshot(request, caller)
    await snapshots.delete(plane.core, found.id, actor=caller.actor, scope=caller.scope)
    return back(request, "/snapshots", f"{found.name} was deleted; its files are removed in a moment.")


async def _snapshot(request: Request, caller: Caller) -> Snapshot:
    return await visible_snapshot(plane_of(request), caller, request.path_params["snapshot_id"])

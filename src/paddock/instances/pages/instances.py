"""Instances: the list, one of them, and making one of a mapping or of a snapshot."""

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import facts
from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.keyset import read_place
from paddock.api.pagination import write_cursor
from paddock.api.tokens import Caller
from paddock.exports.mapping_service import visible_mapping
from paddock.exports.mappings import Mapping
from paddock.exports.pages.engine_choice import engines_of, role_for, roles_of
from paddock.exports.snapshot_service import visible_snapshot
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import keeping, model, pod_now, service, sharing
from paddock.instances.bodies import ChangeBody, InstanceBody
from paddock.instances.instance_json import instance_json
from paddock.instances.model import STATUSES, Instance
from paddock.instances.pages import words
from paddock.instances.pod_now import PodNow
from paddock.jobs.errors import Refused
from paddock.runtimes.diagnosis import who_mends
from paddock.web.form_problems import as_refusal, by_field, status_of
from paddock.web.frame import back, clean, form, page, plane_of, regions, render
from paddock.web.frame import field as form_field

PAGE_LENGTH = 50
EVENTS_SHOWN = 20
LOG_SHOWN = 8_000
# A browser is not kept waiting for a process that takes its time: the page says that it goes.
DELETE_SECONDS = 5.0
NAMES = ("name", "description", "ttl", "memory_gb", "wrapper_type", "engine", "catalog", "schema")


@dataclass(frozen=True)
class Form:
    name: str = ""
    description: str = ""
    ttl: str = ""
    memory_gb: str = ""
    wrapper_type: str = ""
    engine: str = ""
    role: str = ""
    catalog: str = ""
    schema: str = ""
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """What was written into a form on an instance's page and refused."""

    ttl: str = ""
    owner: str = ""
    problems: dict[str, str] = field(default_factory=dict)


def routes() -> list[Route]:
    return [
        page("/instances", show, PEOPLE),
        form("/instances", create, PEOPLE),
        page("/instances/new", show_new, PEOPLE),
        page("/instances/{instance_id}", show_one, PEOPLE),
        form("/instances/{instance_id}/extend", extend, PEOPLE),
        form("/instances/{instance_id}/reopen", reopen, PEOPLE),
        form("/instances/{instance_id}/delete", delete, PEOPLE),
        form("/instances/{instance_id}/share", share, PEOPLE),
        form("/instances/{instance_id}/unshare", unshare, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    asked = request.query_params
    cursor, text = asked.get("cursor") or None, clean(asked.get("q") or "")[:255]
    status, owner = clean(asked.get("status") or ""), clean(asked.get("owner") or "")[:500]
    found = await model.page(
        plane_of(request).core.db,
        scope=caller.scope,
        owner=owner or None,
        statuses=[status] if status in STATUSES else None,
        text=text or None,
        before=read_place(cursor),
        limit=PAGE_LENGTH,
    )
    return await render(
        request,
        caller,
        "instances.html",
        instances=found,
        words=words,
        asked={"q": text, "status": status, "owner": owner},
        statuses=STATUSES,
        cursor=cursor,
        next_cursor=write_cursor(found[-1].id) if len(found) == PAGE_LENGTH else None,
    )


async def show_one(request: Request, caller: Caller) -> Response:
    return await _show_one(request, caller, await _instance(request, caller), Changes())


async def _show_one(request: Request, caller: Caller, found: Instance, form: Changes, *, status: int = 200) -> Response:
    plane = plane_of(request)
    happened = await facts.events_page(
        plane.core.db, None, before=None, subject=model.subject_of(found.id), type=None, limit=EVENTS_SHOWN
    )
    log = await service.logs(plane, caller, str(found.id))
    pod, kept = PodNow(), None
    asked = regions(request)
    if service.may_change(caller, found) and (not asked or "happened" in asked):
        pod = await pod_now.look(plane.config, found)
        kept = await keeping.kept(plane.core.db, found.id) if pod.pod is None else None
    return await render(
        request,
        caller,
        "instance.html",
        status=status,
        form=form,
        instance=found,
        shown=await instance_json(plane, found),
        sentence=words.sentence(found),
        left_out=words.left_out(found),
        phases=words.PHASES,
        events=happened,
        log=log[-LOG_SHOWN:],
        pod=pod,
        kept=kept,
        mine=service.may_change(caller, found),
        who_mends=who_mends,
    )


async def show_new(request: Request, caller: Caller) -> Response:
    mapping, snapshot = await _source(request, caller, request.query_params)
    return await _show_form(request, caller, mapping, snapshot, Form())


async def create(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    values = dict(await request.form())
    mapping, snapshot = await _source(request, caller, values)
    texts: dict[str, Any] = {name: clean(str(values.get(name) or "")) for name in (*NAMES, "role")}
    asked = Form(**texts)
    try:
        role = None if snapshot else role_for(engines_of(plane.config, caller), asked.engine, asked.role)
        made = await service.create(plane, caller, _body(asked, mapping, snapshot), role)
    except (ApiError, Refused) as error:
        refused = Form(**texts, problems=by_field(error, frozenset(NAMES)))
        return await _show_form(request, caller, mapping, snapshot, refused, status=status_of(error))
    return back(request, f"/instances/{made.id}")


def _body(asked: Form, mapping: Mapping, snapshot: Snapshot | None) -> InstanceBody:
    body: dict[str, Any] = {name: getattr(asked, name) for name in NAMES if getattr(asked, name)}
    if snapshot is not None:
        for name in ("engine", "catalog", "schema"):
            body.pop(name, None)
        body["snapshot_id"] = snapshot.id
    else:
        body |= {"mapping_id": mapping.id, "mapping_version": mapping.version}
    try:
        return InstanceBody.model_validate(body)
    except ValidationError as error:
        raise as_refusal(error) from None


async def _source(request: Request, caller: Caller, values: Any) -> tuple[Mapping, Snapshot | None]:
    plane = plane_of(request)
    if text := str(values.get("snapshot") or ""):
        snapshot = await visible_snapshot(plane, caller, text)
        return await visible_mapping(plane, caller, str(snapshot.mapping_id), snapshot.mapping_version), snapshot
    number = str(values.get("version") or "")
    version = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None
    return await visible_mapping(plane, caller, str(values.get("mapping") or ""), version), None


async def _show_form(
    request: Request, caller: Caller, mapping: Mapping, snapshot: Snapshot | None, asked: Form, *, status: int = 200
) -> Response:
    return await render(
        request,
        caller,
        "instance_new.html",
        status=status,
        mapping=mapping,
        snapshot=snapshot,
        form=asked,
        engines=engines_of(plane_of(request).config, caller),
        roles=roles_of(caller),
    )


async def extend(request: Request, caller: Caller) -> Response:
    found, ttl = await _instance(request, caller), await form_field(request, "ttl")
    try:
        changed = await service.change(plane_of(request), caller, str(found.id), _new_ttl(ttl))
    except (ApiError, Refused) as error:
        return await _refused(request, caller, found, error, Changes(ttl=ttl))
    return back(request, f"/instances/{changed.id}", f"{changed.name} lives for {ttl} from its start on.")


def _new_ttl(ttl: str) -> ChangeBody:
    try:
        return ChangeBody.model_validate({"ttl": ttl})
    except ValidationError as error:
        raise as_refusal(error) from None


async def _refused(
    request: Request, caller: Caller, found: Instance, error: ApiError | Refused, written: Changes
) -> Response:
    """The page again, with what was written and what is wrong with it. What is about no field is a page of its own."""
    problems = by_field(error, frozenset(("ttl", "owner")))
    if "" in problems:
        raise error
    return await _show_one(request, caller, found, replace(written, problems=problems), status=status_of(error))


async def reopen(request: Request, caller: Caller) -> Response:
    again = await service.reopen(plane_of(request), caller, request.path_params["instance_id"])
    return back(request, f"/instances/{again.id}", f"{again.name} starts again.")


async def delete(request: Request, caller: Caller) -> Response:
    found = await _instance(request, caller)
    reason = await form_field(request, "reason") or None
    removal = await service.delete(plane_of(request), caller, str(found.id), reason=reason, seconds=DELETE_SECONDS)
    done = "is deleted" if removal.left is None else "is being deleted"
    return back(request, "/instances", f"{found.name} {done}. Its snapshot stays.")


async def share(request: Request, caller: Caller) -> Response:
    found, owner = await _instance(request, caller), await form_field(request, "owner")
    try:
        await sharing.share(plane_of(request), caller, str(found.id), owner)
    except (ApiError, Refused) as error:
        return await _refused(request, caller, found, error, Changes(owner=owner))
    return back(request, f"/instances/{found.id}", f"{owner} may read and query it now.")


async def unshare(request: Request, caller: Caller) -> Response:
    text, owner = request.path_params["instance_id"], await form_field(request, "owner")
    await sharing.unshare(plane_of(request), caller, text, owner)
    return back(request, f"/instances/{text}", f"{owner} may no longer query it.")


async def _instance(request: Request, caller: Caller) -> Instance:
    return await service.visible(plane_of(request), caller, request.path_params["instance_id"])

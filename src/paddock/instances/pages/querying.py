"""The query page of an instance: an editor, the answer as table, graph or JSON, the schema beside it, and saved queries."""

import re
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from dataclasses import field as default
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, invalid_field
from paddock.api.pagination import encode
from paddock.api.tokens import Caller
from paddock.exports import mappings
from paddock.exports.pages.mapping_picture import Picture, picture_of
from paddock.graphs.algorithms.table import ALGORITHMS
from paddock.instances import algorithm_service, proxy, service, sharing, talking
from paddock.instances.bodies import QueryBody, SavedQueryBody
from paddock.instances.model import Instance
from paddock.instances.pages.graph_of import Graph, graph_of
from paddock.jobs.errors import Refused
from paddock.web.faults import Fault, fault_of_refusal
from paddock.web.form_problems import as_refusal, by_field, status_of
from paddock.web.frame import back, clean, field, form, page, plane_of, render

MOST_ROWS = 500
# Of one node's neighbours, as many as a picture bears.
MOST_NEIGHBOURS = 100
PAGE_TIMEOUT_MS = 60_000
# Of the panel beside the query; a picture as wide as that of the mapping's own page could not be read in it.
PANEL_WIDTH = 260
# How a graph engine says where a query is wrong, and all that comes after it.
PLACE_IN_WORDS = re.compile(r" \(line: \d+, offset: \d+\).*", re.DOTALL)
# Of columns whose values are written right-aligned; a list of numbers is none.
NUMERIC = re.compile(r"U?INT\d+|FLOAT|DOUBLE|DECIMAL(\(.*\))?")


@dataclass(frozen=True)
class Answer:
    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    row_count: int
    milliseconds: float
    truncated: bool
    graph: Graph

    @property
    def numeric(self) -> set[int]:
        return {n for n, type in enumerate(self.types) if NUMERIC.fullmatch(type)}

    @property
    def texts(self) -> list[list[str | None]]:
        """As cells show them: text as it is, everything else as JSON."""
        return [[_text(value) for value in row] for row in self.rows]

    @property
    def graph_json(self) -> str:
        return orjson.dumps(self.graph.as_json()).decode()

    @property
    def as_json(self) -> str:
        shown = [dict(zip(self.columns, row, strict=False)) for row in self.rows]
        return orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


@dataclass(frozen=True)
class Saving:
    """The name that a query was to be saved by, and why it was not."""

    name: str = ""
    problems: dict[str, str] = default(default_factory=dict)


@dataclass(frozen=True)
class AlgorithmForm:
    """An execution as it was asked for, and why it does not run."""

    name: str = ""
    write_property: str = ""
    parameters: str = ""
    problems: dict[str, str] = default(default_factory=dict)


# Those that write a property; a shortest path is a query.
RUN_AS_JOBS = tuple(algorithm for algorithm in ALGORITHMS.values() if algorithm.function is not None)


def routes() -> list[Route]:
    return [
        page("/instances/{instance_id}/query", show, PEOPLE),
        form("/instances/{instance_id}/query", run, PEOPLE),
        form("/instances/{instance_id}/download", download, PEOPLE),
        form("/instances/{instance_id}/expand", expand, PEOPLE),
        form("/instances/{instance_id}/save-query", save, PEOPLE),
        form("/instances/{instance_id}/drop-query", drop, PEOPLE),
        form("/instances/{instance_id}/algorithm", run_algorithm, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    instance = await _instance(request, caller)
    query = clean(request.query_params.get("q") or "")[:65_536]
    return await _show(request, caller, instance, query)


async def run(request: Request, caller: Caller) -> Response:
    """The answer alone where a script asked, else the whole page with it."""
    instance = await _instance(request, caller)
    query = await field(request, "query")
    shown: dict[str, Any] = {"answer": None, "fault": None}
    try:
        shown["answer"] = await _ask(request, caller, instance, query)
    except ApiError as error:
        shown["fault"] = _fault_of(error, query)
    if "hx-request" in request.headers:
        return await render(request, caller, "instance_answer.html", instance=instance, **shown)
    return await _show(request, caller, instance, query, **shown)


async def download(request: Request, caller: Caller) -> Response:
    """The answer as CSV, streamed as the instance gives it. Where it has more rows than a CSV may, the file's name says so."""
    instance = await _instance(request, caller)
    plane = plane_of(request)
    body = _query_body(await field(request, "query"), {})
    response = await proxy.forward_query(plane, request, caller, instance.id, body, proxy.CSV)
    if response.status_code == 200:
        sent, _, found = response.headers.get(proxy.ROWS, "").partition(" of ")
        cut = f"-first-{sent}-of-{found}" if sent != found else ""
        response.headers["content-disposition"] = f'attachment; filename="{instance.slug}{cut}.csv"'
    return response


async def expand(request: Request, caller: Caller) -> Response:
    """The neighbours of one node, and the Cypher that found them."""
    instance = await _instance(request, caller)
    label, key = await field(request, "label"), await field(request, "key")
    node = next((one for one in (await _schema(request, instance))["nodes"] if one["label"] == label), None)
    if node is None:
        raise ApiError(404, "not_found", "The graph has no such label.")
    try:
        value = orjson.loads(key)
    except orjson.JSONDecodeError:
        raise ApiError(422, "invalid", "The key is no JSON.") from None
    name = node["key"]["name"]
    query = f"MATCH (a:`{label}`)-[r]-(b) WHERE a.`{name}` = $key RETURN a, r, b LIMIT {MOST_NEIGHBOURS}"
    answer = await _ask(request, caller, instance, query, {"key": value})
    shown = query.replace("$key", orjson.dumps(value).decode()) if isinstance(value, str | int) else query
    return Response(encode({**answer.graph.as_json(), "query": shown}), media_type="application/json")


async def save(request: Request, caller: Caller) -> Response:
    """Refused, the page shows what was written and what is wrong with it."""
    instance = await _instance(request, caller)
    query, name = await field(request, "query"), await field(request, "name")
    try:
        body = _saved_query(name, query)
        await sharing.save_query(plane_of(request), caller, str(instance.mapping_id), body)
    except (ApiError, Refused) as error:
        problems = by_field(error, frozenset({"name", "query"}))
        if "" in problems:
            raise
        saving = Saving(name, problems)
        return await _show(request, caller, instance, query, saving=saving, status=status_of(error))
    return back(request, f"/instances/{instance.id}/query?q={_quoted(query)}", "The query is saved with the mapping.")


def _saved_query(name: str, query: str) -> SavedQueryBody:
    try:
        return SavedQueryBody.model_validate({"name": name, "query": query})
    except ValidationError as error:
        raise as_refusal(error) from None


async def drop(request: Request, caller: Caller) -> Response:
    instance = await _instance(request, caller)
    await sharing.drop_query(plane_of(request), caller, str(instance.mapping_id), await field(request, "id"))
    return back(request, f"/instances/{instance.id}/query", "The saved query is deleted.")


async def run_algorithm(request: Request, caller: Caller) -> Response:
    """Refused, the page shows what was written and what is wrong with it."""
    instance = await _instance(request, caller)
    name, written = await field(request, "name"), await field(request, "write_property")
    parameters = await field(request, "parameters")
    try:
        asked = _parameters(parameters) | ({"write_property": written} if written else {})
        job = await algorithm_service.run(plane_of(request), caller, str(instance.id), name, asked)
    except (ApiError, Refused) as error:
        problems = by_field(error, frozenset({"name", "write_property", "parameters"}))
        tried = AlgorithmForm(name, written, parameters, problems)
        return await _show(request, caller, instance, "", algorithm=tried, status=status_of(error))
    return back(request, f"/jobs/{job.id}", f"{name} runs; its result becomes a property of the nodes.")


def _parameters(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise invalid_field("parameters", f"That is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise invalid_field("parameters", 'Write them as one JSON object, as in {"node_labels": ["Airport"]}.')
    return found


async def _ask(
    request: Request, caller: Caller, instance: Instance, query: str, parameters: dict[str, Any] | None = None
) -> Answer:
    body = _query_body(query, parameters or {}).model_copy(update={"max_rows": MOST_ROWS})
    answer = await _read(proxy.ask_query(plane_of(request), request, caller, instance.id, body))
    return _answer_of(answer.data)


async def _read(asking: Awaitable[talking.Answer]) -> talking.Answer:
    """What the instance refuses is refused, as it says it."""
    answer = await asking
    if answer.status == 200:
        return answer
    error = answer.error
    code, message, hint = (error.get(name) for name in ("code", "message", "hint"))
    if not isinstance(code, str) or not isinstance(message, str):
        raise proxy.answered_badly()
    details = error.get("details")
    raise ApiError(
        answer.status,
        code[:100],
        message,
        hint=hint if isinstance(hint, str) else None,
        details=details if isinstance(details, dict) else None,
    )


def _query_body(query: str, parameters: dict[str, Any]) -> QueryBody:
    try:
        return QueryBody.model_validate({"query": query, "parameters": parameters, "timeout_ms": PAGE_TIMEOUT_MS})
    except ValidationError as error:
        raise ApiError(422, "invalid", as_refusal(error).message) from None


def _answer_of(data: dict[str, Any]) -> Answer:
    """Only what has the shape of an answer is shown."""
    columns, types, rows = (data.get(name) for name in ("columns", "column_types", "rows"))
    if not (isinstance(columns, list) and isinstance(types, list) and isinstance(rows, list)):
        raise proxy.answered_badly()
    kept = [row for row in rows[:MOST_ROWS] if isinstance(row, list) and len(row) == len(columns)]
    seconds, count = data.get("execution_time_ms"), data.get("row_count")
    return Answer(
        [str(column) for column in columns],
        [str(type) for type in types],
        kept,
        count if isinstance(count, int) else len(kept),
        float(seconds) if isinstance(seconds, int | float) else 0.0,
        bool(data.get("truncated")),
        graph_of(kept, cut=bool(data.get("truncated"))),
    )


async def _schema(request: Request, instance: Instance) -> dict[str, Any]:
    found = (await _read(proxy.ask(plane_of(request), request, instance.id, "GET", "/schema"))).data
    return {section: found.get(section) or [] for section in ("nodes", "edges")}


def _fault_of(error: ApiError, query: str) -> Fault:
    """Its place is shown beside the query: the engine's own words for it, and its copy of the line, would repeat that."""
    fault = fault_of_refusal(error, query)
    return fault if not fault.excerpt else replace(fault, message=PLACE_IN_WORDS.sub("", fault.message))


def _names_in(schema: dict[str, Any]) -> dict[str, Any]:
    """What the editor completes: labels and edge types, each with its properties."""
    return {
        "nodes": [{"label": node["label"], "properties": _properties(node, node["key"])} for node in schema["nodes"]],
        "edges": [{"type": edge["type"], "properties": _properties(edge)} for edge in schema["edges"]],
    }


def _properties(entity: dict[str, Any], *first: dict[str, Any]) -> list[str]:
    return [one["name"] for one in (*first, *entity["properties"])]


async def _show(
    request: Request,
    caller: Caller,
    instance: Instance,
    query: str,
    *,
    answer: Answer | None = None,
    fault: Fault | None = None,
    saving: Saving | None = None,
    algorithm: AlgorithmForm | None = None,
    status: int = 200,
) -> Response:
    plane = plane_of(request)
    schema: dict[str, Any] = {"nodes": [], "edges": []}
    try:
        schema = await _schema(request, instance)
    except ApiError as error:
        fault = fault or fault_of_refusal(error, query)
    return await render(
        request,
        caller,
        "instance_query.html",
        status=status,
        saving=saving or Saving(),
        algorithm=algorithm or AlgorithmForm(),
        algorithms=RUN_AS_JOBS,
        instance=instance,
        query=query,
        schema=schema,
        names=_names_in(schema),
        picture=await _picture(request, instance),
        saved=await sharing.saved_queries(plane, caller, str(instance.mapping_id))
        if caller.sees(instance.owner)
        else [],
        mine=service.may_change(caller, instance),
        answer=answer,
        fault=fault,
    )


async def _picture(request: Request, instance: Instance) -> Picture | None:
    """Of the mapping's version that it was loaded from."""
    mapping = await mappings.get(plane_of(request).core.db, instance.mapping_id, instance.mapping_version)
    return None if mapping is None else picture_of(mapping.definition, least_width=PANEL_WIDTH)


async def _instance(request: Request, caller: Caller) -> Instance:
    return await service.visible(plane_of(request), caller, request.path_params["instance_id"])


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")

"""Mappings and snapshots as the server draws them: versions, differences, what an engine says of a column, and refusals."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI

from paddock.config import Config
from paddock.exports import mappings, snapshot_states, yaml_form
from paddock.exports.mapping import Definition
from paddock.exports.mapping_json import mapping_json
from paddock.exports.mappings import Change, Mapping
from paddock.exports.settings import ExportSettings
from paddock.jobs import wire
from paddock.jobs.core import Core
from tests.playing import worker
from tests.snapshots.making import claim, complete, make_mapping, make_snapshot, now
from tests.web.signed_in import ODD, Browser, Open, answering, row_of, words_of


@pytest.fixture
def core(exports_core: Core) -> Core:
    return exports_core


YAML = """\
name: flights
nodes:
  - label: Airport
    primary_key: {name: code, type: STRING}
    properties:
      - {name: city, type: STRING}
      - {name: height, type: INT32}
    sql: |-
      SELECT code, city, height
      FROM airports
"""


async def current(core: Core, id: UUID) -> Mapping:
    found = await mappings.get(core.db, id)
    assert found is not None
    return found


def id_of(location: str) -> UUID:
    return UUID(location.rpartition("/")[2])


async def change(core: Core, mapping: Mapping, why: str, edit: Callable[[dict[str, Any]], None]) -> Mapping:
    dumped = mapping.definition.dumped()
    edit(dumped)
    wanted = Change(change_description=why, definition=Definition.model_validate(dumped))
    return await mappings.change(core, mapping.id, wanted, actor="ann")


# mappings


async def test_without_mappings_the_list_says_how_to_make_one_and_a_search_finds_names_and_descriptions(
    core: Core, ann: Browser
) -> None:
    assert "paddock mappings apply -f mapping.yaml" in words_of(await ann.read("/mappings"))
    air = await make_mapping(core, owner="ann", name="air", description=ODD)
    sea = await make_mapping(core, owner="ann", name="sea", description="ports")
    bobs = await make_mapping(core, owner="bob", name="bobs")
    page = await ann.read("/mappings")
    assert "air" in row_of(page, f"mapping-{air.id}")
    assert str(bobs.id) not in page
    page = await ann.read("/mappings?q=PORT")
    assert f"mapping-{sea.id}" in page
    assert f"mapping-{air.id}" not in page
    assert "No mapping matches." in words_of(await ann.read("/mappings?q=nonesuch"))


async def test_others_mappings_and_snapshots_are_not_there(core: Core, ann: Browser) -> None:
    mapping = await make_mapping(core, owner="bob")
    snapshot = await make_snapshot(core, mapping, owner="bob", engine="local", role=None)
    for path in (f"/mappings/{mapping.id}", f"/mappings/{mapping.id}/diff", f"/mappings/{mapping.id}/edit"):
        await ann.read(path, 404)
    await ann.read(f"/snapshots/{snapshot.id}", 404)
    await ann.read(f"/snapshots/new?mapping={mapping.id}", 404)
    assert str(snapshot.id) not in await ann.read("/snapshots")
    for path in (f"/mappings/{mapping.id}/copy", f"/mappings/{mapping.id}/delete", f"/mappings/{mapping.id}/edit"):
        assert (await ann.send(path, "/mappings/new", name="x", yaml=YAML)).status_code == 404
    for action in ("retry", "cancel", "delete"):
        assert (await ann.send(f"/snapshots/{snapshot.id}/{action}", "/mappings/new")).status_code == 404
    assert (await ann.send("/snapshots", "/mappings/new", mapping=str(mapping.id))).status_code == 404


async def test_a_mapping_is_read_with_its_columns_in_order_and_an_older_version_says_so(
    core: Core, ann: Browser
) -> None:
    mapping = await make_mapping(core, owner="ann", description=ODD)
    await change(core, mapping, ODD, lambda new: new["edges"].pop())
    text = words_of(await ann.read(f"/mappings/{mapping.id}"))
    assert "Version 2 , 2 nodes and 1 edge." in text
    assert "1 code key STRING 2 name STRING SELECT code, name FROM airports" in text
    assert "ROUTE Airport → Airport 1 origin from STRING 2 target to STRING 3 miles DECIMAL(10,2)" in text
    old = words_of(await ann.read(f"/mappings/{mapping.id}?version=1"))
    assert "Version 1 of 2 , 2 nodes and 2 edges." in old
    assert "This is an older version." in old
    for version in ("3", "0", "-1", "x", "99999999999"):
        await ann.read(f"/mappings/{mapping.id}?version={version}", 404)


async def test_a_difference_names_what_was_added_removed_and_changed_line_by_line(core: Core, ann: Browser) -> None:
    mapping = await make_mapping(core, owner="ann")

    def edit(new: dict[str, Any]) -> None:
        new["edges"].pop()
        new["nodes"].append({**new["nodes"][1], "label": "Port"})
        new["nodes"][0]["sql"] = "SELECT code, name\nFROM airports"
        new["edges"][0]["properties"] = [{"name": "miles", "type": "INT32"}, {"name": "year", "type": "INT32"}]

    await change(core, mapping, "ports", edit)
    page = await ann.read(f"/mappings/{mapping.id}/diff")
    text = words_of(page)
    for told in (
        "Version 1 to version 2",
        "Port node added + id INT64 + SELECT id FROM airlines",
        "FLIES_TO edge removed - SELECT airline, airport FROM serves",
        "- SELECT code, name FROM airports + SELECT code, name + FROM airports",
        "+ year INT32 ~ miles DECIMAL(10,2) → INT32",
    ):
        assert told in text, (told, text)
    assert "No node and no edge differs." in words_of(await ann.read(f"/mappings/{mapping.id}/diff?from=1&to=1"))


async def test_a_validation_shows_each_mismatch_at_its_column_and_a_refused_query_at_its_node(
    core: Core, ann: Browser
) -> None:
    mapping = await make_mapping(core, owner="ann")

    def answer(payload: dict[str, Any]) -> dict[str, Any]:
        if "airlines" in payload["sql"]:
            return {"refused": {"code": "sql_error", "message": ODD, "hint": "Look.", "line": 1, "column": 16}}
        wrong = []
        if "routes" in payload["sql"]:
            found = {"column": "miles", "expected": "DECIMAL(10,2)", "found": "double", "hint": "Cast it."}
            extra = {"column": "extra", "expected": "nothing", "found": "varchar", "hint": "Leave it out."}
            wrong = [{"position": 2, **found}, {"position": 3, **extra}]
        named = {"position": 1, "column": "airport", "found": "code", "message": "Position counts."}
        warnings = [named] if "serves" in payload["sql"] else []
        return {"columns": [], "mismatches": wrong, "warnings": warnings, "direct_only": None}

    page = await answering(core, answer, ann.read(f"/mappings/{mapping.id}?validate=warehouse&role=finance"))
    text = words_of(page)
    assert "2 columns do not fit; Airline could not be described, says warehouse." in text
    assert "3 miles DECIMAL(10,2) expected DECIMAL(10,2) , found double . Cast it." in text
    assert "4 extra nothing expected nothing , found varchar . Leave it out." in text
    assert "Airline 1 problem Line 1." in text
    assert "FLIES_TO Airline → Airport fits" in text
    assert "airport to STRING Position counts." in text
    missing = words_of(await ann.read(f"/mappings/{mapping.id}?validate=warehouse"))
    assert "The engine could not be asked. Missing use case ID" in missing
    assert "that this token may use" in words_of(await ann.read(f"/mappings/{mapping.id}?validate=%3Cb%3E"))


async def test_a_mapping_is_made_changed_and_copied_by_forms(core: Core, ann: Browser) -> None:
    mapping = await current(core, id_of(await ann.done("/mappings", "/mappings/new", yaml=YAML.replace("\n", "\r\n"))))
    assert (mapping.name, mapping.owner, mapping.version) == ("flights", "ann", 1)
    own = f"/mappings/{mapping.id}"
    text = yaml_form.write(mapping_json(mapping)).replace("INT32", "int64") + "description: heights\n"
    fields = {"yaml": text, "based_on": "1", "change_description": "wider"}
    assert await ann.done(f"{own}/edit", f"{own}/edit", **fields) == own
    changed = await current(core, mapping.id)
    assert (changed.version, changed.change_description, changed.description) == (2, "wider", "heights")
    assert changed.definition.nodes[0].properties[1].type == "INT64"

    stale = await ann.refused(f"{own}/edit", f"{own}/edit", 409, **{**fields, "yaml": YAML})
    assert "The mapping has version 2 now; this change was made to version 1." in stale
    silent = await ann.refused(f"{own}/edit", f"{own}/edit", 422, yaml=YAML, based_on="2")
    assert "Say what is changed, and why." in silent

    copied = await current(core, id_of(await ann.done(f"{own}/copy", own, name=ODD, version="1")))
    assert (copied.name, copied.definition.nodes[0].properties[1].type) == (ODD.strip(), "INT32")
    assert "There is a mapping" in await ann.refused(f"{own}/copy", own, 409, name=ODD, version="1")
    assert "name" in await ann.refused(f"{own}/copy", own, 422, name="", version="1")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("type: INT32", "type: INT33", "line 7 nodes.0.properties.1.type"),
        ("type: INT32", "kind: INT32", "line 7 nodes.0.properties.1.kind There is no such field."),
        ("name: city", "name: code", "line 6 nodes.0.properties.0.name 'code' stands at nodes.0.primary_key.name"),
        ("label: Airport", "label: '2nd'", "line 3 nodes.0.label A letter, then letters"),
        ("    sql: |-", "    query: |-", "line 3 nodes.0.sql It is missing."),
        ("name: flights", "name: [", "Line "),
        ("name: flights", 'name: "a\\0b"', "line 1 name"),
        ("name: flights", "name: flights\nttl: soon", "line 2 ttl Write a duration"),
        ("nodes:", "noodles:", "There is no 'noodles' at the top"),
    ],
)
async def test_every_problem_of_the_text_stands_at_its_field_and_line(
    core: Core, ann: Browser, old: str, new: str, told: str
) -> None:
    sent = YAML.replace(old, new)
    answer = await ann.send("/mappings", "/mappings/new", yaml=sent)
    assert answer.status_code == 422
    text = words_of(answer.text)
    assert told in _once(text), text
    assert await mappings.page(core.db, "ann") == []
    assert "FROM airports\n</textarea>" in answer.text.replace("\r", ""), "what was typed is still there"


def _once(text: str) -> str:
    """A line is told twice: as a button for scripts, and without."""
    return re.sub(r"line (\d+) line \1 ", r"line \1 ", text)


async def test_the_form_asks_an_engine_before_anything_is_saved(core: Core, ann: Browser) -> None:
    wrong = {"position": 2, "column": "height", "expected": "INT32", "found": "double", "hint": "Cast it."}

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        named = {"position": 1, "column": "city", "found": "town", "message": "Position counts."}
        return {"columns": [], "mismatches": [wrong], "warnings": [named]}

    fields: dict[str, Any] = {"yaml": YAML, "engine": "local"}
    whole = await answering(core, answer, ann.send("/mappings/check", "/mappings/new", **fields))
    piece = await answering(core, answer, ann.send("/mappings/check", "/mappings/new", {"hx-request": "1"}, **fields))
    assert "FROM airports\n</textarea>" in whole.text
    assert "<main" not in piece.text
    for page in (whole.text, piece.text):
        assert 'data-go-to-line="7"' in page
        assert "Airport.height expected INT32 , found double . Cast it." in words_of(page)
        assert "warning Position counts." in words_of(page)
    refused = {"code": "sql_error", "message": ODD, "hint": None, "line": 1, "column": 1}
    page = (
        await answering(core, lambda _: {"refused": refused}, ann.send("/mappings/check", "/mappings/new", **fields))
    ).text
    assert "Airport could not be described, says local." in words_of(page)
    assert 'data-go-to-line="8"' in page
    bad = await ann.send("/mappings/check", "/mappings/new", yaml="nodes: 3", engine="local")
    assert "nodes" in words_of(bad.text)
    assert await mappings.page(core.db, "ann") == []


async def test_the_picture_follows_the_text_marks_what_is_wrong_and_leads_to_its_line(core: Core, ann: Browser) -> None:
    async def drawn(text: str) -> str:
        piece = await ann.send("/mappings/picture", "/mappings/new", {"hx-request": "1"}, yaml=text)
        assert "<main" not in piece.text
        return piece.text

    good = await drawn(YAML)
    assert ">Airport</text>" in good
    assert 'data-go-to-line="3"' in good
    assert 'class="wrong"' not in good
    bad = await drawn(YAML.replace("type: INT32", "type: INT33"))
    assert ' class="wrong" data-go-to-line="3"' in bad
    broken = await drawn(YAML.replace("nodes:", "nodes: ["))
    assert "<svg" not in broken
    assert "Line 3" in words_of(broken)
    assert await mappings.page(core.db, "ann") == []


async def test_a_node_and_an_edge_are_written_from_a_query(core: Core, ann: Browser) -> None:
    """Position counts, names become names that a mapping may have, and the text keeps its comments."""

    def columns(*found: tuple[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda asked: {"columns": [{"name": name, "type": type} for name, type in found]}

    async def add(answer: Callable[[dict[str, Any]], dict[str, Any]], **fields: Any) -> str:
        sent = ann.send("/mappings/add", "/mappings/new", engine="local", **fields)
        page: str = (await answering(core, answer, sent)).text
        return page

    text = f"# ours\n{YAML}"
    node = {"section": "nodes", "add_sql": "SELECT *\nFROM airlines", "add_name": "Airline"}
    page = await add(columns(("id", "INT32"), ("full name", "STRING"), ("count(*)", "INT64")), yaml=text, **node)
    written = yaml_form.read(text_of(page))
    assert text_of(page).startswith(text)
    assert written["nodes"][1] == {
        "label": "Airline",
        "primary_key": {"name": "id", "type": "INT64"},
        "properties": [{"name": "full_name", "type": "STRING"}, {"name": "count", "type": "INT64"}],
        "sql": "SELECT *\nFROM airlines",
    }

    ends = {"section": "edges", "add_sql": "SELECT 1", "add_name": "FLIES", "add_from": "Airline", "add_to": "Airport"}
    page = await add(columns(("airline", "INT32"), ("at", "STRING")), yaml=text_of(page), **ends)
    edge = yaml_form.read(text_of(page))["edges"][0]
    assert [edge[name] for name in ("from_node", "to_node", "from_key", "to_key")] == [
        "Airline",
        "Airport",
        "airline",
        "at",
    ]

    page = await add(columns(("height", "DOUBLE")), yaml=text, **node)
    assert "The first column, 'height', is DOUBLE, and a key is one of" in words_of(page)
    assert text_of(page) == text
    refused = {"code": "sql_error", "message": ODD, "hint": None, "line": 1, "column": 1}
    page = await add(lambda _: {"refused": refused}, yaml=text, **node)
    assert text_of(page) == text
    unnamed = await ann.send("/mappings/add", "/mappings/new", yaml=text, section="nodes", add_sql="SELECT 1")
    assert (unnamed.status_code, "Name the label of the nodes" in words_of(unnamed.text)) == (422, True)
    assert await mappings.page(core.db, "ann") == []


def text_of(page: str) -> str:
    found = re.search(r'<textarea name="yaml"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    assert found is not None
    return unescape(found[1]).replace("\r\n", "\n")


async def test_a_mapping_with_snapshots_is_not_deleted_and_the_refusal_names_them(core: Core, ann: Browser) -> None:
    mapping = await make_mapping(core, owner="ann", name="air")
    own = f"/mappings/{mapping.id}"
    assert f'action="{own}/delete"' in await ann.read(own)
    await make_snapshot(core, mapping, owner="ann", name="friday")
    page = await ann.read(own)
    assert f'action="{own}/delete"' not in page
    assert "The mapping can be deleted once its snapshots are." in words_of(page)
    assert "'friday'" in await ann.refused(f"{own}/delete", own, 409)
    other = await make_mapping(core, owner="ann", name="sea")
    assert await ann.done(f"/mappings/{other.id}/delete", own) == "/mappings"
    await ann.read(f"/mappings/{other.id}", 404)


# snapshots


async def test_a_snapshot_is_made_and_each_part_is_told_until_it_is_ready(core: Core, ann: Browser) -> None:
    assert "paddock snapshots create" in words_of(await ann.read("/snapshots"))
    mapping = await make_mapping(core, owner="ann", name="air")
    form = f"/snapshots/new?mapping={mapping.id}"
    where = await ann.done(
        "/snapshots", form, mapping=str(mapping.id), version="1", engine="warehouse", role="finance",
        catalog="hive", schema="air", ttl="1d", name=ODD,
    )  # fmt: skip
    snapshot = await now(core, id_of(where))
    assert (snapshot.role, snapshot.engine, snapshot.name) == ("finance", "warehouse", ODD.strip())
    assert (snapshot.request["catalog"], snapshot.request["schema_name"]) == ("hive", "air")
    page = await ann.read(where)
    assert "pending 0 of 4 parts done." in words_of(page)
    assert f'data-stream="group={snapshot.group_id}"' in page
    assert "/delete" not in page

    attempts = await claim(core)
    await complete(attempts["Airport"], rows=1_200)
    page = await ann.read(where)
    assert "creating 1 of 4 parts done, 3 running." in words_of(page)
    assert "/download" not in page
    assert "completed – 1,200 120.0 kB 1" in row_of(page, "part-nodes-Airport")
    for name in ("Airline", "ROUTE", "FLIES_TO"):
        await complete(attempts[name])
    page = await ann.read(where)
    assert "ready 1,210 nodes and 20 edges, 123.0 kB." in words_of(page)
    assert "somewhere/_manifest.json" in page
    assert f'href="/api/snapshots/{snapshot.id}/download" download' in page
    assert "/cancel" not in page
    assert "/retry" not in page
    assert "1,210 20 123.0 kB" in row_of(await ann.read("/snapshots"), f"snapshot-{snapshot.id}")
    assert f"snapshot-{snapshot.id}" not in await ann.read("/snapshots?status=failed")
    assert f"snapshot-{snapshot.id}" in await ann.read(f"/mappings/{mapping.id}")
    assert await ann.done(f"{where}/delete", where) == "/snapshots"
    assert str(snapshot.id) not in await ann.read("/snapshots")
    assert str(snapshot.id) in await ann.read("/snapshots?status=deleting")


async def test_a_failed_snapshot_tells_why_and_is_tried_again_and_cancelled(
    core: Core, ann: Browser, open_browser: Open
) -> None:
    snapshot = await make_snapshot(core, await make_mapping(core, owner="ann"), owner="ann")
    attempts = await claim(core)
    await attempts["Airport"].finish("permanent", error=wire.Error(code="denied", message=ODD, hint="Ask `x`."))
    for name in ("Airline", "ROUTE", "FLIES_TO"):
        await complete(attempts[name])
    own = f"/snapshots/{snapshot.id}"
    page = await ann.read(own)
    text = words_of(page)
    assert "failed 3 of 4 parts completed; it has no manifest." in text
    assert "Ask x ." in text
    assert "part gets a new job under the role finance. What completed stays: 3 parts." in page
    # Whoever may not use its role any more is not offered what would be refused.
    poor = await open_browser(engine_roles=["people"])
    assert "/retry" not in await poor.read(own)
    assert await poor.refused(f"{own}/retry", own, 403)
    assert await ann.done(f"{own}/retry", own) == own
    assert "1 of 4" not in words_of(await ann.read(own))
    assert await ann.done(f"{own}/cancel", own, reason="enough") == own
    assert "cancelled 3 of 4 parts completed" in words_of(await ann.read(own))
    assert await ann.refused(f"{own}/cancel", own, 409)


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"engine": "warehouse"}, 422, "Missing use case ID"),
        ({"engine": "nonesuch"}, 403, "that this token may use"),
        ({"engine": "local", "ttl": "P0D"}, 422, "more than zero"),
        ({"engine": "local", "name": "x" * 300}, 422, "at most 255"),
    ],
)
async def test_what_is_wrong_with_a_new_snapshot_stands_at_its_field(
    core: Core, ann: Browser, fields: dict[str, str], status: int, told: str
) -> None:
    mapping = await make_mapping(core, owner="ann")
    page = f"/snapshots/new?mapping={mapping.id}"
    assert told in await ann.refused("/snapshots", page, status, mapping=str(mapping.id), version="1", **fields)


async def test_where_only_instances_make_snapshots_nobody_is_offered_one(
    exports_app: FastAPI, exports_config: Config, core: Core, ann: Browser
) -> None:
    mapping = await make_mapping(core, owner="ann")
    snapshot = await make_snapshot(core, mapping, owner="ann")
    exports_app.state.plane.config = exports_config.with_settings(
        exports_config.of(ExportSettings).model_copy(update={"explicit_snapshots": False})
    )
    assert "/snapshots/new" not in await ann.read(f"/mappings/{mapping.id}")
    assert "/cancel" not in await ann.read(f"/snapshots/{snapshot.id}")
    await ann.read(f"/snapshots/new?mapping={mapping.id}", 403)
    refused = await ann.send("/snapshots", f"/mappings/{mapping.id}", mapping=str(mapping.id), engine="local")
    assert refused.status_code == 403
    assert (await ann.send(f"/snapshots/{snapshot.id}/cancel", f"/mappings/{mapping.id}")).status_code == 403
    [part, *_] = await snapshot_states.parts(core.db, snapshot)
    page = await ann.read(f"/jobs/{part.job_id}")
    assert f"/jobs/{part.job_id}/cancel" not in page
    assert "It is part of a snapshot." in page
    assert (await ann.send(f"/jobs/{part.job_id}/cancel", "/jobs")).status_code == 403
    told = await ann.refused("/jobs/selected", "/jobs", 409, one=f"cancel {part.job_id}")
    assert "belongs to a snapshot" in told


async def test_a_parts_job_leads_back_to_its_snapshot_and_mapping(core: Core, ann: Browser) -> None:
    snapshot = await make_snapshot(core, await make_mapping(core, owner="ann"), owner="ann", name=f"of {ODD}")
    [part, *_] = await snapshot_states.parts(core.db, snapshot)
    page = await ann.read(f"/jobs/{part.job_id}")
    assert f'href="/snapshots/{snapshot.id}"' in page
    assert f'href="/mappings/{snapshot.mapping_id}?version=1"' in page


async def test_what_a_part_reports_is_shown_while_it_runs(core: Core, ann: Browser) -> None:
    snapshot = await make_snapshot(core, await make_mapping(core, owner="ann"), owner="ann")
    played = await worker(core)
    attempt = await played.claim_one("export")
    report = {"percent": 42.0, "rows": 7_000, "phase": ODD}
    held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report=report)
    await played.link.beat(played.session, wire.Beat(holding=[held]))
    answer = await ann.client.get(f"/snapshots/{snapshot.id}", headers={"x-paddock-regions": "snapshot"})
    region = answer.json()["regions"]["snapshot"]
    assert "running 42 % 7,000 rows" in row_of(region, "part-nodes-Airport")
    assert ODD[:12] not in region

"""A mapping file and its definition are the same thing in two forms."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.exports.mapping import Definition
from paddock.exports.yaml_form import BadFile, add, read, write
from tests.snapshots.making import AIRPORTS

FILE = """\
name: flights
description: What flies where.
ttl: P30D
nodes:
  - label: Airport
    primary_key: {name: code, type: STRING}
    properties:
      - {name: city, type: STRING}
      - {name: height, type: 'DECIMAL(10,2)'}
    sql: |-
      SELECT code, city, height
      FROM airports
edges:
  - type: ROUTE
    from_node: Airport
    to_node: Airport
    from_key: origin
    to_key: target
    sql: SELECT origin, target FROM routes
"""


def test_a_file_is_shown_back_as_it_was_written() -> None:
    assert write(read(FILE)) == FILE


def test_comments_are_not_kept() -> None:
    assert write(read(FILE.replace("nodes:\n", "nodes: # all of them\n"))) == FILE


def test_what_the_api_shows_is_written_and_read_back() -> None:
    shown = {**Definition.model_validate(AIRPORTS).dumped(), "name": "air", "description": "", "ttl": None, "id": "x"}
    file = read(write(shown))
    assert file["name"] == "air"
    assert Definition.model_validate({"nodes": file["nodes"], "edges": file["edges"]}) == Definition.model_validate(
        AIRPORTS
    )
    assert set(file) == {"name", "nodes", "edges"}


@given(sql=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), min_size=1))
def test_no_query_is_changed_on_its_way(sql: str) -> None:
    mapping: dict[str, Any] = {
        "name": "air",
        "nodes": [{"label": "NO", "primary_key": {"name": "on", "type": "DATE"}, "sql": sql}],
    }
    found = read(write(mapping))["nodes"][0]
    assert (found["sql"], found["label"], found["primary_key"]["name"]) == (sql, "NO", "on")


def test_every_value_is_text() -> None:
    found = read("name: 1.0\nttl: null\ndescription:\nnodes: [{label: NO}, {label: 2026-01-01}]\n")
    assert found == {"name": "1.0", "nodes": [{"label": "NO"}, {"label": "2026-01-01"}]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "at its top"),
        ("- a\n- b\n", "at its top"),
        ("name: a\nname: b\n", "Line 2: 'name' stands here twice"),
        ("nodes:\n  - label: a\n    sql: x\n    label: b\n", "Line 4: 'label' stands here twice"),
        ("name: [a\n", "Line 2"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("name: a\nengine: b\n", "no 'engine'"),
        ("? [a]\n: b\n", "one word"),
        ("name: a\n---\nname: b\n", "Line 2"),
        ("name: \x00\n", "not YAML"),
        ("[" * 5_000, "nested too deep"),
    ],
)
def test_a_bad_file_says_where(text: str, sentence: str) -> None:
    with pytest.raises(BadFile, match=sentence.replace("*", ".")):
        read(text)


COMMENTED = """\
name: flights   # the daily one
nodes:
- label: Airport
  primary_key: {name: code, type: STRING}
  sql: |-
    SELECT code

    FROM airports

# edges follow
edges: []
"""


def test_an_entry_is_added_where_its_list_ends_and_nothing_else_is_touched() -> None:
    city = {
        "label": "City",
        "primary_key": {"name": "id", "type": "INT64"},
        "properties": [],
        "sql": "SELECT 1\nFROM x",
    }
    text = add(COMMENTED, "nodes", city)
    before, _, after = COMMENTED.partition("\n\n# edges")
    assert text.startswith(
        f"{before}\n- label: City\n  primary_key: {{name: id, type: INT64}}\n  sql: |-\n    SELECT 1\n"
    )
    assert text.endswith(f"\n\n# edges{after}")
    assert [node["label"] for node in read(text)["nodes"]] == ["Airport", "City"]
    assert read(add("", "nodes", city))["nodes"][0]["label"] == "City"
    with pytest.raises(BadFile, match="one entry under the other"):
        add("nodes: [{label: A}]\nname: x", "nodes", city)

"""From a mapping file to a snapshot's files and away again, by command line, with everything running."""

import json
import os
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
import yaml

from tests.cli.conftest import Terminal
from tests.exports.place import PEOPLE, ROWS, Place
from tests.exports.place import place as whole_place
from tests.processes.running import wait_for

pytestmark = pytest.mark.slow

FILE = PEOPLE.replace("nodes:", "ttl: P30D\nnodes:", 1)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with whole_place() as found:
        yield found


@pytest.fixture
def paddock(place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in [name for name in os.environ if name.startswith("PADDOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(place.folder)
    return Terminal(place.up.data, capsys)


def written(place: Place, text: str = FILE, name: str = "people.yaml") -> str:
    (place.folder / name).write_text(text)
    return name


def test_a_file_becomes_a_mapping_and_is_shown_back(place: Place, paddock: Terminal) -> None:
    made = paddock("mappings", "apply", "-f", written(place))
    assert made.code == 0, made.err
    assert made.out.startswith("people  version 1  created  ")
    again = paddock("mappings", "apply", "-f", "people.yaml")
    assert again.out.startswith("people  version 1  unchanged  ")
    shown = paddock("mappings", "show", "PEOPLE", "-o", "yaml").out
    assert yaml.safe_load(shown) == {**yaml.safe_load(FILE), "ttl": "PT2592000S"}
    assert paddock("mappings", "apply", "-f", written(place, shown, "back.yaml")).out.startswith(
        "people  version 1  unchanged"
    )

    written(place, FILE.replace("id < 100", "id < 50"))
    silent = paddock("mappings", "apply", "-f", "people.yaml")
    assert (silent.code, "--message" in silent.err) == (2, True)
    changed = paddock("mappings", "apply", "-f", "people.yaml", "-m", "fewer friends")
    assert changed.out.startswith("people  version 2  changed")
    difference = paddock("mappings", "diff", "people").out
    assert difference.startswith("~ edge KNOWS\n")
    assert "+ SELECT id, id // 2 FROM 'people.csv' WHERE id < 50" in difference
    assert "fewer friends" in paddock("mappings", "versions", "people").out
    assert paddock("mappings", "versions", "people", "-o", "name").out == "2\n1\n"
    sheet = paddock("mappings", "show", "people").out
    assert "Person (id INT64, name STRING, score DOUBLE)" in sheet
    assert "Person -KNOWS-> Person (one, other)" in sheet
    assert paddock("mappings", "list", "-o", "json").json[0]["name"] == "people"
    assert paddock("mappings", "show", "nobody").code == 3
    assert paddock("mappings", "copy", "people", "folk", "--version", "1", "-o", "json").json["version"] == 1
    assert paddock("mappings", "delete", "folk").out == "folk is deleted.\n"


def test_a_bad_file_is_told_field_by_field(place: Place, paddock: Terminal) -> None:
    written(place, FILE.replace("label: Person", "label: 1st").replace("type: DOUBLE", "type: REAL"), "bad.yaml")
    told = paddock("mappings", "apply", "-f", "bad.yaml")
    assert told.code == 2
    for field in ("nodes.0.label:", "nodes.0.properties.1.type:", "edges.0.from_node:"):
        assert field in told.err
    written(place, FILE.replace("    sql: SELECT", "    query: SELECT"), "bad.yaml")
    shapeless = paddock("mappings", "apply", "-f", "bad.yaml")
    assert (shapeless.code, "edges.0.query" in shapeless.err, "edges.0.sql" in shapeless.err) == (2, True, True)
    assert paddock("mappings", "apply", "-f", "nowhere.yaml").code == 2


def test_the_engine_says_which_column_is_another(place: Place, paddock: Terminal) -> None:
    fine = paddock("mappings", "validate", "-f", written(place), "-e", "local")
    assert fine.code == 0, fine.err
    assert fine.out.startswith(
        "✓ node Person\n✓ edge KNOWS\n    one (edges.0.from_key): warning: The query calls it 'id'"
    )
    exchanged = FILE.replace("SELECT id, name, score", "SELECT id, score, name")
    swapped = paddock("mappings", "validate", "-f", written(place, exchanged, "swapped.yaml"), "-e", "local")
    assert swapped.code == 1
    assert "name (nodes.0.properties.0): expected name STRING, found score DOUBLE. Position counts" in swapped.out
    text = FILE.replace("type: DOUBLE", "type: INT32").replace("id // 2 FROM", "id // 2 FROM nowhere,")
    wrong = paddock("mappings", "validate", "-f", written(place, text, "wrong.yaml"), "-e", "local")
    assert wrong.code == 1
    assert "✗ node Person\n    score (nodes.0.properties.1): expected INT32, found DOUBLE." in wrong.out
    assert "✗ edge KNOWS\n" in wrong.out
    assert "nowhere" in wrong.out


def test_a_snapshot_is_made_and_its_files_are_what_the_queries_gave(place: Place, paddock: Terminal) -> None:
    paddock("mappings", "apply", "-f", written(place), "-m", "as it was")
    made = paddock("snapshots", "create", "people", "-e", "local", "--name", "monday", "--watch")
    assert made.code == 0, made.out + made.err
    assert "Person  completed  5,000 rows" in made.out or "nodes/Person  completed" in made.out
    shown = paddock("snapshots", "show", "monday", "-o", "json").json
    assert (shown["status"], shown["node_counts"], shown["edge_counts"]) == ("ready", {"Person": ROWS}, {"KNOWS": 100})
    manifest = paddock("snapshots", "manifest", "monday", "--files", "-o", "json").json
    person, knows = manifest["parts"]
    [file] = person["files"]
    table = pq.read_table(place.up.data / "objects" / file["key"])
    assert table.column_names == ["id", "name", "score"]
    assert (table.num_rows, table["score"][4].as_py()) == (ROWS, 1.0)
    edges = pq.read_table(place.up.data / "objects" / knows["files"][0]["key"])
    assert edges.column_names == ["one", "other"], "named as the mapping names them"
    assert edges["other"].to_pylist() == [number // 2 for number in range(100)]
    listed = paddock("snapshots", "list", "--mapping", "people", "--status", "ready", "-o", "name")
    assert listed.out == f"{shown['id']}\n"
    assert paddock("snapshots", "retry", "monday").code == 4
    held = paddock("mappings", "delete", "people")
    assert (held.code, "monday" in held.err) == (4, True)

    into = place.folder / "monday"
    assert paddock("snapshots", "download", "monday", "--to", str(into)).code == 0
    assert pq.read_table(into / file["name"]).equals(table)
    assert json.loads((into / "manifest.json").read_text()) == manifest
    assert paddock("snapshots", "download", "monday", "--to", str(into)).code == 2, "nothing is written over unasked"
    assert paddock("snapshots", "download", "monday", "--to", str(into), "--force").code == 0

    prefix = file["key"].split("/nodes/")[0]
    assert any(name.startswith(prefix) for name in place.files())
    assert paddock("snapshots", "delete", "monday").out == "monday is being deleted.\n"
    wait_for("the snapshot is gone", lambda: paddock("snapshots", "show", shown["id"]).code == 3, 60)
    assert not any(name.startswith(prefix) for name in place.files())
    assert paddock("mappings", "delete", "people").out == "people is deleted.\n"


def test_what_failed_is_retried_alone(place: Place, paddock: Terminal) -> None:
    text = FILE.replace("name: people", "name: later").replace("people.csv' WHERE", "knows.csv' WHERE")
    paddock("mappings", "apply", "-f", written(place, text, "later.yaml"))
    made = paddock("snapshots", "create", "later", "-e", "local", "--watch", "-o", "json")
    assert made.code == 1
    failed = json.loads(made.out)
    assert failed["status"] == "failed"
    assert (failed["error"]["section"], failed["error"]["name"]) == ("edges", "KNOWS")
    (place.folder / "files" / "knows.csv").write_text("id\n1\n2\n")
    again = paddock("snapshots", "retry", failed["id"], "--watch", "-o", "json").json
    assert (again["status"], again["edge_counts"]) == ("ready", {"KNOWS": 2})
    before, after = ({part["name"]: part["job_id"] for part in one["parts"]} for one in (failed, again))
    assert before["Person"] == after["Person"]
    assert before["KNOWS"] != after["KNOWS"]

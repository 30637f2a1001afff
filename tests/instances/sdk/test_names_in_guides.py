"""What the guides call is there to be called."""

import ast
import re
from pathlib import Path

import pytest

from paddock import client as sdk
from paddock.client.algorithms import Algorithms
from paddock.client.graph import GraphConnection
from paddock.client.instances import Instances
from paddock.client.mappings import Mappings
from paddock.client.snapshots import Snapshots

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = [DOCS / name for name in ("sdk.md", "algorithms.md", "graphs.md", "cypher.md")]
PYTHON = re.compile(r"^```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)
OWNERS = {
    "client.instances": Instances,
    "client.mappings": Mappings,
    "client.snapshots": Snapshots,
    "conn.algo": Algorithms,
    "conn": GraphConnection,
}
CALLED = re.compile(rf"({'|'.join(re.escape(name) for name in OWNERS)})\.(\w+)\(")
ROW = re.compile(r"^\| (`\w+\(.+?) \|", re.MULTILINE)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_every_call_of_a_guide_is_one(guide: Path) -> None:
    text = guide.read_text("utf-8")
    for block in PYTHON.findall(text):
        ast.parse(block)
    for owner, name in CALLED.findall(text):
        assert hasattr(OWNERS[owner], name), f"{owner}.{name}"


def test_the_tables_of_the_guide_name_what_there_is() -> None:
    """Rows of the two tables of methods: those of instances, then those of a connection."""
    text = (DOCS / "sdk.md").read_text("utf-8")
    instances, questions = text.split("## Questions")[0], text.split("## Questions")[1]
    for part, owner in ((instances, Instances), (questions.split("## ")[0], GraphConnection)):
        for row in ROW.findall(part):
            for name in re.findall(r"`(\w+)\(", row):
                assert hasattr(owner, name), name


def test_every_error_class_of_the_guide_is_exported() -> None:
    table = (DOCS / "sdk.md").read_text("utf-8").split("| class | code |")[1]
    named = {
        name
        for row in table.splitlines()
        for name in re.findall(r"`([A-Z][a-z]\w+)`", row.split("|")[1] if "|" in row else "")
    }
    assert len(named) > 15
    assert named <= set(sdk.__all__)

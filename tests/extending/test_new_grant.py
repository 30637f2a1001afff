"""A grant costs one line in a capability's declaration, also in a package of somebody else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock import capability
from paddock.capability import Capability, Grant

ROOT = Path(__file__).parents[2]
LINE = '    grants=(Grant("stables", "stable", "Stables", "Where it may groom horses."),),\n'
PACKAGE = """
from pydantic import BaseModel
from paddock.capability import Capability, Grant
from paddock.jobs.kinds import Kind

class Groom(BaseModel):
    stable: str

async def run(turn): ...

GROOM = Kind(
    name="groom", payload=Groom, handler=run, submit=frozenset({"analyst"}), uses=lambda asked: [("stable", asked.stable)]
)
STABLES = Capability(
    name="stables",
    title="Stables",
    package="stables",
#LINE
)
"""
POINTS = "[paddock.capabilities]\nstables = stables:STABLES\n[paddock.kinds]\ngroom = stables:GROOM\n"


def run(folder: Path, dsn: str, line: str) -> dict[str, Any]:
    (folder / "stables").mkdir()
    (folder / "stables" / "__init__.py").write_text(PACKAGE.replace("#LINE\n", line))
    info = folder / "stables-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stables\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "extending" / "run_grant.py"), dsn],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def test_one_line_is_found_wherever_grants_are(tmp_path: Path, dsn: str) -> None:
    assert run(tmp_path, dsn, LINE) == {
        "owners": [
            "core",
            "exports",
            "instances",
            "maintenance",
            "ingest",
            "dumps",
            "background",
            "cluster",
            "stables",
        ],
        "made": ["north"],
        "listed": [["north"], ["*"]],
        "form": ["engine_roles", "engines", "destinations", "databases", "stables"],
        "page": True,
        "described": True,
        "root": 202,
        "self": ["north"],
        "allowed": 202,
        "refused": [403, "stable_not_allowed", "This token may not use the stable 'south'."],
        "bulk": ["north"],
    }


def test_without_the_line_there_is_no_such_grant(tmp_path: Path, dsn: str) -> None:
    answer = run(tmp_path, dsn, "")
    assert (answer["status"], "stables" in json.dumps(answer["error"])) == (422, True)


@pytest.mark.parametrize(
    "grant",
    [
        Grant("engines", "machine", "", ""),
        Grant("machines", "engine", "", ""),
        Grant("role", "machine", "", ""),
        Grant("_machines", "machine", "", ""),
    ],
)
def test_no_grant_stands_for_another_or_for_a_field_of_tokens(grant: Grant) -> None:
    others = capability.capabilities()
    with pytest.raises(ValueError, match=f"its grant '{grant.name}'"):
        capability._check_grants(Capability(name="x", title="X", package="x", grants=(grant,)), others)

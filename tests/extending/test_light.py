"""What starts often imports no capability's inside: the help of the command line, a runner, an engine's child."""

import subprocess
import sys

import pytest

from paddock.capability import capabilities

NAMES = {capability.package for capability in capabilities()}
LOADED = "\nimport sys\nprint(*(name for name, module in sys.modules.items() if module is not None), file=sys.stderr)"
HELP = """
import sys
from paddock.cli import main
sys.argv = ["paddock", "--help"]
try:
    main()
except SystemExit:
    pass
"""
ENGINE = "import paddock.engines.children.duckdb_session, paddock.engines.children.sqlite_session"


@pytest.mark.parametrize("program", [HELP, "import paddock.worker.runner", ENGINE], ids=["help", "runner", "engine"])
def test_it_imports_no_more_of_a_capability_than_its_declaration(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program + LOADED], capture_output=True, text=True, check=True)
    loaded = ran.stderr.split()

    assert "paddock" in loaded
    inside = {
        name for name in loaded if name.rpartition(".")[0] in NAMES or name.rpartition(".")[0].startswith(tuple(NAMES))
    }
    assert {name for name in inside if not name.endswith(".capability")} == set()

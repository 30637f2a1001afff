"""What must stay outside: PyIceberg out of the control plane, and our commits on the version that they were written for."""

import subprocess
import sys

import pyiceberg

LOOK = """
import sys
import paddock.serve
from paddock.capability import capabilities, load, routers
from paddock.config import Config
from paddock.known_kinds import all_kinds
from paddock.maintenance.settings import MaintenanceSettings
from paddock.web import pages

config = Config().with_settings(MaintenanceSettings(catalogs={"lake": {"type": "rest", "secrets": {"token": {"env": "NONE"}}}}))
assert "maintenance:lake" in all_kinds(config)
routers(), pages.routes()
print(sorted(name for name in sys.modules if name.startswith(("pyiceberg", "pyarrow", "obstore"))))
"""


def test_the_control_plane_imports_no_pyiceberg_and_reads_no_secret_of_a_catalog() -> None:
    ran = subprocess.run([sys.executable, "-c", LOOK], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout.strip().splitlines()[-1].count("pyiceberg") == 0


def test_our_commits_stand_on_pyiceberg_0_12() -> None:
    """A newer one may change the names that `committing.py` and `replacing.py` stand on: read its release notes, run these tests
    against it, and then raise the bound in pyproject.toml."""
    assert pyiceberg.__version__.startswith("0.12.")

"""The worked example of docs/extending.md is a real package: it installs, is found, and survives its own death."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extending.installing import ROOT, install

EXAMPLE = ROOT / "examples" / "greeter"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(EXAMPLE, tmp_path_factory.mktemp("site"))


def test_an_installed_package_adds_its_kind(installed: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "extending" / "run_example.py")],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(ran.stdout)

    assert "greet" in answer["kinds"]
    assert answer["submit"] == ["admin", "analyst", "ops"]
    # The first attempt lost its job after saving one guest; the second goes on where it was saved.
    assert answer["first"] == ["Ada", "Grace"]
    assert answer["second"] == ["Grace", "Edsger"]
    assert answer["result"] == {"greeted": 3}


def test_the_documentation_shows_the_code_that_was_tested() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    assert (EXAMPLE / "greeter.py").read_text("utf-8") in page
    assert '[project.entry-points."paddock.kinds"]\ngreet = "greeter:GREET"\n' in page
    assert (
        '[project.entry-points."paddock.kinds"]\ngreet = "greeter:GREET"\n' in (EXAMPLE / "pyproject.toml").read_text()
    )

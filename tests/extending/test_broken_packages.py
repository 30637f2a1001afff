"""A package whose kinds cannot be loaded stops nobody else: its kinds are missing, and doctor and the log say why."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.doctor.examining import server_checks
from paddock.doctor.findings import Finding, ok
from paddock.doctor.on_work import drain
from paddock.doctor.on_work import kinds as kinds_check
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import all_kinds, worker_kinds
from paddock.metrics import Metrics
from paddock.worker.resources import from_entry_points

GOOD = """
from pydantic import BaseModel
from paddock.jobs.kinds import Kind
async def run(turn): ...
GOOD = Kind(name="good", payload=BaseModel, handler=run)
TWICE = Kind(name="probe", payload=BaseModel, handler=run)
class Ink: ...
INK = {Ink: Ink}
NO_MAPPING = [Ink]
NO_TYPES = {"Ink": Ink}
"""
POINTS = """[paddock.kinds]
a_missing = nowhere_at_all:KIND
b_exits = exiting:KIND
c_no_kind = packaged:__name__
d_twice = packaged:TWICE
e_good = packaged:GOOD

[paddock.resources]
f_missing = nowhere_at_all:RESOURCES
g_exits = exiting:RESOURCES
h_no_mapping = packaged:NO_MAPPING
i_no_types = packaged:NO_TYPES
j_ink = packaged:INK
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packaged.py").write_text(GOOD)
    (tmp_path / "exiting.py").write_text("raise SystemExit('needs a licence')\n")
    info = tmp_path / "packaged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("load", [all_kinds, worker_kinds])
def test_the_others_are_there(load: Callable[[Config], Kinds], caplog: pytest.LogCaptureFixture) -> None:
    known = load(Config())
    assert "probe" in known
    assert "good" in known
    assert "ModuleNotFoundError: No module named 'nowhere_at_all'" in caplog.text
    assert "needs a licence" in caplog.text


@pytest.mark.usefixtures("packages")
def test_a_runner_has_the_resources_that_could_be_loaded(caplog: pytest.LogCaptureFixture) -> None:
    found, broken = from_entry_points()
    assert [type_.__name__ for type_ in found] == ["Ink"]
    assert sorted(broken) == ["f_missing", "g_exits", "h_no_mapping", "i_no_types"]
    assert broken["f_missing"] == "ModuleNotFoundError: No module named 'nowhere_at_all'"
    assert "which is not a mapping" in broken["h_no_mapping"]
    for name, why in broken.items():
        assert f"The resources of the entry point '{name}' are missing: {why}" in caplog.text


@pytest.mark.usefixtures("packages")
async def test_doctor_says_which_are_missing_and_why(dsn: str) -> None:
    known = all_kinds(Config())
    assert sorted(known.broken) == ["a_missing", "b_exits", "c_no_kind", "d_twice"]
    async with open_core(dsn, known, metrics=Metrics(CollectorRegistry())) as core:
        findings = [finding async for finding in kinds_check(core, Config())]
    found = [finding for finding in findings if finding.level == "broken"]
    resources = [finding.message for finding in findings if "resources" in finding.message]
    assert [message.split("'")[1] for message in resources] == ["f_missing", "g_exits", "h_no_mapping", "i_no_types"]
    assert [f"'{name}'" in finding.message for name, finding in zip(known.broken, found, strict=True)] == [True] * 4
    assert "nowhere_at_all" in found[0].message


async def test_doctor_says_which_capabilities_are_missing_and_why(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.capability.broken", lambda: {"guestbook": "ImportError: no ink"})
    async with open_core(dsn, all_kinds(Config()), metrics=Metrics(CollectorRegistry())) as core:
        found = [finding async for finding in kinds_check(core, Config()) if finding.level == "broken"]
    assert [finding.message for finding in found] == ["The capability 'guestbook' is missing: ImportError: no ink"]


async def test_a_check_that_fails_is_a_finding_and_spoils_no_other(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(_core: Core, _config: Config) -> AsyncIterator[Finding]:
        yield ok("guestbook", "It is open.")
        raise LookupError("no guestbook")

    monkeypatch.setattr("paddock.doctor.examining.CHECKS", {"guestbook": check, "drain": drain})
    monkeypatch.setattr("paddock.doctor.examining.capabilities", lambda: ())
    async with open_core(dsn, Kinds(()), metrics=Metrics(CollectorRegistry())) as core:
        found = {finding.check: finding for finding in await server_checks(core, Config())}
    assert found["guestbook"].level == "broken"
    assert found["guestbook"].message == "The check failed: LookupError: no guestbook"
    assert found["drain"].level == "ok"

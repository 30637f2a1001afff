"""docs/reference/ says what the code says."""

import re
from pathlib import Path

import pytest
from starlette.routing import Route

import paddock
from paddock.api.app import internal_routes
from paddock.capability import Command
from paddock.cli.app import build
from paddock.cli.commands import sections
from scripts import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_committed_page_is_what_the_code_says(name: str) -> None:
    path = reference.FOLDER / name
    assert path.exists(), "Run scripts/reference."
    assert path.read_text("utf-8") == reference.render(name), "Run scripts/reference."


@pytest.mark.parametrize(
    "command", [each for section in sections() for each in section.commands if each.verbs], ids=lambda each: each.name
)
def test_every_verb_of_a_command_is_listed(command: Command) -> None:
    built = build()[command.name]
    # What pods run is no command for people: it is not shown.
    verbs = {verb for verb in built if not verb.startswith("-") and built[verb].show}

    assert verbs == {*command.verbs.split()}


METRIC = re.compile(r'\b(?:Counter|Gauge|Histogram)\(\s*"(paddock_\w+?)(?:_total)?"')


def test_every_metric_that_the_source_declares_is_listed() -> None:
    page = reference.render("metrics.md")
    # An instance has a `/metrics` of its own.
    files = [path for path in Path(paddock.__file__).parent.rglob("*.py") if "graphs" not in path.parts]
    declared = {name for path in files for name in METRIC.findall(path.read_text("utf-8"))}

    assert "paddock_ingest_batches" in declared
    assert {name for name in declared if f"`{name}`" not in page and f"`{name}_total`" not in page} == set()


def test_what_only_some_installations_have_is_listed_too() -> None:
    paths = [route.path for route in internal_routes() if isinstance(route, Route)]
    kinds, events, routes = (reference.render(f"{page}.md") for page in ("kinds", "events", "routes"))

    assert all(f"## {name}\n" in kinds for name in reference.NAMED.values())
    # One of each capability whose kinds declare events.
    said = ("snapshot.ready", "instance.running", "maintenance.alarm", "IngestRunFailed", "dump.failed")
    assert all(f"`{type}`" in events for type in said)
    assert all(f" {path}`" in routes for path in paths)

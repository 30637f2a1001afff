"""Each change that the audit log keeps is said in words, and leads to what was changed."""

import ast
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import paddock
from paddock.api.tokens import Caller
from paddock.capability import capabilities
from paddock.web.pages.audit import ACTIONS, action_words, actions, target

ID = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"
OLGA = Caller(uuid4(), "olga", "ops", "olga")


def audited() -> Iterator[tuple[str, str]]:
    """Of each call of `audit` the folder that it stands in and the action, where that is a plain text or a choice of two."""
    root = Path(paddock.__file__).parent
    for file in root.rglob("*.py"):
        text = file.read_text("utf-8")
        for call in ast.walk(ast.parse(text)) if " audit(" in text else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "audit":
                action = call.args[2]
                for said in [action.body, action.orelse] if isinstance(action, ast.IfExp) else [action]:
                    if isinstance(said, ast.Constant):
                        yield file.relative_to(root).parts[0], str(said.value)


def test_every_action_has_words_and_a_capability_declares_its_own() -> None:
    found = {*audited()}
    own = {capability.name: {*capability.audit} for capability in capabilities()}

    assert len(found) > 40
    assert {action for _, action in found} - {*actions()} == set()
    assert {(name, action) for name, action in found if action not in own.get(name, {*action_words()})} == set()
    # And the other way: nobody declares what is nowhere done.
    assert {action for actions in own.values() for action in actions} - {action for _, action in found} == set()


@pytest.mark.parametrize("what", ["export", "mapping", "snapshot", "dump", "instance", "ingest", "job"])
def test_a_change_leads_to_the_page_of_what_was_changed(what: str) -> None:
    entry = {"action": "snapshot_created", "subject": f"{what}:{ID}", "details": {}}
    found = target(entry, OLGA, actions())

    assert str(found["path"]).endswith(f"/{ID}")


@pytest.mark.parametrize(
    ("action", "subject"), [("delete", "export"), ("delete", "dump"), ("snapshot_deleted", "snapshot")]
)
def test_what_was_deleted_has_no_page(action: str, subject: str) -> None:
    entry = {"action": action, "subject": f"{subject}:{ID}", "details": {}}

    assert target(entry, OLGA, actions())["path"] is None


def test_an_action_of_two_capabilities_is_said_of_both() -> None:
    assert action_words()["delete"] == "deleted an export or a dump"
    assert "delete" not in ACTIONS

"""docs/reference/ says what the code says."""

import pytest

from paddock.cli.app import build
from paddock.cli.commands import SECTIONS, Command
from scripts import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_committed_page_is_what_the_code_says(name: str) -> None:
    path = reference.FOLDER / name
    assert path.exists(), "Run scripts/reference."
    assert path.read_text("utf-8") == reference.render(name), "Run scripts/reference."


@pytest.mark.parametrize(
    "command", [each for section in SECTIONS for each in section.commands if each.verbs], ids=lambda each: each.name
)
def test_every_verb_of_a_command_is_listed(command: Command) -> None:
    verbs = {verb for verb in build()[command.name] if not verb.startswith("-")}

    assert verbs == {*command.verbs.split()}

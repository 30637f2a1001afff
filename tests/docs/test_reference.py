"""docs/reference/ says what the code says."""

import pytest

from scripts import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_committed_page_is_what_the_code_says(name: str) -> None:
    path = reference.FOLDER / name
    assert path.exists(), "Run scripts/reference."
    assert path.read_text("utf-8") == reference.render(name), "Run scripts/reference."

"""What the documentation tells a receiver to do accepts our deliveries and nothing else."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from paddock.jobs.webhooks import delivering

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
NOW = 1_763_208_000
BODY = b'{"id":"7"}'


@pytest.fixture
def is_genuine() -> Callable[..., bool]:
    [snippet] = re.findall(r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(snippet, namespace)
    found: Callable[..., bool] = namespace["is_genuine"]
    return found


def test_the_snippet_accepts_a_delivery(is_genuine: Callable[..., bool]) -> None:
    headers = delivering.headers(UUID(int=7), "job.failed", NOW, BODY, "secret")
    assert is_genuine("secret", headers, BODY, NOW + 10)


def test_the_snippet_refuses_what_was_changed_or_kept(is_genuine: Callable[..., bool]) -> None:
    headers = delivering.headers(UUID(int=7), "job.failed", NOW, BODY, "secret")
    assert not is_genuine("secret", headers, BODY + b" ", NOW)
    assert not is_genuine("other", headers, BODY, NOW)
    assert not is_genuine("secret", headers, BODY, NOW + 3600)
    assert not is_genuine("secret", {**headers, "Paddock-Timestamp": str(NOW + 1)}, BODY, NOW)

"""What is wrong with a field is said in our words, whatever found it."""

from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import _pydantic_core

from paddock.config import ConfigError, load
from paddock.field_errors import MISFIT, SENTENCES, field_errors, sentence_of
from paddock.log import MASK

PYDANTIC = {error["type"]: error for error in _pydantic_core.list_all_errors()}
# What only Python code can cause; no text, JSON or TOML that somebody sends has one of these.
NEVER_SENT = frozenset(
    [
        "no_such_attribute",
        "needs_python_object",
        "frozen_field",
        "frozen_instance",
        "get_attribute_error",
        "default_factory_not_called",
        "iteration_error",
        "set_item_not_hashable",
        "missing_sentinel_error",
        "ellipsis_error",
        "is_instance_of",
        "is_subclass_of",
        "callable_type",
        "arguments_type",
        "missing_argument",
        "unexpected_keyword_argument",
        "missing_keyword_only_argument",
        "unexpected_positional_argument",
        "missing_positional_only_argument",
        "multiple_argument_values",
    ]
)


def test_every_error_of_pydantic_has_a_sentence_of_ours() -> None:
    assert PYDANTIC.keys() - SENTENCES.keys() == NEVER_SENT | {"value_error", "assertion_error"}
    for kind, error in PYDANTIC.items():
        context = error.get("example_context") or {}
        found = sentence_of({"type": kind, "msg": error["example_message_python"], "ctx": context})
        if kind not in ("value_error", "assertion_error"):
            assert found != error["example_message_python"], kind
        assert "{" not in found, kind
        assert found.endswith("."), kind
    assert sentence_of({"type": "of_a_later_version", "msg": "Input should be frobnicated"}) == MISFIT


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=3)]
    rows: Annotated[int, Field(ge=1, le=1_000_000)]
    at: AwareDatetime
    id: UUID
    format: Literal["csv", "parquet"]
    words: list[str] = []
    ttl: str = ""

    @field_validator("ttl")
    @classmethod
    def _ttl(cls, value: str) -> str:
        raise ValueError(f"write a duration like 15m, not password={value}")


def test_all_of_them_are_told_at_once_and_no_secret_is_repeated() -> None:
    sent: dict[str, Any] = {
        "name": "",
        "rows": 0,
        "at": "2026-01-01T00:00:00",
        "format": "x",
        "words": "a",
        "ttl": "hush",
        "odd": 1,
    }
    with pytest.raises(ValidationError) as invalid:
        Body.model_validate(sent)
    assert {found.field: found.sentence for found in field_errors(invalid.value)} == {
        "name": "It should not be empty.",
        "rows": "It should be at least 1.",
        "at": "It should have a time zone, like 2026-01-31T08:30:00Z.",
        "id": "It is missing.",
        "format": "It should be 'csv' or 'parquet'.",
        "words": "It should be a list.",
        "ttl": f"Write a duration like 15m, not password={MASK}.",
        "odd": "There is no such field.",
    }


def test_all_settings_that_are_wrong_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"PADDOCK_PORT": "x", "PADDOCK_CONCURRENCY": "0", "PADDOCK_WORKER_KINDS": "[1"}, tmp_path)
    assert str(refused.value) == (
        "PADDOCK_PORT (x) has a bad value: it should be a whole number."
        " PADDOCK_WORKER_KINDS ([1) has a bad value: it should be valid JSON."
        " PADDOCK_CONCURRENCY (0) has a bad value: it should be at least 1."
    )

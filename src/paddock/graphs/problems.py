"""What an instance answers instead of what was asked: sentences with a stable code."""

from collections.abc import Mapping
from typing import Any


class Problem(Exception):
    """An answer of its own to one request."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        told: dict[str, Any] = {"code": self.code, "message": self.message, "details": self.details}
        if self.hint is not None:
            told["hint"] = self.hint
        return {"error": told}


class LoadFailed(Exception):
    """The instance will never be ready. The control plane turns the cause into its own code."""

    def __init__(self, cause: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
        self.hint = hint

    def facts(self) -> dict[str, Any]:
        return {"cause": self.cause, "message": self.message, "hint": self.hint}


def invalid(field: str, message: str) -> Problem:
    return Problem(
        422,
        "invalid",
        f"The request is not valid: {field}: {message}",
        details={"fields": [{"field": field, "message": message}]},
    )


def not_running(state: str) -> Problem:
    return Problem(
        409,
        "instance_not_running",
        f"The instance is not running: its state is '{state}'.",
        hint="Wait until it is running.",
        details={"state": state},
    )

"""What the OpenAPI document says about answers: a model and an example for each route, one shape for all errors."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T")


class Data(BaseModel, Generic[T]):
    data: T


class Page(BaseModel, Generic[T]):
    data: list[T]
    next_cursor: str | None


class ErrorBody(BaseModel):
    code: str
    message: str
    details: dict[str, Any]
    hint: str | None = None


class ErrorAnswer(BaseModel):
    error: ErrorBody


ERROR_EXAMPLE = {
    "error": {
        "code": "not_found",
        "message": "There is no such job.",
        "details": {},
    }
}
IDEMPOTENCY_DESCRIPTION = "Same key and body: the same answer, for 24 hours. Same key, another body: 422."

Responses = dict[int | str, dict[str, Any]]


def documented(
    example: Any, model: Any = dict[str, Any], *, status: int = 200, description: str = "Done.", **beside: Any
) -> Responses:
    """`responses` of a route that answers {"data": example}."""
    return {
        status: _response(Data[model], {"data": example, **beside}, description),
        "default": _response(ErrorAnswer, ERROR_EXAMPLE, "Refused; `code` is stable, `hint` says what to do."),
    }


def documented_page(example: Any, model: Any = dict[str, Any], **beside: Any) -> Responses:
    content = {"data": [example], "next_cursor": None, **beside}
    return {
        200: _response(Page[model], content, "A page, newest first; `next_cursor` null is the last."),
        "default": _response(ErrorAnswer, ERROR_EXAMPLE, "Refused; `code` is stable, `hint` says what to do."),
    }


def _response(model: Any, example: Any, description: str) -> dict[str, Any]:
    return {"model": model, "description": description, "content": {"application/json": {"example": example}}}

"""The OpenAPI document describes every route, with examples that are true."""

from typing import Any

import httpx2
from fastapi import FastAPI

from paddock.api.access import OPEN, table_of


async def document(client: httpx2.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/openapi.json")).json()
    return found


async def test_it_describes_every_public_route(app: FastAPI, stranger: httpx2.AsyncClient) -> None:
    paths = (await document(stranger))["paths"]
    described = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    public = {route for route in table_of(app.routes) if route.split(" ")[1].startswith("/api/")}

    assert public <= described
    assert not any("/internal" in route for route in described)


async def test_every_route_has_a_summary_an_example_and_says_how_to_sign_in(
    app: FastAPI, stranger: httpx2.AsyncClient
) -> None:
    access = table_of(app.routes)
    for path, operations in (await document(stranger))["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            assert operation["summary"], route
            good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
            assert all("example" in content for content in good["content"].values()), route
            open_to_all = access[route] == OPEN
            assert ("security" in operation) != open_to_all, route
            if not open_to_all:
                assert "default" in operation["responses"], route


async def test_every_body_has_an_example(stranger: httpx2.AsyncClient) -> None:
    found = await document(stranger)
    for path, operations in found["paths"].items():
        for operation in operations.values():
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            options = [schema, *schema.get("anyOf", [])]
            models = [
                found["components"]["schemas"][option["$ref"].split("/")[-1]] for option in options if "$ref" in option
            ]
            assert any(model.get("examples") for model in models), path


def test_it_is_made_once(app: FastAPI) -> None:
    from paddock.api.app import openapi

    assert openapi(app) is openapi(app)

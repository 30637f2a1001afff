"""Whatever a stranger sends is answered with a clear 4xx that names the trouble, and nothing of it is stored."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from paddock.config import Config
from paddock.jobs.values import MOST_INTEGER

MEGABYTE = 1024 * 1024


def payload(json: str) -> bytes:
    return b'{"kind": "plain", "payload": {"x": %b}}' % json.encode("utf-8", "surrogatepass")


HOSTILE: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 422, "invalid"),
    "white space": (b"   ", 400, "malformed_body"),
    "half an object": (b'{"kind": "plain"', 400, "malformed_body"),
    "two values": (b'{"kind": "plain"}{}', 400, "malformed_body"),
    "single quotes": (b"{'kind': 'plain'}", 400, "malformed_body"),
    "a comment": (b'{"kind": "plain"} // hello', 400, "malformed_body"),
    "byte order mark": (b"\xef\xbb\xbf{}", 400, "malformed_body"),
    "UTF-16": ('{"kind": "plain"}'.encode("utf-16"), 400, "malformed_body"),
    "bad UTF-8": (b'{"kind": "pl\xff\xfein"}', 400, "malformed_body"),
    "bad UTF-8 in the payload": (b'{"kind": "plain", "payload": {"x": "\xc3\x28"}}', 400, "malformed_body"),
    "NUL": (payload(r'"a\u0000b"'), 422, "invalid"),
    "NUL in a key": (b'{"kind": "plain", "payload": {"a\\u0000": 1}}', 422, "invalid"),
    "NUL in the kind": (b'{"kind": "pl\\u0000ain"}', 422, "invalid"),
    "NUL in a tag": (b'{"kind": "plain", "tags": ["\\u0000"]}', 422, "invalid"),
    "raw NUL": (b'{"kind": "pl\0ain"}', 400, "malformed_body"),
    "lone high surrogate": (payload(r'"\ud800"'), 400, "malformed_body"),
    "lone low surrogate": (payload(r'"\udc00 and more"'), 400, "malformed_body"),
    "swapped surrogates": (payload(r'"\udc00\ud800"'), 400, "malformed_body"),
    "encoded surrogate": (payload('"\ud800"'), 400, "malformed_body"),
    "NaN": (payload("NaN"), 400, "malformed_body"),
    "Infinity": (payload("Infinity"), 400, "malformed_body"),
    "-Infinity": (payload("-Infinity"), 400, "malformed_body"),
    "1e999": (payload("1e999"), 400, "malformed_body"),
    "a 65-bit integer": (payload(str(MOST_INTEGER + 1)), 422, "invalid"),
    "a 30-digit integer": (payload("9" * 30), 422, "invalid"),
    "a 5,000-digit integer": (payload("9" * 5000), 400, "malformed_body"),
    "a million digits": (payload("9" * (MEGABYTE - 100)), 400, "malformed_body"),
    "65 levels": (b'{"kind": "plain", "payload": ' + b'{"x":' * 64 + b"1" + b"}" * 64 + b"}", 400, "malformed_body"),
    "100,000 brackets": (payload("[" * 100_000 + "]" * 100_000), 400, "malformed_body"),
    "100,000 open brackets": (b"[" * 100_000, 400, "malformed_body"),
    "over the limit": (payload('"' + "x" * MEGABYTE + '"'), 413, "body_too_large"),
    "a list": (b"[]", 422, "invalid"),
    "a text": (b'"plain"', 422, "invalid"),
    "null": (b"null", 422, "invalid"),
    "a number": (b"1", 422, "invalid"),
    "kind is a number": (b'{"kind": 1}', 422, "invalid"),
    "kind is null": (b'{"kind": null}', 422, "invalid"),
    "kind is empty": (b'{"kind": ""}', 422, "invalid"),
    "kind is long": (b'{"kind": "' + b"x" * 10_000 + b'"}', 422, "invalid"),
    "payload is a list": (b'{"kind": "plain", "payload": []}', 422, "invalid"),
    "priority is true": (b'{"kind": "plain", "priority": true}', 422, "invalid"),
    "priority is text": (b'{"kind": "plain", "priority": "1"}', 422, "invalid"),
    "priority is 0": (b'{"kind": "plain", "priority": 0}', 422, "invalid"),
    "priority is huge": (b'{"kind": "plain", "priority": 9223372036854775807}', 422, "invalid"),
    "run_at is no time": (b'{"kind": "plain", "run_at": "soon"}', 422, "invalid"),
    "run_at has no zone": (b'{"kind": "plain", "run_at": "2026-01-01T00:00:00"}', 422, "invalid"),
    "run_at is far away": (b'{"kind": "plain", "run_at": "9999-12-31T23:59:59Z"}', 422, "invalid"),
    "run_at is infinite": (b'{"kind": "plain", "run_at": 1e308}', 422, "invalid"),
    "tags is a text": (b'{"kind": "plain", "tags": "a"}', 422, "invalid"),
    "too many tags": (b'{"kind": "plain", "tags": [' + b",".join([b'"t"'] * 21) + b"]}", 422, "invalid"),
    "a long tag": (b'{"kind": "plain", "tags": ["' + b"t" * 101 + b'"]}', 422, "invalid"),
    "what only a kind may say": (b'{"kind": "plain", "lock_key": "x"}', 422, "invalid"),
    "another's name": (b'{"kind": "plain", "owner": "bob"}', 422, "invalid"),
}


async def test_each_hostile_body_is_refused_by_name(ada: httpx2.AsyncClient) -> None:
    for name, (body, status, code) in HOSTILE.items():
        answer = await ada.post("/api/jobs", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), f"{name}: {answer.text[:300]}"
        assert len(answer.content) < 2_000, f"{name}: the answer repeats what was sent"
    assert (await ada.get("/api/jobs")).json()["data"] == []


async def test_what_is_odd_but_harmless_is_taken(ada: httpx2.AsyncClient) -> None:
    for content in (
        payload('"' + "\U0001f40e" * 100 + '"'),
        payload(r'"\ud83d\udc0e"'),
        payload(str(MOST_INTEGER)),
        payload("1e308"),
        payload("[" * 62 + "]" * 62),
        b'{"kind": "nonesuch", "kind": "plain"}',
    ):
        answer = await ada.post(
            "/api/jobs", content=content, headers={"Content-Type": "application/json; charset=utf-8"}
        )
        assert answer.status_code == 202, answer.text[:300]


async def test_a_body_of_unknown_length_is_stopped_at_the_limit(ada: httpx2.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += MEGABYTE
            yield b"x" * MEGABYTE

    answer = await ada.post("/api/jobs", content=endless(), headers={"Content-Type": "application/json"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert sent <= 3 * MEGABYTE


async def test_a_declared_length_over_the_limit_is_refused_unread(served: str, clients: object) -> None:
    async with httpx2.AsyncClient(base_url=served) as client:
        answer = await client.post(
            "/api/jobs", content=b"x" * (2 * MEGABYTE), headers={"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_form_cannot_pass_for_json(ada: httpx2.AsyncClient, media_type: str) -> None:
    answer = await ada.post("/api/jobs", content=b'{"kind": "plain"}', headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


async def test_hostile_addresses_are_refused(ada: httpx2.AsyncClient) -> None:
    for path, status in {
        "/api/jobs?kind=%00": 400,
        "/api/jobs?q=a%00b": 400,
        "/api/jobs/%00": 400,
        "/api/jobs?status=nonesuch": 422,
        "/api/jobs?limit=0": 422,
        "/api/jobs?limit=1001": 422,
        "/api/jobs?limit=9999999999999999999999": 422,
        "/api/jobs?cursor=%F0%9F%90%8E": 400,
        "/api/jobs?cursor=AAAA": 400,
        "/api/events?cursor=AAAA": 422,
        "/api/jobs?since=yesterday": 422,
        "/api/jobs?since=2026-01-01": 422,
        "/api/jobs?group=no-id": 422,
        "/api/jobs?q=" + "x" * 501: 422,
        "/api/jobs?kind=%ff%fe": 200,
        "/api/jobs/no-id": 404,
        "/api/jobs/../../etc/passwd": 404,
        "/api/jobs/019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7?wait=31": 422,
        "/api/jobs/019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7?wait=nan": 422,
    }.items():
        answer = await ada.get(path)
        assert answer.status_code == status, f"{path}: {answer.text[:300]}"


async def test_hostile_keys_are_refused(ada: httpx2.AsyncClient) -> None:
    for key in ("", " ", "x" * 201, "tab\there", "ä"):
        answer = await ada.post(
            "/api/jobs", json={"kind": "plain"}, headers={b"Idempotency-Key": key.encode("latin-1")}
        )
        assert answer.status_code == 422, key
    for token in ("", "Bearer", "Bearer ", "Basic YTpi", "Bearer pdk_\xff", "bearer " + "x" * 10_000):
        answer = await ada.get("/api/jobs", headers={b"Authorization": token.encode("latin-1")})
        assert answer.status_code == 401, token


def test_the_limit_is_the_configured_one(config: Config) -> None:
    assert config.max_body_bytes == MEGABYTE

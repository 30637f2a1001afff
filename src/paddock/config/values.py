"""What a setting may be, as text of the environment or as a value of the file; a message says what it should be."""

import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

# What `object_store` says where nothing shall be kept: exports and dumps then have no place to go to.
NO_STORE = "none"


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("it should be a number, not true or false")
    return value


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("it should be valid JSON") from None


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        return _json(value)
    return [word.strip() for word in value.split(",") if word.strip()]


def numbers_by_kind(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("{"):
        return _json(value)
    pairs = [word.partition("=") for word in value.split(",") if word.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("it should look like export=4,dump=1")
    return {kind.strip(): number.strip() for kind, _, number in pairs}


def table(value: object) -> object:
    """In the environment it is JSON."""
    return _json(value) if isinstance(value, str) else value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it should be a URL that begins with http:// or https://")
    return value.rstrip("/")


def _network(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError as problem:
        raise ValueError("each should be an address or a network such as 10.0.0.0/8") from problem
    return value


def postgres_url(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().startswith(("postgres://", "postgresql://")):
        raise ValueError("it should be a URL that begins with postgresql://")
    return value


def store_url(value: str) -> str:
    return value if "://" in value or value == NO_STORE else _folder_url(Path(value))


def _folder_url(folder: Path) -> str:
    return folder.expanduser().absolute().as_uri()


def default_store(valid: Mapping[str, Any]) -> str:
    bucket: str | None = valid.get("export_bucket")
    if bucket:
        return bucket if "://" in bucket else f"gs://{bucket}"
    return _folder_url(valid["data"] / "objects")


def level(value: object) -> object:
    if not isinstance(value, str):
        return value
    return {"warn": "warning", "fatal": "critical"}.get(value.lower(), value.lower())


Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, le=366 * 86400, allow_inf_nan=False)]
Days = Annotated[int, BeforeValidator(_number), Field(ge=1, le=36500)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1, le=2**31)]
Bytes = Annotated[int, BeforeValidator(_number), Field(ge=16 * 1024**2, le=2**60)]
# Object stores take no part below 5 MiB, and it is raised to that there.
PartBytes = Annotated[int, BeforeValidator(_number), Field(ge=64 * 1024, le=5 * 1024**3)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Proxies = Annotated[tuple[Annotated[str, AfterValidator(_network)], ...], BeforeValidator(_words)]
Tables = Annotated[dict[str, dict[str, Any]], BeforeValidator(table)]
Level = Literal["debug", "info", "warning", "error", "critical"]

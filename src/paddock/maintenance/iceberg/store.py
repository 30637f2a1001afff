"""The files under a table, listed and deleted by way of what the table's own FileIO is configured with.

Nothing but the deleter (`deleting.py`) calls `delete`.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import obstore
import obstore.store

from paddock.jobs.errors import PermanentRunnerError
from paddock.maintenance.paths import FAMILIES, family_of


@dataclass(frozen=True, slots=True)
class Listed:
    location: str
    size: int
    modified: datetime


class TableStore(Protocol):
    def modified(self, location: str) -> datetime: ...

    def list(self, location: str) -> Iterator[Listed]: ...

    def can_delete(self, location: str) -> bool:
        """False: this store has no such file, or no way to name it. Then it is left where it is."""

    def delete(self, locations: Sequence[str]) -> None:
        """Those that are gone already are no mistake."""


def open_table_store(properties: Mapping[str, str], location: str) -> TableStore:
    """The store that holds `location`, by the properties of the FileIO that reads it."""
    family = family_of(location)
    if family == "file":
        return LocalFiles()
    if family in FAMILIES:
        return Bucket(properties, location)
    raise PermanentRunnerError(
        f"Files at {family}:// can be neither listed nor deleted here.",
        code="store_unknown",
        hint="Expire snapshots and remove orphans of this table with its engine.",
    )


class LocalFiles:
    def modified(self, location: str) -> datetime:
        return datetime.fromtimestamp(local_path(location).stat().st_mtime, UTC)

    def list(self, location: str) -> Iterator[Listed]:
        prefix = "file://" if location.startswith("file:") else ""
        for folder, _, names in os.walk(local_path(location)):
            for name in names:
                path = Path(folder, name)
                found = path.lstat()
                yield Listed(f"{prefix}{path}", found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def can_delete(self, location: str) -> bool:
        return family_of(location) == "file"

    def delete(self, locations: Sequence[str]) -> None:
        for location in locations:
            local_path(location).unlink(missing_ok=True)


def local_path(location: str) -> Path:
    """PyIceberg takes a path as it is written; only what has a scheme loses that."""
    return Path(
        location.removeprefix("file:").replace("//", "", 1)
        if location.startswith("file://")
        else location.removeprefix("file:")
    )


class Bucket:
    """The bucket of a table, and other buckets of the same kind: a table may have files there too, which its FileIO reads by the
    same properties."""

    def __init__(self, properties: Mapping[str, str], location: str) -> None:
        self._properties = properties
        self._family = family_of(location)
        self._stores: dict[str, Any] = {}
        self._store(location)  # what cannot be opened is told before anything is done

    def modified(self, location: str) -> datetime:
        found: datetime = obstore.head(self._store(location), key_in_bucket(location))["last_modified"]
        return found

    def list(self, location: str) -> Iterator[Listed]:
        parts = urlsplit(location)
        # Listing is by whole path segments: a table beside this one, whose name only begins alike, is not listed.
        for page in obstore.list(self._store(location), prefix=key_in_bucket(location).rstrip("/")):
            for found in page:
                yield Listed(
                    f"{parts.scheme}://{parts.netloc}/{found['path']}", int(found["size"]), found["last_modified"]
                )

    def can_delete(self, location: str) -> bool:
        # obstore knows no key with an empty segment, and one such in a batch would stop it all.
        return family_of(location) == self._family and "" not in key_in_bucket(location).split("/")

    def delete(self, locations: Sequence[str]) -> None:
        by_place: dict[str, list[str]] = defaultdict(list)
        for location in locations:
            by_place[urlsplit(location).netloc].append(location)
        for there in by_place.values():
            store, keys = self._store(there[0]), [key_in_bucket(location) for location in there]
            try:
                obstore.delete(store, keys)
            except FileNotFoundError:
                # Azure and GCS name the first one that is missing and may have left the rest.
                _delete_singly(store, keys)

    def _store(self, location: str) -> Any:
        place = urlsplit(location).netloc
        if place not in self._stores:
            self._stores[place] = _open_bucket(self._properties, location)
        return self._stores[place]


def _delete_singly(store: Any, keys: Sequence[str]) -> None:
    for key in keys:
        with suppress(FileNotFoundError):
            obstore.delete(store, key)


def key_in_bucket(location: str) -> str:
    return location.partition("://")[2].partition("/")[2]


def _open_bucket(properties: Mapping[str, str], location: str) -> Any:
    place = urlsplit(location).netloc
    match family_of(location):
        case "s3":
            return obstore.store.S3Store(place, **_s3(properties))
        case "gs":
            return obstore.store.GCSStore(place, **_gcs(properties))
    container, _, host = place.partition("@")
    return obstore.store.AzureStore(container, **_azure(properties, host))


def _s3(properties: Mapping[str, str]) -> dict[str, Any]:
    names = {
        "s3.endpoint": "endpoint",
        "s3.access-key-id": "access_key_id",
        "s3.secret-access-key": "secret_access_key",
        "s3.session-token": "session_token",
        "s3.region": "region",
        "client.region": "region",
        "client.access-key-id": "access_key_id",
        "client.secret-access-key": "secret_access_key",
        "client.session-token": "session_token",
    }
    config: dict[str, Any] = {}
    for theirs, ours in names.items():
        if theirs in properties:
            config.setdefault(ours, properties[theirs])
    config.setdefault("region", "us-east-1")
    if config.get("endpoint", "").startswith("http://"):
        config["client_options"] = {"allow_http": True}
    if properties.get("s3.anonymous", "").lower() == "true":
        config["skip_signature"] = True
    return config


def _gcs(properties: Mapping[str, str]) -> dict[str, Any]:
    token = properties.get("gcs.oauth2.token")
    if token is None:
        return {}
    expires = datetime.fromtimestamp(int(properties.get("gcs.oauth2.token-expires-at", "0")) / 1000, UTC)
    return {"credential_provider": lambda: {"token": token, "expires_at": expires}}


def _azure(properties: Mapping[str, str], host: str) -> dict[str, Any]:
    """Of a container at `host`, such as account.dfs.core.windows.net: locations name the account themselves."""
    config: dict[str, Any] = {ours: properties[theirs] for theirs, ours in AZURE_NAMES.items() if theirs in properties}
    if "account_name" not in config and host:
        config["account_name"] = host.partition(".")[0]
    # A token that the catalog lends is for one account, and named after it.
    lent = [text for name, text in properties.items() if host and name == f"adls.sas-token.{host}"]
    if lent:
        config["sas_key"] = lent[0]
    if "sas_key" in config:
        config["sas_key"] = config["sas_key"].removeprefix("?")
    if authority := properties.get("adls.blob-storage-authority"):
        scheme, account = properties.get("adls.blob-storage-scheme", "https"), config.get("account_name", "")
        # As PyArrow reads it: with a dot in front it follows the account's name, else the account is the first folder.
        place = f"{account}{authority}" if authority.startswith(".") else f"{authority}/{account}"
        config["endpoint"] = f"{scheme}://{place}"
        if scheme == "http":
            config["client_options"] = {"allow_http": True}
    return config


AZURE_NAMES = {
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "adls.token": "token",
}

"""`client.snapshots`: the files of a mapping's version, made together."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from paddock.client.errors import Snapshot, SnapshotFailed
from paddock.client.naming import Reference, given, id_of
from paddock.client.waiting import until

if TYPE_CHECKING:
    from paddock.client.jobs import JobsClient

LIVE = ("pending", "creating")
LOOK_SECONDS = 1.0


class Snapshots:
    def __init__(self, client: "JobsClient") -> None:
        self._client = client

    def list(self, *, mapping: Reference | None = None, most: int | None = None, **filters: Any) -> Iterator[Snapshot]:
        """Newest first; `filters` as in `GET /api/snapshots`: status, q, name, owner."""
        mapping_id = None if mapping is None else id_of(self._client, "mapping", mapping)
        return self._client.pages("/api/snapshots", most=most, mapping=mapping_id, **filters)

    def get(self, snapshot: Reference) -> Snapshot:
        return self._request_data("GET", self._path(snapshot))

    def create(
        self, mapping: Reference, *, version: int | None = None, role: str | None = None, **options: Any
    ) -> Snapshot:
        """`options`: engine, catalog, schema, name, description, ttl, mode. `role` is the engine role to work under."""
        body = given(mapping_id=id_of(self._client, "mapping", mapping), mapping_version=version, **options)
        return self._request_data("POST", "/api/snapshots", body=body, role=role, idempotency_key=uuid4().hex)

    def create_and_wait(
        self,
        mapping: Reference,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Snapshot], None] | None = None,
        **options: Any,
    ) -> Snapshot:
        return self.wait_until_ready(self.create(mapping, **options), timeout, on_progress=on_progress)

    def wait_until_ready(
        self,
        snapshot: Reference,
        timeout: float | None = None,
        *,
        on_progress: Callable[[Snapshot], None] | None = None,
    ) -> Snapshot:
        """The snapshot once it is ready; `SnapshotFailed` with the reason, `NotFinished` after `timeout` seconds."""
        path = self._path(snapshot)
        found = until(
            lambda _: self._request_data("GET", path),
            lambda one: one["status"] not in LIVE,
            noun="snapshot",
            timeout=timeout,
            pause=LOOK_SECONDS,
            tell=on_progress,
        )
        if found["status"] != "ready":
            raise SnapshotFailed(found)
        return found

    def manifest(self, snapshot: Reference, *, files: bool = False) -> dict[str, Any]:
        """What a ready snapshot consists of, with each file if asked."""
        return self._request_data("GET", f"{self._path(snapshot)}/manifest", params={"files": files or None})

    def retry(self, snapshot: Reference) -> Snapshot:
        """Runs again what failed or was cancelled; what completed stays."""
        return self._request_data("POST", f"{self._path(snapshot)}/retry", idempotency_key=uuid4().hex)

    def cancel(self, snapshot: Reference, reason: str | None = None) -> Snapshot:
        return self._request_data("POST", f"{self._path(snapshot)}/cancel", body={"reason": reason})

    def delete(self, snapshot: Reference) -> Snapshot:
        return self._request_data("DELETE", self._path(snapshot))

    def _path(self, snapshot: Reference) -> str:
        return f"/api/snapshots/{id_of(self._client, 'snapshot', snapshot)}"

    def _request_data(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._client.request(method, path, **options)["data"]
        return found

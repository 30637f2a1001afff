"""`client.mappings`: which query gives which nodes and edges, version by version."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from paddock.client.naming import Reference, given, id_of

if TYPE_CHECKING:
    from paddock.client.jobs import JobsClient

Found = dict[str, Any]
Definitions = Sequence[Mapping[str, Any]]


class Mappings:
    def __init__(self, client: "JobsClient") -> None:
        self._client = client

    def list(self, *, most: int | None = None, **filters: Any) -> Iterator[Found]:
        """Newest first; `filters` as in `GET /api/mappings`: q, name, owner."""
        return self._client.pages("/api/mappings", most=most, **filters)

    def get(self, mapping: Reference, version: int | None = None) -> Found:
        path = self._path(mapping)
        return self._request_data("GET", path if version is None else f"{path}/versions/{version}")

    def versions(self, mapping: Reference) -> Iterator[Found]:
        return self._client.pages(f"{self._path(mapping)}/versions")

    def create(
        self,
        name: str,
        nodes: Definitions,
        edges: Definitions = (),
        *,
        description: str | None = None,
        ttl: str | None = None,
    ) -> Found:
        """Nodes and edges as a mapping file has them."""
        body = given(name=name, nodes=list(nodes), edges=list(edges), description=description, ttl=ttl)
        return self._create("/api/mappings", body)

    def change(self, mapping: Reference, change_description: str, **changes: Any) -> Found:
        """A new version: `nodes` with `edges`, `name`, `description`, `ttl`; what is not named stays as it is."""
        return self._create(f"{self._path(mapping)}/versions", {"change_description": change_description, **changes})

    def copy(self, mapping: Reference, name: str, version: int | None = None) -> Found:
        return self._create(f"{self._path(mapping)}/copy", given(name=name, version=version))

    def validate(self, mapping: Reference, *, role: str | None = None, **asked: Any) -> Found:
        """Whether the engine gives the columns that are declared; `asked`: version, engine, catalog, schema."""
        return self._request_data(
            "POST", f"{self._path(mapping)}/validate", body=asked, role=role, changes_nothing=True
        )

    def delete(self, mapping: Reference) -> Found:
        return self._request_data("DELETE", self._path(mapping))

    def _path(self, mapping: Reference) -> str:
        return f"/api/mappings/{id_of(self._client, 'mapping', mapping)}"

    def _create(self, path: str, body: Found) -> Found:
        return self._request_data("POST", path, body=body, idempotency_key=uuid4().hex)

    def _request_data(self, method: str, path: str, **options: Any) -> Found:
        found: Found = self._client.request(method, path, **options)["data"]
        return found

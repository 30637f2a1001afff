"""`client.instances`: graph databases from snapshots, from the first question to the last."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from paddock.client.errors import Instance, InstanceFailed, NotFound
from paddock.client.graph import GraphConnection
from paddock.client.naming import Reference, given, id_of, is_id
from paddock.client.progress import progress_bar
from paddock.client.reading import plain
from paddock.client.waiting import WAIT_SECONDS, until
from paddock.jobs import durations

if TYPE_CHECKING:
    from paddock.client.jobs import JobsClient

Duration = str | timedelta
OnProgress = Callable[[Instance], None]

# How often somebody who looks is told how far it is.
LOOK_SECONDS = 0.5
ON_THE_WAY = ("waiting_for_snapshot", "starting")
# A delete is answered when the instance is gone, at the latest after 45 s.
DELETE_SECONDS = 75.0


class Instances:
    def __init__(self, client: "JobsClient") -> None:
        self._client = client

    def create(
        self,
        mapping: Reference | None = None,
        *,
        version: int | None = None,
        snapshot: Reference | None = None,
        name: str | None = None,
        ttl: Duration | None = None,
        inactivity_timeout: Duration | None = None,
        role: str | None = None,
        **options: Any,
    ) -> Instance:
        """From a mapping, whose name it has unless it is given another, or from a snapshot that is ready. `options`:
        description, wrapper_type, engine, catalog, schema, cpu_cores, memory_gb. `role` is the engine role to work under."""
        body = given(
            mapping_id=None if mapping is None else id_of(self._client, "mapping", mapping),
            mapping_version=version,
            snapshot_id=None if snapshot is None else id_of(self._client, "snapshot", snapshot),
            name=name or _name_of(mapping),
            ttl=plain(ttl),
            inactivity_timeout=plain(inactivity_timeout),
            **options,
        )
        return self._request_data("POST", "/api/instances", body=body, role=role, idempotency_key=uuid4().hex)

    def create_and_wait(
        self,
        mapping: Reference | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> Instance:
        """The instance once it runs; `InstanceFailed` with the reason. A bar shows how far it is, unless `on_progress`
        is told instead."""
        return self.wait_until_running(self.create(mapping, **options), timeout, on_progress=on_progress)

    def wait_until_running(
        self, instance: Reference, timeout: float | None = None, *, on_progress: OnProgress | None = None
    ) -> Instance:
        """The instance once it runs; `InstanceFailed` with the reason, `NotFinished` after `timeout` seconds."""
        if on_progress is not None:
            return self._until_running(self._id(instance), timeout, on_progress)
        with progress_bar(instance if isinstance(instance, str) else instance["name"]) as tell:
            return self._until_running(self._id(instance), timeout, tell)

    def _until_running(self, id: str, timeout: float | None, tell: OnProgress | None) -> Instance:
        def ask(left: float) -> Instance:
            return self._request_data("GET", f"/api/instances/{id}", params={"wait": left}, timeout=left + WAIT_SECONDS)

        found = until(
            ask,
            lambda one: one["status"] not in ON_THE_WAY,
            noun="instance",
            timeout=timeout,
            look_every=WAIT_SECONDS if tell is None else LOOK_SECONDS,
            tell=tell,
        )
        if found["status"] != "running":
            raise InstanceFailed(found)
        return found

    def get(self, instance: Reference) -> Instance:
        return self._request_data("GET", self._path(instance))

    def list(
        self,
        *,
        mapping: Reference | None = None,
        snapshot: Reference | None = None,
        most: int | None = None,
        **filters: Any,
    ) -> Iterator[Instance]:
        """Own and shared ones, newest first; `filters` as in `GET /api/instances`: owner, status, q."""
        mapping_id = None if mapping is None else id_of(self._client, "mapping", mapping)
        snapshot_id = None if snapshot is None else id_of(self._client, "snapshot", snapshot)
        return self._client.pages("/api/instances", most=most, mapping=mapping_id, snapshot=snapshot_id, **filters)

    def update(
        self,
        instance: Reference,
        *,
        name: str | None = None,
        description: str | None = None,
        ttl: Duration | None = None,
        inactivity_timeout: Duration | None = None,
    ) -> Instance:
        """What is not named stays as it is. The TTL counts from the moment it began to run."""
        body = given(name=name, description=description, ttl=plain(ttl), inactivity_timeout=plain(inactivity_timeout))
        return self._request_data("PATCH", self._path(instance), body=body)

    def extend_ttl(self, instance: Reference, by: Duration = "PT24H") -> Instance:
        """It lives so much longer than it would have."""
        found = self.get(instance)
        more = durations.parse(by) if isinstance(by, str) else by
        # Earlier extensions are in it.
        return self.update(found, ttl=durations.parse(found["ttl"]) + more)

    def reopen(self, instance: Reference) -> Instance:
        """Starts one that failed, or runs, once more: from its loaded database where that is kept, else from its snapshot."""
        return self._request_data("POST", f"{self._path(instance)}/reopen", idempotency_key=uuid4().hex)

    def terminate(self, instance: Reference, *, reason: str | None = None, timeout: float | None = 60.0) -> None:
        """Returns when process and row are gone; `NotFinished` when that takes longer than `timeout` seconds. Whoever looks for it
        later reads the reason."""
        path = self._path(instance)
        self._request_data("DELETE", path, params=given(reason=reason), timeout=DELETE_SECONDS)
        with contextlib.suppress(NotFound):
            until(
                lambda _: self._request_data("GET", path),
                lambda _: False,
                noun="instance",
                timeout=timeout,
                pause=LOOK_SECONDS,
            )

    def events(self, instance: Reference, *, most: int | None = None) -> Iterator[dict[str, Any]]:
        return self._client.pages(f"{self._path(instance)}/events", most=most)

    def share(self, instance: Reference, owner: str) -> None:
        """They may read and query it, not change or delete it."""
        self._client.request("PUT", f"{self._path(instance)}/grants/{quote(owner, safe='')}")

    def unshare(self, instance: Reference, owner: str) -> None:
        self._client.request("DELETE", f"{self._path(instance)}/grants/{quote(owner, safe='')}")

    def connect(self, instance: Reference) -> GraphConnection:
        """A connection that asks it in Cypher. Where several have the name, to the one that runs."""
        return GraphConnection(
            self._client, self._request_data("GET", f"/api/instances/{self._id(instance, 'running')}")
        )

    def _id(self, instance: Reference, status: str | None = None) -> str:
        return id_of(self._client, "instance", instance, status=status)

    def _path(self, instance: Reference) -> str:
        return f"/api/instances/{self._id(instance)}"

    def _request_data(self, method: str, path: str, **options: Any) -> Instance:
        found: Instance = self._client.request(method, path, **options)["data"]
        return found


def _name_of(mapping: Reference | None) -> str | None:
    """So that what was made of `flights` is asked as `flights`."""
    if mapping is None or (isinstance(mapping, str) and is_id(mapping)):
        return None
    return mapping if isinstance(mapping, str) else mapping.get("name")

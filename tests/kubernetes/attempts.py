"""A job of ours that runs a container, attempt after attempt, and is killed where a test wants."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from paddock.jobs.errors import InfrastructureError
from paddock.jobs.kinds import Nothing
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.turn import Turn
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.job_manifest import Container, JobSpec
from paddock.runtimes.kubernetes.jobs import JobCluster, run_container

IMAGE = "paddock.test/step:1"
MINE, THEIRS = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"


class Killed(BaseException):
    """As a kill: nothing handles it."""


class Link:
    """Keeps what is saved and told, as the control plane would. It dies at the save it is told."""

    def __init__(self) -> None:
        self.saved: JsonObject = {}
        self.lines: list[str] = []
        self.dies_after: int | None = None

    async def save(self, state: JsonObject, *, progress: bool) -> None:
        self.saved = state
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Killed

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None:
        return

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        self.lines.append(message)


class Work:
    """One job of ours, attempt after attempt."""

    def __init__(self, namespace: str, client: Kubernetes, installation: str = MINE) -> None:
        self.id, self.link = JobId(uuid4()), Link()
        self.later = timedelta(0)
        self.cluster = JobCluster(client, self._installation, lambda: datetime.now(UTC) + self.later)
        self._said = installation
        self.spec = JobSpec(
            namespace=namespace,
            name=f"step-{self.id}",
            main="step",
            containers=[Container(name="step", image=IMAGE, command=["sh", "-c", "echo well; echo done"])],
        )

    async def _installation(self) -> str:
        return self._said

    def turn(self) -> Turn[Nothing]:
        return Turn(
            id=self.id,
            attempt_id=AttemptId(uuid4()),
            kind="cluster_probe",
            payload=Nothing(),
            saved=self.link.saved,
            owner="ada",
            link=self.link,
        )

    async def run(self) -> str:
        return (await run_container(self.turn(), self.spec, self.cluster)).log

    async def fails(self) -> InfrastructureError:
        with pytest.raises(InfrastructureError) as caught:
            await self.run()
        return caught.value

    def running(self, *command: str) -> None:
        self.spec = replace(self.spec, containers=[replace(self.spec.containers[0], command=command)])

    @property
    def name(self) -> str:
        return str(self.link.saved["container"]["name"])

    @property
    def diagnosis(self) -> JsonObject:
        return dict(self.link.saved["container"]["diagnosis"])

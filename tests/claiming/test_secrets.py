"""Secrets travel in the claim's answer only, and one that cannot be resolved fails its own job and nobody else's."""

from collections.abc import AsyncIterator, Mapping

import pytest
from prometheus_client import CollectorRegistry

from paddock.db.pool import Transaction
from paddock.jobs.core import Core, open_core
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.kinds import Kind, Kinds
from paddock.metrics import Metrics
from tests.kinds import ANYBODY, TEST_KINDS, Anything, nothing
from tests.playing import read, submit, worker


async def resolve(tx: Transaction, payload: Anything) -> Mapping[str, str]:
    if payload.lock == "missing":
        raise KeyError("no such secret")
    if payload.lock == "no table":
        await tx.fetch("SELECT * FROM nowhere")
    if payload.lock == "no connection":
        raise ConnectionResetError
    if payload.lock == "forbidden":
        raise PermanentRunnerError("The secret 'x' does not exist.", code="secret_missing")
    return {"password": "hunter2"}


SECRETIVE = Kind(name="secretive", payload=Anything, handler=nothing, secrets=resolve, submit=ANYBODY)


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([*TEST_KINDS, SECRETIVE]), metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def test_they_are_resolved_into_the_answer_and_stored_nowhere(core: Core) -> None:
    [id] = await submit(core, "secretive")
    attempt = await (await worker(core)).claim_one("secretive")
    assert attempt.job.secrets == {"password": "hunter2"}
    assert "hunter2" not in repr(await read(core, id))


@pytest.mark.parametrize(
    ("secret", "status"), [("missing", "pending"), ("no table", "pending"), ("forbidden", "failed")]
)
async def test_one_that_cannot_be_resolved_fails_that_attempt_alone(core: Core, secret: str, status: str) -> None:
    [bad] = await submit(core, "secretive", payload={"lock": secret})
    [good] = await submit(core, "secretive")
    [plain] = await submit(core)
    taken = await (await worker(core)).claim("secretive", "plain")
    assert {attempt.id for attempt in taken} == {good, plain}
    job = await read(core, bad)
    assert (job.status, job.error_code, job.attempt_id) == (status, "secrets_not_resolved", None)
    assert "no such secret" not in str(job.error_message)


async def test_while_the_database_is_away_no_job_is_blamed_and_the_claim_is_asked_again(core: Core) -> None:
    [id] = await submit(core, "secretive", payload={"lock": "no connection"})
    played = await worker(core)
    with pytest.raises(ConnectionResetError):
        await played.claim("secretive")
    job = await read(core, id)
    assert (job.status, job.failure_count) == ("claimed", 0)

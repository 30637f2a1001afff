"""What `paddock doctor` says about the cluster: whether it answers, what it lets Paddock do and what it should not, whose it is, and
how much room is left."""

import math
import os
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from paddock.config import Config
from paddock.db.pool import statements
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.ingest.settings import IngestSettings
from paddock.instances.running_on import installation_of
from paddock.instances.sizing import GB
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.errors import InfrastructureError
from paddock.runtimes.kubernetes import failures
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.installation import HINT, Installation
from paddock.runtimes.kubernetes.manifest import bytes_of
from paddock.runtimes.kubernetes.resources import ACCESS_REVIEWS, NAMESPACES, QUOTAS

SQL = statements("paddock.cluster.sql", "cluster.sql")
CHECK = "cluster"
ROLES = "Apply the Roles and RoleBindings of `deploy/`."
LEVEL = "pod-security.kubernetes.io/enforce"
OLDEST = (1, 33)
# A mounted token is changed long before this.
OLD_TOKEN_SECONDS = 2 * 3600
MOST_SKEW = 10.0
# What one instance asks for at least.
SMALLEST: dict[str, float] = {"memory": GB, "cpu": 1, "pods": 1}


class Permission(NamedTuple):
    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    # Everywhere, not only in the namespace of instances.
    everywhere: bool = False

    @property
    def words(self) -> str:
        return f"{self.verb} {self.resource}{f'/{self.subresource}' if self.subresource else ''}"


NEEDED = (
    *(Permission(verb, "pods") for verb in ("create", "get", "list", "watch", "delete")),
    Permission("get", "pods", subresource="log"),
    Permission("patch", "pods", subresource="resize"),
    Permission("list", "events"),
    *(Permission(verb, "jobs", "batch") for verb in ("create", "get", "list", "watch", "delete")),
    Permission("get", "namespaces"),
    Permission("list", "resourcequotas"),
)
# In the namespace of steps, where there is one.
NEEDED_FOR_STEPS = (
    Permission("list", "jobs", "batch"),
    Permission("delete", "jobs", "batch"),
    Permission("list", "pods"),
)
UNWANTED = (
    Permission("get", "secrets"),
    Permission("create", "pods", subresource="exec"),
    Permission("create", "services"),
    Permission("create", "ingresses", "networking.k8s.io"),
    Permission("list", "nodes", everywhere=True),
    Permission("create", "pods", everywhere=True),
)


async def cluster(core: Core, config: Config) -> AsyncIterator[Finding]:
    installation = installation_of(config)
    if installation is None:
        yield ok(CHECK, "Nothing of ours runs on a cluster here.")
        return
    installation.attach(core.db)
    async for finding in _scaler(core):
        yield finding
    try:
        async for finding in _all(installation):
            yield finding
        async for finding in _permissions_for_steps(installation, config.of(IngestSettings)):
            yield finding
    except ApiError as problem:
        diagnosis = failures.of_refusal(problem, "what doctor asked for")
        yield broken(CHECK, f"{diagnosis.message} ({diagnosis.category}: {diagnosis.words})", diagnosis.hint)
    except InfrastructureError as problem:
        yield broken(CHECK, f"{problem.message} ({problem.code})", problem.hint or "Read the log of the control plane.")


async def _all(installation: Installation) -> AsyncIterator[Finding]:
    client, namespace = installation.client, installation.namespace
    yield _version(await client.version(), client.access.server)
    yield _clock(client.server_date, datetime.now(UTC))
    for finding in _token(client):
        yield finding
    async for finding in _permissions(client, namespace):
        yield finding
    standing = await installation.look()
    if standing.mismatch is not None:
        yield broken(CHECK, standing.mismatch, HINT)
        return
    if standing.bound is not None:
        yield ok(CHECK, f"Installation {standing.bound.id}, bound to namespace {namespace} and {standing.bound.home}.")
    yield _security(await client.get(NAMESPACES, None, namespace) or {}, namespace)
    for finding in _room(await client.list(QUOTAS, namespace), namespace):
        yield finding


async def _scaler(core: Core) -> AsyncIterator[Finding]:
    """What the scaler is told, against the workers that came of it."""
    scaled = [kind for kind in await reading.kinds(core.db) if kind.scaled]
    if not scaled:
        return
    names = ", ".join(kind.name for kind in scaled)
    counts = await core.db.fetchrow(SQL["scaler_counts"], [kind.name for kind in scaled])
    assert counts is not None
    told = f"A scaler is told {counts['backlog']} ({counts['unfinished']} for one job each) for {names}"
    if any(kind.unoffered for kind in scaled):
        what_to_do = "`kubectl describe scaledobject` says what it counts; see that it may call the function."
        yield warning(CHECK, f"{told}, and brought no worker for 2 min.", what_to_do)
    else:
        yield ok(CHECK, f"{told}.")


def _version(told: dict[str, Any], server: str) -> Finding:
    version = str(told.get("gitVersion", ""))
    numbers = tuple(int("".join(filter(str.isdecimal, str(told.get(one, "0")))) or 0) for one in ("major", "minor"))
    if numbers < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return warning(
            CHECK, f"{server} is Kubernetes {version}.", f"Paddock is made for {needed} and newer: upgrade it."
        )
    return ok(CHECK, f"{server} answers: Kubernetes {version}.")


def _token(client: Kubernetes) -> Iterator[Finding]:
    file = client.access.token_file
    if file is None:
        return
    try:
        age = time.time() - os.stat(file).st_mtime
    except OSError as problem:
        yield broken(
            CHECK, f"The token {file} cannot be read: {type(problem).__name__}.", "Mount the service account's token."
        )
        return
    if age > OLD_TOKEN_SECONDS:
        told = f"The token {file} was last renewed {age / 3600:.0f} h ago."
        yield warning(CHECK, told, "Use a projected service account token, which is renewed by itself.")
    else:
        yield ok(CHECK, f"The service account's token was renewed {age / 60:.0f} min ago.")


async def _permissions(client: Kubernetes, namespace: str) -> AsyncIterator[Finding]:
    missing = [one.words for one in NEEDED if not await _may(client, namespace, one)]
    if missing:
        yield broken(CHECK, f"In {namespace} Paddock may not: {', '.join(missing)}.", ROLES)
    else:
        yield ok(CHECK, f"Paddock may do in {namespace} all that it does there.")
    too_much = [
        f"{one.words}{' anywhere' if one.everywhere else ''}" for one in UNWANTED if await _may(client, namespace, one)
    ]
    if too_much:
        yield warning(CHECK, f"Paddock may do more than it needs: {', '.join(too_much)}.", f"Take it away. {ROLES}")


async def _permissions_for_steps(installation: Installation, ingest: IngestSettings) -> AsyncIterator[Finding]:
    """Nothing, where no step runs and none of it is allowed: nobody made that namespace."""
    namespace = ingest.kubernetes_ingest_namespace
    if namespace == installation.namespace:
        return
    missing = [one.words for one in NEEDED_FOR_STEPS if not await _may(installation.client, namespace, one)]
    if not missing:
        yield ok(CHECK, f"Paddock may look after the steps of ingest in {namespace}.")
    elif ingest.sources or len(missing) < len(NEEDED_FOR_STEPS):
        yield broken(CHECK, f"In {namespace} Paddock may not: {', '.join(missing)}.", ROLES)


async def _may(client: Kubernetes, namespace: str, what: Permission) -> bool:
    asked = {"verb": what.verb, "resource": what.resource, "group": what.group, "subresource": what.subresource}
    if not what.everywhere:
        asked["namespace"] = namespace
    if what.resource == "namespaces":
        asked["name"] = namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool((await client.create(ACCESS_REVIEWS, None, review))["status"].get("allowed"))


def _security(namespace: dict[str, Any], name: str) -> Finding:
    level = (namespace.get("metadata") or {}).get("labels", {}).get(LEVEL)
    if level == "restricted":
        return ok(CHECK, f"Namespace {name} enforces Pod Security restricted.")
    told = f"Namespace {name} enforces Pod Security {level or 'of no level'}."
    return warning(CHECK, told, f"`kubectl label namespace {name} {LEVEL}=restricted`: instances keep to it already.")


def _room(quotas: Any, name: str) -> Iterator[Finding]:
    """How many of the smallest instances every quota still has room for."""
    left: list[int] = []
    for quota in quotas:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        for key, hard in (status.get("hard") or {}).items():
            size = SMALLEST.get(key.removeprefix("requests.").removeprefix("limits.").removeprefix("count/"))
            if size is not None:
                free = _amount(key, hard) - _amount(key, used.get(key, "0"))
                left.append(max(0, math.floor(free / size)))
    if not left:
        yield ok(CHECK, f"No quota bounds {name}: the cluster's nodes decide.")
    elif min(left) == 0:
        yield warning(
            CHECK, f"The quota of {name} has no room for another instance.", "Delete one, or raise the ResourceQuota."
        )
    else:
        yield ok(CHECK, f"The quota of {name} has room for {min(left)} more instances of the smallest size.")


def _amount(key: str, text: str) -> float:
    if "memory" in key:
        return bytes_of(text)
    return int(text.removesuffix("m")) / 1000 if text.endswith("m") else float(bytes_of(text))


def _clock(date: str | None, now: datetime) -> Finding:
    """By the `Date` of an answer, which is whole seconds."""
    if date is None:
        return warning(CHECK, "The API server does not say what time it is.", "Look for what stands in front of it.")
    skew = abs((now - parsedate_to_datetime(date)).total_seconds())
    if skew > MOST_SKEW:
        return warning(CHECK, f"The API server's clock and this one differ by {skew:.0f} s.", "Set both by NTP.")
    return ok(CHECK, "The API server's clock agrees with this one.")

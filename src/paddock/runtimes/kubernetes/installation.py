"""Whose cluster it is: which objects in it are ours, and whether this database and this cluster belong together.

At the first start the database is bound to the namespace of instances, by its uid, and to where the control plane lives. A
database that finds itself elsewhere is a restored or cloned one, or its cluster is another: whoever asks before they start,
delete or miss something gets `NotOurs`, until an admin has said whose it is.
"""

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from weakref import WeakKeyDictionary

import asyncpg
import structlog

from paddock.db.pool import Database, Transaction, statements
from paddock.jobs.acting import audit
from paddock.jobs.errors import PermanentRunnerError, Refused, TransientResourceError
from paddock.runtimes.kubernetes import failures
from paddock.runtimes.kubernetes.access import SERVICE_ACCOUNT
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.resources import NAMESPACES

SQL = statements("paddock.runtimes.kubernetes", "installation.sql")
# How long a good answer is believed, and how long before a list, of which each that is not in it is asked for by itself. Before
# something is called gone none is: with its namespace all of it goes within a second.
BELIEVED, BELIEVED_LIST, NOT_BELIEVED = timedelta(seconds=30), timedelta(seconds=2), timedelta(0)
HINT = (
    "Nothing is started, deleted or declared missing until an admin says whose it is: `paddock cluster adopt --reason ...`"
    " takes over what runs there, with `--fresh` it is left alone."
)
OUTSIDE, DEFAULT_RELEASE = "outside", "paddock"
# What a control plane outside a cluster was called before its machine was part of that.
OUTSIDE_BEFORE = f"{OUTSIDE}/{DEFAULT_RELEASE}"
MACHINE_ID = Path("/etc/machine-id")
# What this process knows now, for the dashboard.
_mismatches: WeakKeyDictionary["Installation", str] = WeakKeyDictionary()
log = structlog.get_logger()


class NotOurs(TransientResourceError):
    """The database and the cluster do not belong together, as far as anybody has said."""

    code = "not_our_cluster"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=HINT, budget="cluster", delay=BELIEVED)


@dataclass(frozen=True, slots=True)
class Bound:
    id: str
    namespace: str
    namespace_uid: str
    home: str
    bound_at: datetime
    bound_by: str


@dataclass(frozen=True, slots=True)
class Standing:
    """`mismatch` is a sentence; None: all is well, or nothing was bound yet."""

    bound: Bound | None
    namespace: str
    # None: there is no such namespace, or it is being deleted.
    namespace_uid: str | None
    home: str
    mismatch: str | None


def home_of(release: str, service_account: Path = SERVICE_ACCOUNT, machine_id: Path = MACHINE_ID) -> str:
    """The control plane's namespace and release. One that is not in the cluster has no namespace there: its machine stands for
    that, else a copy of a database on another machine would be taken for the original. Whoever names a release says that all
    outside that have it are one."""
    try:
        namespace = (service_account / "namespace").read_text("ascii").strip()
    except (OSError, ValueError):
        # No namespace of a cluster has a colon.
        namespace = OUTSIDE if release != DEFAULT_RELEASE else f"{OUTSIDE}:{_machine(machine_id)}"
    return f"{namespace}/{release}"


def _machine(machine_id: Path) -> str:
    """What stays when its name or network changes. The id itself is not for others to read, so a digest stands for it."""
    try:
        id = machine_id.read_text("ascii").strip()
    except (OSError, ValueError):
        id = ""
    return hashlib.sha256(f"paddock {id}".encode()).hexdigest()[:12] if id else socket.gethostname()


class Installation:
    def __init__(self, client: Kubernetes, *, namespace: str, home: str) -> None:
        self.client, self.namespace, self.home = client, namespace, home
        self._db: Database | None = None
        self._id = ""
        self._looked_at: float | None = None

    def attach(self, db: Database) -> None:
        self._db = db

    async def check(self, *, believed: timedelta = BELIEVED) -> str:
        """The id that our objects carry. Raises `NotOurs`, and what the API server's refusal means."""
        now = self.client.clock.monotonic()
        if self._looked_at is not None and now - self._looked_at < believed.total_seconds():
            return self._id
        self._looked_at = None
        standing = await self.look()
        if standing.bound is None and standing.mismatch is None:
            standing = await self._bind_first(standing)
        if standing.bound is not None and standing.mismatch is None and standing.bound.home != self.home:
            standing = await self._name_machine(standing.bound)
        self._say(standing.mismatch)
        if standing.bound is None and standing.mismatch is not None:
            hint = "Make it (`deploy/`), or correct PADDOCK_KUBERNETES_INSTANCE_NAMESPACE."
            raise PermanentRunnerError(standing.mismatch, code="namespace_missing", hint=hint)
        if standing.mismatch is not None or standing.bound is None:
            raise NotOurs(standing.mismatch or "Nobody knows yet whose cluster this is.")
        self._id, self._looked_at = standing.bound.id, now
        return self._id

    async def is_bound(self) -> bool:
        return await self._database.fetchrow(SQL["installation"]) is not None

    async def look(self) -> Standing:
        bound = _bound(await self._database.fetchrow(SQL["installation"]))
        try:
            found = await self.client.get(NAMESPACES, None, self.namespace)
        except ApiError as problem:
            raise failures.of_refusal(problem, f"Namespace {self.namespace}").error() from problem
        metadata = {} if found is None else found["metadata"]
        uid = None if metadata.get("deletionTimestamp") else metadata.get("uid")
        return Standing(bound, self.namespace, uid, self.home, self._mismatch(bound, found is not None, uid))

    def _mismatch(self, bound: Bound | None, there: bool, uid: str | None) -> str | None:
        if uid is None:
            what = "is being deleted" if there else "is not there"
            return f"The namespace '{self.namespace}', in which instances run, {what}."
        if bound is None:
            return None
        if bound.home != self.home and not self._is_earlier_home(bound.home):
            several = " Control planes of several machines that share a database name one release (PADDOCK_RELEASE)."
            return (
                f"This database belongs to the control plane '{bound.home}', and this is '{self.home}': it was restored or"
                f" cloned, or the control plane moved.{several if self.home.startswith(OUTSIDE) else ''}"
            )
        if bound.namespace_uid != uid:
            return (
                f"The namespace '{self.namespace}' is not the one this database knows: it was made again, or this is another"
                " cluster."
            )
        return None

    async def _bind_first(self, standing: Standing) -> Standing:
        await self._database.execute(
            SQL["bind_first"], standing.namespace, standing.namespace_uid, standing.home, "paddock"
        )
        return await self.look()

    def _is_earlier_home(self, home: str) -> bool:
        return home == OUTSIDE_BEFORE and self.home.startswith(f"{OUTSIDE}:")

    async def _name_machine(self, bound: Bound) -> Standing:
        """Only from the home that was seen: of two machines the first one has the database."""
        await self._database.execute(SQL["rename_home"], bound.home, self.home)
        log.info("home_names_its_machine", before=bound.home, home=self.home)
        return await self.look()

    def _say(self, mismatch: str | None) -> None:
        if mismatch != _mismatches.get(self):
            if mismatch is None:
                del _mismatches[self]
                log.info("cluster_is_ours", namespace=self.namespace)
            else:
                _mismatches[self] = mismatch
                log.error("not_our_cluster", reason=mismatch, hint=HINT)

    async def adopt(self, *, actor: str, reason: str, fresh: bool) -> Standing:
        """Binds the database to what is here: as the successor of whoever it belonged to, or under a new id."""
        standing = await self.look()
        if standing.namespace_uid is None:
            raise Refused("namespace_missing", standing.mismatch or "", hint="Make it first (`deploy/`).")
        if standing.mismatch is None:
            raise Refused(
                "nothing_to_adopt",
                "This database and this cluster belong together already.",
                hint="`paddock cluster show` tells what runs there.",
            )

        async def write(tx: Transaction) -> None:
            before = _bound(await tx.fetchrow(SQL["lock_installation"]))
            if before != standing.bound:
                raise Refused("nothing_to_adopt", "Somebody else has just adopted it.")
            where = (standing.namespace, standing.namespace_uid, standing.home)
            after = _bound(await tx.fetchrow(SQL["bind_anew"], *where, actor, fresh))
            assert before is not None
            assert after is not None
            details = {"from": _bound_json(before), "to": _bound_json(after), "fresh": fresh}
            await audit(tx, actor, "cluster_adopted", f"installation:{after.id}", reason, details)

        await self._database.repeated(write)
        self._looked_at = None
        return await self.look()

    @property
    def _database(self) -> Database:
        if self._db is None:
            raise NotOurs("The control plane is still starting.")
        return self._db


def mismatches() -> Sequence[str]:
    return list(_mismatches.values())


def _bound(row: asyncpg.Record | None) -> Bound | None:
    return None if row is None else Bound(**{**row, "id": str(row["id"])})


def _bound_json(bound: Bound) -> dict[str, object]:
    return {name: getattr(bound, name) for name in ("id", "namespace", "namespace_uid", "home")}

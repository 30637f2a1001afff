"""Bearer tokens: `pdk_` and 192 random bits. Only their SHA-256 is kept; the secret is shown once.

A look-up is remembered for a few seconds in each process, so a token revoked through another replica may work that
much longer; one revoked here stops at once.
"""

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from paddock.api.access import Role
from paddock.api.errors import ApiError
from paddock.db.pool import Database, statements
from paddock.jobs.acting import audit
from paddock.jobs.errors import Refused

SQL = statements("paddock.api.sql", "tokens.sql")
PREFIX = "pdk_"
REMEMBERED_SECONDS = 5.0
MOST_REMEMBERED = 10_000
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: what their token says about them. `csrf` is set when they came by the dashboard's cookie."""

    token_id: UUID
    name: str
    role: Role
    owner: str
    kinds: tuple[str, ...] | None = None
    engine_roles: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()
    destinations: frozenset[str] = frozenset()
    databases: frozenset[str] = frozenset()
    csrf: str | None = None

    @property
    def scope(self) -> str | None:
        """The owner whose things this caller sees; None: everybody's."""
        return self.owner if self.role == "analyst" else None

    def sees(self, owner: str) -> bool:
        return self.scope is None or self.scope == owner

    @property
    def actor(self) -> str:
        """How timelines and the audit log name them."""
        return self.owner if self.name == self.owner else f"{self.owner} ({self.name})"

    @property
    def operator(self) -> bool:
        return self.role in ("ops", "admin")


def may_use(granted: frozenset[str], wanted: str) -> bool:
    """For engine roles, engines, destinations, databases."""
    return EVERYTHING in granted or wanted in granted


def check_engine_role(caller: Caller, role: str | None) -> None:
    if role is not None and not may_use(caller.engine_roles, role):
        raise ApiError(
            403,
            "engine_role_not_allowed",
            "This token may not use the engine role that X-Use-Case-Id names.",
            hint="Ask for the role to be granted to your token, or send another.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    name: str
    role: Role
    owner: str
    kinds: Sequence[str] | None = None
    engine_roles: Sequence[str] = ()
    engines: Sequence[str] = ()
    destinations: Sequence[str] = ()
    databases: Sequence[str] = ()
    expires_at: datetime | None = None


def everything(name: str, role: Role) -> NewToken:
    """What `paddock up` makes for its own machine: no engine, destination or database is kept from it."""
    all_of = (EVERYTHING,)
    return NewToken(
        name=name, role=role, owner=name, engine_roles=all_of, engines=all_of, destinations=all_of, databases=all_of
    )


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(24)


def hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Tokens:
    """The store, and this process's memory of it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._remembered: dict[bytes, tuple[float, Caller]] = {}

    async def create(self, new: NewToken, *, actor: str, secret: str | None = None) -> tuple[dict[str, Any], str]:
        """The token as it may be shown, and its secret, which nobody can ask for again."""
        secret = secret or new_secret()
        row = await self._insert(new, secret, actor)
        assert row is not None, "192 random bits do not repeat"
        return shown(row), secret

    async def keep(self, new: NewToken, secret: str, *, actor: str) -> bool:
        """Makes sure that `secret` is a good token, as `paddock up` does with the one in its file; false if it was
        revoked or has expired, and a fresh one is needed."""
        if await self._insert(new, secret, actor) is not None:
            return True
        return await self.db.fetchrow(SQL["token_by_secret"], hashed(secret)) is not None

    async def _insert(self, new: NewToken, secret: str, actor: str) -> asyncpg.Record | None:
        async with self.db.transaction() as tx:
            row = await tx.fetchrow(
                SQL["insert_token"],
                new.name,
                new.owner,
                new.role,
                hashed(secret),
                None if new.kinds is None else list(new.kinds),
                list(new.engine_roles),
                list(new.engines),
                list(new.destinations),
                list(new.databases),
                new.expires_at,
                actor,
            )
            if row is not None:
                await audit(
                    tx, actor, "token_created", f"token:{row['id']}", details={"name": new.name, "role": new.role}
                )
        return row

    async def page(self, after: UUID | None, limit: int) -> list[dict[str, Any]]:
        return [shown(row) for row in await self.db.fetch(SQL["list_tokens"], after, limit)]

    async def revoke(self, id: UUID, *, actor: str, reason: str | None = None) -> dict[str, Any] | None:
        """None: there is no such token. It stops at once in this process, within seconds in others."""
        async with self.db.transaction() as tx:
            admins = {row["id"] for row in await tx.fetch(SQL["lock_admin_tokens"])}
            if admins == {id}:
                raise Refused(
                    "last_admin",
                    "This is the last admin token; without one nobody could make another.",
                    hint="Create its successor first.",
                )
            row = await tx.fetchrow(SQL["revoke_token"], id)
            if row is None:
                return None
            await tx.execute(SQL["end_web_sessions_of_token"], id)
            await tx.execute(SQL["end_links_of_token"], id)
            await audit(tx, actor, "token_revoked", f"token:{id}", reason, {"name": row["name"], "role": row["role"]})
        self.forget()
        return shown(row)

    def forget(self) -> None:
        self._remembered.clear()

    async def by_secret(self, secret: str) -> Caller | None:
        return await self._look_up("token_by_secret", hashed(secret))

    async def by_web_session(self, session_id: str) -> Caller | None:
        return await self._look_up("token_by_web_session", hashed(session_id))

    async def still_good(self, caller: Caller) -> bool:
        """Asks the database, not the memory: for streams that stay open for hours."""
        return bool(await self.db.fetchval(SQL["token_is_good"], caller.token_id))

    async def _look_up(self, statement: str, key: bytes) -> Caller | None:
        found = self._remembered.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        row = await self.db.fetchrow(SQL[statement], key)
        if row is None:
            self._remembered.pop(key, None)
            return None
        if row["touch_due"]:
            await self.db.execute(SQL["touch_token"], row["id"])
        caller = _caller(row)
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = (time.monotonic() + REMEMBERED_SECONDS, caller)
        return caller


def _caller(row: asyncpg.Record) -> Caller:
    return Caller(
        token_id=row["id"],
        name=row["name"],
        role=row["role"],
        owner=row["owner"],
        kinds=None if row["kinds"] is None else tuple(row["kinds"]),
        engine_roles=frozenset(row["engine_roles"]),
        engines=frozenset(row["engines"]),
        destinations=frozenset(row["destinations"]),
        databases=frozenset(row["databases"]),
        csrf=row.get("csrf"),
    )


SHOWN = (
    *("id", "name", "owner", "role", "kinds", "engine_roles", "engines", "destinations", "databases"),
    *("created_at", "created_by", "expires_at", "last_used_at", "revoked_at"),
)


def shown(row: asyncpg.Record) -> dict[str, Any]:
    return {name: row[name] for name in SHOWN}

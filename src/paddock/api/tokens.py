"""Bearer tokens: `pdk_` and 192 random bits. Only their SHA-256 is kept; the secret is shown once.

A look-up is remembered for a few seconds in each process, so a token revoked through another replica may work that
much longer; one revoked here stops at once.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from paddock.api.access import Role
from paddock.api.errors import ApiError
from paddock.capability import each, grants
from paddock.config import Config
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
    # By the name of the grant.
    grants: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
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

    def granted(self, grant: str) -> frozenset[str]:
        """What their token says: names, `EVERYTHING` among them for all."""
        return self.grants.get(grant, frozenset())

    def may_use(self, grant: str, name: str) -> bool:
        return includes(self.granted(grant), name)


def includes(granted: Collection[str], name: str) -> bool:
    return EVERYTHING in granted or name in granted


def usable_names(config: Config, caller: Caller) -> dict[str, frozenset[str]]:
    """All that they may use, by the name of the grant: what their token says, and what capabilities give them besides."""
    names = {grant.name: caller.granted(grant.name) for grant in grants()}
    for _, granted in each("granted"):
        for grant, more in granted(config, caller).items():
            names[grant] = names.get(grant, frozenset()).union(more)
    return names


def check_engine_role(caller: Caller, role: str | None) -> None:
    if role is not None and not caller.may_use("engine_roles", role):
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
    # By the name of the grant.
    grants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    expires_at: datetime | None = None


def everything(name: str, role: Role) -> NewToken:
    """What `paddock up` makes for its own machine: nothing that can be granted is kept from it."""
    return NewToken(name=name, role=role, owner=name, grants={grant.name: (EVERYTHING,) for grant in grants()})


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(24)


def is_secret(text: str) -> bool:
    """Whether `new_secret` could have made it. Another text might be one that somebody can guess."""
    return re.fullmatch(rf"{PREFIX}[A-Za-z0-9_-]{{32}}", text) is not None


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
        return token_json(row), secret

    async def keep(self, new: NewToken, secret: str, *, actor: str) -> bool:
        """Makes sure that `secret` is a good token with these grants, as `paddock up` does with the one in its file, which
        may be older than a capability; false if it was revoked or has expired, and a fresh one is needed."""
        if await self._insert(new, secret, actor) is not None:
            return True
        await self.db.execute(SQL["add_grants"], hashed(secret), _grants_json(new))
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
                _grants_json(new),
                new.expires_at,
                actor,
            )
            if row is not None:
                await audit(
                    tx, actor, "token_created", f"token:{row['id']}", details={"name": new.name, "role": new.role}
                )
        return row

    async def page(self, after: UUID | None, limit: int) -> list[dict[str, Any]]:
        return [token_json(row) for row in await self.db.fetch(SQL["list_tokens"], after, limit)]

    async def revoke(self, id: UUID, *, actor: str, reason: str | None = None) -> dict[str, Any] | None:
        """None: there is no such token. It stops at once in this process, within seconds in others."""
        async with self.db.transaction() as tx:
            admins = {row["id"] for row in await tx.fetch(SQL["lock_admin_tokens"])}
            if admins == {id}:
                raise Refused(
                    "last_admin",
                    "This is the last admin token; without one nobody could create another.",
                    hint="Create its successor first.",
                )
            row = await tx.fetchrow(SQL["revoke_token"], id, actor)
            if row is None:
                return None
            await tx.execute(SQL["end_web_sessions_of_token"], id)
            await tx.execute(SQL["end_links_of_token"], id)
            await audit(tx, actor, "token_revoked", f"token:{id}", reason, {"name": row["name"], "role": row["role"]})
        self.forget()
        return token_json(row)

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
        caller = caller_of(row)
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = (time.monotonic() + REMEMBERED_SECONDS, caller)
        return caller


async def callers_of(db: Database, owner: str) -> list[Caller] | None:
    """What the tokens of this owner that are good now say about them. None: they have none, and none of theirs ever was an
    analyst's; an operator's schedules go on when the token that made them has ended."""
    rows = await db.fetch(SQL["tokens_of_owner"], owner)
    good = [caller_of(row) for row in rows if row["good"]]
    was_analyst = any(row["role"] == "analyst" for row in rows)
    return good if good or was_analyst else None


def caller_of(row: asyncpg.Record) -> Caller:
    return Caller(
        token_id=row["id"],
        name=row["name"],
        role=row["role"],
        owner=row["owner"],
        kinds=None if row["kinds"] is None else tuple(row["kinds"]),
        grants={grant: frozenset(names) for grant, names in orjson.loads(row["grants"]).items()},
        csrf=row.get("csrf"),
    )


def _grants_json(new: NewToken) -> str:
    return orjson.dumps({grant: list(names) for grant, names in new.grants.items()}).decode()


def token_json(row: asyncpg.Record) -> dict[str, Any]:
    """A grant is a field of its own here, empty if the token says nothing of it."""
    given = orjson.loads(row["grants"])
    return {
        **{name: row[name] for name in ("id", "name", "owner", "role", "kinds")},
        **{grant.name: given.get(grant.name, []) for grant in grants()},
        **{name: row[name] for name in ("created_at", "created_by", "expires_at", "last_used_at", "revoked_at")},
    }

"""Tokens that a folder holds (PADDOCK_TOKENS_DIR), as a cluster mounts a Secret: a file for each, named `{name}.{role}`.

What is in the folder is good, from the start of a control plane or soon after a change. Where a file holds another secret
than before, the one before stays good for ten minutes; a token whose file is gone is revoked, and good again if the file
comes back. One that a person revoked stays revoked.

Several control planes read such a folder, and one of them may see an older state of it than another for a minute or two.
So a token that lacks its file is given up only by who saw the file itself, or by whom it must have reached long since.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import asyncpg
import structlog

from paddock.api.access import Role
from paddock.api.tokens import SQL, NewToken, Tokens, everything, hashed, is_secret
from paddock.config.refusing import why
from paddock.jobs.acting import audit
from paddock.jobs.errors import Refused

ACTOR = "PADDOCK_TOKENS_DIR"
ROLES: tuple[Role, ...] = get_args(Role)

log = structlog.get_logger()


class TokenFilesError(Exception):
    """A sentence for the person who starts it. It never holds a secret."""

    code = "token_files"


@dataclass(frozen=True, slots=True)
class TokenFile:
    name: str
    role: Role
    secret: str

    @property
    def new(self) -> NewToken:
        """Analysts are granted what they may use, by name: `paddock tokens create`. The others serve the whole of it."""
        if self.role == "analyst":
            return NewToken(name=self.name, role=self.role, owner=self.name)
        return everything(self.name, self.role)


def read_token_files(folder: Path) -> dict[str, TokenFile]:
    """By name. Hidden files are not ours: a mounted Secret has some."""
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
        texts = {path.name: path.read_text("utf-8").strip() for path in paths}
    except (OSError, UnicodeDecodeError) as problem:
        raise TokenFilesError(f"PADDOCK_TOKENS_DIR names {folder}, which {why(problem)}.") from None
    found: dict[str, TokenFile] = {}
    secrets: dict[str, str] = {}
    for file, secret in texts.items():
        token = _token(folder / file, secret)
        if token.name in found:
            raise TokenFilesError(
                f"{folder} holds two tokens for {token.name}, {token.name}.{found[token.name].role} and {file}: keep one."
            )
        if secret in secrets:
            raise TokenFilesError(f"{secrets[secret]} and {file} in {folder} hold the same token: give each its own.")
        found[token.name] = token
        secrets[secret] = file
    return found


def _token(path: Path, secret: str) -> TokenFile:
    name, _, named = path.name.rpartition(".")
    role = next((role for role in ROLES if role == named), None)
    if not name or role is None:
        raise TokenFilesError(
            f"The token file {path} has no role: name it like {name or path.name}.worker; the roles are {', '.join(ROLES)}."
        )
    if not is_secret(secret):
        raise TokenFilesError(
            f"The token file {path} holds no token: it should be pdk_ and 32 random letters, digits, - or _, so that "
            "nobody can guess it."
        )
    return TokenFile(name, role, secret)


class TokenFiles:
    def __init__(self, folder: Path, tokens: Tokens) -> None:
        self._folder = folder
        self._tokens = tokens
        # What this process saw in the folder, now or before.
        self._seen: set[bytes] = set()

    async def sync(self) -> None:
        files = read_token_files(self._folder)
        for file in files.values():
            await self._keep(file)
        held = {hashed(file.secret) for file in files.values()}
        good = await self._tokens.db.fetch(SQL["tokens_of_files"], ACTOR)
        made_at = {row["name"]: row["created_at"] for row in good if row["secret_hash"] in held}
        for row in good:
            if row["secret_hash"] not in held:
                await self._give_up(row, files, row["name"] in made_at and made_at[row["name"]] > row["created_at"])
        self._seen |= held

    async def _keep(self, file: TokenFile) -> None:
        secret = hashed(file.secret)
        await self._revive(secret)
        good = await self._tokens.keep(file.new, file.secret, actor=ACTOR)
        made = await self._tokens.db.fetchrow(SQL["token_made_as"], secret)
        if made is not None and (made["name"], made["role"]) != (file.name, file.role):
            log.error(
                "token_file_of_another",
                file=f"{file.name}.{file.role}",
                made_as=f"{made['name']}.{made['role']}",
                doing="nothing: a token keeps its name and role; put a new one into the file",
            )
        elif not good:
            log.error(
                "token_file_revoked",
                file=f"{file.name}.{file.role}",
                doing="nothing: somebody revoked this token; put a new one into the file",
            )

    async def _revive(self, secret: bytes) -> None:
        async with self._tokens.db.transaction() as tx:
            row = await tx.fetchrow(SQL["revive_token"], secret, ACTOR)
            if row is not None:
                await audit(tx, ACTOR, "token_restored", f"token:{row['id']}")
                self._tokens.forget()

    async def _give_up(self, row: asyncpg.Record, files: Mapping[str, TokenFile], older: bool) -> None:
        """`older`: than the token of its name that the folder holds now."""
        if not (older or row["settled"] or row["secret_hash"] in self._seen):
            return
        if row["name"] in files:
            await self._tokens.db.execute(SQL["replace_token"], row["id"])
            return
        try:
            await self._tokens.revoke(row["id"], actor=ACTOR, reason="its file is gone")
        except Refused as refused:
            log.warning("token_file_gone", token=row["name"], error=refused.message, doing="it stays good")

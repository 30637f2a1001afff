"""A published file from the server to this disk: resumed where an earlier try ended, and compared with its sum."""

import os
import shlex
from pathlib import Path
from typing import Literal
from urllib.parse import quote
from uuid import UUID

from paddock.cli import replacing, resuming
from paddock.cli.connection import Refusal, Server
from paddock.cli.errors import CommandFailed

Part = Literal["records", "rejected"]


def fetch_file(server: Server, file: str, to: Path, part: Part, *, force: bool) -> None:
    path = f"/api/ingest/files/{quote(file, safe='')}/download"
    etag, size = _about(server, path, part)
    flags = f"{' --rejected' * (part == 'rejected')}{' --force' * force}"
    again = f"paddock ingest download {shlex.quote(file)} --to {shlex.quote(str(to))}{flags}"
    # Its id stands in the name: another download to the same place has a partial file of its own.
    partial = to.with_name(f"{to.name}.partial-{UUID(file)}-{part}")
    try:
        with replacing.open_partial(partial) as sink:
            resuming.write_all(
                lambda start: server.download(path, start=start, etag=etag, part=part), to.name, size, sink, sink.tell()
            )
            sink.flush()
            os.fsync(sink.fileno())
            if replacing.digest_of(partial) != etag.strip('"'):
                partial.unlink()
                raise CommandFailed(f"{partial.name} did not arrive as it was sent.", hint="Download it again.")
            replacing.check_file(to, force=force)
            partial.replace(to)
    except OSError as problem:
        raise CommandFailed(f"{to} cannot be written: {problem.strerror}.") from None
    except KeyboardInterrupt:
        raise replacing.interrupted(again) from None


def _about(server: Server, path: str, part: Part) -> tuple[str, int]:
    try:
        about = server.about_file(f"{path}?part={part}")
    except Refusal:
        # An answer without a body has no sentence in it: asked for the file itself, the server says why not.
        for _ in server.download(path, part=part):
            break
        raise
    return about["etag"], int(about["content-length"])

"""A dump from a terminal: its file, its state, and the same again, as curl and as `paddock` commands to copy."""

import shlex
from collections.abc import Mapping
from typing import Any

import orjson

from paddock.dumps.dumps import Dump
from paddock.web.commands import MOST_PAYLOAD, Command, cli, curl

FLAGS = {
    "schemaOnly": "--schema-only",
    "dataOnly": "--data-only",
    "noOwner": "--no-owner",
    "preserveRowids": "--preserve-rowids",
    "csvSafe": "--csv-safe",
}


def commands(server: str, dump: Dump) -> list[Command]:
    own = f"{server}/export/jobs/{dump.id}"
    found = []
    if dump.shown_status == "completed":
        found.append(_download(server, own, dump))
    elif dump.live is not None:
        follow = cli(server, "dumps", "watch", dump.id)
        found.append(Command("Follow it", follow, curl("GET", f"{own}?v=2")))
    else:
        found.append(Command("Show it", cli(server, "dumps", "show", dump.id), curl("GET", f"{own}?v=2")))
    return [*found, again(server, dump)]


def _download(server: str, own: str, dump: Dump) -> Command:
    """Broken off and run again, it goes on from where it was."""
    to = shlex.join(["-C", "-", "-o", dump.file_name or dump.id])
    return Command(
        "Download it", cli(server, "dumps", "download", dump.id), f"{curl('GET', f'{own}/download')} -f {to}"
    )


def again(server: str, dump: Dump) -> Command:
    name, body = "Dump it again", {"async": True, **dump.request}
    text = orjson.dumps(body).decode()
    if len(text) > MOST_PAYLOAD:
        return Command(name, None, None, "It names too many tables for a command.")
    headers = ["Content-Type: application/json"]
    posted = curl("POST", f"{server}/export/dump", headers=headers, body=text)
    return Command(name, cli(server, "dump", dump.database, *_options(dump.request)), posted)


def _options(asked: Mapping[str, Any]) -> list[str]:
    only = [asked["table"]] if asked.get("table") else asked.get("tables") or []
    named = [f"--table={name}" for name in only]
    named += [f"--exclude-table={name}" for name in asked.get("excludeTables") or []]
    flags = [flag for name, flag in FLAGS.items() if asked.get(name)]
    compress = [f"--compress={asked['compress']}"] if asked.get("compress", "none") != "none" else []
    return [f"--format={asked.get('format', 'sql')}", *compress, *named, *flags]

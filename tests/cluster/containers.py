"""How a container of a pod becomes a process of this machine."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from paddock.child_processes.spawning import import_path, inherited
from tests.cluster.admin import Json

# What our image's entry point starts.
PADDOCK = (sys.executable, "-m", "paddock.cli")
PROBE_EVERY_SECONDS = 0.05


def command_of(container: Json, environment: Mapping[str, str], address: str, folder: Path) -> list[str]:
    arguments: list[str] = [*container.get("command", PADDOCK), *container.get("args", [])]
    arguments[0] = shutil.which(arguments[0]) or arguments[0]
    return [_on_this_machine(_expanded(argument, environment), address, folder) for argument in arguments]


def _expanded(argument: str, environment: Mapping[str, str]) -> str:
    for name, value in environment.items():
        argument = argument.replace(f"$({name})", value)
    return argument


def _on_this_machine(argument: str, address: str, folder: Path) -> str:
    """The one line that an instance is told is a JSON object. In a pod all addresses and its folder are its own: here it
    listens on its own address alone, and its folder is one of the test's."""
    try:
        told = json.loads(argument)
    except ValueError:
        return argument
    if not isinstance(told, dict) or "protocol" not in told:
        return argument
    return json.dumps(told | {"host": address, "folder": str(folder)})


def environment_of(container: Json, pod: Json, address: str) -> dict[str, str]:
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "status.podIP": address,
    }
    found = import_path() | inherited("PATH", "LANG", "LD_LIBRARY_PATH") | {"POD_IP": address}
    for variable in container.get("env", []):
        by_field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[variable["name"]] = fields[by_field] if by_field else variable.get("value", "")
    return found


async def answers(probe: Json, address: str, alive: Callable[[], bool]) -> bool:
    """Whether it answered before it ended. Asked far more often than the probe says: nobody waits for its period here."""
    if "httpGet" not in probe:
        return True
    port, path = probe["httpGet"]["port"], probe["httpGet"].get("path", "/")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        while alive():
            try:
                async with session.get(f"http://{address}:{port}{path}") as answer:
                    if answer.status < 400:
                        return True
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(PROBE_EVERY_SECONDS)
    return False

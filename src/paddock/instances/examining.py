"""What `paddock doctor` asks of instances: whether there is an engine, what holds its queries, and whether there is room."""

import shutil
from collections.abc import AsyncIterator

from paddock.config import Config
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.engines.children import landlock
from paddock.instances.loadable import installed_wrappers
from paddock.instances.running_on import runtime_of
from paddock.instances.sizing import GB
from paddock.jobs.core import Core
from paddock.runtimes.local import LocalRuntime

CHECK = "instances"
LEAST_DISK = 5 * GB


async def instances(core: Core, config: Config) -> AsyncIterator[Finding]:
    runtime = runtime_of(config)
    if runtime is None:
        yield ok(CHECK, "There is no runtime: no instances are made here (PADDOCK_RUNTIME).")
        return
    wrappers = installed_wrappers()
    if wrappers:
        yield ok(CHECK, f"Graph engines: {', '.join(wrappers)}.")
    else:
        yield broken(CHECK, "No graph engine is installed.", "Install the extra: pip install 'paddock[graph]'.")
    if not isinstance(runtime, LocalRuntime):
        return
    if landlock.version():
        yield ok(CHECK, "Landlock holds what queries may read.")
    else:
        yield warning(
            CHECK,
            "This kernel has no Landlock: queries are held by resource limits alone, which let them make empty folders.",
            "Use a kernel of 5.13 or newer with Landlock switched on.",
        )
    room = await runtime.memory_bytes() or 0
    if room >= GB:
        yield ok(CHECK, f"There is room for instances with {room // GB} GB of memory together.")
    else:
        yield warning(
            CHECK, f"Only {room:,} bytes of memory are for instances: none fits.", "Give this machine more memory."
        )
    folder = runtime.root if runtime.root.is_dir() else config.data
    free = shutil.disk_usage(folder if folder.is_dir() else ".").free
    if free >= LEAST_DISK:
        yield ok(CHECK, f"{free // GB} GB of disk are free for instances.")
    else:
        yield warning(CHECK, f"Only {free:,} bytes of disk are free for instances.", "Free some disk space.")

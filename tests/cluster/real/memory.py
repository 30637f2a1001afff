"""An instance that gets more memory where it runs, and one that the kernel kills for want of it."""

import contextlib
from typing import Any
from uuid import UUID

from paddock.instances.growing import grow_job
from paddock.instances.model import SQL
from paddock.instances.sizing import GB
from paddock.jobs.core import open_core
from paddock.known_kinds import all_kinds
from tests.cluster.admin import pods
from tests.cluster.real.looking import another_answers, people, pod_name
from tests.cluster.real.overlay import INSTANCES
from tests.cluster.real.scene import Scene
from tests.cluster.server import KubectlFailed

READ_LIMIT = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
# Fills memory that belongs to no process: each process but this one is to be killed before it.
FILL = """
import os
for one in os.listdir("/proc"):
    if one.isdecimal() and int(one) != os.getpid():
        open(f"/proc/{one}/oom_score_adj", "w").write("1000")
file = os.memfd_create("fill")
while True:
    os.write(file, bytes(1 << 20))
"""


async def grows(scene: Scene) -> str:
    """The instance gets more memory where it runs, without a restart."""
    before = await pod_name(scene)
    memory_gb = (await _instance(scene))["memory_gb"]
    async with open_core(scene.database.dsn, all_kinds()) as core:
        row = await core.db.fetchrow(SQL["instance_row"], UUID(scene.instance))
        assert row is not None
        async with core.db.transaction() as tx:
            # As the pass makes it that watches their memory; its judgement takes minutes of real pressure.
            await core.enqueue(tx, [grow_job(row, memory_gb=2 * memory_gb, percent=85, urgent=False)])

    async def grown() -> bool:
        return bool((await _instance(scene))["memory_gb"] == 2 * memory_gb)

    await scene.until(grown, f"instance {scene.instance} never had {2 * memory_gb} GB")
    assert await pod_name(scene) == before
    (status,) = (await scene.admin.get(pods(INSTANCES, before)) or {})["status"]["containerStatuses"]
    limit = await scene.kubectl("exec", "-n", INSTANCES, before, "--", "sh", "-c", READ_LIMIT)
    assert (status["restartCount"], int(limit)) == (0, 2 * memory_gb * GB), (status, limit)
    assert await people(scene) == [[1000]]
    return f"{memory_gb} GB, then {2 * memory_gb} GB in the same container"


async def is_killed_for_memory(scene: Scene) -> str:
    """The kernel kills the instance for want of memory; one with twice as much answers."""
    before = await pod_name(scene)
    memory_gb = (await _instance(scene))["memory_gb"]
    # Ends together with the container it fills.
    with contextlib.suppress(KubectlFailed):
        await scene.kubectl("exec", "-n", INSTANCES, before, "--", "python3", "-c", FILL)
    after = await another_answers(scene, before)
    found = await _instance(scene)
    assert found["memory_gb"] == 2 * memory_gb, found
    events = (await scene.ask("GET", f"/api/instances/{scene.instance}/events"))["data"]
    told = [event["data"] for event in events if event["type"] == "instance.restarted"]
    reason = f"{told[0].get('category')}: {told[0].get('message')}" if told else "no event says why"
    return f"{after}: {memory_gb} GB, then {found['memory_gb']} GB; {reason}"


async def _instance(scene: Scene) -> Any:
    return (await scene.ask("GET", f"/api/instances/{scene.instance}"))["data"]

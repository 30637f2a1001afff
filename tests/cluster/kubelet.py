"""The tests' kubelet: it watches the pods of one namespace, makes of each that is bound what a behaviour says, and confirms
deletes. What runs under it are real processes of this machine, one loopback address for each pod, so that all can use
the same port. It honours the startup probe by HTTP and the grace of a delete, and answers for logs."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

from paddock.child_processes.spawning import launched
from tests.cluster import behaviours
from tests.cluster.admin import Admin, Json, Refused, events, pods
from tests.cluster.behaviours import Behaviour
from tests.cluster.containers import answers, command_of, environment_of

ENDED = ("Failed", "Succeeded")
# Not the common one: a test may have seeded it.
_DICE = random.SystemRandom()


class Kubelet:
    """`choose` says what becomes of a pod once it is bound. `apply` makes something else of one later."""

    def __init__(self, admin: Admin, namespace: str, folder: Path) -> None:
        self._admin = admin
        self.namespace = namespace
        self._folder = folder
        self.choose: Callable[[Json], Behaviour] = lambda pod: behaviours.run
        # Names of pods whose delete is not confirmed, as on a node that is lost.
        self.keeps: set[str] = set()
        # What becomes of a PATCH of `pods/resize`; `unseen`: this node has not looked at it yet.
        self.resizes: Literal["shown", "deferred", "infeasible", "unseen"] = "shown"
        # Added to the environment of each process.
        self.environ: dict[str, str] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._begun: set[str] = set()
        # Ids of pods that are to go, or went: nothing is started of them any more.
        self._ending: set[str] = set()
        self._awake = asyncio.Event()
        self._awake.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.problems: list[Exception] = []

    # What a test tells it

    async def apply(self, name: str, behaviour: Behaviour) -> None:
        """This behaviour for a pod that is there, at once."""
        pod = await self._admin.ask("GET", pods(self.namespace, name))
        self._begun.add(pod["metadata"]["uid"])
        await behaviour(self, pod)

    async def let_go(self, name: str) -> None:
        """Confirms the delete of a pod that it kept."""
        self.keeps.discard(name)
        pod = await self._admin.get(pods(self.namespace, name))
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            await self._end(pod)

    def sleep(self) -> None:
        """It sees nothing and does nothing until `wake`; what runs goes on."""
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    async def tell_event(self, name: str, reason: str, message: str, kind: str = "Warning") -> None:
        """An event on the pod, as a kubelet writes them (FailedMount, Pulling)."""
        pod = await self._admin.ask("GET", pods(self.namespace, name))
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": self.namespace}
        about |= {"name": name, "uid": pod["metadata"]["uid"]}
        await self._admin.create(
            events(self.namespace),
            {
                "metadata": {"generateName": f"{name[:40]}."},
                "involvedObject": about,
                "reason": reason,
                "message": message,
                "type": kind,
                "source": {"component": "kubelet"},
                "firstTimestamp": behaviours.now(),
                "lastTimestamp": behaviours.now(),
                "count": 1,
            },
        )

    def log_of(self, name: str) -> Path:
        """What the pod wrote; a test may write it in its place."""
        return self._folder / f"{name}.log"

    def process_of(self, pod: Json) -> int | None:
        found = self._processes.get(pod["metadata"]["uid"])
        return None if found is None or found.returncode is not None else found.pid

    # What behaviours are made of

    async def write(self, pod: Json, status: Json) -> None:
        """Conditions are merged by their type. A pod that is gone by now has no status to write."""
        path = pods(self.namespace, pod["metadata"]["name"])
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        with gone_is_fine():
            await self._admin.patch(f"{path}/status", body, "strategic")

    def new_address(self) -> str:
        return f"127.{_DICE.randint(16, 250)}.{_DICE.randint(0, 255)}.{_DICE.randint(1, 254)}"

    async def start(self, pod: Json) -> None:
        address, uid = self.new_address(), pod["metadata"]["uid"]
        container = pod["spec"]["containers"][0]
        place = self._folder / uid
        place.mkdir()
        environment = environment_of(container, pod, address)
        with self.log_of(pod["metadata"]["name"]).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *launched(command_of(container, environment, address, place)),
                cwd=place,
                env=environment | self.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes[uid] = process
        if uid in self._ending:
            await self.kill(pod)
            return
        probe = container.get("startupProbe")
        await self.write(pod, behaviours.running(pod, address, ready=probe is None))
        self._spawn(self._attend(pod, process))
        if probe is not None:
            self._spawn(self._probe(pod, probe, address, process))

    async def _probe(self, pod: Json, probe: Json, address: str, process: asyncio.subprocess.Process) -> None:
        if await answers(probe, address, lambda: process.returncode is None):
            await self.write(pod, behaviours.running(pod, address))

    async def kill(self, pod: Json, grace_seconds: float = 0) -> int | None:
        """Its exit code; None: nothing runs of it. Nobody but the caller tells of this end."""
        process = self._processes.pop(pod["metadata"]["uid"], None)
        if process is None:
            return None
        if grace_seconds:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_seconds)
        _signal(process, signal.SIGKILL)
        return _exit_code(await process.wait())

    async def _attend(self, pod: Json, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if self._processes.get(pod["metadata"]["uid"]) is process:
            del self._processes[pod["metadata"]["uid"]]
            await self.write(pod, behaviours.ended(pod, _exit_code(code)))

    # What it does by itself

    async def watch(self) -> None:
        path = pods(self.namespace)
        while True:
            found = await self._admin.ask("GET", path)
            for pod in found["items"]:
                self._spawn(self._see(pod))
            async with contextlib.aclosing(self._admin.watch(path, found["metadata"]["resourceVersion"])) as changes:
                async for change in changes:
                    if change["type"] == "ERROR":
                        break
                    gone = change["type"] == "DELETED"
                    self._spawn(self._forget(change["object"]) if gone else self._see(change["object"]))

    async def _see(self, pod: Json) -> None:
        await self._awake.wait()
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if "nodeName" not in pod["spec"]:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if name not in self.keeps and uid not in self._ending:
                self._ending.add(uid)
                await self._end(pod)
        elif uid not in self._begun:
            self._begun.add(uid)
            await self.choose(pod)(self, pod)
        elif pod["status"].get("phase") == "Running":
            await self._resize(pod)

    async def _end(self, pod: Json) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
        code = await self.kill(pod, grace)
        # Phase first: a Job's finalizer keeps a pod that is gone without having ended.
        phase = pod["status"].get("phase")
        if phase == "Running":
            await self.write(pod, behaviours.ended(pod, code or 0))
        elif phase not in ENDED:
            await self.write(pod, {"phase": "Failed"})
        with gone_is_fine():
            await self._admin.delete(pods(self.namespace, pod["metadata"]["name"]), 0, pod["metadata"]["uid"])

    async def _forget(self, pod: Json) -> None:
        """Somebody else took it away, with grace 0."""
        self._ending.add(pod["metadata"]["uid"])
        await self.kill(pod)

    async def _resize(self, pod: Json) -> None:
        asked = [container.get("resources", {}) for container in pod["spec"]["containers"]]
        found = [status.get("resources", {}) for status in pod["status"].get("containerStatuses", [])]
        if asked == found or self.resizes == "unseen":
            return
        if self.resizes == "shown":
            await self.write(pod, {"containerStatuses": behaviours.resized(pod)})
            return
        kinds = {condition["type"] for condition in pod["status"].get("conditions", [])}
        if "PodResizePending" not in kinds:
            pending = {"type": "PodResizePending", "status": "True", "reason": self.resizes.capitalize()}
            await self.write(pod, {"conditions": [pending | {"message": "Node didn't have enough capacity: memory"}]})

    def _spawn(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._noting(doing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _noting(self, doing: Coroutine[Any, Any, None]) -> None:
        try:
            await doing
        except Exception as problem:
            self.problems.append(problem)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self._processes.values():
            _signal(process, signal.SIGKILL)
            await process.wait()


@contextlib.asynccontextmanager
async def kubelet_of(admin: Admin, namespace: str, folder: Path) -> AsyncIterator[Kubelet]:
    """At work until the end, which kills what still runs under it and tells of what went wrong in it."""
    kubelet = Kubelet(admin, namespace, folder)
    watching = asyncio.create_task(kubelet.watch())
    try:
        yield kubelet
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await kubelet.close()
    if kubelet.problems:
        raise ExceptionGroup("The tests' kubelet failed", kubelet.problems)


@contextlib.contextmanager
def gone_is_fine() -> Iterator[None]:
    """404, and 409 where another pod has the name by now."""
    try:
        yield
    except Refused as refusal:
        if refusal.code not in (404, 409):
            raise


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code
